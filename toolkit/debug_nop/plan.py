"""What every value of a graph must look like, worked out once from the traced metadata.

A step per node: expected leaves with compiled sizes, the place where each storage first appears in the trace, the
arguments it shares memory with, the arguments that its schema writes to. Runs nothing and adds no guards.

For example:

    plan = plan_of(gm)
    plan.steps[6].leaves[0].shape
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx

from ...dumps.allowlist import words
from ...dumps.errors import UnreadableError
from ...dumps.torchside.values import storage_key
from .. import torch_private as t
from ..cutting.atoms import fake_of
from ..verdicts.mismatches import TORCHS
from .layout import Expression, Layout, evaluate, expression


def is_getitem(node: fx.Node) -> bool:
    """Whether a node takes one value out of a tuple."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem" and len(node.args) == 2


def may_alias(node: fx.Node) -> bool:
    """Whether an op's result may be its argument's memory by its schema, or has no schema that says."""
    if not isinstance(node.target, t.OpOverload):
        return node.op != "get_attr"
    return any(returned.alias_info is not None for returned in node.target._schema.returns)


def makes_its_own(step: NodeStep) -> bool:
    """Whether an op of torch's own cannot return memory of another value: a record that says so was copied from
    elsewhere."""
    return step.region or (step.torchs and isinstance(step.node.target, t.OpOverload) and not may_alias(step.node))


def is_view(node: fx.Node) -> bool:
    """Whether an op of torch's own always returns its argument's memory and writes nothing."""
    if not isinstance(node.target, t.OpOverload) or not node.target.is_view:
        return False
    return node.target.namespace == "aten" and str(node.target).split(".")[1] not in ("reshape", "contiguous", "to")


_FUNCTIONAL_HOPS = words("auto_functionalized auto_functionalized_v2 with_effects triton_kernel_wrapper_functional")


def schema_of(node: fx.Node) -> tuple[bool, frozenset[fx.Node] | None]:
    """Whether an op is torch's own, and the argument nodes that its schema writes to."""
    target = node.target
    if isinstance(target, t.HigherOrderOperator):
        return target.name() not in _FUNCTIONAL_HOPS, (frozenset() if target.name() in _FUNCTIONAL_HOPS else None)
    if isinstance(target, t.OpOverloadPacket):
        target = getattr(target, target.overloads()[0]) if len(target.overloads()) == 1 else target
    if not isinstance(target, t.OpOverload):
        return True, None
    written: set[fx.Node] = set()
    for place, argument in enumerate(target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            written.update(leaf for leaf in t.tree_leaves(given) if isinstance(leaf, fx.Node))
    return target.namespace in TORCHS, frozenset(written)


_RESHAPES = words("unsqueeze_ squeeze_ t_ transpose_ swapaxes_ swapdims_ resize_ resize_as_ set_ as_strided_")


def reshaped_in_place(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose traced value was changed in shape by a later node, so that its original shape is not recorded."""
    reshaped: set[fx.Node] = set()
    same: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        name = str(node.target if node.op == "call_method" else getattr(node.target, "__name__", "")).partition(".")[0]
        given = node.args[0] if node.args else None
        if isinstance(given, fx.Node) and name.endswith("_") and not name.endswith("__"):
            names = same.setdefault(given, [given])  # all that is one tensor up to here
            if name in _RESHAPES:
                reshaped.update(names)
            names.append(node)
            same[node] = names
    return reshaped


Place = tuple[int, int]
"""Index of a step, index of a leaf in its value."""


class Leaf(NamedTuple):
    """A tensor as traced. `root` is the place of the first value in the same storage; its own place when it begins one.
    An `offset` of None: the trace kept no storages (see `_keeps_storages`), so neither offset nor memory are
    compared."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Any
    layout: torch.layout
    root: Place

    def at(self, values: Any, shift: int = 0) -> Layout:
        """The layout under symbol values; `shift`: how far the storage's root lies from where it was traced."""
        shape = tuple(evaluate(size, values) for size in self.shape)
        stride = tuple(evaluate(size, values) for size in self.stride)
        offset = None if self.offset is None else evaluate(self.offset, values) + shift
        return Layout(shape, stride, self.dtype, self.device, offset, self.layout)


@dataclass
class NodeStep:
    """One node. `leaves`: what its value flattens to (a Leaf, an Expression, a number; None where nothing is known).

    `way`: inline (one strided tensor: one comparison in the generated code), number, parts (a flat tuple of those: one
    comparison too), several (anything else with a value), or none. `aliased` / `apart`: arguments whose memory the
    value must (not) share. `torchs`: an op of torch's own. `written`: arguments that its schema writes to; None where
    it is not known what the op writes to. `region`: an operator of higher order, whose results come from a graph inside
    it.
    """

    index: int
    node: fx.Node
    leaves: list[Any] = field(default_factory=list)
    way: str = "none"
    aliased: tuple[fx.Node, ...] = ()
    apart: tuple[fx.Node, ...] = ()
    torchs: bool = True
    written: frozenset[fx.Node] | None = frozenset()
    needs: frozenset[str] = frozenset()
    late: bool = False
    binds: tuple[tuple[str, Any], ...] = ()
    region: bool = False
    tensors: tuple[fx.Node, ...] = ()

    @property
    def by_layout(self) -> bool:
        """Whether the layouts of its arguments decide whose memory its value lies in: ops of torch's own with a schema.
        Repeated runs on one layout need not ask again."""
        return self.torchs and isinstance(self.node.target, t.OpOverload)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name


@dataclass
class Plan:
    """All steps, and how symbols get their numbers: `bound` are those that inputs give, `free` those that nothing gives
    before the graph runs. `unchecked`: sentences on what is left out."""

    graph: fx.Graph
    steps: list[NodeStep]
    by_node: dict[fx.Node, NodeStep]
    inputs: list[NodeStep]
    bound: dict[str, Callable[[list[Any]], Any]]
    free: frozenset[str]
    unchecked: list[str]

    def source(self, node: fx.Node) -> tuple[NodeStep, int] | None:
        """The step and leaf that a node's value comes from, through `getitem`s of a checked tuple; None where there is
        none."""
        step = self.by_node[node]
        return (step, 0) if step.leaves and step.way != "none" else self.item(node)

    def leaves(self, node: fx.Node) -> list[Any]:
        """The traced leaves of a node's value; for a `getitem`, its part of the tuple."""
        source = self.source(node)
        if source is None or source[0].node is node:
            return self.by_node[node].leaves
        return [source[0].leaves[source[1]]]

    def item(self, node: fx.Node) -> tuple[NodeStep, int] | None:
        """The part of a checked tuple that a `getitem` takes; None for other nodes."""
        if is_getitem(node) and isinstance(owner := node.args[0], fx.Node):
            parent = self.by_node[owner]
            if parent.way in ("several", "parts") and isinstance(owner_value := fake_of(owner), (tuple, list)):
                place = node.args[1]
                if isinstance(place, int) and all(not isinstance(part, (tuple, list, dict)) for part in owner_value):
                    return parent, place % max(len(owner_value), 1)
        return None


def plan_of(gm: fx.GraphModule, device: torch.device | None = None) -> Plan:
    """The plan of one graph; its subgraphs have plans of their own. `device`: where a graph traced elsewhere was moved
    to."""
    steps = [NodeStep(index, node) for index, node in enumerate(gm.graph.nodes)]
    by_node = {step.node: step for step in steps}
    roots: dict[int, Place] = {}
    unchecked: list[str] = []
    reshaped = reshaped_in_place(gm.graph)
    kept = _keeps_storages(gm.graph)
    shared: dict[Place, list[str]] = {}
    if not kept:
        unchecked.append("storage offsets and aliasing: each value was traced by itself, so they are not recorded")
    for step in steps:
        step.torchs, step.written = schema_of(step.node)
        step.region = step.torchs and isinstance(step.node.target, t.HigherOrderOperator)
        value = fake_of(step.node)
        if step.node.op == "output" or (value is None and not {"val", "example_value"} & step.node.meta.keys()):
            continue
        if step.node in reshaped:
            unchecked.append(f"{step.name}: a later node changes its shape in place")
            continue
        leaves = [value] if isinstance(value, torch.Tensor) else t.tree_leaves(value)
        step.leaves = [leaf_of(leaf, (step.index, place), roots, device) for place, leaf in enumerate(leaves)]
        for leaf in step.leaves if makes_its_own(step) else ():
            if isinstance(leaf, Leaf) and leaf.root[0] != step.index:
                shared.setdefault(leaf.root, []).append(step.name)
    for step in steps:
        step.leaves = [
            leaf._replace(offset=None) if isinstance(leaf, Leaf) and (not kept or leaf.root in shared) else leaf
            for leaf in step.leaves
        ]
        step.needs = frozenset(name for leaf in step.leaves for name in _symbols(leaf))
    if shared:
        names = ", ".join(name for several in shared.values() for name in several[:2])
        unchecked.append(
            f"storage offsets and aliasing of {names}: recorded in the memory of others, which they cannot lie in"
        )
    inputs = [step for step in steps if step.node.op == "placeholder"]
    bound = _bound(inputs)
    plan = Plan(gm.graph, steps, by_node, inputs, bound, frozenset(), unchecked)
    known = set(bound)
    for step in steps:
        _describe(step, plan)
        bindings = step.node.meta.get("unbacked_bindings") or {}
        step.binds = tuple((symbol.name, path) for symbol, path in bindings.items())
        step.late = bool(step.needs - set(bound))
        if step.late:
            plan.free |= step.needs - known
        known |= {*(name for name, _ in step.binds), *(step.needs if step.late else ())}
    return plan


def _keeps_storages(graph: fx.Graph) -> bool:
    """Whether the recorded values show which storage each lies in. `make_fx` with real tensors traces each in a fake
    mode of its own; once saved, such a graph is known by its views, or by the parts of its tuples, none of which is
    recorded in the memory of its argument."""
    tensors = {id(leaf): leaf for node in graph.nodes for leaf in _fakes(node)}
    modes = {id(leaf.fake_mode) for leaf in tensors.values()}
    if len(modes) > 1:
        return 4 * len(modes) < 3 * len(tensors)
    taken = [node for node in graph.nodes if is_getitem(node) and isinstance(node.args[0], fx.Node)]
    parts = [node for node in taken if isinstance(fake_of(node.args[0]), (tuple, list)) and _keys(node)]
    if parts and not any(_keys(node) & _keys(node.args[0]) for node in parts):
        return False
    views = [node for node in graph.nodes if is_view(node)]
    return len(views) < 2 or any(_keys(node) & _keys(argument) for node in views for argument in node.all_input_nodes)


def _fakes(node: fx.Node) -> list[Any]:
    return [leaf for leaf in t.tree_leaves(fake_of(node)) if isinstance(leaf, t.FakeTensor)]


def _keys(node: fx.Node) -> set[int]:
    return {storage_key(leaf) for leaf in _fakes(node) if leaf.layout is torch.strided}


def leaf_of(value: Any, place: Place, roots: dict[int, Place], device: torch.device | None = None) -> Any:
    """A traced value as a Leaf, an Expression or a number; None for a value that is not checked. `roots` is filled as
    values come."""
    if not isinstance(value, torch.Tensor):
        plain = expression(value)
        return plain if isinstance(plain, (Expression, int, float, bool)) else None
    shape = tuple(expression(size) for size in value.shape)
    if value.layout is not torch.strided:
        return Leaf(shape, (), value.dtype, device or value.device, 0, value.layout, place)
    try:
        stride, offset = tuple(expression(size) for size in value.stride()), expression(value.storage_offset())
        root = roots.setdefault(storage_key(value), place)
    except (RuntimeError, NotImplementedError):  # wrappers of vmap have no storage
        return None
    return Leaf(shape, stride, value.dtype, device or value.device, offset, value.layout, root)


def _symbols(leaf: Any) -> Iterator[str]:
    parts = (*leaf.shape, *leaf.stride, leaf.offset) if isinstance(leaf, Leaf) else (leaf,)
    for part in parts:
        if isinstance(part, Expression):
            yield from part.symbols


def _bound(inputs: list[NodeStep]) -> dict[str, Callable[[list[Any]], Any]]:
    """Symbol -> how to read it off the real inputs. A plain symbol is read; one inside "2*s0 + 1" is solved for, if
    linear."""
    readers: dict[str, Callable[[list[Any]], Any]] = {}
    readings = [row for place, step in enumerate(inputs) for row in _readings(step, place)]
    parts = [(part, read) for part, read in readings if isinstance(part, Expression)]
    for part, read in parts:
        if part.symbols == {part.text}:
            readers.setdefault(part.text, read)
    for part, read in parts:
        for name in part.symbols - set(readers):
            if len(part.symbols) == 1 and (solve := _linear(part, name, read)) is not None:
                readers[name] = solve
    return readers


def _readings(step: NodeStep, place: int) -> Iterator[tuple[Any, Callable[[list[Any]], Any]]]:
    if len(step.leaves) != 1:
        return
    leaf = step.leaves[0]
    if not isinstance(leaf, Leaf):
        yield leaf, lambda values: values[place]
        return
    for dim, size in enumerate(leaf.shape):
        yield size, lambda values, dim=dim: values[place].shape[dim]
    for dim, size in enumerate(leaf.stride):
        yield size, lambda values, dim=dim: values[place].stride(dim)


def _linear(part: Expression, name: str, read: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any] | None:
    try:
        low, high, middle = (part.at({name: value}) for value in (64, 192, 128))
    except (UnreadableError, KeyError):
        return None
    if high == low or (low + high) != 2 * middle or (high - low) % 128:
        return None
    slope = (high - low) // 128
    return lambda values: (read(values) - low) // slope + 64


def _describe(step: NodeStep, plan: Plan) -> None:
    """Sets how a step is checked, and which arguments its value may or must not share memory with."""
    node = step.node
    step.tensors = tuple(argument for argument in node.all_input_nodes if _holds_tensor(argument))
    if node.op in ("placeholder", "output"):
        return
    if (part := plan.item(node)) is not None and step.leaves in ([], [part[0].leaves[part[1]]]):
        step.leaves = []  # its record equals the tuple's part, which is checked; otherwise it is checked itself
        return
    if not step.leaves:
        return
    only = step.leaves[0] if len(step.leaves) == 1 and not isinstance(fake_of(node), (tuple, list, dict)) else None
    if isinstance(only, Leaf) and only.layout is torch.strided:
        step.way = "inline"
        _aliases(step, only, plan)
    elif only is not None and not isinstance(only, Leaf):
        step.way = "number"
    else:
        step.way = "parts" if _is_flat(step) else "several"


def _is_flat(step: NodeStep) -> bool:
    """Whether a value is one list or tuple of strided tensors, apart from leaves that are not checked."""
    value = fake_of(step.node)
    return (
        isinstance(value, (tuple, list))
        and len(value) == len(step.leaves)
        and all(leaf is None or (isinstance(leaf, Leaf) and leaf.layout is torch.strided) for leaf in step.leaves)
        and any(step.leaves)
    )


def _holds_tensor(node: fx.Node) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in t.tree_leaves(fake_of(node)))


def _aliases(step: NodeStep, leaf: Leaf, plan: Plan) -> None:
    if leaf.offset is None:
        return
    aliased: list[fx.Node] = []
    apart: list[fx.Node] = []
    for node in step.tensors:
        source = plan.source(node) or ((plan.by_node[node], 0) if plan.by_node[node].leaves else None)
        traced = source[0].leaves[source[1]] if source is not None else None
        if isinstance(traced, Leaf) and traced.layout is torch.strided and isinstance(fake_of(node), torch.Tensor):
            (aliased if traced.root == leaf.root else apart).append(node)
    step.aliased = tuple(aliased)
    step.apart = tuple(apart) if may_alias(step.node) or not step.torchs else ()


def parts_sharing(plan: Plan, step: NodeStep) -> list[tuple[int, fx.Node]]:
    """For a value of several parts: (part, argument) where the part was traced to share the argument's memory."""
    shared: list[tuple[int, fx.Node]] = []
    for node in step.tensors:
        source = plan.source(node)
        traced = source[0].leaves[source[1]] if source is not None else None
        if isinstance(traced, Leaf) and isinstance(fake_of(node), torch.Tensor) and traced.layout is torch.strided:
            shared += [
                (part, node) for part, leaf in enumerate(step.leaves) if getattr(leaf, "root", None) == traced.root
            ]
    return shared
