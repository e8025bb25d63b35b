"""Which walk over arguments handles which kind: a kind that a walk knows nothing of is listed here, or is a hole."""

from __future__ import annotations

import pytest

from graphdbg.dumps.arguments import KINDS
from graphdbg.dumps.arguments.kind import Kind
from graphdbg.dumps.diff.arguments import text
from graphdbg.dumps.errors import RefusedError
from graphdbg.dumps.program.text import Writer
from graphdbg.dumps.validate import Checker
from graphdbg.dumps.walk import plain
from graphdbg.toolkit.drawing.source import arguments_text

EVERY = ("check", "shown", "encode", "decode")
"""What each kind does for itself."""
_TEXT = {"function", "node", "opaque", "policy", "qscheme", "range", "slice", "string", "sym", "tensor", "value"}
LEFT_OUT = {
    "written": {"opaque", "policy", "value"},
    "drawn": {"complex", "dict", *_TEXT},
    "plain": {"complex", "ellipsis", *_TEXT},
}
"""A walk -> the kinds with no answer of their own: no form in a program, nothing to draw, no plain value."""
OWN = {"compared": {"device", "string", "sym", "tensor"}, "number": {"device", "dtype", "node", "sym"}}
"""A walk -> the kinds that are not equal just where their content is, or that stand for a number."""


def handled(walk: str) -> set[str]:
    """The kinds that have an answer of their own."""
    return {tag for tag, kind in KINDS.items() if getattr(type(kind), walk) is not getattr(Kind, walk)}


@pytest.mark.parametrize("walk", [*EVERY, *LEFT_OUT])
def test_each_walk_handles_each_kind_or_says_that_it_does_not(walk: str) -> None:
    why = f"give the kind a method `{walk}`" + (", or put its tag into LEFT_OUT" if walk in LEFT_OUT else "")
    assert set(KINDS) - handled(walk) == LEFT_OUT.get(walk, set()), why


@pytest.mark.parametrize("walk", OWN)
def test_kinds_that_are_more_than_their_content_say_so(walk: str) -> None:
    assert handled(walk) >= OWN[walk]


def test_a_kind_with_a_hole_is_none() -> None:
    class Holed(Kind):
        def shown(self, body: object, inner: object, strings: object = ()) -> str:
            return ""

    with pytest.raises(TypeError, match="abstract"):
        Holed("holed", 1)  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


@pytest.mark.parametrize("tag", KINDS)
def test_an_argument_of_each_kind_goes_through_all_walks(tag: str) -> None:
    arg = {tag: KINDS[tag].example}
    Checker("here").argument(arg, "args[0]", lambda name: "", {"weight"})
    assert text(arg, ["x"] * 9) and isinstance(arguments_text([arg], {}), str)
    assert plain(arg) == arg or tag not in LEFT_OUT["plain"]
    writer = Writer({name: name for name in "abcxyz"}, strings=["x"] * 9)
    writer.symbols, writer.tensors = {"s0": "s0"}, {"weight": "t"}
    if tag in LEFT_OUT["written"]:
        with pytest.raises(RefusedError, match="a program cannot contain"):
            writer.argument(arg)
    else:
        assert writer.argument(arg)
