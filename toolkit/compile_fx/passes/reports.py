"""What one pass did to one graph, as plain data. Must not import torch.

>>> report = PassReport("joint", "remove_noop_ops", nodes_before=12, nodes_after=11, removed={"aten.view.default": 1})
>>> report.changed
True
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Matched:
    """One pattern in one pass: how often it was applied (or kept from it), and where in the user's code."""

    name: str
    count: int = 0
    skipped: int = 0
    lines: list[str] = field(default_factory=list[str])


@dataclass
class PassReport:
    """One run of one pass.

    `graph`: path of the graph inside the stage's, "" for that itself (`true_graph_0` is a body of cond). `inside`: the pass
    that ran it. `seconds` includes passes inside. `removed` and `added` count operators; `rewired` nodes that got other
    arguments; `reordered`: nodes that stayed stand in another order. Values in `meta` are not compared.
    """

    stage: str
    name: str
    graph: str = ""
    alias: str = ""
    inside: str = ""
    seconds: float = 0.0
    nodes_before: int | None = None
    nodes_after: int | None = None
    removed: dict[str, int] = field(default_factory=dict[str, int])
    added: dict[str, int] = field(default_factory=dict[str, int])
    rewired: int = 0
    reordered: bool = False
    matched: list[Matched] = field(default_factory=list[Matched])
    skipped_because: str = ""
    error: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.stage}.{self.name}"

    @property
    def changed(self) -> bool:
        """Whether the graph's nodes, their arguments or their order are others now."""
        return bool(self.removed or self.added or self.rewired or self.reordered)

    @property
    def matches(self) -> int:
        """How many matches of patterns were applied."""
        return sum(one.count for one in self.matched)
