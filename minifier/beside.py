"""Two cases beside each other: the lines of their plain programs, inputs and settings that differ, as a unified diff.

Reads case folders; runs nothing and judges nothing. Without a plain form of a graph its own text, graph.py, stands for
it.

For example:

    print(difference(load_graph("small/case"), load_graph("small/passes")))
    # --- case (fails)
    # +++ passes (passes)
    # @@ -1,2 +1,2 @@
    # -x = torch.ones(8)
    # +x = torch.ones(9)
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from math import prod

from ..dumps.errors import GraphdbgError
from ..dumps.program.case import GRAD_STAGES
from ..dumps.program.function import FunctionText, program_of
from ..dumps.program.inputs import SMALL_ELEMENTS, Slot, slots_of, source_of
from ..dumps.schema import TensorValue
from ..dumps.store import SavedGraph
from ..dumps.why.wording import ADDRESS
from ..toolkit.live.spec import FULL_STAGES

CONTEXT = 3
STORED = "stored["
"""In the text of an input whose values would be stored in a file beside a program."""
_LONGEST = 160


def difference(
    failing: SavedGraph, passing: SavedGraph, names: tuple[str, str] = ("case (fails)", "passes (passes)")
) -> str:
    """The diff from the one to the other; empty where their texts are the same.

    Small inputs are written out, unless one of them has no such form: then all are described by how they would be made.
    """
    exact = lines(failing, exact=True), lines(passing, exact=True)
    formed = lines(failing), lines(passing)
    plain = not any(STORED in line for text in exact for line in text)
    texts = exact if plain or formed[0] == formed[1] else formed
    return "\n".join(difflib.unified_diff(*texts, *names, n=CONTEXT, lineterm=""))


def lines(saved: SavedGraph, *, exact: bool = False) -> list[str]:
    """A case as text: settings that are not the default, inputs (`exact`: with their values), the program."""
    record = saved.record
    settings = [
        ADDRESS.sub("…", f"# {room}.{name} = {value!r}")
        for room, values in record.config.items()
        for name, value in values.items()
    ]
    if record.stage in FULL_STAGES:
        ambient = record.ambient
        settings += [] if ambient.grad else ["# without gradients"]
        settings += [f"# autocast on {device}: {dtype}" for device, dtype in ambient.autocast.items()]
    dynamic = [
        f"# dynamic: {symbol.name} = {symbol.hint}" for symbol in record.symbols if symbol.input or symbol.backed
    ]
    try:
        program = program_of(record)
        text = program.source.splitlines()
    except GraphdbgError:
        program, text = None, saved.program().splitlines()
    return [*settings, *dynamic, *_inputs(saved, program, exact), *text]


def _inputs(saved: SavedGraph, program: FunctionText | None, exact: bool) -> list[str]:
    """A line per input: how a program would make it, else its form."""
    record = saved.record
    if program is None:
        return []
    slots, _ = slots_of(record, saved.inputs_record, program.constants, grad=record.stage in GRAD_STAGES)
    names = [*program.parameters, *program.constants][: len(slots)]
    return [f"{name} = {_made(saved, slot, exact)}" for name, slot in zip(names, slots, strict=False)]


def _made(saved: SavedGraph, slot: Slot, exact: bool) -> str:
    small = exact and isinstance(slot.value, TensorValue) and _elements(slot.value.shape) <= SMALL_ELEMENTS
    hints = {symbol.name: symbol.hint for symbol in saved.record.symbols if symbol.hint is not None}
    try:
        text = " ".join(source_of([slot], "literal" if small else "seeded", saved.kept, hints).expressions)
    except GraphdbgError:
        return f"... ({slot.value})"[:_LONGEST]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _elements(shape: Sequence[int | str]) -> int:
    return prod(dim for dim in shape if isinstance(dim, int))
