"""Frames around boxes: which modules become clusters, and what they are called.

A frame around a single box says no more than a line in the box, so it is left out; so is one that repeats the frame
around it. Does not know what a box stands for.

>>> clusters, homes = frames({"n0": (Level("a", "Block"),), "n1": (Level("a", "Block"),)})
>>> clusters[0].label, homes["n0"]
('a: Block', Home(cluster='c0', depth=1))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...dumps.levels import Level, Path
from ...dumps.short import shorten
from .model import Cluster


class Home(NamedTuple):
    """The innermost cluster of a box ("": none), and how many of the box's levels it stands for."""

    cluster: str
    depth: int


def frames(paths: Mapping[str, Path], prefix: str = "c", side: str = "") -> tuple[list[Cluster], dict[str, Home]]:
    """The clusters for boxes with these levels around them, outer ones first, and the innermost cluster of each box.

    `prefix` keeps ids of several graphs apart; `side` is the cluster that all of them lie in.
    """
    members: dict[Path, set[str]] = {}
    for box, path in paths.items():
        for depth in range(1, len(path) + 1):
            members.setdefault(path[:depth], set()).add(box)
    doubled = {path[:-1] for path, inside in members.items() if members.get(path[:-1]) == inside}
    kept: dict[Path, Cluster] = {}
    for path in sorted(members, key=len):
        if len(members[path]) < 2 or path in doubled:
            continue
        parent = _innermost(path[:-1], kept)
        around = kept[parent].id if parent else side
        kept[path] = Cluster(f"{prefix}{len(kept)}", _label(path[-1], parent[-1].path if parent else ""), around)
    homes: dict[str, Home] = {}
    for box, path in paths.items():
        innermost = _innermost(path, kept)
        homes[box] = Home(kept[innermost].id if innermost else side, len(innermost))
    return list(kept.values()), homes


def unframed(path: Path, depth: int) -> str:
    """The module line of a box when only the first `depth` levels have a frame: "up: Linear"; "" when all have."""
    if depth >= len(path):
        return ""
    return _label(path[-1], path[depth - 1].path if depth else "")


def name_within(path: str, around: str) -> str:
    """The path of a module as seen from one around it: "attention" of "blocks.0.attention" in "blocks.0"."""
    return path.removeprefix(f"{around}.") if around else path


def _innermost(path: Path, kept: Mapping[Path, Cluster]) -> Path:
    return next((path[:depth] for depth in range(len(path), 0, -1) if path[:depth] in kept), ())


def _label(level: Level, around: str) -> str:
    name = shorten(name_within(level.path, around), 48)
    return f"{name}: {shorten(level.kind, 40)}" if level.kind else name
