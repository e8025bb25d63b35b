"""The generated kernel of every node of a graph, for the column of the node table. Reads the generated module; runs nothing.

A kernel whose code names the node is sure; one that is found by the node's op and place is written with ~ before it. In a large
graph not all nodes can be looked at: there only the sure ones are told.

>>> kernel_column(saved, view)[57]
'triton_poi_fused_add_0'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .kernels import Generated
from .recorded import Recorded
from .table import GraphView

if TYPE_CHECKING:
    from ..store import SavedGraph

MOST_NODES = 3000
GUESSED = "~"


def kernel_column(saved: SavedGraph, view: GraphView) -> dict[int, str]:
    """Place of a node -> its kernels; empty where no code was generated. Raises UnreadableError."""
    code = Generated.of(saved)
    if code is None:
        return {}
    found: dict[int, list[str]] = {}
    for kernel in code.kernels:
        for name in kernel.nodes:
            index = view.position(name)
            if index is not None:
                found.setdefault(index, []).append(kernel.name)
    if len(view) <= MOST_NODES:
        recorded = Recorded(saved)
        for index in range(len(view)):
            if index not in found and (uses := code.uses(view, recorded, index)):
                found[index] = [("" if use.sure else GUESSED) + use.kernel for use in uses[:3]]
    return {index: " ".join(dict.fromkeys(names)) for index, names in found.items()}
