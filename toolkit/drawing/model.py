"""The view model of a picture: boxes in nested clusters, joined by edges. Says what is seen, not how it is laid out or
coloured.

Plain data that knows neither graphs nor renderers, so that DOT and a terminal can show the same view.

>>> view = View("0_0/forward", "nodes", [Box("n0", "x"), Box("n1", "sin")], [], [Edge("n0", "n1", "f32[2, 3]")])
>>> view.clusters
[]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["nodes", "around", "by-module"]
"""Every node; the neighbourhood of one; one box for each module."""


@dataclass
class Box:
    """One box. `title` is its first line, `lines` are the others; `family` is a key of families.FAMILIES.

    `nodes` are the names of the graph's nodes that it stands for, `hidden` counts neighbours of theirs that were left
    out, and `detail` is a longer text for renderers that can show one on request. `focus` marks what the user asked
    for.
    """

    id: str
    title: str
    lines: list[str] = field(default_factory=list)
    family: str = "other"
    cluster: str = ""
    group: bool = False
    nodes: list[str] = field(default_factory=list)
    hidden: int = 0
    focus: bool = False
    detail: str = ""


@dataclass
class Cluster:
    """A frame around boxes and other clusters; `parent` is the id of the one around it ("": none)."""

    id: str
    label: str
    parent: str = ""
    kind: Literal["module", "side"] = "module"


@dataclass
class Edge:
    """From the box that makes a value to one that uses it. `saved` edges join a forward graph to its backward graph;
    `against` edges are laid out against their direction: the backward graph runs upwards beside its forward graph."""

    source: str
    target: str
    label: str = ""
    saved: bool = False
    against: bool = False


@dataclass
class View:
    """One picture. `notes` are sentences about what it leaves out."""

    title: str
    kind: Kind
    boxes: list[Box]
    clusters: list[Cluster]
    edges: list[Edge]
    notes: list[str] = field(default_factory=list)

    @property
    def families(self) -> list[str]:
        """The families in the picture, in order of appearance."""
        return list(dict.fromkeys(box.family for box in self.boxes))
