"""From what a user types to one node: its name, its number, the beginning of a name, or a line of the user's code.

>>> find_place(view, "mul_22"), find_place(view, "57"), find_place(view, "model.py:12")
(57, 57, 31)
"""

from __future__ import annotations

import difflib

from ..errors import UsageError
from ..wording import counted
from .table import GraphView

NEAR = 3


def find_place(view: GraphView, text: str) -> int:
    """The place of the node; raises UsageError, with the nearest names."""
    text = text.strip()
    found = view.position(text)
    if found is not None:
        return found
    number = text.removeprefix("#")
    if number.isascii() and number.isdecimal():
        if int(number) < len(view):
            return int(number)
        raise UsageError(f"there is no node {number}", f"the last of {counted(len(view), 'node', form=',')} is {len(view) - 1}")
    if ":" in text:
        return _line(view, text)
    low = text.lower()
    begins = [name for name in view.table.name if name.lower().startswith(low)] if low else []
    if len(begins) == 1 or (begins and begins[0].lower() == low):
        return view.positions[begins[0]]
    if begins:
        raise UsageError(f"no node is called {text!r}", f"{len(begins):,} begin so: {', '.join(begins[:NEAR])} ...")
    raise UsageError(f"no node is called {text!r}", "there is none of that name", _near(view, text))


def _line(view: GraphView, text: str) -> int:
    texts = {at for at in view.distinct("where") if view.text[at] == text or view.text[at].endswith(text)}
    column = view.table.where
    for index in range(len(view)):
        if column[index] in texts and view.text[column[index]]:
            return index
    lines = sorted({view.text[at] for at in view.distinct("where") if view.text[at]})
    near = difflib.get_close_matches(text, lines, n=NEAR)
    raise UsageError(f"no node comes from {text!r}", "no node has that line", f"there are {', '.join(near or lines[:NEAR])}")


def _near(view: GraphView, text: str) -> str:
    """The nearest names; in a large graph only among those that begin with the same letter."""
    names = view.table.name
    if len(names) > 5000:
        names = [name for name in names if name[:1] == text[:1]][:5000]
    near = difflib.get_close_matches(text, names, n=NEAR)
    return f"did you mean {' or '.join(near)}" if near else ""
