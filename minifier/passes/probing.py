"""Lists what is worth asking of a finished case: for each part that is left a few replacements, as rows of
`probes.propose`.

Only replacements that eager takes are listed; a part that eager refuses to change alone has a row with the priority
"-". Runs eager many times, so only for small cases.

For example: `rows(case)[1]` gives `['0', 'switches config inductor cpp.simdlen', 'setting', 'inductor.cpp.simdlen']`.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any, cast

import torch
from torch import fx
from torch.fx.node import map_aggregate

from ...dumps.torchside.values import fake_of
from ...toolkit.cutting.atoms import COMPUTE, is_symbolic, target_name
from ...toolkit.live.case import Live
from ...toolkit.live.gpu_only import is_tied
from ...toolkit.live.values import shares_memory
from . import dtypes, names, operators, pass_of, strides, switches, symbols
from .forms import alike, forms, forms_after, run
from .values import KINDS as FILLS

SOON, LATER, NEVER, TIED = "0", "1", "2", "-"
KINDS = ("setting", "dim", "node", "dtype", "constant", "values", "strides")
MOST_PARTS = 8
"""Most parts of one kind that are asked about."""
OTHER_DTYPES = {
    "float32": ("float64", "bfloat16"),
    "float64": ("float32", "bfloat16"),
    "float16": ("float32", "bfloat16"),
    "bfloat16": ("float32", "float16"),
    "int64": ("int32",),
    "int32": ("int64",),
    "uint8": ("int64", "int32"),
    "int8": ("int64", "int32"),
    "int16": ("int64", "int32"),
    "complex64": ("complex128",),
    "complex128": ("complex64",),
}
MOST_COMPARED = 100_000
"""Most elements of an input that is compared with seeded random numbers."""
UNARY, BINARY = ("neg", "sigmoid", "abs"), ("add", "sub", "mul")
FOLDED = (-1, 0, 1, 2)
"""Numbers that compilers fold before they compile: a pass with one of them tells least."""
LIKE = {
    "sum": "amax",
    "mean": "sum",
    "amax": "amin",
    "amin": "amax",
    "prod": "sum",
    "eq": "lt",
    "lt": "eq",
    "cumsum": "cumprod",
}
"""An operator that takes the same arguments."""


@dataclass
class _ProbedPart:
    """One part of the case, and what could be in its place: (edit, words), the most telling first."""

    kind: str
    name: str
    value: str
    tries: list[tuple[str, str]]
    known: list[tuple[str, str]]
    """Edits that are not worth a query of their own, but may have been asked."""
    later: bool = False
    """Whether it is only worth asking where the part that holds it is not replaceable."""


def rows(case: Live) -> list[list[str]]:
    """See `probes.propose`."""
    asked = _Asking(case)
    kinds = (asked.settings, asked.dims, asked.nodes, asked.dtypes, asked.constants, asked.values, asked.strides)
    listed: list[tuple[Any, list[str]]] = []
    places: Counter[str] = Counter()
    for part in [part for parts in kinds for part in parts()]:
        places[part.kind] += 1
        if places[part.kind] > MOST_PARTS:
            continue
        about = [part.kind, part.name, part.value]
        for number, (edit, tried) in enumerate(part.tries[:3]):
            soon = SOON if number == 0 and not part.later else LATER
            listed.append(((soon, number, places[part.kind], KINDS.index(part.kind)), [soon, edit, *about, tried]))
        listed += [((NEVER,), [NEVER, edit, *about, tried]) for edit, tried in part.known]
        listed += [] if part.tries else [((TIED,), [TIED, "", *about, ""])]
    return [["names", *_renamed(case)], *(row for _, row in sorted(listed, key=lambda item: item[0]))]


def _renamed(case: Live) -> list[str]:
    """Each node's name and its canonical one, in turn."""
    other = names.apply(case, "names canonical").gm
    pairs = dict(other.meta[names.RENAMED])
    before, after = ([node.name for node in gm.graph.nodes if node.op != "placeholder"] for gm in (case.gm, other))
    pairs.update(zip(before, after, strict=True))
    return [name for pair in pairs.items() for name in pair]


def apply(case: Live, edit: str) -> Live:
    """The case with an edit of the probes or of a pass."""
    return pass_of(edit.partition(" ")[0]).apply(case, edit)


class _Asking:
    """Lists the parts of one case, and the replacements that eager takes."""

    def __init__(self, case: Live) -> None:
        self.case = case
        self.runs = True
        self.runs = self.takes("")
        self.nodes_ = [
            node
            for node in case.gm.graph.nodes
            if node.op in COMPUTE and node.target is not operator.getitem and not is_symbolic(fake_of(node))
        ]
        places = case.gm.graph.find_nodes(op="placeholder")
        self.inputs = [
            (position, node.name, value)
            for position, (node, value) in enumerate(zip(places, case.inputs, strict=True))
            if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized
        ]
        pairs = permutations(self.inputs, 2)
        self.shared = {index for (index, _, value), (_, _, more) in pairs if shares_memory(value, more)}

    def takes(self, edit: str) -> bool:
        """Whether eager takes the case with an edit; where eager does not take the case itself, whether the edit can be
        applied."""
        try:
            case = apply(self.case, edit) if edit else self.case
            if self.runs:
                with cast(Any, torch.random).fork_rng(devices=[]):
                    run(case)
        except Exception:  # noqa: BLE001  whatever is raised, this cannot be asked
            return False
        return True

    def taken(self, tries: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The tries that eager takes, each once."""
        return [(edit, words) for edit, words in dict.fromkeys(tries) if self.takes(edit)]

    def settings(self) -> Iterator[_ProbedPart]:
        """Non-default settings, symbolic sizes, gradients, autocast."""
        for (edit,) in ([edit] for edits in symbols.propose(self.case) for edit in edits):
            name = edit.split(" ")[1]
            where: list[str] = []
            for node in self.case.gm.graph.find_nodes(op="placeholder"):
                sizes = enumerate(getattr(fake_of(node), "shape", ()))
                where += [f"{{{node.name}}}.shape[{dim}]" for dim, size in sizes if str(size) == name]
            yield _ProbedPart("setting", ", ".join(where[:3]) or name, "dynamic", [(edit, "a fixed number")], [])
        offered = {edit for edits in switches.propose(self.case) for edit in edits}
        words = {
            "static": "dynamic sizes",
            "grad": "gradients",
            "autocast": "autocast",
            "modes": "mode switches in the graph",
        }
        for what, title in words.items():
            if f"switches {what}" in offered:
                yield _ProbedPart("setting", title, "on", [(f"switches {what}", "off")], [])
        for room, values in self.case.spec.config.items():
            for name, value in values.items():
                opaque = cast("dict[str, Any]", value).get("opaque") if isinstance(value, dict) else None
                text = _opaque_text(*opaque) if opaque else repr(cast("object", value))
                yield _ProbedPart(
                    "setting", f"{room}.{name}", text, [(f"switches config {room} {name}", "its default")], []
                )

    def dims(self) -> Iterator[_ProbedPart]:
        """All dimensions of one size together; then those that can change alone, and the others of that size."""
        sizes: dict[int, list[tuple[str, str]]] = {}
        if is_tied(self.case.gm):
            return
        for position, name, value in self.inputs:
            for dim, size in enumerate(value.shape):
                sizes.setdefault(size, []).append((f"{position}.{dim}", f"{{{name}}}.shape[{dim}]"))
        for size, places in list(sizes.items())[:MOST_PARTS]:
            known = {small: (f"dims {size} {small}", str(small)) for small in (size // 2, 2, 1) if 0 < small < size}
            yield self._dim(size, places, list(known.values()))
            alone = [self._dim(size, [place], later=True) for place in places[:MOST_PARTS]] if len(places) > 1 else []
            free = [part for part in alone if part.tries]
            yield from free
            tied = [place for place, part in zip(places, alone, strict=False) if not part.tries]
            if free and len(tied) > 1:
                yield self._dim(size, tied, later=True)

    def _dim(self, size: int, places: list[tuple[str, str]], known: Any = (), *, later: bool = False) -> _ProbedPart:
        title, where = ", ".join(title for _, title in places), ",".join(place for place, _ in places)
        return _ProbedPart("dim", title, str(size), self._sizes(size, where), list(known), later)

    def _sizes(self, size: int, places: str) -> list[tuple[str, str]]:
        others = (size + 1, size - 1, size + 2 if size < 2 else 2 * size)
        return self.taken([(f"probes size {size} {other} {places}", str(other)) for other in others if other > 0])

    def nodes(self) -> Iterator[_ProbedPart]:
        """Operators: others of the same form in their place, or the node left out."""
        known = forms(self.case) if self.runs else None
        for node in self.nodes_:
            offered = [] if known is None else list(self._operators(node, known))
            tries = [row for row in offered if alike(forms_after(self.case, row[0], apply), known or {})]
            tries = [*tries[:1], *self.cut(node), *tries[1:2]]
            yield _ProbedPart("node", f"{{{node.name}}}", _called(node), tries, [])

    def _operators(self, node: fx.Node, known: dict[str, Any]) -> Iterator[tuple[str, str]]:
        own, read = operators.operator_name(node), node.all_input_nodes
        known_others = (own, *operators.SIMPLEST.get(own, ())[:1])
        binary, unary = ([name for name in names if name not in known_others] for names in (BINARY, UNARY))
        if own in operators.SIMPLEST:
            other = operators.SIMPLEST[own][0]
            yield f"operators {node.name} to {other}", f"{other} in its place"
        if own in LIKE:
            yield f"probes operator {node.name} {LIKE[own]} same", f"{LIKE[own]} in its place"
        if len(read) > 1:
            yield from ((f"probes operator {node.name} {other} 0 1", f"{other} in its place") for other in binary)
        for place, candidate in enumerate(read):
            for other in unary if known.get(candidate.name) == known.get(node.name) else ():
                yield f"probes operator {node.name} {other} {place}", f"{other} in its place"

    def cut(self, node: fx.Node) -> list[tuple[str, str]]:
        """The node left out: an input in its place, or, where only the outputs read it, what it read is returned."""
        spec = self.case.spec
        if len(self.nodes_) < 2 or spec.dynamic or spec.training_joint:
            return []
        return self.taken([(f"probes cut {node.name}", "left out")])

    def dtypes(self) -> Iterator[_ProbedPart]:
        """Each dtype, everywhere at once."""
        present = [str(dtype).removeprefix("torch.") for dtype in dtypes.dtypes_in(self.case.gm, self.case.inputs)]
        for dtype in dict.fromkeys(present):
            if dtype not in OTHER_DTYPES:
                continue
            of = [f"{{{name}}}" for _, name, value in self.inputs if str(value.dtype) == f"torch.{dtype}"]
            tries = self.taken([(f"dtypes {dtype} {other}", other) for other in OTHER_DTYPES[dtype]])
            yield _ProbedPart(
                "dtype", f"dtype of {', '.join(of[:4])}" if of else "dtype inside the graph", dtype, tries, []
            )

    def constants(self) -> Iterator[_ProbedPart]:
        """Numbers in arguments that are no sizes."""
        for node in self.nodes_:
            for place, (name, value, alone) in enumerate(_numbers(node)):
                if not name or not math.isfinite(value):
                    continue
                if type(value) is bool:
                    others: list[Any] = [not value]
                elif type(value) is int:
                    others = sorted((value + step for step in (1, -1, 2, 3)), key=FOLDED.__contains__)
                else:
                    others = [1.5 * value or 1.5, -value or 0.5]
                tries = self.taken([(f"probes constant {node.name} {place} {other}", str(other)) for other in others])
                asked = alone and type(value) is not bool and value not in operators.PLAIN
                plain = [type(value)(number) for number in operators.NUMBERS if asked]
                known = [(f"operators {node.name} {name} {number}", str(number)) for number in plain]
                yield _ProbedPart("constant", f"{{{node.name}}}.{name}", str(value), tries[:2], known)

    def values(self) -> Iterator[_ProbedPart]:
        """The contents of each input."""
        for position, name, value in self.inputs:
            if position in self.shared or not value.numel():
                continue
            if value.is_floating_point():
                held = _held(value)
                fills = [
                    ("values {} randn", "randn"),
                    ("values {} ones", "ones"),
                    ("probes fill {} arange", "arange"),
                    ("probes fill {} randn1", "another seed"),
                ]
                order = {"ones": (0, 2), "randn": (3, 1)}.get(held, (0, 3))
                known = [] if held in FILLS else [1]
            else:
                held, known = "zeros" if not value.any() else "ones" if bool((value == 1).all()) else "as recorded", []
                fills = [("probes fill {} zeros", "zeros"), ("probes fill {} next", "other numbers")]
                order = (0, 1) if value.any() else (1,)
            rows = [(edit.format(position), words) for edit, words in fills]
            tries = [rows[place] for place in order if place not in known]
            tries, known = tries or [rows[0]], [place for place in known if tries]
            yield _ProbedPart("values", f"values of {{{name}}}", held, tries, [rows[place] for place in known])

    def strides(self) -> Iterator[_ProbedPart]:
        """Layouts in memory that are not plain, made contiguous; plain ones of two or more dimensions, transposed."""
        if is_tied(self.case.gm):
            return
        odd = {edit for edits in strides.propose(self.case) for edit in edits}
        for position, name, value in self.inputs:
            text = f"{tuple(value.stride())}" + (f" from {value.storage_offset()}" if value.storage_offset() else "")
            if f"strides {position}" in odd:
                tries = [(f"strides {position}", "contiguous")]
            elif position not in self.shared and sum(size > 1 for size in value.shape) > 1:
                tries = [(f"probes transposed {position}", "transposed")]
            else:
                continue
            yield _ProbedPart("strides", f"{{{name}}}.stride()", text, self.taken(tries), [])


def _called(node: fx.Node) -> str:
    name = target_name(node)
    if hasattr(node.target, "_schema"):
        return str(node.target)
    return f"torch.{name}" if getattr(torch, name, None) is node.target else name


def _opaque_text(kind: str, text: str = "", *_: object) -> str:
    """A value without a saved form: the name of a function, the type of anything else."""
    function = re.match(r"<(?:bound method|function) ([\w.]+)", text)
    return function[1] if function else kind


def _held(value: torch.Tensor) -> str:
    """The content of a floating-point input in words: ones, one number everywhere, seeded randn, else as recorded."""
    plain = value.detach()
    if bool((plain == 1).all()):
        return "ones"
    first = plain.flatten()[0]
    if bool((plain == first).all()):
        return f"{first.item():.4g} everywhere"
    if value.numel() > MOST_COMPARED:
        return "as recorded"
    seeded = (FILLS["randn"](value, at).to(value.dtype) for at in range(len(KINDS) + MOST_PARTS))
    return "randn" if any(torch.equal(plain.cpu(), other) for other in seeded) else "as recorded"


def _numbers(node: fx.Node) -> list[tuple[str, Any, bool]]:
    """Every number in a node's arguments in order, with its name (empty for a size), and whether it stands alone in an
    argument that a schema declares."""
    schema = getattr(node.target, "_schema", None)
    declared = {} if schema is None else {declaration.name: declaration for declaration in schema.arguments}
    positional = list(declared)[: len(node.args)] if declared else [str(place) for place in range(len(node.args))]
    rows: list[tuple[str, Any, bool]] = []
    for name, argument in [*zip(positional, node.args, strict=False), *node.kwargs.items()]:
        inside: list[Any] = []
        map_aggregate(argument, inside.append)
        inside = [value for value in inside if type(value) in (int, float, bool)]
        size = name in declared and "SymInt" in declared[name].real_type.str()
        alone = type(argument) in (int, float, bool)
        title = f"argument {name}" if not declared and name.isdecimal() else name
        rows += [
            ("" if size else title if alone else f"{title}[{place}]", value, alone and bool(declared))
            for place, value in enumerate(inside)
        ]
    return rows
