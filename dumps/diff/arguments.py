"""Encoded arguments as people read them, and where those of two nodes differ.

Nodes are compared by partnership and never by name. Reads records only.

>>> text({"tuple": [{"node": "x"}, {"dtype": "float16"}]})
'(x, float16)'
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from ..schema import Arg, ConstValue, SymValue
from ..walk import items, tag_of
from .align import Alignment
from .facts import Facts

_BRACKETS = {
    "tuple": "()",
    "size": "()",
    "slice": ("slice(", ")"),
    "range": ("range(", ")"),
    "complex": ("complex(", ")"),
}
_MAX_TEXT = 60
_MISSING = {"missing": True}


class Difference(NamedTuple):
    """One place in the arguments: what stands there in both, the nodes meant (-1: none), plain values where there are some."""

    place: str
    a: Arg
    b: Arg
    node_a: int = -1
    node_b: int = -1
    plain_a: Any = None
    plain_b: Any = None


def text(arg: Arg, strings: list[str] | None = None) -> str:
    """An encoded argument on one line, as Python would write it more or less."""
    if isinstance(arg, list):
        return f"[{', '.join(text(item, strings) for item in cast('list[Arg]', arg))}]"
    if not isinstance(arg, dict):
        return repr(cast("object", arg))
    tag, body = tag_of(arg)
    if tag in _BRACKETS:
        left, right = _BRACKETS[tag]
        return f"{left}{', '.join(text(item, strings) for item in body)}{right}"
    if tag == "dict":
        return "{" + ", ".join(f"{text(key, strings)}: {text(item, strings)}" for key, item in body) + "}"
    if tag == "sym":
        return str(body[1])
    if tag == "string":
        return repr(_string(strings or [], body))
    if tag in ("ellipsis", "missing"):
        return "..." if tag == "ellipsis" else "nothing"
    if tag == "opaque":
        return str(body[-1])
    return str(body)


def _string(strings: list[str], place: int) -> str:
    return strings[place] if 0 <= place < len(strings) else ""


def short(arg: Arg, strings: list[str] | None = None) -> str:
    """The same, cut to what fits a line."""
    found = text(arg, strings)
    return found if len(found) <= _MAX_TEXT else found[: _MAX_TEXT - 3] + "..."


def differences(found: Alignment, i: int, j: int) -> list[Difference]:
    """Every place where the arguments of two partners differ."""
    one, two = found.a.nodes[i], found.b.nodes[j]
    made: list[Difference] = []
    for index in range(max(len(one.args), len(two.args))):
        left = one.args[index] if index < len(one.args) else _MISSING
        right = two.args[index] if index < len(two.args) else _MISSING
        made.extend(_between(found, f"argument {index}", left, right))
    for key in sorted(one.kwargs.keys() | two.kwargs.keys()):
        made.extend(_between(found, f"argument {key}", one.kwargs.get(key, _MISSING), two.kwargs.get(key, _MISSING)))
    return made


def _between(found: Alignment, place: str, one: Arg, two: Arg) -> Iterator[Difference]:
    a_items, b_items = items(one), items(two)
    if a_items is not None and b_items is not None and len(a_items) == len(b_items):
        for index, (left, right) in enumerate(zip(a_items, b_items, strict=True)):
            yield from _between(found, f"{place}[{index}]", left, right)
        return
    a, b = found.a, found.b
    node_a, node_b = _node(a, one), _node(b, two)
    both = node_a >= 0 and node_b >= 0
    alone = node_a >= 0 or node_b >= 0 or _known(a, one) != _known(b, two)
    if found.to_b[node_a] != node_b if both else alone:
        yield Difference(place, one, two, node_a, node_b, _plain(a, one), _plain(b, two))


def _node(facts: Facts, arg: Arg) -> int:
    tag, name = tag_of(arg)
    return facts.position.get(name, -1) if tag == "node" and isinstance(name, str) else -1


def _plain(facts: Facts, arg: Arg) -> Any:
    """The number or expression that an argument stands for, where it is known."""
    tag, body = tag_of(arg)
    if tag == "sym":
        return facts.dim(body[1])
    if tag in ("dtype", "device"):
        return facts.device(body)
    if tag:
        value = facts.nodes[index].value if (index := _node(facts, arg)) >= 0 else None
        if isinstance(value, SymValue):
            return facts.dim(value.expr)
        return value.value if isinstance(value, ConstValue) and isinstance(value.value, int) else None
    return arg if isinstance(arg, int) and not isinstance(arg, bool) else None


def _known(facts: Facts, arg: Arg) -> Any:
    """An argument without nodes in a form that may be compared with another graph's; 1 and 1.0 and True are three things."""
    tag, body = tag_of(arg)
    if tag == "sym":
        return tag, body[0], facts.dim(body[1])
    if tag == "device":
        return tag, facts.device(body)
    if tag == "string":
        return _string(facts.record.strings, body)
    if tag == "tensor" and body in facts.body.attrs:
        stored = facts.body.attrs[body]
        return facts.value(stored.value), "" if stored.parameter else stored.storage
    if tag:
        return tag, repr(body)
    if isinstance(arg, list):
        return [_known(facts, item) for item in cast("list[Arg]", arg)]
    return type(arg), arg
