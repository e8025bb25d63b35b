"""Which nodes a filter's terms hold for. Texts that repeat are looked at once each, the cheapest terms come first.

Does not parse what was typed (`filter.py` does).

>>> from graphdbg.dumps.browse.filter import parse
>>> finish(matching(view, parse("op:mul users>1")))
[11]
"""

from __future__ import annotations

import difflib
import fnmatch
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from .filter import ANYWHERE, VALUE_KEYS, FilterError, Term, number
from .flops import tensors
from .slices import Steps, pieces
from .table import GraphView, strided

Narrow = Callable[[Sequence[int]], list[int]]
"""From nodes to those among them that a term holds for."""

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
}
DTYPES = {
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "float": "float32",
    "f64": "float64",
    "double": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "int": "int32",
    "i64": "int64",
    "long": "int64",
    "u8": "uint8",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
}
INTERNED = {"dtype": "dtype", "device": "device", "file": "where", "code": "code", "shape": "shape", "module": "module"}
ORDER = ("users", "bytes", "index", "dtype", "shape", "module", "op", ANYWHERE)
"""Cheap terms first; what is not named here comes last."""


def matching(view: GraphView, terms: Sequence[Term]) -> Steps[list[int] | None]:
    """The nodes that all terms hold for, in order; None where there is no term. Raises FilterError."""
    if not terms:
        return None
    ranked = sorted(terms, key=lambda term: ORDER.index(term.key) if term.key in ORDER else len(ORDER))
    narrows: list[Narrow] = []
    for term in ranked:
        narrows.append(narrow(view, term))
        yield
    matching_rows: list[int] = []
    for piece in pieces(range(len(view))):
        rows: Sequence[int] = piece
        for step in narrows:
            rows = step(rows)
        matching_rows.extend(rows)
        yield
    return matching_rows


def narrow(view: GraphView, term: Term) -> Narrow:
    """The term as a function from nodes to nodes."""
    if term.key in VALUE_KEYS and not view.values:
        raise FilterError(
            "there are no values yet", "4 replays the graph and fills them in", start=term.start, end=term.end
        )
    column = INTERNED.get(term.key)
    if column is not None or term.key == "op":
        return _by_text(view, term, column or "target")
    if term.key == "stride":
        return _by_stride(view, term)
    if term.key == ANYWHERE:
        return _anywhere(view, term)
    return _by_one(view, term)


def _by_text(view: GraphView, term: Term, column: str) -> Narrow:
    """For a column of texts that repeat: the positions of the matching texts, found once."""
    fits, negated = _fits(view, term), term.negated
    texts = {at for at in view.distinct(column) if fits(at)}
    kinds = {at for at in view.distinct("op") if fits(at)} if term.key == "op" else set[int]()
    values, ops = view.column(column), view.table.op
    if kinds:
        return lambda rows: [row for row in rows if (ops[row] in kinds or values[row] in texts) is not negated]
    return lambda rows: [row for row in rows if (values[row] in texts) is not negated]


def _fits(view: GraphView, term: Term) -> Callable[[int], bool]:
    """Whether a text (by its position) fits a term."""
    text = view.text
    if term.key == "shape":
        wanted = [_dims(part) for part in term.alternatives]
        return lambda at: any(_shape_fits(shape, dims) for shape in tensors(view.shape_of(at)) for dims in wanted)
    if term.key == "dtype":
        types = [_pattern(DTYPES.get(part.lower(), part)) for part in term.alternatives]
        return lambda at: any(kind(part) for part in text[at].split("; ") if part for kind in types)
    if term.key == "module":
        paths = [_dotted(part) for part in term.alternatives]
        return lambda at: any(path(level) for level in view.levels(at)[-1:] for path in paths)
    if term.key == "op":
        names = [_dotted(part) for part in term.alternatives]
        return lambda at: any(name(text[at]) for name in names)
    wholes = [_inside(part) for part in term.alternatives]
    return lambda at: bool(text[at]) and any(whole(text[at]) for whole in wholes)


def _pattern(wanted: str) -> Callable[[str], bool]:
    """The whole text, with * and ?."""
    pattern = re.compile(fnmatch.translate(wanted.lower()))
    return lambda text: pattern.match(text.lower()) is not None


def _dotted(wanted: str) -> Callable[[str], bool]:
    """Whole parts of a dotted text: "layers.3" is in "model.layers.3.up" and not in "layers.30"."""
    wanted = wanted.lower().strip(".")
    if not any(letter in wanted for letter in "*?"):
        inside = f".{wanted}."
        return lambda text: wanted in text.lower() and inside in f".{text.lower()}."
    parts = re.escape(wanted).replace(r"\*", "[^.]*").replace(r"\?", "[^.]")
    pattern = re.compile(rf"(?:^|\.){parts}(?=\.|$)")
    return lambda text: pattern.search(text.lower()) is not None


def _inside(wanted: str) -> Callable[[str], bool]:
    """Anywhere in the text."""
    wanted = wanted.lower()
    if any(letter in wanted for letter in "*?"):
        pattern = re.compile(fnmatch.translate(f"*{wanted}*"))
        return lambda text: pattern.match(text.lower()) is not None
    return lambda text: wanted in text.lower()


def _dims(text: str) -> list[str]:
    """The sizes of a shape: "*,1024" or "[*, 1024]"; a scalar has none."""
    inner = text.strip().removeprefix("[").removesuffix("]")
    return [] if inner in ("", "scalar") else [part.strip() for part in inner.split(",")]


def _shape_fits(shape: list[Any], dims: list[str]) -> bool:
    """Whether a shape has the same rank and each size: a number, a symbol, * for any, >1000; one ... stands for any
    number of sizes."""
    if "..." in dims:
        at = dims.index("...")
        after = len(dims) - at - 1
        if len(shape) < at + after:
            return False
        return _shape_fits(shape[:at], dims[:at]) and _shape_fits(shape[len(shape) - after :], dims[at + 1 :])
    return len(shape) == len(dims) and all(_size_fits(size, dim) for size, dim in zip(shape, dims, strict=True))


def _size_fits(size: Any, dim: str) -> bool:
    if dim == "*" or str(size) == dim:
        return True
    for relation in (">=", "<=", ">", "<"):
        if dim.startswith(relation):
            wanted = dim[len(relation) :]
            return isinstance(size, int) and wanted.isdigit() and COMPARE[relation](size, int(wanted))
    return False


def _by_stride(view: GraphView, term: Term) -> Narrow:
    words = {part.lower() for part in term.alternatives}
    odd = words & {"noncontiguous", "non-contiguous", "strided", "!"}
    even = words & {"contiguous"}
    wanted = [_dims(part) for part in term.alternatives if part.lower() not in odd | even]
    shapes, strides = view.table.shape, view.table.stride
    known: dict[tuple[int, int], bool] = {}

    def fits(shape: int, stride: int) -> bool:
        steps = view.shape_of(stride)
        any_fits = any(_shape_fits(wanted_steps, dims) for wanted_steps in tensors(steps) for dims in wanted)
        if (odd or even) and steps is not None and not any_fits:
            any_fits = bool(odd) if strided(view.shape_of(shape), steps) else bool(even)
        return any_fits is not term.negated

    def holds(row: int) -> bool:
        key = (shapes[row], strides[row])
        if key not in known:
            known[key] = fits(*key)
        return known[key]

    return lambda rows: [row for row in rows if holds(row)]


def _anywhere(view: GraphView, term: Term) -> Narrow:
    """A bare word: in the name or in the target."""
    inside = [part.lower() for part in term.alternatives] or [term.value]
    texts = {at for at in view.distinct("target") if any(part in view.text[at].lower() for part in inside)}
    targets, names, negated = view.table.target, view.lower_names, term.negated
    if len(inside) == 1:
        word = inside[0]
        return lambda rows: [row for row in rows if (targets[row] in texts or word in names[row]) is not negated]
    return lambda rows: [
        row for row in rows if (targets[row] in texts or any(part in names[row] for part in inside)) is not negated
    ]


def _by_one(view: GraphView, term: Term) -> Narrow:
    """Numbers, names, kernels and values: node by node."""
    negated = term.negated
    if term.key in ("name", "kernel"):
        wholes = [_inside(part) for part in term.alternatives]
        names, kernels = view.table.name, view.kernels
        texts = names if term.key == "name" else [kernels.get(row, "") for row in range(len(view))]
        return lambda rows: [row for row in rows if any(whole(texts[row]) for whole in wholes) is not negated]
    compare = COMPARE[term.relation]
    wanted = [number(part, term.key, term.start, term.end) for part in term.alternatives]
    if term.key in ("users", "bytes"):  # numbers that repeat: those that fit, once
        values: Sequence[int | None] = view.table.users if term.key == "users" else view.table.size_bytes
        fits = {value for value in set(values) if value is not None and any(compare(value, bound) for bound in wanted)}
        return lambda rows: [row for row in rows if (values[row] in fits) is not negated]
    value = numbers_of(view, term.key)

    def holds(row: int) -> bool:
        node_value = value(row)
        return node_value is not None and any(compare(node_value, bound) for bound in wanted)

    return lambda rows: [row for row in rows if holds(row) is not negated]


def numbers_of(view: GraphView, key: str) -> Callable[[int], float | None]:
    """The numbers of a column by node; None where a node has none."""
    table, values = view.table, view.values
    columns: dict[str, Callable[[int], float | None]] = {
        **{name: lambda row, name=name: getattr(values[row], name) if row in values else None for name in VALUE_KEYS},
        "inputs": lambda row: len(view.inputs(row)),
        "flops": view.flops,
        "index": lambda row: row,
        "seq": lambda row: table.seq_nr[row] if view.whole else None,
        "users": table.users.__getitem__,
        "bytes": table.size_bytes.__getitem__,
    }
    return columns[key]


def hint(view: GraphView, terms: Sequence[Term]) -> str:
    """Why no node may match: the nearest op or dtype in the graph; empty where nothing is near."""
    for term in terms:
        if term.key not in ("op", "dtype", "module") or term.negated:
            continue
        column = "target" if term.key == "op" else term.key
        if any(map(_fits(view, term), view.distinct(column))) or (
            term.key == "op" and any(map(_fits(view, term), view.distinct("op")))
        ):
            continue
        texts = view.distinct(column)
        if term.key == "op":
            known = {part for at in texts for part in view.text[at].split(".")[1:2] or [view.text[at]]}
        elif term.key == "dtype":
            known = {part for at in texts for part in view.text[at].split("; ") if part}
        else:
            known = {level for at in texts for level in view.levels(at)}
        near = difflib.get_close_matches(term.value, sorted(known)[:5000], n=2, cutoff=0.5)
        return f"no {term.key} {term.value!r} here" + (f"; did you mean {' or '.join(near)}?" if near else "")
    return ""
