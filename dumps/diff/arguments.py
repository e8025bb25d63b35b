"""Encoded arguments as readable text, and the differences of two nodes: in arguments, in values (dtype, shape, stride,
device, ...), and the numbers that a change of shape replaces by others. A departure is one finding of a comparison: a
pair of nodes that differs, or neighbouring nodes that only one graph has.

Nodes are compared by partnership and never by name. Reads records only.

>>> text({"tuple": [{"node": "x"}, {"dtype": "float16"}]})
'(x, float16)'
>>> changes(("tensor", "float32", (8, 4), (4, 1), "cpu", 0, "strided", False, False, False, b""),
...         ("tensor", "float16", (8, 4), (4, 1), "cpu", 0, "strided", False, False, False, b""))
[Change(aspect='dtype', a='float32', b='float16', place='')]
>>> Departure("changed", [3], [4], [Change("argument", "0.5", "0.25", "argument 1")])
Departure(kind='changed', a=[3], b=[4], changes=[Change(aspect='argument', a='0.5', b='0.25', place='argument 1')],
follows=None)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, cast

import msgspec

from ..arguments import KINDS
from ..schema import Arg
from ..walk import items, tag_of
from .align import Alignment
from .facts import Key, NodeColumns

_MAX_TEXT = 60
_MISSING = {"missing": True}


class ArgumentDifference(NamedTuple):
    """One differing place in the arguments: its content in both graphs, the node there (-1: none), and the plain value,
    if any."""

    place: str
    a: Arg
    b: Arg
    node_a: int = -1
    node_b: int = -1
    plain_a: Any = None
    plain_b: Any = None


def text(arg: Arg, strings: list[str] | None = None) -> str:
    """An encoded argument on one line, close to Python's own notation."""
    if isinstance(arg, list):
        return f"[{', '.join(text(item, strings) for item in cast('list[Arg]', arg))}]"
    if not isinstance(arg, dict):
        return repr(cast("object", arg))
    tag, body = tag_of(arg)
    if tag not in KINDS:
        return "nothing" if tag == "missing" else str(body)
    return KINDS[tag].shown(body, lambda item: text(item, strings), strings or [])


def short(arg: Arg, strings: list[str] | None = None) -> str:
    """The text of an argument, cut to fit a line."""
    whole = text(arg, strings)
    return whole if len(whole) <= _MAX_TEXT else whole[: _MAX_TEXT - 3] + "..."


def differences(alignment: Alignment, i: int, j: int) -> list[ArgumentDifference]:
    """Every place where the arguments of two partners differ."""
    first, second = alignment.a.nodes[i], alignment.b.nodes[j]
    listed: list[ArgumentDifference] = []
    for index, pair in enumerate(zip_longest(first.args, second.args, fillvalue=_MISSING)):
        listed.extend(_between(alignment, f"argument {index}", *pair))
    for key in sorted(first.kwargs.keys() | second.kwargs.keys()):
        listed.extend(
            _between(alignment, f"argument {key}", first.kwargs.get(key, _MISSING), second.kwargs.get(key, _MISSING))
        )
    return listed


def _between(alignment: Alignment, place: str, first: Arg, second: Arg) -> Iterator[ArgumentDifference]:
    a_items, b_items = items(first), items(second)
    if a_items is not None and b_items is not None and len(a_items) == len(b_items):
        for index, (left, right) in enumerate(zip(a_items, b_items, strict=True)):
            yield from _between(alignment, f"{place}[{index}]", left, right)
        return
    a, b = alignment.a, alignment.b
    node_a, node_b = _node(a, first), _node(b, second)
    both = node_a >= 0 and node_b >= 0
    alone = node_a >= 0 or node_b >= 0 or _known(a, first) != _known(b, second)
    if alignment.to_b[node_a] != node_b if both else alone:
        yield ArgumentDifference(place, first, second, node_a, node_b, _plain(a, first), _plain(b, second))


def _node(facts: NodeColumns, arg: Arg) -> int:
    tag, name = tag_of(arg)
    return facts.position.get(name, -1) if tag == "node" and isinstance(name, str) else -1


def _plain(facts: NodeColumns, arg: Arg) -> Any:
    """The number or expression that an argument stands for; None where it is unknown."""
    tag, body = tag_of(arg)
    if tag:
        return KINDS[tag].number(body, facts) if tag in KINDS else None
    return arg if isinstance(arg, int) and not isinstance(arg, bool) else None


def _known(facts: NodeColumns, arg: Arg) -> Any:
    """An argument without nodes, in a form to be compared with another graph's; 1, 1.0 and True are all different."""
    tag, body = tag_of(arg)
    if tag:
        return KINDS[tag].compared(body, facts) if tag in KINDS else (tag, repr(body))
    if isinstance(arg, list):
        return [_known(facts, item) for item in cast("list[Arg]", arg)]
    return type(arg), arg


_ASPECTS = ("dtype", "shape", "stride", "device", "offset", "layout", "requires_grad", "conj", "neg", "quantizer")


class Change(msgspec.Struct):
    """One difference between two partners; `place`: which argument, or which of several results."""

    aspect: str
    a: str
    b: str
    place: str = ""

    def text(self) -> str:
        """The change in a few words: `argument 1: 0.5 -> 0.25`."""
        what = self.place if self.aspect == "argument" else f"{self.aspect}{' of ' if self.place else ''}{self.place}"
        return f"{what}: {self.a} -> {self.b}"


_SAME_VALUES = frozenset({"view", "reshape", "_unsafe_view", "alias", "clone", "contiguous", "detach"})
"""Operators that return the elements of their input in its order: replacing one by another changes no number."""


def same_values(changed: Sequence[Change]) -> bool:
    """Whether the changes of a node leave the numbers of its result as they are.

    >>> same_values([Change("target", "aten.view.default", "aten.reshape.default")])
    True
    """
    texts = [text for change in changed for text in (change.a, change.b)]
    return bool(changed) and all(change.aspect == "target" for change in changed) and only_moves(texts)


def only_moves(targets: Iterable[str]) -> bool:
    """Whether all these operators return the elements of their input in its order.

    >>> only_moves(["aten.alias.default", "aten.view.default"])
    True
    """
    return {target.split(".")[1] if target.count(".") == 2 else target for target in targets} <= _SAME_VALUES


def shown(part: Any) -> str:
    """A part of a value key as readable text."""
    if isinstance(part, tuple):
        return f"[{', '.join(map(str, part))}]"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return part.decode() if isinstance(part, bytes) else str(part)


def summary(key: Key) -> str:
    """A whole value as text: float32 [2, s0]."""
    if not key:
        return "no value"
    if key[0] == "tensor":
        return f"{key[1]} {shown(key[2])}"
    if key[0] in ("list", "tuple"):
        return f"({', '.join(summary(item) for item in key[1:4])}{', ...' if len(key) > 4 else ''})"
    return str(key[-1]) if key[0] == "sym" else "a constant"


def changes(a: Key, b: Key, place: str = "") -> list[Change]:
    """The differences between two values, the most important first; empty when they are equal."""
    if a == b:
        return []
    if a and b and a[0] == b[0] and len(a) == len(b):
        if a[0] == "tensor":
            return [
                Change(aspect, shown(left), shown(right), place)
                for aspect, left, right in zip(_ASPECTS, a[1:], b[1:], strict=True)
                if left != right and not (aspect == "stride" and a[2] != b[2] and _same_order(a, b))
            ]
        if a[0] in ("list", "tuple"):
            pairs = enumerate(zip(a[1:], b[1:], strict=True))
            return [
                change for index, (left, right) in pairs for change in changes(left, right, f"{place}result {index}")
            ]
        if a[0] == "sym":
            return [Change("expression", str(a[2]), str(b[2]), place)]
    return [Change("value", summary(a), summary(b), place)]


def _same_order(a: Key, b: Key) -> bool:
    """Whether dimensions lie in memory in the same order, where strides are numbers: a longer batch changes strides,
    but not this order."""
    if len(a[3]) != len(b[3]) or not all(isinstance(stride, int) for stride in (*a[3], *b[3])):
        return True
    first, second = (sorted(range(len(key[3])), key=lambda dim, key=key: (-key[3][dim], dim)) for key in (a, b))
    return first == second


def substitutions(a: Key, b: Key) -> Iterator[tuple[Any, Any]]:
    """Yields (old, new) pairs of sizes, strides, element counts, dtypes and devices in which one value differs from the
    other."""
    if not a or not b or a[0] != b[0]:
        if a and b and {a[0], b[0]} <= {"sym", "other"}:
            yield str(a[-1]), str(b[-1])
        return
    if a[0] == "tensor":
        old_dtype, old_shape, old_strides, old_device = a[1:5]
        new_dtype, new_shape, new_strides, new_device = b[1:5]
        yield old_dtype, new_dtype
        yield old_device, new_device
        if len(old_shape) == len(new_shape):
            yield from zip(old_shape, new_shape, strict=True)
            yield from zip(old_strides, new_strides, strict=False)
        if all(isinstance(dim, int) for dim in (*old_shape, *new_shape)):
            yield math.prod(old_shape), math.prod(new_shape)
    elif a[0] in ("list", "tuple"):
        for left, right in zip(a[1:], b[1:], strict=False):
            yield from substitutions(left, right)
    elif a[0] == "sym":
        yield a[2], b[2]


Kind = Literal["changed", "removed", "added", "replaced"]


class Departure(msgspec.Struct):
    """A pair that differs, or neighbouring nodes of one graph, or both, that have no partner in the other.

    `follows`: the position of the departure that caused this one; None: it departs by itself.
    """

    kind: Kind
    a: list[int]
    b: list[int]
    changes: list[Change] = []
    follows: int | None = None
