"""The process in which pygraphviz lays a picture out: DOT on stdin, the finished bytes on stdout. Started by `picture`.

Imports nothing of ours, so that a crash in Graphviz ends this process only.

    python -m graphdbg.toolkit.drawing.layout_child svg 0 < graph.dot > graph.svg
"""

from __future__ import annotations

import os
import sys
import warnings


def main(wanted: str, dpi: str) -> None:
    """Reads, lays out, renders, writes; `dpi` 0 leaves the format's own."""
    text = sys.stdin.buffer.read().decode()
    out = os.dup(1)
    os.dup2(2, 1)  # what Graphviz prints on stdout must not get into the picture
    import pygraphviz

    warnings.simplefilter("ignore")  # pygraphviz repeats each remark of Graphviz as a warning
    graph = pygraphviz.AGraph(string=text)
    if dpi != "0":
        graph.graph_attr["dpi"] = dpi
    data = graph.draw(format=wanted, prog="dot")
    with os.fdopen(out, "wb") as stream:
        stream.write(data or b"")


if __name__ == "__main__":
    main(*sys.argv[1:])
