"""What the styles of the printer share: the names of nodes and symbols, and a graph's nodes as statements. Must not import torch.

A style says how a statement, a call and what a graph holds are written (`module`, `function`, `plain`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import RefusedError
from ..schema import GraphBody, GraphRecord, NodeRecord
from ..walk import nodes
from . import kernels
from .facts import symbol_homes
from .text import Writer, identifier, target

CHECKPOINTS = frozenset({"higher_order.tag_activation_checkpoint", "higher_order.wrap_activation_checkpoint"})
GETITEM = ("operator.getitem", "_operator.getitem")


class Printer:
    """Writes the graph of a record, or one nested in it. `TAKEN`: names that the program needs for itself."""

    TAKEN: frozenset[str] = frozenset()
    SHORT: frozenset[str] = frozenset()
    """Namespaces of operators that the program has by their own names."""

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.names: dict[str, str] = {}
        self.symbols: dict[str, str] = {}
        self.tensors: dict[str, str] = {}
        self.kernels = kernels.Definitions()
        if record.kernels:
            functional = any(node.target == kernels.FUNCTIONAL for node in nodes(record.graph))
            self.kernels = kernels.definitions(record.kernels, functional=functional)

    def name(self, node: NodeRecord) -> str:
        """The variable of a node; one that the program needs for itself gets an underscore."""
        name = identifier(node.name, f"node {node.name[:60]}")
        taken = name in self.TAKEN or name in self.symbols.values() or name in self.kernels.names
        self.names[node.name] = f"{name}_" if taken else name
        return self.names[node.name]

    def writer(self, node: NodeRecord) -> Writer:
        """Writes the arguments of a node."""
        return Writer(
            self.names, symbols=self.symbols, tensors=self.tensors, where=f"node {node.name}", strings=self.record.strings
        )

    def symbol_lines(self, body: GraphBody, wanted: Iterable[str]) -> list[str]:
        """`s0 = x.size(0)` for each of the symbols, unless a parameter is named after it."""
        homes = symbol_homes(body)
        lines: list[str] = []
        for symbol in sorted(wanted):
            home, dim = homes.get(symbol, ("", None))
            text = self.names[home] if home else self.homeless(symbol)
            if not text:
                continue
            if dim is None and text == symbol:
                self.symbols[symbol] = text
                continue
            variable = symbol if symbol not in self.names.values() else f"{symbol}_size"
            self.symbols[symbol] = identifier(variable, f"symbol {symbol}")
            lines.append(f"{variable} = {text}" + ("" if dim is None else f".size({dim})"))
        return lines

    def homeless(self, symbol: str) -> str:
        """What a symbol is that no input has; empty where nothing is known."""
        raise NotImplementedError

    def returned(self, node: NodeRecord) -> str:
        """The statement of the output."""
        return f"return {self.writer(node).argument(node.args[0]) if node.args else None}"

    def call(self, node: NodeRecord) -> str:
        """A computing node as an expression."""
        writer, where = self.writer(node), f"node {node.name}"
        if node.target in kernels.CALLS:
            return kernels.call(node, self.record.kernels, writer, where)
        args = [writer.argument(arg) for arg in node.args]
        named = [f"{identifier(key, where)}={writer.argument(arg)}" for key, arg in node.kwargs.items()]
        if node.op == "call_method":
            return self.call_method(node, args, named)
        if node.op == "call_module":
            return self.call_module(node, args, named)
        return self.call_function(node, args, named)

    def call_method(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        """A method of the first argument."""
        return f"{args[0]}.{identifier(node.target, f'node {node.name}')}({', '.join([*args[1:], *named])})"

    def call_module(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        """A module that the graph holds."""
        if node.target not in self.tensors:
            raise RefusedError(f"node {node.name}", f"the graph holds nothing under {node.target[:60]!r}")
        return f"{self.tensors[node.target]}({', '.join([*args, *named])})"

    def call_function(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        """A function by its name."""
        if node.target in CHECKPOINTS:
            return f"torch.utils.checkpoint.checkpoint({', '.join([*args, *named])})"
        return f"{target(node.target, f'node {node.name}', short=self.SHORT)}({', '.join([*args, *named])})"
