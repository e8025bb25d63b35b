"""`graphdbg replay`: a saved graph, or every graph of a run, run again in isolation and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...dumps.errors import GraphdbgError, UsageError
from ...dumps.output import emit, say
from ...dumps.wording import counted
from ..nan_found import sentence
from ..rungs.names import NAMES
from ..trusting import trust_option

if TYPE_CHECKING:
    from ...dumps.store import Run, SavedGraph
    from ..outcome import Outcome


@click.command()
@click.argument("graph", metavar="RUN[/ID]")
@click.option("--rung", type=click.Choice(NAMES), default="inductor", show_default=True, help="How to run the graph.")
@click.option("--seed", type=int, default=0, show_default=True, help="For inputs that were not stored, and random ops.")
@click.option("--device", metavar="DEVICE", help="Move graph and inputs there first, for instance cpu.")
@click.option("--limit", "limit_s", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True, metavar="S",
              help="Seconds that one replay may take.")  # fmt: skip
@click.option("--check", default="auto",
              type=click.Choice(["auto", "crash", "accuracy", "nan", "metadata", "missing-error", "hang", "memory"]),
              show_default=True, help="What to compare after the run.")  # fmt: skip
@click.option("--import", "imports", multiple=True, metavar="MODULE",
              help="Import a module first, for the custom ops that it registers; can be repeated.")  # fmt: skip
@trust_option
@click.option("--stats", is_flag=True, help="Also print a table of every node's eager value: range, mean, spread, NaN, Inf.")
@click.option("--values", is_flag=True,
              help="Instead of judging, read each node's value under the rung: range, NaN, error to float64.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--json-lines", "as_lines", is_flag=True, help="Print a JSON object a line as things happen (docs/json-lines.md).")
def replay(
    graph: str, rung: str, seed: int, device: str | None, limit_s: float, check: str, imports: tuple[str, ...], stats: bool,
    values: bool, as_json: bool, as_lines: bool,
) -> None:  # fmt: skip
    """Run a saved graph again under a rung of the ladder and judge the result against eager and float64.

    \b
    Each replay runs in a process of its own with a time limit; a segfault or a hang is a verdict.
    Given a run, replays every graph in it and lists the failing ones first.
    FIDELITY says whether Inductor made the same post-grad graph and code as in the recorded run.
    With --values a compiled program returns its values as extra outputs, which makes it another program: whether it
    then still fails the same way is said.
    Exit code: 0 nothing failed, 1 a failure was reproduced or no verdict was possible.
    """
    import sys
    from pathlib import Path

    from ...dumps.query import resolve
    from ...dumps.store import SavedGraph
    from ..node_stats import node_rows
    from ..replay import server_for

    if imports and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # the fork server searches where we search
    found = resolve(graph)
    if values:
        if not isinstance(found, SavedGraph):
            raise UsageError("--values is for one graph", f"{graph} is a run", f"name one as {graph}/ID")
        from .values import show_values

        raise SystemExit(show_values(found, rung, seed, device, limit_s, imports, as_json=as_json, as_lines=as_lines))
    graphs = [found] if isinstance(found, SavedGraph) else _graphs(found)
    if stats and not isinstance(found, SavedGraph):
        raise UsageError("--stats is for one graph", f"{graph} is a run of {len(graphs)}", f"name one as {graph}/ID")
    options = {"rung": rung, "seed": seed, "device": device, "limit_s": limit_s, "check": check, "imports": imports}
    with server_for(rung) as server:
        rows = [_one(saved, options, server, tell=len(graphs) > 1, as_lines=as_lines) for saved in graphs]
        if stats:
            about = {"seed": seed, "device": device, "limit_s": limit_s, "imports": imports}
            rows[0]["stats"] = list(node_rows(graphs[0], **about, server=server))
    if as_lines:
        failing = [row["id"] for row in sorted(rows, key=rank) if not row["ok"]]
        emit({"event": "end", "graphs": len(rows), "failing": failing}, as_json=True)
    elif isinstance(found, SavedGraph):
        _show_one(rows[0], as_json)
    else:
        _show_all(rows, as_json)
    raise SystemExit(0 if all(row["ok"] for row in rows) else 1)


def _graphs(run: Run) -> list[SavedGraph]:
    graphs = run.graphs()
    if not graphs:
        raise UsageError(
            f"{run.path} holds no graphs",
            "nothing was compiled, or nothing could be saved",
            f"see graphdbg ls {run.path}",
        )
    kept = [graph for graph in graphs if graph.status != "skipped"]
    if len(kept) < len(graphs):
        say(f"left out: {counted(len(graphs) - len(kept), 'graph')} that the compiler itself gave up (Dynamo started over)")
    return kept


def _one(saved: SavedGraph, options: dict[str, Any], server: Any, *, tell: bool, as_lines: bool = False) -> dict[str, Any]:
    from ..replay import replay as run

    try:
        outcome = run(saved, **options, outputs=False, server=server)
    except GraphdbgError as error:
        if not tell:
            raise
        row = {
            "id": saved.id, "stage": saved.stage, "ok": False, "verdict": f"cannot judge: {error}", "signature": None,
            "seconds": 0.0, "fidelity": None, "errors": [], "notes": [], "rung": options["rung"],
            "nan": [], "eager_nan": [],
        }  # fmt: skip
    else:
        row = _row(saved, outcome)
    if as_lines:
        emit({"event": "graph", **row}, as_json=True)
    elif tell:
        say(f"{row['id']}: {row['verdict'].splitlines()[0]}")
    return row


def _row(saved: SavedGraph, outcome: Outcome) -> dict[str, Any]:
    import msgspec

    plain = msgspec.to_builtins(outcome)
    keys = ("ok", "verdict", "signature", "seconds", "fidelity", "errors", "notes", "rung", "peak_bytes")
    row: dict[str, Any] = {"id": saved.id, "stage": saved.stage, **{key: plain.get(key) for key in keys}}
    row |= {"ok": outcome.ok, "errors": plain.get("errors", []), "notes": outcome.notes}
    row |= {"nan": outcome.nan, "eager_nan": outcome.eager_nan}
    if not outcome.ok and outcome.signature is not None and outcome.signature.kind in ("signal", "hang", "error"):
        row["output"] = outcome.output
    return row


_RANK = {
    "crash": 0,
    "signal": 0,
    "hang": 1,
    "memory": 1,
    "nan": 2,
    "accuracy": 3,
    "metadata": 4,
    "missing_error": 4,
    "nondeterministic": 6,
    "error": 7,
}


_STAGE = ("forward", "inference", "backward", "post_grad_forward", "post_grad_inference", "post_grad_backward", "joint_passed",
          "joint", "pre_grad", "dynamo")  # fmt: skip
"""Which stage to look at first when several fail alike: the narrowest that the inner compiler takes as it is."""


def rank(row: dict[str, Any]) -> tuple[int, int, float]:
    """Failing graphs first: crashes, hangs, NaN, wrong numbers by size, metadata, missing errors; then what differs
    from the recording; then the rest.
    """
    stage = _STAGE.index(row["stage"]) if row.get("stage") in _STAGE else len(_STAGE)
    signature = row["signature"]
    if signature is not None:
        return _RANK.get(signature["kind"], 5), stage, -(signature.get("size") or 0.0)
    if not row["ok"]:
        return 8, stage, 0.0
    return (9 if str(row["fidelity"]).startswith("different") else 10), stage, 0.0


def _show_one(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(row, as_json=True)
        return
    lines = [f"verdict    {row['verdict']}"]
    if row["signature"]:
        import msgspec

        from ..signature import Signature

        lines.append(f"signature  {msgspec.convert(row['signature'], Signature).text()}")
    if row["seconds"] is not None:
        lines.append(f"seconds    {row['seconds']:.2f}")
    if row["fidelity"]:
        lines.append(f"fidelity   {row['fidelity']}")
    if found := sentence(row["rung"], row["nan"], row["eager_nan"]):
        lines.append(f"nan        {found}")
    lines += [f"note       {note}" for note in row["notes"] or ()]
    if row.get("stats"):
        from ..node_stats import table

        lines += ["", *table(row["stats"])]
    emit("\n".join(lines), as_json=False)
    if row.get("output"):
        say(row["output"])


def _show_all(rows: list[dict[str, Any]], as_json: bool) -> None:
    ranked = sorted(rows, key=rank)
    if as_json:
        emit({"graphs": ranked}, as_json=True)
        return
    width = max(len(row["id"]) for row in ranked)
    for row in ranked:
        fidelity = str(row["fidelity"] or "-").splitlines()[0]
        emit(
            f"{row['id']:<{width}}  {row['seconds'] or 0.0:6.2f} s  {row['verdict'].splitlines()[0]}  [fidelity: {fidelity}]",
            as_json=False,
        )
        if found := sentence(row["rung"], row["nan"], row["eager_nan"]):
            emit(f"{'':<{width}}  {found}", as_json=False)
    bad = [row for row in ranked if not row["ok"]]
    say(f"{counted(len(ranked), 'graph')}, {len(bad)} failing" + (f"; look at {bad[0]['id']} first" if bad else ""))
