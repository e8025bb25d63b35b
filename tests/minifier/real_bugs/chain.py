"""One real bug from a plain user script to a repro: `dump`, `triage`, `minify`, the repro in clean processes with torch
alone.

Every step is the command that a user types, in a process of its own, with default flags. A case is a file of `cases/`:
NUMBER, MODE (no_grad, plain, grad: a backward follows), RUNGS (those that may be named), SAYS (the failure's text),
CORE (what must be left, a pattern for each op), MOST (operations that may be left), and perhaps INPUTS (what `dump`
keeps of them), CHECK, MATCH (a text of the repro's output), DYNAMIC, `CALLS()` (argument lists of several calls),
DTYPE, IN_LAYER (`f` takes the hidden state) or a `middle()` of its own; IN_NO_GRAPH says why no graph shows the
failure.

>>> row = follow("007", "alone", Path("work"))
>>> row.rung, row.core, row.shown
('inductor', True, 3)
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.isolation.cache import toolchain_seed
from graphdbg.toolkit.isolation.fresh import run_command

HERE = Path(__file__).parent
CASES = {runpy.run_path(str(path))["NUMBER"]: path for path in sorted((HERE / "cases").glob("*.py"))}
WHERE = ("alone", "middle")
DUMP_S, HANG_S, STEP_S = 300.0, 150.0, 3600.0

TAIL = """

def calls():
    return globals()["CALLS"]() if "CALLS" in globals() else [inputs()]


def main():
    torch.manual_seed(0)
    function, argument_lists = @WHAT@
    compiled = torch.compile(function, dynamic=globals().get("DYNAMIC"))
    for arguments in argument_lists:
        torch.manual_seed(1)
        with torch.set_grad_enabled(MODE != "no_grad"):
            results = compiled(*arguments)
        if MODE == "grad":
            tensors = [one for one in torch.utils._pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]
            sum(one.float().sum() for one in tensors if one.requires_grad).backward()
    for one in torch.utils._pytree.tree_leaves(results):
        print(tuple(one.shape) if isinstance(one, torch.Tensor) else one)


if __name__ == "__main__":
    main()
"""
ALONE = "f, calls()"
MIDDLE = """Decoder(f, globals().get("IN_LAYER", False)).to(globals().get("DTYPE", torch.float32)).eval(), [
        (torch.randint(0, 50, (2, 16)), *([] if globals().get("IN_LAYER") else arguments)) for arguments in calls()
    ]"""
OWN = "(lambda made: (made[0].eval(), [made[1]]))(middle())"

CLEAN = """
import os, runpy, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"], sys.modules["graphdbg"] = "0", None  # torch alone
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass
class Row:
    """What became of one case: `ids` recorded, the rung that triage named, sizes, names of what is left, the repro's
    runs."""

    case: str
    where: str
    recorded: int = 0
    rung: str = ""
    right_rung: bool = False
    before: int = 0
    after: int = 0
    left: list[str] = field(default_factory=list[str])
    core: bool = False
    signature: str = ""
    same: bool = False
    shown: int = 0
    queries: int = 0
    seconds: float = 0.0
    steps: dict[str, float] = field(default_factory=dict[str, float])
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Everything that is asked of a case."""
        return bool(self.recorded and self.right_rung and self.core and self.same and self.shown == 3)


def script(case: Path, where: str) -> str:
    """The user's script: the case as it is, and how it is called."""
    text = case.read_text()
    if where == "alone":
        return text + TAIL.replace("@WHAT@", ALONE)
    if "def middle(" in text:
        return text + TAIL.replace("@WHAT@", OWN)
    _, _, decoder = (HERE / "decoder.py").read_text().partition('"""\n\n')
    return text + "\n\n" + decoder + TAIL.replace("@WHAT@", MIDDLE)


def follow(number: str, where: str, work: Path) -> Row:
    """The whole chain in `work`, which must not hold an earlier one. What goes wrong stands in `trouble`."""
    bug = runpy.run_path(str(CASES[number]))
    row = Row(number, where)
    work.mkdir(parents=True)
    (work / "x.py").write_text(script(CASES[number], where))
    began = time.monotonic()
    try:
        _dump(row, bug, work)
        _triage(row, bug, work)
        _minify(row, bug, work)
        _repro(row, bug, work)
    except Trouble as trouble:
        row.trouble = str(trouble)
    row.seconds = time.monotonic() - began
    return row


class Trouble(Exception):
    """A step that gave nothing to go on with."""


def _command(row: Row, work: Path, *words: str, limit_s: float = STEP_S) -> tuple[str, str]:
    began = time.monotonic()
    name = words[0]
    with (work / f"{name}.out").open("w") as out, (work / f"{name}.err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "graphdbg", *words], cwd=work, stdout=out, stderr=err, start_new_session=True
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: all in the foreground get it
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
    row.steps[name] = time.monotonic() - began
    return (work / f"{name}.out").read_text(), (work / f"{name}.err").read_text()


def _dump(row: Row, bug: dict[str, Any], work: Path) -> None:
    limit_s = HANG_S if bug.get("CHECK") == "hang" else DUMP_S
    kept = ["--inputs", bug["INPUTS"]] if "INPUTS" in bug else []
    _command(row, work, "dump", "-o", "r", *kept, "--", sys.executable, "x.py", limit_s=limit_s)
    out, err = _command(row, work, "ls", "r", "--json", "--full")
    row.recorded = len(json.loads(out)["graphs"]) if out else 0
    if not row.recorded:
        raise Trouble(f"nothing was recorded: {err[-300:]}")


def _triage(row: Row, bug: dict[str, Any], work: Path) -> None:
    more = ["--limit", "40"] if bug.get("CHECK") == "hang" else []
    out, err = _command(row, work, "triage", "r", "--json", "--full", *more)
    document = json.loads(out) if out else {"ladders": []}
    rungs = [ladder["first_failing"] for ladder in document["ladders"]]
    row.rung = ",".join(str(rung) for rung in rungs) or f"none: {document.get('summary', err[-200:])}"
    row.right_rung = bool(rungs) and rungs[0] in bug["RUNGS"]


def _minify(row: Row, bug: dict[str, Any], work: Path) -> None:
    more = ["--check", "hang"] if bug.get("CHECK") == "hang" else []
    out, err = _command(row, work, "minify", "r", "-o", "small", "--json", *more)
    last = json.loads(out.splitlines()[-1]) if out else {}
    if (last.get("event"), last.get("verdict")) != ("done", "fails"):
        raise Trouble(f"minify: {last.get('reason') or err[-300:]}")
    row.before, row.after, row.queries = last["original_nodes"], last["nodes"], last["queries"]
    row.signature = last["signature"] or ""
    row.same = bool(re.search(bug["SAYS"], row.signature))
    left = load_graph(work / "small" / "case").record.graph.nodes
    row.left = [node.target for node in left if node.op.startswith("call_")]
    row.core = len(row.left) <= bug["MOST"] and _holds(row.left, bug["CORE"])


def _holds(names: list[str], core: tuple[str, ...]) -> bool:
    """Whether each pattern finds an operation of its own."""
    names = list(names)
    for pattern in core:
        result = next((name for name in names if re.search(pattern, name)), None)
        if result is None:
            return False
        names.remove(result)
    return True


def _repro(row: Row, bug: dict[str, Any], work: Path) -> None:
    written = work / "small" / "repro.py"
    if not written.exists():
        raise Trouble(f"no repro: {(work / 'minify.err').read_text()[-300:]}")
    clean = work / "clean"
    clean.mkdir()
    for name in ("repro.py", "repro.safetensors"):
        if (work / "small" / name).exists():
            shutil.copy(work / "small" / name, clean)
    began = time.monotonic()
    command = [sys.executable, "-c", CLEAN, str(clean.resolve() / "repro.py")]
    for number in range(3):
        trial = run_command(command, limit_s=DUMP_S, seed=toolchain_seed())
        (work / f"repro-{number}.log").write_text(f"{trial.code}\n{trial.output}")
        row.shown += trial.code == 1 and re.search(bug.get("MATCH", bug["SAYS"]), trial.output) is not None
    row.steps["repro"] = time.monotonic() - began
