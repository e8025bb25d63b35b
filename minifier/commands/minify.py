"""`graphdbg minify`: shrinks a failing graph, its inputs and their shapes to the smallest case that fails the same way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...dumps.errors import UsageError
from ...dumps.output import emit, say
from ..options import CHECKS, HANG_LIMIT_S, Options
from .amounts import SECONDS, SIZE

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph
    from ..engine import Event
    from ..minified import Minified


@click.command()
@click.argument("graph", metavar="RUN[/ID]")
@click.option("-o", "--output", "out", metavar="OUT", help="Folder for the result; default: minified-<stage> here, numbered.")
@click.option("--rung", default="inductor", show_default=True, help="How the graph is run.")
@click.option("--check", default="auto", show_default=True, metavar="CHECK", help=f"What counts as failing: {', '.join(CHECKS)}.")
@click.option("--match", metavar="REGEX", help="The failure's text must match this, in place of its signature.")
@click.option("-j", "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Queries at the same time.")
@click.option("--seed", type=int, default=0, show_default=True, help="For inputs that were not stored, and random ops.")
@click.option("--import", "imports", multiple=True, metavar="MODULE",
              help="Import a module first, for the custom ops that it registers; can be repeated.")
@click.option("--hangs", type=SECONDS, is_flag=False, flag_value=HANG_LIMIT_S, metavar="[S]",
              help=f"It fails where it has not ended after S seconds (default {HANG_LIMIT_S:g}).")
@click.option("--slower-than", type=click.FloatRange(min=0, min_open=True), metavar="S",
              help="It fails where compile and first run take longer, from an empty code cache, one query at a time; what "
                   "is near S is measured three times, and the best counts.")
@click.option("--memory-over", type=SIZE, metavar="SIZE",
              help="It fails where compile and first run need more memory on top of what the process had: resident memory, on "
                   "CUDA what torch allocates there. Like 500MB, 2G, 2e9.")
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="S",
              help="What a query may take. Default: 600 s at first, then ten times what the original took.")
@click.option("--memory-limit", type=SIZE, metavar="SIZE", help="What a query may use. Default: what the machine has, over -j.")
@click.option("--max-time", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop after this many seconds.")
@click.option("--max-queries", type=click.IntRange(1), metavar="N", help="Stop after this many queries.")
@click.option("--resume", is_flag=True, help="Go on with an unfinished OUT; nothing that its journal knows is asked again.")
@click.option("--executor", type=click.Choice(["local", "ray"]), default="local", help="Where queries run (ray: not built yet).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per query, and one at the end.")
def minify(
    graph: str, out: str | None, resume: bool, as_json: bool, imports: tuple[str, ...], **asked: Any
) -> None:
    """Shrink a failing graph to the smallest case that fails the same way.

    \b
    Each query runs in a process of its own, so a segfault or a hang is a verdict. OUT receives
    case/, repro.py, issue.md and journal.jsonl. Ctrl-C keeps the best case so far.
    Exit code: 0 it was reduced, 1 the case does not fail, 130 interrupted (the best case is kept).
    """
    options = Options(imports=imports, **asked).checked()
    if imports and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # the fork server searches where we search
    saved = _graph(graph, options)
    folder = Path(out) if out else _free_folder(saved.stage, resume)
    raise SystemExit(_run(saved, folder, options, resume, as_json))


def _graph(name: str, options: Options) -> SavedGraph:
    """The graph that was named; of a run the one that failed, and why it is that one."""
    from ...dumps.query import resolve
    from ...dumps.store import Run
    from ...toolkit.triage.words import address
    from ..failing import failing_graph

    found = resolve(name)
    if not isinstance(found, Run):
        return found
    saved, why = failing_graph(found, seed=options.seed, imports=options.imports, told=say)
    say(f"minifying {address(saved)} ({why})")
    return saved


def _run(saved: Any, out: Path, options: Options, resume: bool, as_json: bool) -> int:
    from ..engine import Interrupted
    from ..isolated import DoesNotFailError, minify_saved

    def show(event: Event) -> None:
        if as_json:
            emit(_event(event), as_json=True)
        elif event.improved:
            size = f"{event.answer.nodes} nodes, {event.answer.input_bytes} input bytes"
            say(f"query {event.queries}: {size} ({event.step})")

    code = 0
    try:
        result = minify_saved(saved, out=out, options=options, resume=resume, on_event=show, narrate=say)
    except DoesNotFailError as error:
        say(f"graphdbg: {error}")
        return 1
    except Interrupted as interrupted:
        result, code = interrupted.minified, 130
    except KeyboardInterrupt:
        say(f"graphdbg: interrupted before anything was found; go on with --resume -o {out}")
        return 130
    _conclude(result, out, options, as_json, interrupted=code != 0)
    return code


def _conclude(result: Minified, out: Path, options: Options, as_json: bool, interrupted: bool) -> None:
    report = {} if interrupted else _report(result, out, options)
    summary = {
        "event": "done", "case": str(result.path), "nodes": result.nodes, "input_bytes": result.input_bytes,
        "original_nodes": result.original[0], "original_input_bytes": result.original[1], "queries": result.queries,
        "history": result.history, "signature": result.signature.text() if result.signature else None,
        "verified": list(result.verified), "verdicts": result.verdicts, "stopped": result.stopped, "notes": result.notes,
        "others": [{"signature": other.signature, "count": other.count} for other in result.others], **report,
    }  # fmt: skip
    if as_json:
        emit(summary, as_json=True)
        return
    for line in _lines(result, report):
        say(line)
    if interrupted:
        say(f"interrupted: go on with --resume -o {out}, or write a repro with graphdbg report {out}")
    emit(str(result.path), as_json=False)


def _lines(result: Minified, report: dict[str, Any]) -> list[str]:
    (nodes, size), (shown, times) = result.original, result.verified
    lines = [
        f"{nodes} nodes, {size} input bytes -> {result.nodes} nodes, {result.input_bytes} input bytes "
        f"in {result.queries} queries ({', '.join(f'{count} {name}' for name, count in sorted(result.verdicts.items()))})"
    ]
    if times:
        lines.append(f"verified: {shown} of {times} fresh children fail the same way")
    if result.stopped:
        lines.append(f"stopped early: {result.stopped}")
    for other in result.others:
        lines.append(f"another failure, {other.count} times, not followed: {other.signature}")
    lines += result.notes
    lines += [f"{name}: {path}" for name, path in report.items() if name in ("repro", "issue")]
    return lines


def _report(result: Minified, out: Path, options: Options) -> dict[str, Any]:
    """repro.py and issue.md beside the case; what keeps them from being written is said."""
    from ...dumps.errors import GraphdbgError
    from ...dumps.store import load_graph
    from ..report.bundle import emit_report

    assert result.path is not None and result.signature is not None
    try:
        report = emit_report(
            load_graph(result.path), out, signature=result.signature, rung=options.rung,
            original=result.original[0], imports=options.imports,
        )  # fmt: skip
    except GraphdbgError as error:
        say(f"no report was written: {error}")
        return {}
    return {"repro": str(report.repro) if report.repro else None, "issue": str(report.issue), "report_rate": report.rate}


def _event(event: Event) -> dict[str, Any]:
    answer = event.answer
    return {
        "event": "query", "queries": event.queries, "step": event.step, "case": event.candidate.text(),
        "verdict": answer.verdict.value, "signature": answer.signature, "nodes": answer.nodes,
        "input_bytes": answer.input_bytes, "seconds": answer.seconds, "improved": event.improved, "recalled": event.recalled,
    }  # fmt: skip


def _free_folder(stage: str, resume: bool) -> Path:
    if resume:
        raise UsageError("--resume needs -o", "it goes on in the folder of an unfinished minification", "add -o OUT")
    number = 1
    while (folder := Path(f"minified-{stage}" + (f"-{number}" if number > 1 else ""))).exists():
        number += 1
    return folder
