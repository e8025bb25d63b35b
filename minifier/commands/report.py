"""`graphdbg report`: repro.py, issue.md and artifacts.zip for a failing graph, a minified case or a case folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...dumps.atomic import check_folder, free_path
from ...dumps.commands.options import json_option
from ...dumps.output import emit, say
from ...toolkit.commands.options import import_option, search_here, seed_option, trust_option
from ...toolkit.isolation.imports import TRUST, option_words, run_line, without_trust
from .verify import program_of, run_again

if TYPE_CHECKING:
    from ..report.as_test import WrittenTest


@click.command()
@click.argument("graph", metavar="RUN/ID|OUT")
@click.option("-o", "--output", metavar="DIR", help="New folder to write into. Default: graphdbg-report-N.")
@click.option("--rung", help="The rung that fails. Default: what minify found, else inductor.")
@seed_option
@import_option()
@trust_option
@click.option(
    "--preview",
    "only_look",
    is_flag=True,
    help="Say what a report shares, and whether anything of this machine is left in it; write nothing.",
)
@click.option(
    "--as-test",
    is_flag=True,
    help="Write a test in the style of PyTorch's suites instead, test_repro.py, which fails while the bug is there.",
)
@json_option()
def report(
    graph: str,
    output: str | None,
    rung: str | None,
    seed: int,
    imports: tuple[str, ...],
    only_look: bool,
    as_test: bool,
    as_json: bool,
) -> int:
    """Write repro.py, issue.md and artifacts.zip for a failing graph.

    Takes a graph of a run (as recorded: the report says that it is not minimised), a case folder, or the folder
    that minify wrote. Of that one repro.py and issue.md stay as they are; the repro is run again and artifacts.zip
    is written beside it.

    repro.py needs torch alone; it is run three times in fresh processes, and the rate is in the text. Nothing is
    overwritten, nothing is sent. The text is for PyTorch where the compiler is at fault, else for the owner of the
    line that it names.

    With --as-test it is a test instead: a TestCase that fails while the bug is there. It is run, too: it has to
    fail three times, and to pass with torch's backend eager.
    """
    from ...dumps.errors import ExistsAlreadyError, NeedsTrustError, OptionsExcludeError
    from ...dumps.program.text import CannotExpressError
    from ...dumps.store import resolve_graph
    from ...toolkit.replaying.replay import replay
    from ...toolkit.verdicts.ladder_words import address
    from ...toolkit.verdicts.verdict import with_flags
    from ...toolkit.verdicts.verdict_words import headline
    from .. import casefile
    from ..report import bundle
    from ..report.as_test import write_test_of

    if only_look:
        return _previewed(Path(graph), as_json)
    if not (output or rung or as_test) and all((Path(graph) / name).exists() for name in _WRITTEN):
        return _packed(Path(graph), imports, as_json)
    saved = resolve_graph(graph)
    graph = address(saved)
    out = Path(output) if output else free_path("graphdbg-report", bare=False)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ExistsAlreadyError(f"cannot write into {out}", "it exists already", "choose another folder with -o")
    if not out.exists():
        check_folder(out)
    known = casefile.read(saved.path)
    if as_test and known and known.check.startswith("cmd:"):
        why = "only your --check command decides whether it fails"
        raise OptionsExcludeError(f"cannot write a test for {graph}", why, "leave --as-test out")
    if known and known.signature and known.check.startswith("cmd:"):
        (shown, times), command = known.verified, known.check.removeprefix("cmd:").strip()
        done = bundle.write_report(saved, out, command, known.signature, shown=shown, times=times)
        emit(done.as_json() if as_json else f"{done.repro}\n{done.issue}", as_json=as_json)
        return done.exit_code
    if known is not None and known.imports and not without_trust(imports):
        if TRUST not in imports:
            named = shlex.join(["graphdbg", "report", graph, *option_words(known.imports)])
            what = f"reporting {graph} imports {', '.join(map(repr, known.imports))}"
            why = "its case.json names these modules, and importing them runs their code"
            raise NeedsTrustError(what, why, f"read them, then: {named} (or --trust)")
        imports = (*known.imports, *imports)
        search_here(imports)
    rung = rung or (known.rung if known else "inductor")
    signature = known.signature if known and known.rung == rung else None
    verdict = None
    if signature is None:
        say(f"finding out how {graph} fails under {rung}")
        resolved = replay(saved, rung=rung, seed=seed, outputs=False, imports=imports)
        signature, verdict = resolved.signature, resolved.verdict
        if signature is None or not verdict.failed:
            look = with_flags(f"graphdbg replay {shlex.quote(graph)} --rung {rung}", imports)
            if as_json:
                emit({"repro": "none", **verdict.then(look).flat()}, as_json=True)
            what = f"{graph} does not fail under {rung} on this machine, so there is nothing to report"
            if verdict.exit_code == 4:
                what = f"cannot judge {graph} under {rung}: {headline(verdict)}"
            say(f"graphdbg: {what}\nSee its inputs and numbers with: {look}")
            return verdict.exit_code or 1
    original = known.original.nodes if known and known.original else None
    if original is None:
        say(f"{graph} is not minimised; for a smaller report: {with_flags(f'graphdbg minify {shlex.quote(graph)}')}")
    about: dict[str, Any] = {"signature": signature, "rung": rung, "original": original, "imports": imports}
    if as_test:
        try:
            return _tested(write_test_of(saved, out, **about, verdict=verdict), as_json)
        except CannotExpressError as error:
            say(f"graphdbg: {error.said}")
            if as_json:
                failed = {"test": None, "repro": "none", "reason": str(error), "code": error.code}
                emit(failed, as_json=True, next=[shlex.join(["graphdbg", "report", graph])])
            return 1
    done = bundle.emit_report(saved, out, **about, with_artifacts=True, verdict=verdict)
    tried = run_line(str(done.repro), imports)
    if as_json:
        emit(done.as_json() | {"next": [tried] if done.repro else []}, as_json=True)
    else:
        written = [path for path in (done.repro, done.sidecar, done.issue, done.artifacts) if path]
        emit("\n".join(str(path) for path in written), as_json=False)
    say("The report holds parts of your program: read issue.md through before you publish it.")
    if done.repro:
        say(f"{done.repro} {done.sentence}\nTry it: {tried}")
    return done.exit_code


_WRITTEN = ("repro.py", "issue.md", "case")
"""What minify leaves where it wrote a report."""


def _packed(out: Path, imports: Sequence[str], as_json: bool) -> int:
    """Runs the repro of an existing report again, and writes artifacts.zip where it is missing."""
    from ...dumps.pack.redact import Redactor
    from ...dumps.store import load_graph
    from ..report.bundle import pack

    with program_of(str(out), TRUST in imports, without_trust(imports)) as (program, known):
        packed = run_again(program, sys.executable, known)
    sidecar, issue, archive = program.with_suffix(".safetensors"), out / "issue.md", out / "artifacts.zip"
    notes: list[str] = []
    if archive.exists():
        say(f"{archive} is there already and stays as it is")
    else:
        beside = sidecar if sidecar.is_file() else None
        notes = pack(load_graph(out / "case"), (program, beside, issue), archive, Redactor())
    paths = {"repro_path": str(program), "issue": str(issue), "artifacts": str(archive)}
    tried = run_line(str(program), known.imports if known else ())
    emit(packed.plain() | paths if as_json else "\n".join(paths.values()), as_json=as_json, next=[tried])
    say(packed.sentence())
    for note in notes:
        say(note)
    say("The report holds parts of your program: read issue.md through before you publish it.")
    return packed.exit_code


def _tested(done: WrittenTest, as_json: bool) -> int:
    """Prints what the written test shows; returns the exit code."""
    tried = shlex.join(["python", str(done.test)])
    written = "\n".join(str(path) for path in (done.test, done.sidecar) if path)
    emit(done.plain() if as_json else written, as_json=as_json, next=[tried])
    say(f"the test fails in {done.rate}" + ("; it passes with backend eager" if done.passes_in_eager else ""))
    if done.passes_in_eager is False:
        say("it also fails with backend eager, so it proves nothing")
    if done.says != "shows":
        say(f"the repro is the proof, this test is not:\n{done.output}")
        return 1
    say(f"Try it: {tried}")
    return 0


def _previewed(folder: Path, as_json: bool) -> int:
    """Prints what an existing report shares, or what a new one would; returns the exit code."""
    from ..report.issue import PRIVACY, Preview, ahead

    preview = Preview.of(folder)
    texts = preview.sentences() if preview.is_there else ahead(str(folder))
    plain = preview.as_json() if preview.is_there else {"folder": None, "says": texts, "warning": PRIVACY}
    after = [shlex.join(["graphdbg", "verify" if preview.is_there else "report", str(folder)])]
    emit(plain if as_json else "\n".join([*texts, PRIVACY]), as_json=as_json, next=after)
    return 1 if preview.is_there and preview.leaks else 0
