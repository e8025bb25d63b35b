"""`graphdbg check`: the metadata checker on a saved graph, or on every graph of a run."""

from __future__ import annotations

from typing import Any

import click

from ...dumps.answers import found as keep_found
from ...dumps.commands.options import json_option
from ...dumps.errors import GraphdbgError, NotRegisteredError, UsageError
from ...dumps.output import emit, say
from ...dumps.store import SavedGraph, resolve
from ...dumps.wording import counted
from ..isolation import opened
from ..live.how import How
from ..replaying.checked import TASKS, Checkup
from ..replaying.checked import check as run
from ..verdicts.ladder_words import address, run_address
from ..verdicts.mismatches import origins, sentence
from ..verdicts.verdict import unloadable, with_flags, worst
from ..verdicts.verdict_words import first_line, rank
from .options import device_option, import_option, limit_option, seed_option, trust_option
from .replay import graphs_in


@click.command()
@click.argument("graph", metavar="RUN[/ID]")
@seed_option
@device_option
@limit_option("Seconds that the check of one graph may take.")
@import_option()
@trust_option
@json_option("Print one JSON document with all findings.")
def check(graph: str, as_json: bool, **options: Any) -> None:
    """Run a saved graph eagerly and compare every value with the metadata it was traced with.

    Compares size, dtype, significant strides, storage offset, device, aliasing and mutation. A mismatch whose own
    node is at fault (the op's fake function, its schema, stale metadata) is an origin; what only follows from one
    is inherited and stands under it. Given a run, checks every graph in it.

    The Triton kernels that Inductor writes for a graph are checked by graphdbg kernel RUN/ID --check.
    """
    target = resolve(graph)
    single = isinstance(target, SavedGraph)
    with opened(None, "torch", *TASKS) as server:
        rows = [(saved, _checkup(saved, server, options, alone=single)) for saved in graphs_in(target)]
    if single:
        _show_one(*rows[0], as_json)
    else:
        _show_all(rows, as_json)
    code = worst(checkup.verdict for _, checkup in rows).exit_code
    lines = [{"event": "graph", **_json(*row), "address": address(row[0])} for row in rows]
    keep_found(graph, lines[0]["address"] if single else run_address(target), lines, code)
    raise SystemExit(code)


def _checkup(saved: SavedGraph, server: Any, options: dict[str, Any], *, alone: bool) -> Checkup:
    try:
        checkup = run(saved, server, How(**options))
    except GraphdbgError as error:
        if isinstance(error, UsageError) or (alone and not isinstance(error, NotRegisteredError)):
            raise
        checkup = Checkup(cannot=unloadable(error, saved.path).reason.splitlines()[0])
    if not alone:
        say(f"{saved.id}: {checkup.headline}")
    return checkup


def _json(saved: SavedGraph, checkup: Checkup) -> dict[str, Any]:
    return {"id": saved.id, "stage": saved.stage, **checkup.json()}


def _show_one(saved: SavedGraph, checkup: Checkup, as_json: bool) -> None:
    if as_json:
        failing = checkup.verdict.failed and checkup.verdict.fault == "compiler"
        minify = [with_flags(f"graphdbg minify {saved.name} --check metadata")] * failing
        emit(_json(saved, checkup), as_json=True, next=minify)
        return
    emit(f"{first_line(checkup.verdict)}\n\n{checkup.text()}", as_json=False)
    for note in (*checkup.notes, *(f"not checked: {left_out}" for left_out in checkup.unchecked)):
        say(f"note: {note}")


def _show_all(rows: list[tuple[SavedGraph, Checkup]], as_json: bool) -> None:
    ranked = sorted(rows, key=lambda row: rank(row[1].verdict))

    verdict = worst(checkup.verdict for _, checkup in rows)
    bad = [saved for saved, checkup in ranked if checkup.verdict.failed]
    lost = [saved for saved, checkup in ranked if checkup.verdict.undecided]
    look = [with_flags(f"graphdbg check {address(saved)}") for saved in (bad or lost)[:1]]
    if as_json:
        emit({**verdict.flat(), "next": look, "graphs": [_json(*row) for row in ranked]}, as_json=True)
        return
    alike = [checkup for _, checkup in rows if checkup.verdict.verdict == verdict.verdict]
    emit(first_line(verdict, len(alike), len(rows)) + "\n", as_json=False)
    width = max((len(saved.id) for saved, _ in ranked), default=0)

    for saved, checkup in ranked:
        emit(f"{saved.id:<{width}}  {checkup.headline}", as_json=False)
        for origin in origins(checkup.findings):
            emit(f"{'':<{width}}  {sentence(origin)}", as_json=False)
    say(f"{counted(len(ranked), 'graph')}, {len(bad)} with mismatches, {len(lost)} not checked")
    for command in look:
        say(f"next: {command}")
