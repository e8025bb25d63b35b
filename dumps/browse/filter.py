"""The filter language of the node table: parses typed text into terms, all of which must hold.

    op:mm  shape:*,1024  dtype:bf16  users>3  module:layers.3  -op:view  bytes>=1M  nan  "some text"

`key:text`, `key>number` (also >= < <= = !=), a bare word (in the name or the target), `-` before a term to negate it,
quotes around text with blanks, `a|b` for either. `matching` applies the terms to a graph.

>>> [(term.key, term.relation, term.value) for term in parse("op:mm users>3")]
[('op', ':', 'mm'), ('users', '>', '3')]
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from .. import short
from ..errors import UsageError
from .table import GraphView, strided, tensors

TEXT_KEYS = ("op", "name", "dtype", "shape", "stride", "device", "module", "file", "code", "kernel")
NUMBER_KEYS = ("users", "inputs", "bytes", "flops", "index", "seq")
VALUE_KEYS = ("min", "max", "nan", "inf", "error")
KEYS = (*TEXT_KEYS, *NUMBER_KEYS, *VALUE_KEYS)
ALSO = {
    "target": "op",
    "line": "file",
    "size": "bytes",
    "#": "index",
    "type": "dtype",
    "mod": "module",
    "seq_nr": "seq",
}
ANYWHERE = ""
"""The key of a bare word's term."""

SEEN = ("nan", "inf")
"""Bare words that refer to values that a replay recorded."""

_KEYED = re.compile(r"([A-Za-z_#]+)(>=|<=|!=|>|<|=|:)")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)([kmgt]?)(i?b)?", re.IGNORECASE)
HELP = "op:mm  shape:*,1024  dtype:bf16  users>3  module:layers.3  -op:view  bytes>1M  nan  word"


@dataclass(frozen=True)
class Term:
    """One condition; `start` and `end` are its position in the typed text."""

    key: str
    relation: str
    value: str
    negated: bool = False
    start: int = 0
    end: int = 0
    quoted: bool = False

    @property
    def alternatives(self) -> list[str]:
        """The values, one of which must match."""
        return [self.value] if self.quoted else [part for part in self.value.split("|") if part]


class FilterError(UsageError):
    """A filter cannot be read; `start` and `end` are the place of the wrong word."""

    code = "GD10"

    def __init__(self, why: str, fix: str = "", *, start: int = 0, end: int = 0) -> None:
        self.start, self.end = start, end
        super().__init__(f"cannot read the filter at character {start + 1}", why, fix)


def parse(text: str) -> tuple[Term, ...]:
    """Parses a filter; an empty text has no terms. Raises FilterError with the position, and the most similar known
    word."""
    terms: list[Term] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        end, word, quoted_from = _word(text, at)
        terms.append(_term(word, at, end, quoted_from))
        at = end
    return tuple(terms)


def _word(text: str, start: int) -> tuple[int, str, int]:
    """Reads the word that begins at `start`: returns its end, its text without quotes, and the index of its first
    quoted letter (-1: none)."""
    letters: list[str] = []
    quote, quoted_from, opened, at = "", -1, start, start
    while at < len(text) and (quote or not text[at].isspace()):
        letter = text[at]
        if quote:
            if letter == quote:
                quote = ""
            else:
                letters.append(letter)
        elif letter in "\"'" and (not letters or letters[-1] in ":=<>-!|"):
            quote, opened = letter, at
            quoted_from = len(letters) if quoted_from < 0 else quoted_from
        else:
            letters.append(letter)
        at += 1
    if quote:
        raise FilterError("the quote is not closed", f"add {quote} at the end", start=opened, end=len(text))
    return at, "".join(letters), quoted_from


def _term(word: str, start: int, end: int, quoted_from: int) -> Term:
    negated = len(word) > 1 and word[0] in "-!" and quoted_from != 0
    body = word[1:] if negated else word
    quoted_from -= negated
    if not body:
        raise FilterError("the word is empty", "leave it out", start=start, end=end)
    keyed = _KEYED.match(body)
    if keyed is None or 0 <= quoted_from < keyed.end(1):
        quoted = quoted_from >= 0
        if not quoted and body in SEEN:
            return Term(body, ">", "0", negated, start, end)
        return Term(ANYWHERE, ":", body, negated, start, end, quoted)
    key, relation, value = _key(keyed[1], start + negated), keyed[2], body[keyed.end() :]
    at = start + negated + keyed.end()
    if not value:
        example = EXAMPLES.get(key, f"{key}:1")
        raise FilterError(f"there is no value after {keyed[0]}", f"for example {example}", start=start, end=end)
    if key in TEXT_KEYS:
        if relation not in (":", "=", "!="):
            why = f"{key} is text, and {relation} compares numbers"
            raise FilterError(why, f"write {key}:{value}", start=at - len(relation), end=at)
        return Term(key, ":", value, negated ^ (relation == "!="), start, end, quoted_from >= 0)
    relation = "=" if relation == ":" else relation
    for part in value.split("|"):
        number(part, key, at, end)
    return Term(key, relation, value, negated, start, end)


def finished(terms: tuple[Term, ...], text: str) -> tuple[Term, ...]:
    """The terms without a last word that may be the unfinished name of a column, while a user types: "us" of "users>3".

    >>> finished(parse("op:mm us"), "op:mm us") == parse("op:mm")
    True
    """
    last = terms[-1] if terms else None
    if last is None or last.key != ANYWHERE or last.quoted or last.negated or last.end < len(text):
        return terms
    return terms[:-1] if any(key.startswith(last.value) for key in (*KEYS, *ALSO)) else terms


_TERMS = (
    "op:mm name:view_1 dtype:bf16 shape:*,1024 stride:noncontiguous device:cuda module:layers.3 file:model.py:12 "
    "code:relu users>3 bytes>1M flops>1e9 error>1e-3 kernel:fused"
)
EXAMPLES = {re.split("[:>]", term)[0]: term for term in _TERMS.split()}


def _key(word: str, start: int) -> str:
    key = word.lower()
    key = ALSO.get(key, key)
    if key in KEYS:
        return key
    near = difflib.get_close_matches(key, [*KEYS, *ALSO], n=1, cutoff=0.5)
    fix = f"did you mean {near[0]}" if near else f'to find it as text, put it in quotes: "{word}"'
    why = f"there is no key {word!r}; the keys are {', '.join(KEYS)}"
    raise FilterError(why, fix, start=start, end=start + len(word))


def number(text: str, key: str, start: int = 0, end: int = 0) -> float:
    """The number of a term: units of 1024 for bytes, of 1000 for all else. Raises FilterError."""
    if text.lower() in ("nan", "inf", "-inf"):
        return float(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        example = EXAMPLES.get(key, f"{key}>3")
        raise FilterError(f"{text!r} is not a number", f"for example {example}", start=start, end=end)
    unit = match[2].lower()
    return float(match[1]) * (_UNITS[unit] if key == "bytes" else 1000 ** list(_UNITS).index(unit))


def pointed(text: str, error: FilterError) -> str:
    """The text, and below it a line of carets under the error."""
    return f"{text}\n{' ' * error.start}{'^' * max(1, min(error.end, len(text)) - error.start)}"


Holds = Callable[[int], bool]
"""Whether a term, but for its negation, holds for a node."""

COMPARE: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le, "=": eq, "!=": ne}
DTYPES = {
    **{written: name for name, written in short.DTYPES.items()},
    **{f"fp{bits}": f"float{bits}" for bits in (16, 32, 64)},
} | {"half": "float16", "float": "float32", "double": "float64", "int": "int32", "long": "int64"}
INTERNED = {"dtype": "dtype", "device": "device", "file": "where", "code": "code", "shape": "shape", "module": "module"}
ORDER = ("users", "bytes", "index", "dtype", "shape", "module", "op", ANYWHERE)
"""Cheap terms first; other keys come last."""


def matching(view: GraphView, terms: Sequence[Term]) -> Sequence[int] | None:
    """Finds the nodes for which all terms hold, in order; None where there is no term. Raises FilterError."""
    if not terms:
        return None
    ranked = sorted(terms, key=lambda term: ORDER.index(term.key) if term.key in ORDER else len(ORDER))
    rows: Sequence[int] = range(len(view))
    for term, holds in [(term, _test(view, term)) for term in ranked]:
        rows = [row for row in rows if holds(row) is not term.negated]
    return rows


def _test(view: GraphView, term: Term) -> Holds:
    if term.key in VALUE_KEYS and not view.values:
        fix = "press 4 to replay the graph, which fills them in"
        raise FilterError("there are no values yet", fix, start=term.start, end=term.end)
    column = INTERNED.get(term.key)
    if column is not None or term.key == "op":
        return _by_text(view, term, column or "target")
    if term.key == "stride":
        return _by_stride(view, term)
    if term.key == ANYWHERE:
        return _anywhere(view, term)
    return _by_one(view, term)


def _by_text(view: GraphView, term: Term, column: str) -> Holds:
    """A term on a column of interned texts: matches each distinct text once, then compares positions."""
    fits = _fits(view, term)
    texts = {at for at in view.distinct(column) if fits(at)}
    kinds = {at for at in view.distinct("op") if fits(at)} if term.key == "op" else set[int]()
    values, ops = view.column(column), view.table.op
    return lambda row: values[row] in texts or ops[row] in kinds


def _fits(view: GraphView, term: Term) -> Callable[[int], bool]:
    """A function that tells whether a text, by its position, fits the term."""
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
    """Matches the whole text, with * and ?."""
    pattern = re.compile(fnmatch.translate(wanted.lower()))
    return lambda text: pattern.match(text.lower()) is not None


def _dotted(wanted: str) -> Callable[[str], bool]:
    """Matches whole parts of a dotted text: "layers.3" is in "model.layers.3.up" and not in "layers.30"."""
    wanted = wanted.lower().strip(".")
    if not any(letter in wanted for letter in "*?"):
        inside = f".{wanted}."
        return lambda text: wanted in text.lower() and inside in f".{text.lower()}."
    parts = re.escape(wanted).replace(r"\*", "[^.]*").replace(r"\?", "[^.]")
    pattern = re.compile(rf"(?:^|\.){parts}(?=\.|$)")
    return lambda text: pattern.search(text.lower()) is not None


def _inside(wanted: str) -> Callable[[str], bool]:
    """Matches anywhere in the text."""
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


def _by_stride(view: GraphView, term: Term) -> Holds:
    words = {part.lower() for part in term.alternatives}
    odd = words & {"noncontiguous", "non-contiguous", "strided", "!"}
    even = words & {"contiguous"}
    wanted = [_dims(part) for part in term.alternatives if part.lower() not in odd | even]
    shapes, strides = view.table.shape, view.table.stride

    @cache
    def fits(shape: int, stride: int) -> bool:
        steps = view.shape_of(stride)
        any_fits = any(_shape_fits(wanted_steps, dims) for wanted_steps in tensors(steps) for dims in wanted)
        if (odd or even) and steps is not None and not any_fits:
            any_fits = bool(odd) if strided(view.shape_of(shape), steps) else bool(even)
        return any_fits

    return lambda row: fits(shapes[row], strides[row])


def _anywhere(view: GraphView, term: Term) -> Holds:
    """A bare word: matches in the name or in the target."""
    inside = [part.lower() for part in term.alternatives] or [term.value]
    texts = {at for at in view.distinct("target") if any(part in view.text[at].lower() for part in inside)}
    targets, names, named = view.table.target, view.lower_names, re.compile("|".join(map(re.escape, inside))).search
    return lambda row: targets[row] in texts or named(names[row]) is not None


def _by_one(view: GraphView, term: Term) -> Holds:
    """A term on numbers, names, kernels or values."""
    if term.key in ("name", "kernel"):
        wholes = [_inside(part) for part in term.alternatives]
        names, kernels = view.table.name, view.kernels
        texts = names if term.key == "name" else [kernels.get(row, "") for row in range(len(view))]
        return lambda row: any(whole(texts[row]) for whole in wholes)
    compare = COMPARE[term.relation]
    wanted = [number(part, term.key, term.start, term.end) for part in term.alternatives]
    value = numbers_of(view, term.key)

    def holds(row: int) -> bool:
        node_value = value(row)
        return node_value is not None and any(compare(node_value, bound) for bound in wanted)

    return holds


def numbers_of(view: GraphView, key: str) -> Callable[[int], float | None]:
    """A function from a node to its number in a column; None where a node has none."""
    table, values = view.table, view.values
    columns: dict[str, Callable[[int], float | None]] = {
        **{name: lambda row, name=name: getattr(values[row], name) if row in values else None for name in VALUE_KEYS},
        "inputs": lambda row: len(view.inputs(row)),
        "flops": view.flops,
        "index": lambda row: row,
        "seq": lambda row: table.seq_nr[row],
        "users": table.users.__getitem__,
        "bytes": table.size_bytes.__getitem__,
    }
    return columns[key]


def hint(view: GraphView, terms: Sequence[Term]) -> str:
    """Names the first op, dtype or module of a filter that no node has, with the most similar ones in the graph; empty
    where each is there."""
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
