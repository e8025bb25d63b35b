"""`graphdbg report`: repro.py, issue.md and artifacts.zip for a failing graph, a minified case or a case folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ...dumps.atomic import free_path
from ...dumps.commands.options import json_option
from ...dumps.output import emit, say
from ...toolkit.commands.options import import_option, search_here, seed_option, trust_option
from ...toolkit.imports import TRUST, option_words, without_trust


@click.command()
@click.argument("graph", metavar="RUN/ID|OUT")
@click.option("-o", "--output", metavar="DIR", help="New folder to write into. Default: graphdbg-report-N.")
@click.option("--rung", help="The rung that fails. Default: what minify found, else inductor.")
@seed_option
@import_option()
@trust_option
@click.option("--preview", "only_look", is_flag=True,
              help="Say what a report shares, and whether anything of this machine is left in it; write nothing.")
@click.option("--verify", "again", is_flag=True,
              help="Of a report that is there: run its repro.py three times in fresh processes.")
@json_option()
def report(
    graph: str, output: str | None, rung: str | None, seed: int, imports: tuple[str, ...], only_look: bool, again: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Write repro.py, issue.md and artifacts.zip for a failing graph.

    \b
    Takes a graph of a run (as recorded: the report says that it is not minimised), the folder
    that minify wrote, or a case folder. repro.py needs torch alone; it is run three times in
    fresh processes, and the rate is in the text. Nothing is overwritten, nothing is sent. The text
    is for PyTorch where the compiler is at fault, else for who owns the line that it names.
    Exit code: 0 the repro shows the failure every time (a flaky one at its own rate), 1 it does not,
    or the graph does not fail, 4 that cannot be told.
    """
    from ...dumps.errors import UsageError
    from ...dumps.store import resolve_graph
    from ...toolkit.next_command import with_flags
    from ...toolkit.replay import replay
    from ...toolkit.triage.words import address
    from ...toolkit.verdict_words import headline
    from ..report import bundle, by_command, casefile

    if only_look or again:
        return _written(Path(graph), again, as_json)
    saved = resolve_graph(graph)
    graph = address(saved)
    out = Path(output) if output else free_path("graphdbg-report", bare=False)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"cannot write into {out}", "it exists already", "choose another folder with -o")
    known = casefile.read(saved.path)
    if known and known.signature and known.check.startswith("cmd:"):
        shown, times = known.verified
        done = by_command.write_report(
            saved, out, known.check.removeprefix("cmd:").strip(), known.signature, shown=shown, times=times
        )
        emit(done.as_json() if as_json else f"{done.repro}\n{done.issue}", as_json=as_json)
        return done.exit_code
    if known is not None and known.imports and not without_trust(imports):
        if TRUST not in imports:
            named = shlex.join(["graphdbg", "report", graph, *option_words(known.imports)])
            what = f"reporting {graph} imports {', '.join(map(repr, known.imports))}"
            why = "its case.json says so, and nobody has said it here"
            raise UsageError(what, why, f"read it, then say it again: {named} (or --trust)")
        imports = (*known.imports, *imports)
        search_here(imports)
    rung = rung or (known.rung if known else "inductor")
    signature, verdict = known.signature if known and known.rung == rung else None, None
    if signature is None:
        say(f"finding out how {graph} fails under {rung}")
        found = replay(saved, rung=rung, seed=seed, outputs=False, imports=imports)
        signature, verdict = found.signature, found.verdict
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
        say(f"{graph} is not minimised; for a smaller report: {with_flags(f'graphdbg minify {graph}')}")
    done = bundle.emit_report(saved, out, signature=signature, rung=rung, original=original, with_artifacts=True,
                              imports=imports, verdict=verdict)  # fmt: skip
    if as_json:
        emit(done.as_json(), as_json=True)
    else:
        written = [path for path in (done.repro, done.sidecar, done.issue, done.artifacts) if path]
        emit("\n".join(str(path) for path in written), as_json=False)
    say("The report holds parts of your program: read issue.md through before you publish it.")
    if done.repro:
        say(f"{done.repro} {done.told}\nTry it: python {shlex.quote(str(done.repro))}")
    return done.exit_code


def _written(folder: Path, again: bool, as_json: bool) -> int:
    """Looks at a report that is there, or runs its program again."""
    from ...dumps.errors import UsageError
    from ..report.preview import REPRO, Preview, ahead, warning

    found = Preview.of(folder)
    if not found.is_there and not again:
        told = ahead(str(folder))
        emit({"folder": None, "says": told, "warning": warning()} if as_json else "\n".join([*told, warning()]), as_json=as_json)
        return 0
    if not found.is_there:
        why = "it has neither issue.md nor repro.py"
        raise UsageError(f"there is no report in {folder}", why, f"write one: graphdbg report {folder}")
    if not again:
        emit(found.as_json() if as_json else "\n".join([*found.sentences(), warning()]), as_json=as_json)
        return 1 if found.leaks else 0
    if not found.repro:
        raise UsageError(f"there is no {REPRO} in {folder}", "issue.md says why", "write the report anew into another folder")
    from ...toolkit.isolation.cache import toolchain_seed
    from ..report.verify import UNSURE, verify

    done = verify(folder / REPRO, seed=toolchain_seed())
    codes = [trial.code for trial in done.trials]
    facts = {
        "repro": str(folder / REPRO), "shown": done.shown, "times": len(codes), "codes": codes, "output": done.output.strip(),
    }  # fmt: skip
    emit(facts if as_json else f"{folder / REPRO}: the bug shows in {done.rate}\n{done.output}", as_json=as_json)
    return 0 if done.shown == len(codes) else 4 if set(codes) == {UNSURE} else 1
