"""Makes the fake values of an edited case: with the symbols that the case had, at the numbers that its inputs have now.

Symbols keep their names, ranges and the guards that still hold. A symbol whose number is out of its range (a size of 1
has no symbol) becomes that number. Without symbols, nodes get fake values only where the graph holds other graphs. Must
not run anything on real values.

For example: `renewed(case, changed, inputs, static={"s77"})` gives `Live(...)`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv, compute_unbacked_bindings

from ...dumps.schema import GraphBody, GraphRecord
from ...dumps.torchside.live_values import Symbols
from ...dumps.torchside.values import SymbolWriter, fake_of
from ...toolkit import torch_private as t
from ...toolkit.cutting.atoms import SYMBOLIC, bound_by, is_symbolic, symbols_in
from ...toolkit.cutting.subgraph import candidate_spec
from ...toolkit.live.case import Live
from ...toolkit.live.eager import attribute
from ...toolkit.live.spec import FULL_STAGES


def without_fakes(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy of the graph without recorded fake values."""
    graph = copy.deepcopy(gm.graph)
    for node in graph.nodes:
        for name in ("val", "example_value", "tensor_meta", "unbacked_bindings"):
            node.meta.pop(name, None)
    module = fx.GraphModule(gm, graph)
    module.meta = dict(gm.meta)
    return module


def symbols_of(case: Live) -> list[str]:
    """The symbols that the case's inputs bind; none where some number is known only as the graph runs."""
    if not case.spec.dynamic:
        return []
    return sorted(bound_symbols(case.gm) or (), key=lambda name: (len(name), name))


def bound_symbols(gm: fx.GraphModule) -> set[str] | None:
    """The symbols that a graph's inputs bind; None where it has others."""
    bound = {name for node in gm.graph.find_nodes(op="placeholder") for name in bound_by(fake_of(node))}
    return None if any(symbols_in(fake_of(node)) - bound for node in gm.graph.nodes) else bound


def fake_mode(shape_env: ShapeEnv, *, static: bool = False) -> Any:
    """A mode whose tensors have no values, whose sizes may be symbols of `shape_env`.

    `static`: tensors that are made from real ones have no symbols; loops among operators need a ShapeEnv all the same.
    """
    return t.FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env, static_shapes=static)


def renewed(case: Live, gm: fx.GraphModule, inputs: list[Any], static: Collection[str] = ()) -> Live:
    """A case of `gm` and `inputs`, which were edited from the case's own, with new fake values. `static`: symbols that
    become numbers; inputs that stood for one become constants. Raises ValueError where the inputs do not agree on the
    number of a symbol.
    """
    unbound = case.spec.dynamic and bound_symbols(case.gm) is None
    if not symbols_of(case) and not unbound:
        out = without_fakes(gm)
        if bodies(out):
            with (mode := fake_mode(env := _as_recorded(case.gm), static=True)):
                fakes = [mode.from_tensor(item) if isinstance(item, torch.Tensor) else item for item in inputs]
                Renewing(out, _key(case), env).run(*fakes, enable_io_processing=False)
        return Live(out, inputs, case.spec)
    old = {node.name: fake_of(node) for node in case.gm.graph.find_nodes(op="placeholder")}
    out = without_fakes(gm)
    nodes = out.graph.find_nodes(op="placeholder")
    names = [node.name for node in nodes]
    again = _Again.of([old.get(name) for name in names], inputs, static)
    kept = [*zip(nodes, inputs, strict=True)]
    for node, value in list(kept):
        if is_symbolic(old.get(node.name)) and not again.text(old[node.name]).free_symbols:
            put_number(out, node, value)
            kept.remove((node, value))
    _fold(out)
    out.recompile()
    left = [value for _, value in kept]
    spec = candidate_spec(case.spec, names, out) if len(left) < len(inputs) else case.spec
    if not again.symbols and not unbound:
        return Live(out, left, msgspec.structs.replace(spec, dynamic=False))
    mode = fake_mode(again.env)
    with mode:
        fakes = [again.like(old.get(node.name), value) for node, value in kept]
        Renewing(out, _key(case), again.env).run(*fakes, enable_io_processing=False)
    out.shape_env = again.env  # type: ignore[assignment]
    return Live(out, left, spec)


def _as_recorded(gm: fx.GraphModule) -> ShapeEnv:
    """A new ShapeEnv without symbols, with the settings of the ShapeEnv of the inputs' fake values (whether the graph
    may read numbers out of tensors, say)."""
    writer = _writer([fake_of(node) for node in gm.graph.find_nodes(op="placeholder")])
    return Symbols(_record(writer.finish()[2]), "").env


def _writer(fakes: list[Any]) -> SymbolWriter:
    writer = SymbolWriter({})
    for fake in fakes:
        writer.adopt(getattr(getattr(fake, "fake_mode", None), "shape_env", None))
    return writer


def _record(settings: dict[str, Any], **symbols: Any) -> GraphRecord:
    settings = {name: value for name, value in settings.items() if "frozen" not in name}
    return GraphRecord(format=0, id="", stage="", graph=GraphBody(nodes=[]), shape_env=settings, **symbols)


def fewer(case: Live, gm: fx.GraphModule, read: Sequence[fx.Node] = (), **given: Any) -> Live:
    """A case of an edited copy of its graph, with the inputs whose placeholders are left. For edits that change the
    form of no value. `read`: nodes that go where nothing reads them any more; `given`: values of further inputs."""
    sweep(gm.graph, read)
    gm.recompile()
    names = [node.name for node in case.gm.graph.find_nodes(op="placeholder")]
    values, left = dict(zip(names, case.inputs, strict=True)) | given, gm.graph.find_nodes(op="placeholder")
    spec = case.spec if [node.name for node in left] == names else candidate_spec(case.spec, [*values], gm)
    return Live(gm, [values[node.name] for node in left], spec)


def sweep(graph: fx.Graph, nodes: Sequence[fx.Node], kept: Collection[fx.Node] = ()) -> None:
    """Erases those of the nodes that nothing reads any more, and what only they read; never those of `kept`."""
    for node in nodes:
        if not node.users and node not in kept and (node.op in ("placeholder", "get_attr") or not node.is_impure()):
            before = node.all_input_nodes
            graph.erase_node(node)
            sweep(graph, before, kept)


def bodies(gm: fx.GraphModule, prefix: str = "") -> list[str]:
    """The paths of the graphs inside, those inside them included."""
    paths: list[str] = []
    for target in dict.fromkeys(str(node.target) for node in gm.graph.find_nodes(op="get_attr")):
        inner = attribute(gm, target)
        if isinstance(inner, fx.GraphModule):
            paths += [f"{prefix}{target}", *bodies(inner, f"{prefix}{target}.")]
    return paths


def node_count(gm: fx.GraphModule) -> int:
    """How many nodes a graph and all graphs in it have: `node_count` of `dumps.walk`, of a live graph."""
    return len(gm.graph.nodes) + sum(len(attribute(gm, path).graph.nodes) for path in bodies(gm))


class Renewing(fx.Interpreter):
    """Gives every node of an edited graph the fake value that it has now, under `key`."""

    def __init__(self, gm: fx.GraphModule, key: str, env: ShapeEnv | None = None) -> None:
        super().__init__(gm)
        self.key, self.shape_env = key, env

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if self.shape_env is not None and n.op.startswith("call_"):
            bindings = compute_unbacked_bindings(self.shape_env, value)  # else they stay pending until the next node
            if bindings:
                n.meta["unbacked_bindings"] = bindings
        if n.op != "output":
            n.meta[self.key] = value
        return value


@dataclass
class _Again:
    """The symbols of recorded inputs in a ShapeEnv of their own."""

    writer: SymbolWriter
    rebuilt: Symbols
    hints: dict[Any, Any]
    """Symbol of the new ShapeEnv -> its number."""
    numbers: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """Former symbol -> the number that it has become."""

    @classmethod
    def of(cls, fakes: list[Any], inputs: list[Any], static: Collection[str]) -> _Again:
        writer = _writer(fakes)
        numbers: dict[str, int] = {}
        for fake, value in zip(fakes, inputs, strict=True):
            for number, real in _sizes(fake, value):
                text = writer.text(writer.expr(number))
                if number.node.expr.is_symbol and numbers.setdefault(text, real) != real:
                    raise ValueError(f"{text} would be {numbers[text]} and {real}")
            for number in symbolic_numbers(fake):
                writer.text(writer.expr(number))
        symbols, guards, settings = writer.finish()
        symbols = [msgspec.structs.replace(row, hint=numbers.get(row.name, row.hint)) for row in symbols]
        gone = {row.name for row in symbols if row.name in static or not _in_range(row)}
        record = _record(settings, symbols=symbols)
        read = Symbols(record, "")
        hints = {symbol: sympy.Integer(numbers[name]) for name, symbol in read.by_name.items() if name in numbers}
        held = [row for row in guards if _holds(read.expr(row.expr), hints, gone)]
        rebuilt = Symbols(msgspec.structs.replace(record, guards=held), "")
        hints = {symbol: sympy.Integer(numbers[name]) for name, symbol in rebuilt.by_name.items() if name in numbers}
        return cls(writer, rebuilt, hints, {symbol: number for symbol, number in hints.items() if symbol.name in gone})

    @property
    def env(self) -> Any:
        return self.rebuilt.env

    @property
    def symbols(self) -> list[Any]:
        """The symbols that are left."""
        return [symbol for symbol in self.hints if symbol not in self.numbers]

    def text(self, number: Any) -> Any:
        """A recorded number as an expression of the new symbols."""
        return self.rebuilt.expr(self.writer.text(number.node.expr)).xreplace(self.numbers)

    def number(self, recorded: Any, real: int) -> Any:
        """A number of the new case: the recorded expression where that gives `real`, else `real` itself."""
        if not is_symbolic(recorded):
            return real
        expr = self.text(recorded)
        if not expr.free_symbols or expr.xreplace(self.hints) != real:
            return real
        return self.env.create_symintnode(expr, hint=real)

    def like(self, fake: Any, real: Any) -> Any:
        """The fake value of an input."""
        if isinstance(fake, torch.SymInt) and isinstance(real, int):
            return self.number(fake, real)
        if not isinstance(real, torch.Tensor) or not isinstance(fake, torch.Tensor) or real.layout is not torch.strided:
            return torch.empty_like(real, device=real.device) if isinstance(real, torch.Tensor) else real
        sizes = [self.number(*pair) for pair in zip(fake.shape, real.shape, strict=True)]
        steps = [self.number(*pair) for pair in zip(fake.stride(), real.stride(), strict=True)]
        if real.is_contiguous() and not real.storage_offset():
            out = torch.empty(sizes, dtype=real.dtype, device=real.device)
        else:
            out = torch.empty_strided(sizes, steps, dtype=real.dtype, device=real.device)
        if real.storage_offset():
            out = out.as_strided(sizes, steps, real.storage_offset())
        return out.requires_grad_(real.requires_grad)


def symbolic_numbers(fake: Any) -> list[Any]:
    """Every symbolic number of a fake value: itself, sizes, strides, offset."""
    if isinstance(fake, SYMBOLIC):
        return [fake]
    if isinstance(fake, torch.Tensor) and fake.layout is torch.strided:
        numbers = (*fake.shape, *fake.stride(), fake.storage_offset())
        return [number for number in numbers if isinstance(number, SYMBOLIC)]
    return []


def _sizes(fake: Any, real: Any) -> list[tuple[Any, int]]:
    """Pairs of a recorded symbolic size and the size now."""
    if isinstance(fake, torch.SymInt) and isinstance(real, int):
        return [(fake, real)]
    if isinstance(fake, torch.Tensor) and isinstance(real, torch.Tensor) and fake.dim() == real.dim():
        return [pair for pair in zip(fake.shape, real.shape, strict=True) if isinstance(pair[0], SYMBOLIC)]
    return []


def _in_range(symbol: Any) -> bool:
    low, high = symbol.lower, symbol.upper
    return symbol.hint is not None and (low is None or symbol.hint >= low) and (high is None or symbol.hint <= high)


def _holds(expr: Any, hints: dict[Any, Any], gone: Collection[str]) -> bool:
    if any(symbol.name in gone or symbol not in hints for symbol in expr.free_symbols):
        return False
    value = expr.xreplace(hints)
    return bool(value == True or value == 0)  # noqa: E712  a relation that is true, or what is divisible


def _key(case: Live) -> str:
    """The key of `node.meta` under which the stage keeps fake values."""
    return "example_value" if case.spec.stage in FULL_STAGES else "val"


def put_number(gm: fx.GraphModule, node: fx.Node, value: Any) -> None:
    """Writes a number into the graph in place of a node."""
    for user in list(node.users):
        user.args = fx.map_arg(user.args, lambda item: value if item is node else item)
        user.kwargs = fx.map_arg(user.kwargs, lambda item: value if item is node else item)
    gm.graph.erase_node(node)


def _fold(gm: fx.GraphModule) -> None:
    """Replaces arithmetic on numbers alone by its result."""
    for node in list(gm.graph.nodes):
        known = node.args and not node.kwargs and all(type(item) in (int, float, bool) for item in node.args)
        if known and node.op == "call_function" and getattr(node.target, "__module__", "") == "_operator":
            put_number(gm, node, node.target(*node.args))
