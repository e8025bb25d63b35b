"""Centres the texts of boxes in an SVG from Graphviz, so that they fit whatever font the reader's machine has.

Graphviz writes where a text starts, counted from the middle by the width that the text has in the font of the machine that
drew it. Where a wider font shows it, it would leave its box on the right. Every text of our boxes is centred, so its middle
is the box's. Must not change anything else of the picture.

>>> centred(svg_bytes)
b'<?xml version="1.0"...'
"""

from __future__ import annotations

import re

_NODE = re.compile(rb'<g id="[^"]*" class="node">.*?</g>\s*(?=<!--|<g |</g>)', re.DOTALL)
_OUTLINE = re.compile(rb'<(?:path|polygon)\b[^>]*?\b(?:d|points)="([^"]+)"')
_START = re.compile(rb'(<text\b[^>]*?)text-anchor="start" x="[^"]*"')
_PAIR = re.compile(rb"(-?\d+(?:\.\d+)?),(-?\d+(?:\.\d+)?)")


def centred(svg: bytes) -> bytes:
    """The same picture with every text of a box in the middle of its box, across."""
    return _NODE.sub(lambda found: _with_middle(found.group(0)), svg)


def _with_middle(node: bytes) -> bytes:
    outline = _OUTLINE.search(node)
    xs = [float(x) for x, _ in _PAIR.findall(outline.group(1))] if outline else []
    if not xs:
        return node
    middle = f"{(min(xs) + max(xs)) / 2:.2f}".encode()
    return _START.sub(rb'\1text-anchor="middle" x="' + middle + rb'"', node)
