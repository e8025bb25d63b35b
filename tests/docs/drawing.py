"""Draws the `dot` blocks of the site as SVG inside of the page, by the Graphviz that pygraphviz brings."""

from __future__ import annotations

import re
from typing import Any

import pygraphviz

LOOK = """
rankdir=LR; bgcolor=transparent;
node [shape=box, style=rounded, fontname="sans-serif", fontsize=11, height=0.3];
edge [fontname="sans-serif", fontsize=10, arrowsize=0.7];
"""


def drawing(source: str, language: str, css_class: str, options: dict[str, Any], md: Any, **_: Any) -> str:
    """The drawing of one block, whose text is what stands between the braces of a digraph; black is the colour of the
    text around it, so that it is read on light and on dark.

    >>> "currentColor" in drawing("a -> b", "dot", "", {}, None)
    True
    """
    graph = pygraphviz.AGraph(string=f"digraph {{ {LOOK} {source} }}")
    svg = (graph.draw(format="svg", prog="dot") or b"").decode("utf-8")
    svg = re.sub(r"^.*?(?=<svg)", "", svg, flags=re.DOTALL).replace('"black"', '"currentColor"')
    svg = re.sub(r"<title>.*?</title>|<!--.*?-->", "", svg, flags=re.DOTALL)
    return f'<div class="drawing">{svg}</div>'
