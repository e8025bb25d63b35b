# pyright: basic
"""One graph with symbolic sizes from two recorded ones of the same operators with different sizes.

Each size that changed between the two becomes a symbol, or an expression over symbols found before it (a multiple, a
product of two, a sum with a number); the numbers in arguments that changed become the same expressions. Then the graph
is run on fake tensors: every value must get the recorded shape at both recorded sizes and no symbol may become a
number, else there is no such graph. Two points do not prove an expression; what Inductor compiles from it is guarded by
it.

For example:

    gm = with_symbols(first.module, second.module)      # hints are the second's sizes; a text where it does not work
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ....dumps.wording import raised_line
from ... import torch_private as t

Pair = tuple[int, int]
"""A number in the first graph and the number in its place in the second."""


@dataclass(frozen=True)
class SizeExpression:
    """`factor * product of the symbols + added`; symbols by number."""

    factor: int
    symbols: tuple[int, ...]
    added: int = 0

    def of(self, values: Sequence[Any]) -> Any:
        """The value of the expression for these values of the symbols."""
        product: Any = None
        for number in self.symbols:
            product = values[number] if product is None else product * values[number]
        product = product if self.factor == 1 else product * self.factor
        return product + self.added if self.added else product


class _NoSymbols(Exception):
    """Why the two graphs have no common one with symbols."""


class Sizes:
    """The symbols, as pairs of numbers, and expressions over them."""

    def __init__(self) -> None:
        self.symbols: list[Pair] = []

    def expression(self, pair: Pair, *, new: bool = False) -> SizeExpression:
        """The expression that gives both numbers of a pair; with `new`, a new symbol where no expression does."""
        first, second = pair
        chosen: list[tuple[int, ...]] = [(number,) for number in range(len(self.symbols))]
        chosen += itertools.combinations_with_replacement(range(len(self.symbols)), 2)
        products = [
            (numbers, *(math.prod(self.symbols[n][side] for n in numbers) for side in (0, 1))) for numbers in chosen
        ]
        for numbers, at_first, at_second in products:
            factor = first // (at_first or 1)
            if at_first and at_second and (factor * at_first, factor * at_second) == pair:
                return SizeExpression(factor, numbers)
        for numbers, at_first, at_second in products:
            if first - at_first == second - at_second:
                return SizeExpression(1, numbers, first - at_first)
        if not new or min(pair) < 2:
            raise _NoSymbols(f"no expression over the changed sizes gives {first} and then {second}")
        self.symbols.append(pair)
        return SizeExpression(1, (len(self.symbols) - 1,))


def with_symbols(first: fx.GraphModule, second: fx.GraphModule) -> fx.GraphModule | str:
    """The second graph with symbols for what differs from the first, or why the two have no such graph."""
    try:
        return _Common(first, second).graph()
    except _NoSymbols as reason:
        return str(reason)
    except Exception as error:  # noqa: BLE001 - an operator that does not take symbols: the graph stays as it is, and it is said
        return raised_line(error, 120)


class _Common:
    def __init__(self, first: fx.GraphModule, second: fx.GraphModule) -> None:
        if len(first.graph.nodes) != len(second.graph.nodes):
            raise _NoSymbols("the two have different operators")
        self.pairs = list(zip(first.graph.nodes, second.graph.nodes, strict=True))
        self.root = second
        self.sizes = Sizes()
        self.env = t.ShapeEnv()
        self.mode = t.FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.made: dict[fx.Node, fx.Node] = {}
        self.names: dict[str, fx.Node] = {}
        self.numbers: dict[SizeExpression, fx.Node] = {}
        self.values: list[Any] = []
        self.homes: list[tuple[fx.Node, int]] = []
        self.new = fx.Graph()

    def graph(self) -> fx.GraphModule:
        inputs = [pair for pair in self.pairs if pair[0].op == "placeholder"]
        pairs = {pair for first, second in inputs for pair in _dims(first, second)}
        changed = sorted((pair for pair in pairs if pair[0] != pair[1]), key=sum)
        if not changed:
            raise _NoSymbols("no size of an input differs")
        for pair in changed:
            self.sizes.expression(pair, new=True)
        self._make_symbols()
        with torch.no_grad():
            for first, second in self.pairs:
                self._node(first, second)
        if any(value.node.expr.is_number for value in self.values) or self.env.replacements:
            raise _NoSymbols("a symbol became a number")
        gm = fx.GraphModule(self.root, self.new, "CompiledAutograd")
        gm.graph.lint()
        gm.meta.update(self.root.meta)
        return gm

    def _make_symbols(self) -> None:
        for number, (_, second) in enumerate(self.sizes.symbols):
            source = t.ConstantSource(f"size_{number}")
            symbol = self.env.create_symbol(second, source=source, dynamic_dim=t.DimDynamic.DYNAMIC)
            self.values.append(self.env.create_symintnode(symbol, hint=second, source=source))

    def _node(self, first: fx.Node, second: fx.Node) -> None:
        if first.op != second.op or (first.op != "placeholder" and first.target != second.target):
            raise _NoSymbols(f"{first.name} and {second.name} have different operators")
        if first.op == "placeholder":
            self._placeholder(first, second)
            return
        if first.op == "get_attr":
            raise _NoSymbols("the graph has a body or a constant")
        args, kwargs = self._argument((first.args, first.kwargs), (second.args, second.kwargs))
        node = self.made[second] = self.new.create_node(second.op, second.target, args, kwargs, name=second.name)
        node.meta = {key: value for key, value in second.meta.items() if key != "val"}
        if second.op == "call_function":
            given = fx.map_arg((args, kwargs), lambda item: item.meta["val"])
            with self.mode:
                node.meta["val"] = second.target(*given[0], **given[1])  # type: ignore[operator]
            self._check(first, second, node.meta["val"])

    def _placeholder(self, first: fx.Node, second: fx.Node) -> None:
        node = self.made[second] = self.new.placeholder(second.name)
        node.meta = dict(second.meta)
        before, after = first.meta["val"], second.meta["val"]
        if not isinstance(after, torch.Tensor) or after.layout is not torch.strided or before.dtype != after.dtype:
            raise _NoSymbols(f"{second.name} is not a plain tensor")
        shape = [self._number(pair) for pair in _dims(first, second)]
        stride = [self._number(pair) for pair in zip(before.stride(), after.stride(), strict=True)]
        offset = self._number((int(before.storage_offset()), int(after.storage_offset())))
        with self.mode:
            if before.storage_offset() or after.storage_offset():
                whole = self._number((_elements(before), _elements(after)))
                memory = torch.empty(whole, dtype=after.dtype, device=after.device)
                node.meta["val"] = memory.as_strided(shape, stride, offset)
            else:
                node.meta["val"] = torch.empty_strided(shape, stride, dtype=after.dtype, device=after.device)
        for dim, pair in enumerate(_dims(first, second)):
            if pair in self.sizes.symbols:
                self.homes.append((node, dim))

    def _number(self, pair: Pair) -> Any:
        return pair[0] if pair[0] == pair[1] else self.sizes.expression(pair).of(self.values)

    def _argument(self, first: Any, second: Any) -> Any:
        if isinstance(second, fx.Node):
            return self.made[second]
        if isinstance(second, (tuple, list)) and isinstance(first, (tuple, list)) and len(first) == len(second):
            return type(second)(self._argument(a, b) for a, b in zip(first, second, strict=True))
        if isinstance(second, dict) and isinstance(first, dict) and first.keys() == second.keys():
            return {key: self._argument(first[key], second[key]) for key in second}
        if type(first) is int and type(second) is int and first != second:
            return self._number_node(self.sizes.expression((first, second)))
        if first != second:
            raise _NoSymbols(f"{first} and {second} are different arguments")
        return second

    def _number_node(self, expression: SizeExpression) -> fx.Node:
        node = self.numbers.get(expression)
        if node is None:
            symbols = [self._size_node(number) for number in expression.symbols]
            node = symbols[0]
            for factor in (*symbols[1:], *((expression.factor,) if expression.factor != 1 else ())):
                node = self._call(operator.mul, node, factor)
            if expression.added:
                node = self._call(operator.add, node, expression.added)
            self.numbers[expression] = node
        return node

    def _size_node(self, number: int) -> fx.Node:
        key = SizeExpression(1, (number,))
        if key not in self.numbers:
            home = next((home for home in self.homes if self._is(home, number)), None)
            if home is None:
                raise _NoSymbols("a changed size is no size of an input")
            self.numbers[key] = self._call(torch.ops.aten.sym_size.int, *home)
        return self.numbers[key]

    def _is(self, home: tuple[fx.Node, int], number: int) -> bool:
        size = home[0].meta["val"].shape[home[1]]
        return isinstance(size, torch.SymInt) and size.node.expr == self.values[number].node.expr

    def _call(self, function: Any, *args: Any) -> fx.Node:
        node = self.new.call_function(function, args)
        node.meta["val"] = function(*fx.map_arg(args, lambda item: item.meta["val"]))
        return node

    def _check(self, first: fx.Node, second: fx.Node, computed: Any) -> None:
        """Checks that the shapes are the recorded ones, at both sizes."""
        leaves = (t.tree_leaves(value) for value in (first.meta["val"], second.meta["val"], computed))
        for before, after, value in zip(*leaves, strict=True):
            if isinstance(value, torch.Tensor):
                for side, recorded in ((0, before), (1, after)):
                    if [self._at(size, side) for size in value.shape] != list(recorded.shape):
                        raise _NoSymbols(f"{second.name} would have another shape")

    def _at(self, size: Any, side: int) -> int:
        if not isinstance(size, torch.SymInt):
            return int(size)
        numbers = {value.node.expr: pair[side] for value, pair in zip(self.values, self.sizes.symbols, strict=True)}
        return int(size.node.expr.xreplace(numbers))


def _elements(value: torch.Tensor) -> int:
    return value.untyped_storage().nbytes() // value.element_size()


def _dims(first: fx.Node, second: fx.Node) -> list[Pair]:
    before, after = first.meta.get("val"), second.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor) or before.dim() != after.dim():
        raise _NoSymbols(f"{first.name} and {second.name} are different inputs")
    return list(zip(before.shape, after.shape, strict=True))
