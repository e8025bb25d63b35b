"""`graphdbg replay`: a saved graph, or every graph of a run, run again in isolation and judged."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from ...dumps.answers import found as keep_found
from ...dumps.commands.options import json_option
from ...dumps.errors import GraphdbgError, NotRegisteredError, OptionsExcludeError, UsageError
from ...dumps.output import emit, say
from ...dumps.store import Run, SavedGraph, resolve, resolve_graph
from ...dumps.wording import counted
from ...dumps.worst import keep, no_graphs
from ..isolation import opened
from ..live.how import How
from ..node_values.seen import STAGES, heading, line
from ..rungs import warmth
from ..verdicts import verdict_words
from ..verdicts.ladder_words import address, run_address
from ..verdicts.outcome import Outcome
from ..verdicts.verdict import UNLIKE, abandoned, unloadable, with_flags, with_trust_for, worst
from ..verdicts.verdict_words import first_line, headline, known, memory_needed, whose_nan
from .options import check_option, device_option, import_option, limit_option, rung_option, seed_option, trust_option


@click.command()
@click.argument("graph", metavar="RUN[/ID]")
@rung_option
@seed_option
@device_option
@limit_option("Seconds that one replay may take.")
@check_option
@import_option()
@trust_option
@click.option(
    "--stats", is_flag=True, help="Also print a table of every node's eager value: range, mean, spread, NaN, Inf."
)
@click.option(
    "--values",
    is_flag=True,
    help="Instead of judging, read each node's value under the rung: range, NaN, error to float64.",
)
@click.option(
    "--at",
    "node",
    metavar="NODE",
    help="Stand at a node: what it was given, what it made; at a terminal, a Python prompt there.",
)
@json_option()
@click.option(
    "--json-lines", "as_lines", is_flag=True, help="Print a JSON object a line as things happen (docs/json-lines.md)."
)
def replay(
    graph: str,
    rung: str,
    check: str,
    stats: bool,
    values: bool,
    node: str | None,
    as_json: bool,
    as_lines: bool,
    **how: Any,
) -> None:
    """Run a saved graph again under a rung of the ladder and judge the result against eager and float64.

    Each replay runs in a process of its own with a time limit; a segfault or a hang is a verdict. Given a run,
    replays every graph in it and lists the failing ones first.

    FIDELITY says whether Inductor makes the same post-grad graph and code as in the recorded run. Where it is known
    that this is not the run's program, the verdict says so, and a failure that the run did not have does not count.

    With --values a compiled program returns its values as extra outputs, which makes it another program: the answer
    says whether it then still fails the same way.

    With --at it shows the inputs and the value of one node, eager's and the rung's, with the error to float64. At a
    terminal (without --json) a Python prompt follows, in a process of its own: inputs, value, node, gm, eager,
    torch.
    """
    from ..replaying.node_stats import node_rows

    views = {"--at": node is not None, "--values": values, "--stats": stats, "--json-lines": as_lines and not values}
    chosen = [option for option, given in views.items() if given]
    if len(chosen) > 1:
        what = f"{chosen[0]} and {chosen[1]} cannot be used together"
        raise OptionsExcludeError(what, "each prints in a form of its own", "leave one out")
    asked = How(**how)
    if node is not None:
        raise SystemExit(_show_at(resolve_graph(graph), node, rung, asked, check, as_json))
    if values:
        raise SystemExit(_show_values(resolve_graph(graph), graph, rung, asked, as_json=as_json, as_lines=as_lines))
    target = resolve_graph(graph) if stats else resolve(graph)
    graphs = graphs_in(target)
    options = {**how, "rung": rung, "check": check}
    rows: list[dict[str, Any]] = []
    with opened(None, warmth(rung)) as server:
        judged = [(saved, _one(saved, options, server, narrate=len(graphs) > 1, as_lines=as_lines)) for saved in graphs]
        if stats:
            rows = list(node_rows(graphs[0], asked, server=server))
    if rung == "inductor":
        keep(graphs[0].run, {saved.id: known(outcome.verdict) for saved, outcome in judged})
    judged.sort(key=rank)
    if as_lines:
        failing = [saved.id for saved, outcome in judged if outcome.verdict.failed]
        verdict = worst(outcome.verdict for _, outcome in judged)
        emit({"event": "end", "graphs": len(judged), "failing": failing, **verdict.flat()}, as_json=True)
    elif isinstance(target, SavedGraph):
        _show_one(*judged[0], rows, as_json)
    else:
        _show_all(judged, as_json)
    verdict = worst(outcome.verdict for _, outcome in judged)
    code = 1 if verdict.sought(check) else verdict.exit_code
    lines = [{"event": "graph", **_row(*pair), "address": address(pair[0])} for pair in judged]
    keep_found(graph, lines[0]["address"] if isinstance(target, SavedGraph) else run_address(target), lines, code)
    raise SystemExit(code)


def graphs_in(run: SavedGraph | Run) -> list[SavedGraph]:
    """The graph that was named, or those of a run. Raises UsageError where it has none."""
    if isinstance(run, SavedGraph):
        return [run]
    graphs = run.graphs()
    if not graphs:
        raise no_graphs(run)
    kept = [graph for graph in graphs if graph.status != "skipped"]
    if len(kept) < len(graphs):
        left = counted(len(graphs) - len(kept), "graph")
        say(f"left out: {left} that the compiler itself gave up (Dynamo started over)")
    return kept


def _one(saved: SavedGraph, options: dict[str, Any], server: Any, *, narrate: bool, as_lines: bool = False) -> Outcome:
    from ..replaying.replay import replay as run

    try:
        given_up = saved.status == "skipped"
        options = options | {"outputs": False, "measured": options["check"] == "memory"}
        outcome = Outcome(abandoned(saved.error)) if given_up else run(saved, **options, server=server)
    except GraphdbgError as error:
        again = with_trust_for(saved, f"graphdbg replay {address(saved)}")
        if isinstance(error, UsageError) or not (narrate or isinstance(error, NotRegisteredError)):
            raise
        outcome = Outcome(unloadable(error, saved.path).then(again), rung=options["rung"])
    if as_lines:
        emit({"event": "graph", **_row(saved, outcome)}, as_json=True)
    elif narrate:
        say(f"{saved.id}: {headline(outcome.verdict)}")
    return outcome


def _row(saved: SavedGraph, outcome: Outcome) -> dict[str, Any]:
    plain = msgspec.to_builtins(outcome)
    keys = ("signature", "seconds", "fidelity", "unlike", "rung", "peak_bytes")
    row: dict[str, Any] = {"id": saved.id, "stage": saved.stage, **{key: plain.get(key) for key in keys}}
    row |= {"ok": outcome.ok, "text": outcome.text, "errors": plain.get("errors", []), "notes": outcome.notes}
    row |= {"nan": outcome.nan, "eager_nan": outcome.eager_nan, **outcome.verdict.flat()}
    if outcome.needed_bytes:
        row |= {"needed_bytes": outcome.needed_bytes, "eager_bytes": outcome.eager_bytes}
    if outcome.signature_id:
        row["signature_id"] = outcome.signature_id
    if _printed(outcome):
        row["output"] = outcome.output
    return row


def _printed(outcome: Outcome) -> bool:
    """Whether a process died or could not judge, so that its output is shown."""
    return not outcome.ok and outcome.signature is not None and outcome.signature.kind in ("signal", "hang", "error")


_STAGE = (
    "forward",
    "inference",
    "backward",
    "post_grad_forward",
    "post_grad_inference",
    "post_grad_backward",
    "joint_passed",
    "joint",
    "pre_grad",
    "dynamo",
)
"""Which stage to look at first when several fail alike: the narrowest that the inner compiler takes as it is."""


def rank(judged: tuple[SavedGraph, Outcome]) -> tuple[tuple[int, int], int, float]:
    """Sort key: failing graphs first, by verdict, stage and size of the error; then graphs that differ from the
    recording; then the rest.
    """
    saved, outcome = judged
    if outcome.ok:
        differs = (outcome.fidelity or "").startswith("different")
        return verdict_words.rank(outcome.verdict), int(not differs), 0.0
    stage = _STAGE.index(saved.stage) if saved.stage in _STAGE else len(_STAGE)
    return verdict_words.rank(outcome.verdict), stage, -(outcome.signature.size or 0.0 if outcome.signature else 0.0)


def _show_one(saved: SavedGraph, outcome: Outcome, stats: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        emit(_row(saved, outcome) | ({"stats": stats} if stats else {}), as_json=True)
        return
    lines = [first_line(outcome.verdict) + _aside(outcome), ""]
    lines += [f"{what:<10} {said}" for what, said in facts(outcome)]
    lines += [f"next       {command}" for command in outcome.verdict.next]
    if stats:
        from ..replaying.node_stats import table

        lines += ["", *table(stats)]
    emit("\n".join(lines), as_json=False)
    if _printed(outcome) and outcome.output:
        say(outcome.output)


def facts(outcome: Outcome) -> list[tuple[str, str]]:
    """The rows about an outcome below its first line, as (label, text)."""
    rows = [("verdict", outcome.text)]
    if outcome.signature is not None:
        named = f" ({outcome.signature_id})" if outcome.signature_id else ""
        rows.append(("signature", outcome.signature.text() + named))
    rows += [("seconds", f"{outcome.seconds:.2f}")] if outcome.seconds else []
    rows += [("fidelity", outcome.fidelity)] if outcome.fidelity else []
    return [*rows, *_beside(outcome), *(("note", note) for note in outcome.notes)]


def _beside(outcome: Outcome) -> list[tuple[str, str]]:
    """The rows about memory and NaN, where the outcome has any."""
    needed = memory_needed(outcome.needed_bytes, outcome.eager_bytes) if outcome.needed_bytes else ""
    said = [("memory", needed), ("nan", whose_nan(outcome.rung, outcome.nan, outcome.eager_nan))]
    return [row for row in said if row[1]]


def _show_at(saved: SavedGraph, node: str, rung: str, how: How, check: str, as_json: bool) -> int:
    """Prints the values at a node, and opens a prompt where stdin and stdout are terminals; returns the exit code."""
    from ..node_values.at_node import AtNode, at_node, lines

    graph = address(saved)

    def show(reading: AtNode) -> None:
        if as_json:
            plain = {"graph": graph, "node": node, "rung": rung, "line": reading.line, **reading.at}
            emit({**plain, "stopped": reading.stopped or reading.alone, **reading.outcome.verdict.flat()}, as_json=True)
            return
        verdict = reading.outcome.verdict
        printed = [*lines(reading, node, graph, rung), "", f"the graph under {rung}: {first_line(verdict)}"]
        emit("\n".join([*printed, *(f"next: {command}" for command in verdict.next)]), as_json=False)

    person = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    return at_node(saved, node, rung, how, check=check, report=show, terminal=(0, 1) if person else None).exit_code


def _aside(outcome: Outcome) -> str:
    """The sentence that this was not the run's program, where the verdict does not say so itself."""
    return f" (not the run's program: {outcome.unlike})" if outcome.unlike and outcome.verdict.detail != UNLIKE else ""


def _show_all(judged: list[tuple[SavedGraph, Outcome]], as_json: bool) -> None:
    verdict = worst(outcome.verdict for _, outcome in judged)
    if as_json:
        emit({**verdict.flat(), "graphs": [_row(*pair) for pair in judged]}, as_json=True)
        return
    alike = [outcome for _, outcome in judged if outcome.verdict.verdict == verdict.verdict]
    emit(first_line(verdict, len(alike), len(judged)) + "\n", as_json=False)
    width = max((len(saved.id) for saved, _ in judged), default=0)
    for saved, outcome in judged:
        fidelity = (outcome.fidelity or "-").splitlines()[0]
        said = f"{headline(outcome.verdict)}{_aside(outcome)}"
        emit(f"{saved.id:<{width}}  {outcome.seconds:6.2f} s  {said}  [fidelity: {fidelity}]", as_json=False)
        for _, more in _beside(outcome):
            emit(f"{'':<{width}}  {more}", as_json=False)
    bad = [saved for saved, outcome in judged if outcome.verdict.failed]
    first = f"; look at {with_flags(f'graphdbg replay {address(bad[0])}')} first" if bad else ""
    say(f"{counted(len(judged), 'graph')}, {len(bad)} failing{first}")


def _show_values(saved: SavedGraph, asked: str, rung: str, how: How, *, as_json: bool, as_lines: bool) -> int:
    """Prints the values as they come; `asked`: the graph as it was typed. Returns the exit code: 0 nothing is wrong, 1
    something is, or they could not be read."""
    from ..node_values.at_node import node_values

    events: list[dict[str, Any]] = []
    top = f"{heading()}\n"
    for event in node_values(saved, rung, how):
        events.append(event)
        if as_lines:
            emit(event, as_json=True)
        elif event["event"] == "stage":
            say(STAGES.get(str(event["stage"]), ""))
        elif event["event"] == "plain":
            say(f"{rung}: {event['text']}")
        elif event["event"] == "value" and not as_json:
            emit(top + line(event), as_json=False)
            top = ""
    end = events[-1]
    if as_json:
        rows = [event for event in events if event["event"] == "value"]
        plain = [{key: value for key, value in row.items() if key != "event"} for row in rows]
        whole = {key: value for key, value in end.items() if key not in ("event", "rows")}
        emit({**whole, "rows": plain}, as_json=True)
    elif not as_lines:
        for note in end["notes"]:
            say(f"note: {note}")
        emit(f"\n{end['sentence']}" + "".join(f"\nNext: {command}" for command in end["next"]), as_json=False)
    keep_found(asked, address(saved), events, int(end["failed"]))
    return 1 if end["failed"] else 0
