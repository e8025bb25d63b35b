"""HTML from texts of a dump: every text is escaped, unless it is Markup, which the program made itself.

All code that writes HTML, also for the labels of DOT, escapes its texts here, once.

>>> tag("td", "a < b", tag("b", "!"), class_="num")
'<td class="num">a &lt; b<b>!</b></td>'
"""

from __future__ import annotations

import html

import msgspec

from .tables import visible


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Escapes a text for the inside of an element or of a quoted attribute; control characters are made visible, line
    breaks stay."""
    return text if isinstance(text, Markup) else Markup(html.escape(visible(text), quote=True))


def tag(name: str, *inside: str, **attributes: str | bool | None) -> Markup:
    """An element; `class_` is class, `data_x` is data-x, and an attribute that is None or False is left out."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{given}>{joined(*inside)}</{name}>")


def joined(*parts: str) -> Markup:
    """The parts one after the other."""
    return Markup("".join(map(escaped, parts)))


def data(value: object) -> Markup:
    """A JSON document for the inside of a script element; no text in the document can close that element."""
    return Markup(msgspec.json.encode(value).decode().replace("<", "\\u003c"))
