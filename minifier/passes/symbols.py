"""Symbols: makes symbolic sizes the numbers that they were: all at once, which makes the case static, then each symbol
that the failure does not need. The dimensions that stay symbolic are those that the failure needs.

For example: `propose(case)` gives `[['symbols s77', 'symbols s27']]`.
"""

from __future__ import annotations

from ...toolkit.live.case import Live
from . import Pass
from .symbolic import renewed, symbols_of


def propose(case: Live) -> list[list[str]]:
    """Every symbol that an input binds, unless some number of the graph is known only as it runs."""
    edits = [f"symbols {name}" for name in symbols_of(case)]
    return [edits] if edits else []


def apply(case: Live, edit: str) -> Live:
    """The case with one symbol at its number; with no symbol left it is compiled for static sizes."""
    name = edit.split(" ")[1]
    if name not in symbols_of(case):
        raise ValueError(f"the case has no symbol {name}")
    return renewed(case, case.gm, case.inputs, static={name})


PASS = Pass(
    order=10,
    words="symbolic sizes made numbers",
    edits={"symbols *": "the symbolic size {1} made a number"},
    unneeded={"symbols": "dynamic sizes"},
)
