"""Conditions on the dynamic sizes of a graph: what was assumed of its symbols, from the saved record.

Opens few records: one for each compile that has symbols, up to a limit, the graph nearest to the generated code first.

>>> add_conditions(found, run); found.processes[0].functions[0].compiles[1].conditions
['Eq(Mod(s77, 8), 0)']
"""

from __future__ import annotations

import re

from ..errors import GraphdbgError
from ..schema import GraphRecord, GuardRecord
from ..store import Run
from . import wording
from .model import Compile, GraphLine, Symbol, Why

MOST_RECORDS = 60
_PLACE = re.compile(r"# \S*?([^/\s]+:\d+) in \S+$")
_ORDER = ("inference", "forward", "joint", "pre_grad", "dynamo")


def add_conditions(found: Why, run: Run) -> None:
    """Fills `conditions`, and `symbols` with the ranges as they were in the end. A graph that cannot be read adds nothing."""
    compiles = [item for process in found.processes for function in process.functions for item in function.compiles]
    wanted = [(item, line) for item in compiles if (line := _best(item)) is not None]
    seen: dict[tuple[str, ...], set[str]] = {}
    for item, line in wanted[:MOST_RECORDS]:
        try:
            record = run.graph(line.id).record
        except GraphdbgError as error:
            item.conditions = [f"(not readable: {error})"]
            continue
        told = bool(item.symbols)
        _fill(item, record)
        frame = (line.id[: len(line.id) - len(line.local)], item.function, item.file, item.id.rpartition("_")[0])
        if not told and item.kind == "recompile":  # Dynamo's own graphs were not recorded, which the journal's symbols come from
            item.became_dynamic = [one for one in item.symbols if one.source and one.source not in seen.get(frame, set())]
        seen[frame] = seen.get(frame, set()) | {one.source for one in item.symbols}


def _best(item: Compile) -> GraphLine | None:
    """The graph to read: none where the journal says that nothing is dynamic."""
    if not item.symbols and any(line.stage == "dynamo" for line in item.graphs):
        return None
    return next((line for stage in _ORDER for line in reversed(item.graphs) if line.stage == stage), None)


def _fill(item: Compile, record: GraphRecord) -> None:
    known = {symbol.name for symbol in item.symbols}
    final = {symbol.name: symbol for symbol in record.symbols}
    for symbol in item.symbols:
        last = final.get(symbol.name)
        if last is not None:
            symbol.lower, symbol.upper = last.lower, last.upper
            if last.replacement:
                item.conditions.append(f"{symbol.name} is {last.replacement}")
    item.symbols += [
        Symbol(last.name, wording.short(last.source), last.hint, last.lower, last.upper)
        for last in record.symbols if last.name not in known
    ]  # fmt: skip
    item.conditions += dict.fromkeys(map(_condition, record.guards))


def _condition(guard: GuardRecord) -> str:
    if guard.kind == "divisible":
        return f"{guard.expr} == 0"
    place = _PLACE.search(guard.message) if guard.kind == "guard" else None
    return f"{guard.expr} ({place[1]})" if place else guard.expr
