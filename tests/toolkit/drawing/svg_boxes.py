"""Reads what lies where in an SVG that Graphviz wrote: boxes with their texts, frames, labels of edges.

>>> found = read(svg_text)
>>> found.boxes["n0"].texts[0].text
'x'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")
_NARROW, _WIDE = frozenset("ijlftrI.,:;|!'()[]{}_ "), frozenset("mwMW%@")


@dataclass
class Rectangle:
    """Sides in points; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Rectangle, slack: float = 0.5) -> bool:
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > slack and down > slack

    def holds(self, other: Rectangle, slack: float = 0.5) -> bool:
        return (
            self.left - slack <= other.left
            and self.top - slack <= other.top
            and self.right + slack >= other.right
            and self.bottom + slack >= other.bottom
        )


@dataclass
class Text:
    """One line of text. `place` is where a font of usual width would put it."""

    text: str
    place: Rectangle


@dataclass
class Shape:
    """A box, a frame or the label of an edge."""

    place: Rectangle
    texts: list[Text] = field(default_factory=list)
    fill: str = ""


@dataclass
class Picture:
    """All shapes by the title that Graphviz gives them."""

    boxes: dict[str, Shape]
    frames: dict[str, Shape]
    labels: dict[str, Shape]
    heading: list[str]


def read(svg: str) -> Picture:
    """The shapes of a picture."""
    root = ElementTree.fromstring(svg)
    picture = Picture({}, {}, {}, [])
    for group in root.iter(f"{_SVG}g"):
        kind, title = group.get("class"), group.findtext(f"{_SVG}title", "")
        if kind == "node":
            picture.boxes[title] = _shape(group)
        elif kind == "cluster":
            picture.frames[title] = _shape(group)
        elif kind == "edge" and (texts := _texts(group)):
            picture.labels[title] = Shape(_around([text.place for text in texts]), texts)
        elif kind == "graph":
            heading = group.find(f"{_SVG}g")
            picture.heading = [text.text for text in _texts(heading)] if heading is not None else []
    return picture


def usual_width(text: str, size: float, bold: bool) -> float:
    """An estimate of its own, by three classes of characters of a wide sans-serif font."""
    ems = sum(0.36 if c in _NARROW else 0.95 if c in _WIDE else 0.63 for c in text)
    return ems * size * (1.08 if bold else 1.0)


def _shape(group: ElementTree.Element) -> Shape:
    outline = next(part for part in group.iter() if part.tag in (f"{_SVG}path", f"{_SVG}polygon"))
    numbers = [float(number) for number in _NUMBERS.findall(outline.get("d") or outline.get("points") or "")]
    xs, ys = numbers[::2], numbers[1::2]
    return Shape(Rectangle(min(xs), min(ys), max(xs), max(ys)), _texts(group), outline.get("fill", ""))


def _texts(group: ElementTree.Element) -> list[Text]:
    results: list[Text] = []
    for part in group.iter(f"{_SVG}text"):
        size, x, y = (float(part.get(name, "0")) for name in ("font-size", "x", "y"))
        width = usual_width(part.text or "", size, part.get("font-weight") == "bold")
        left = x - width / 2 if part.get("text-anchor") == "middle" else x
        results.append(Text(part.text or "", Rectangle(left, y - 0.78 * size, left + width, y + 0.24 * size)))
    return results


def _around(places: list[Rectangle]) -> Rectangle:
    return Rectangle(
        min(p.left for p in places),
        min(p.top for p in places),
        max(p.right for p in places),
        max(p.bottom for p in places),
    )
