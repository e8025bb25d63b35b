"""The report of a case that the user's command decides on: a repro.py that runs the command on case/, and issue.md.

No rung is involved, so no program in plain torch is searched for. Runs nothing: the verification has done that.

For example: `write_report(load_graph("small/case"), Path("small"), "./test.sh {case}", signature, shown=3, times=3)`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ...dumps import written
from ...dumps.atomic import write_file
from ...dumps.errors import ExistsAlreadyError
from ...dumps.pack.redact import Redactor
from ...dumps.store import SavedGraph
from ...dumps.walk import node_count
from ...toolkit.verdicts.identity import of_record
from ...toolkit.verdicts.signature import Signature
from ...toolkit.verdicts.verdict import Verdict
from .. import casefile
from . import environment, issue

PROGRAM = '''"""Runs the command that found this failure on the case beside it, case/. Made by graphdbg.
Signature {which}.

Exit code 1 while the command ends as it did ({ending}), 0 when it ends with 0, 2 else (with --git-bisect 125).
With --without-fault it is 2: only the command knows what the fault is.
The command is run where you are; case/graph.py is the graph as a program, case/graph.json and case/tensors/ are what
graphdbg.load_graph reads.
"""

import pathlib
import shlex
import signal
import subprocess
import sys

COMMAND = {command!r}
ENDING = {ending!r}

UNSURE = 125 if "--git-bisect" in sys.argv else 2
if "--without-fault" in sys.argv:
    print("cannot tell: only the command knows what the fault is")
    sys.exit(UNSURE)
case = pathlib.Path(__file__).resolve().parent / "case"
command = COMMAND.replace("{{case}}", shlex.quote(str(case)))
print("$", command, flush=True)
code = subprocess.run(command, shell=True).returncode
number = -code if code < 0 else code - 128
found = f"signal {{signal.Signals(number).name}}" if number in set(signal.Signals) else f"exit code {{code}}"
print(found)
sys.exit(1 if found == ENDING else 0 if code == 0 else UNSURE)
'''


def write_report(
    saved: SavedGraph, out: Path, command: str, signature: Signature, *, shown: int = 0, times: int = 0
) -> issue.Report:
    """Writes OUT/repro.py and OUT/issue.md, and a copy of the case as OUT/case where it lies elsewhere.

    `shown` of `times` runs of the command on the case failed. Raises UsageError where one of them exists.
    """
    taken = [name for name in ("repro.py", "issue.md") if (out / name).exists()]
    if taken:
        raise ExistsAlreadyError(f"cannot write {out / taken[0]}", "it exists already", "choose another folder with -o")
    out.mkdir(parents=True, exist_ok=True)
    if (out / "case").resolve() != saved.path.resolve():
        shutil.copytree(saved.path, out / "case")
    known = casefile.read(saved.path)
    ending = signature.detail or signature.kind
    report = issue.Report(out, out / "issue.md", out / "repro.py", entry=command, shown=shown, times=times)
    report.flaky = bool(known and known.rate and known.rate.flaky)
    report.verdict = (known.record if known else None) or Verdict("fails", reason=f"the command: {ending}")
    report.nodes = node_count(saved.record.graph)
    report.original_nodes = known.original.nodes if known and known.original else None
    report.signature_id = of_record(signature, saved.record, reduced=report.original_nodes is not None).id
    program = PROGRAM.format(command=command, ending=ending, which=report.signature_id)
    write_file(out / "repro.py", program.encode())
    written.remember(out / "repro.py")
    facts = issue.IssueFacts(
        report,
        saved.record,
        known,
        Verdict("fails", reason=report.verdict.reason),
        title=f"{issue.one_line(command, 60)}: {ending}",
        symptom=f"`{command}` ends with {ending} on the case in case/ (graph.py there is its text).",
        layer="as the command says",
        stage=saved.record.stage,
        entry="the command",
        log=signature.raw,
        versions=environment.versions_text(),
    )
    write_file(report.issue, issue.render(facts, Redactor()).encode())
    return report
