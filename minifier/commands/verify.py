"""`graphdbg verify`: runs a repro again, under a torch of the user's, once or after each build."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...dumps import temporary, written
from ...dumps.commands.options import json_option
from ...dumps.errors import CannotStartError, NeedsTrustError, UsageError, WrongKindError
from ...dumps.output import emit, say

if TYPE_CHECKING:
    from ..casefile import CaseFile
    from ..report.verify import Shown

REPRO = "repro.py"


@click.command()
@click.argument("subject", metavar="OUT|CASE")
@click.option(
    "--python", default=sys.executable, metavar="PY", help="The Python whose torch is asked. Default: graphdbg's own."
)
@click.option("--watch", is_flag=True, help="Go on: run it again each time that this torch was rebuilt, until Ctrl-C.")
@click.option(
    "--trust", is_flag=True, help="Run a repro.py that was not written on this machine, or was changed: read it first."
)
@json_option("Print one JSON document; with --watch one a line.")
def verify(subject: str, python: str, watch: bool, trust: bool, as_json: bool) -> None:
    """Run a repro again, under a torch of your own.

    OUT is a folder with a repro.py, as minify and report write it; for a case folder without one, a repro is
    written first. It is run three times in fresh processes of PY, each with a cache of its own, and needs no
    graphdbg there. With --watch it is run again after each build: when the files of that torch have changed.
    """
    from ..report.verify import builds, interpreter, torch_of

    python = interpreter(python)
    with program_of(subject, trust) as (program, known):

        def run() -> int:
            reproduction = run_again(program, python, known)
            lines = [reproduction.sentence(), *reproduction.output.strip().splitlines()]
            reportable = Path(subject).is_dir() and reproduction.says == "shows"
            report = [shlex.join(["graphdbg", "report", subject])] if reportable else []
            emit(reproduction.plain() if as_json else "\n".join(lines), as_json=as_json, next=report)
            return reproduction.exit_code

        if not watch:
            raise SystemExit(run())
        folder = torch_of(python, program).folder
        if folder is None:
            fix = "build torch once, or name another --python"
            raise CannotStartError(f"there is nothing to watch: {python} has no torch", "", fix)
        run()
        say(f"watching {folder}; Ctrl-C ends it")
        for _ in builds(folder):
            run()


def run_again(program: Path, python: str, known: CaseFile | None) -> Shown:
    """Runs the repro under the torch of that Python, with the modules that its case imports on the path."""
    from ...toolkit.isolation.imports import homes_of
    from ..report.verify import shown, torch_of

    path, rate = (homes_of(known.imports), known.rate) if known is not None else ((), None)
    return shown(program, torch_of(python, program), path=path, flaky=rate is not None and rate.flaky)


@contextmanager
def program_of(subject: str, trust: bool, imports: Sequence[str] = ()) -> Generator[tuple[Path, CaseFile | None]]:
    """Yields the repro's path, and the case file of its case or None. `imports`: modules that the user has named.
    Raises UsageError where there is no repro, or it may not be run."""
    from .. import casefile

    path = Path(subject)
    places = (path.parent / "case",) if path.is_file() else (path, path / "case")
    case = next((place for place in places if (place / casefile.NAME).is_file()), None)
    known = casefile.read(case) if case is not None else None
    beside = (path, path / REPRO, *([path.parent / REPRO] if path.name == "case" else []))
    program = next((place for place in beside if place.is_file()), None)
    again = shlex.join(["graphdbg", "verify", subject, "--trust"])
    if known is not None and not trust and not set(known.imports) <= set(imports):
        what = f"verifying {subject} imports {', '.join(map(repr, known.imports))}"
        why = "its case.json names these modules, and importing them runs their code"
        raise NeedsTrustError(what, why, f"read them, then: {again}")
    if program is not None:
        if not program.stat().st_size:
            fix = "name the folder that minify or report wrote"
            raise WrongKindError(f"cannot run {program}", "the file is empty", fix)
        if not (trust or written.here(program)):
            why = "it was not written on this machine, or was changed since"
            raise NeedsTrustError(f"will not run {program}", why, f"read it, then: {again}")
        yield program, known
        return
    if case is None or known is None or known.signature is None:
        why = "there is no such folder" if not path.exists() else f"it holds no {REPRO}, and no case that failed"
        minify = shlex.join(["graphdbg", "minify", subject])
        fix = "name a folder that minify or report wrote" if case is None else f"minify it: {minify}"
        raise WrongKindError(f"there is nothing to verify in {subject}", why, fix)
    with temporary.folder("graphdbg-repro-") as folder:
        yield _made(case, known, folder, trust), known


def _made(case: Path, known: CaseFile, folder: Path, trust: bool) -> Path:
    """Writes a repro for a case that has none; returns its path."""
    from ...dumps.store import load_graph
    from ...toolkit.isolation.imports import with_trust
    from ..report.bundle import emit_report

    assert known.signature is not None
    say(f"there is no {REPRO} beside {case}: writing one")
    original, imports = known.original.nodes if known.original else None, with_trust(known.imports, trust)
    about: dict[str, Any] = {"signature": known.signature, "rung": known.rung, "original": original}
    done = emit_report(load_graph(case), folder, **about, imports=imports)
    if done.repro is None:
        fix = f"replay it: {shlex.join(['graphdbg', 'replay', str(case)])}"
        raise UsageError(f"cannot write a repro for {case}", "; ".join(done.notes), fix)
    return done.repro
