# pyright: basic
"""Nodes that no atom holds: they come with the kept nodes that need them, and go with them.

Symbolic numbers (a size that a dropped node computed cannot be an input: its symbol would be bound nowhere) and the mode switches
of a Dynamo graph (grad mode, autocast). So a subset never becomes static, or computes in another dtype, in silence.

>>> Carried.of(gm, values).needed({"view"}, order)
{'mul'}
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import fx

from .values import Values

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass
class Carried:
    """What comes with what."""

    numbers: dict[str, list[str]] = field(default_factory=dict)
    """A node that computes symbolic numbers -> those that it reads."""
    stands: dict[str, str] = field(default_factory=dict)
    """A symbolic number -> the placeholder that is the same number."""
    readers: dict[str, list[str]] = field(default_factory=dict)
    """Any other node -> the symbolic numbers that it reads."""
    grads: list[tuple[str, bool, bool]] = field(default_factory=list)
    """Switches of grad mode in order: name, mode before, mode after."""
    regions: list[tuple[str, str]] = field(default_factory=list)
    """Nodes that enter and leave autocast."""

    @classmethod
    def of(cls, gm: fx.GraphModule, values: Values) -> Carried:
        """Of a graph with fake values (without them no number is symbolic) whose values were recorded."""
        found = cls(grads=[(name, *modes) for name, modes in values.grads.items()])
        homes: dict[str, str] = {}
        for node in gm.graph.nodes:
            value = fake_of(node)
            if node.op == "placeholder":
                if isinstance(value, torch.SymInt) and not value.node.is_constant():
                    homes.setdefault(str(value.node.expr), node.name)
                continue
            read = [other.name for other in node.all_input_nodes if other.name in found.numbers]
            if node.op == "output":
                continue
            if not is_symbolic(value):
                if read:
                    found.readers[node.name] = read
                if target_name(node) == "_enter_autocast":
                    found.regions += [(node.name, user.name) for user in node.users]
                continue
            if isinstance(value, torch.SymInt) and (home := homes.get(str(value.node.expr))) is not None:
                found.stands[node.name] = home
                read = []
            found.numbers[node.name] = read
        return found

    @property
    def names(self) -> set[str]:
        """All nodes that no atom holds."""
        switches = {name for name, _, _ in self.grads}
        return {*self.numbers, *switches, *(name for region in self.regions for name in region)}

    def needed(self, kept: Collection[str], order: Sequence[str]) -> set[str]:
        """The nodes that must come with the kept ones. `order` are the names of all nodes of the graph."""
        stack = [number for name in kept for number in self.readers.get(name, ())]
        needed: set[str] = set()
        while stack:
            number = stack.pop()
            if number not in needed and number not in self.stands:
                needed.add(number)
                stack += self.numbers[number]
        if kept and (self.grads or self.regions):
            needed |= self._switches(kept, {name: position for position, name in enumerate(order)})
        return needed

    def _switches(self, kept: Collection[str], rank: dict[str, int]) -> set[str]:
        places = sorted(rank[name] for name in kept)
        needed: set[str] = set()
        for enter, leave in self.regions:
            if any(rank[enter] < place < rank[leave] for place in places):
                needed |= {enter, leave}
        if not self.grads:
            return needed
        now = self.grads[0][1]
        ends = [*(rank[name] for name, _, _ in self.grads[1:]), len(rank)]
        for (name, _, mode), end in zip(self.grads, ends, strict=True):
            last = end == len(rank)
            if mode != now and (last or any(rank[name] < place < end for place in places)):
                needed.add(name)
                now = mode
        return needed

    def to_json(self) -> dict[str, Any]:
        """Plain data for another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Carried:
        """The inverse of to_json."""
        return cls(
            data["numbers"], data["stands"], data["readers"], [(name, before, after) for name, before, after in data["grads"]],
            [(enter, leave) for enter, leave in data["regions"]],
        )  # fmt: skip


def fake_of(node: fx.Node) -> Any:
    """The value that a tracer noted, or None."""
    return node.meta.get("val", node.meta.get("example_value"))


def is_symbolic(value: Any) -> bool:
    """Whether a value is a number that is not known before the graph runs, or a list of numbers with such among them."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(part, (*SYMBOLIC, int, float)) for part in value) and any(map(is_symbolic, value))
    return isinstance(value, SYMBOLIC) and not value.node.is_constant()


def target_name(node: fx.Node) -> str:
    """The last word of what a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def symbols_in(value: Any) -> set[str]:
    """The symbols in a fake value: a number's, or a tensor's sizes', strides' and offset's."""
    if isinstance(value, SYMBOLIC):
        return {str(symbol) for symbol in value.node.expr.free_symbols}
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        numbers = (*value.shape, *value.stride(), value.storage_offset())
        return {symbol for number in numbers if isinstance(number, SYMBOLIC) for symbol in symbols_in(number)}
    if isinstance(value, (list, tuple)):
        return {symbol for part in value for symbol in symbols_in(part)}
    return set()


def bound_by(value: Any) -> set[str]:
    """The symbols that an input with this fake value gives a number to: it is one, or has one as a size."""
    numbers = [value] if isinstance(value, SYMBOLIC) else value.shape if isinstance(value, torch.Tensor) else ()
    return {str(number.node.expr) for number in numbers if isinstance(number, SYMBOLIC) and number.node.expr.is_symbol}


def binding(others: Sequence[fx.Node], given: Sequence[Any]) -> tuple[set[str], set[str]]:
    """The names of the placeholders among `others` that must come in too, so that every symbol of what is given is bound,
    and the symbols that none of them binds (sizes that depend on data).
    """
    loose = {symbol for value in given for symbol in symbols_in(value)}
    loose -= {symbol for value in given for symbol in bound_by(value)}
    added: set[str] = set()
    for node in sorted(others, key=lambda node: isinstance(fake_of(node), torch.Tensor)):
        if gained := loose & bound_by(fake_of(node)):
            loose -= gained
            added.add(node.name)
    return added, loose
