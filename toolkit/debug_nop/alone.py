"""One op by itself: what its fake function says about given arguments. This decides who is to blame for a mismatch.

Runs only after a comparison failed. `on_real` takes the metadata of the real arguments, `on_traced` what was recorded
of the arguments, with this run's numbers in place of symbols, `on_symbols` the recorded fake values themselves. Touches
no data, draws no random numbers, and leaves no guard behind.

For example:

    says = on_real(step, {x_node: x})
    says.leaves[0].shape  # -> (4, 8)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_arg

from ...dumps.torchside.values import storage_key
from .. import torch_private as t
from ..live.eager import attribute
from ..live.values import reach
from .layout import Layout, evaluate, layout_of
from .plan import Leaf, NodeStep, Place, Plan, leaf_of, value_of


class Says(NamedTuple):
    """What a fake function said: a Layout, number or None per leaf, and for each leaf the argument nodes whose memory
    it shares.

    `error`: why it could not be run; then there are no leaves.
    """

    leaves: list[Any]
    shares: list[frozenset[str]]
    error: str = ""


def on_real(step: NodeStep, given: Mapping[fx.Node, Any]) -> Says:
    """The op's fake function on fakes of its real arguments."""
    mode = _alone_mode()

    def fake(value: Any) -> Any:
        return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value

    return _run(step, mode, lambda: {node: t.tree_map(fake, value) for node, value in given.items()})


def on_traced(plan: Plan, step: NodeStep, values: Mapping[str, Any]) -> Says:
    """The op's fake function on its arguments as they were recorded, with numbers for symbols."""
    mode = _alone_mode()
    return _run(step, mode, lambda: _recorded(plan, step, values, mode))


def really_on_traced(plan: Plan, step: NodeStep, given: Mapping[fx.Node, Any], values: Mapping[str, Any]) -> Says:
    """What the op itself returns for copies of its arguments that are laid out as recorded.

    Not for ops that draw random numbers, for arguments of another size than recorded, or in lists.
    """
    target = step.node.target
    if not isinstance(target, t.OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
        return Says([], [], "it is not run a second time")
    known: dict[fx.Node, Any] = {}
    for node, value in given.items():
        leaves = plan.leaves(node)
        known[node] = value
        if isinstance(value, (list, tuple)):
            return Says([], [], "its arguments are not single tensors")
        if isinstance(value, torch.Tensor):
            layout = leaves[0].at(values) if len(leaves) == 1 and isinstance(leaves[0], Leaf) else None
            if layout is None or layout.shape != tuple(value.shape) or value.layout is not torch.strided:
                return Says([], [], "its arguments have other sizes than recorded")
            known[node] = torch.empty_strided(
                layout.shape, layout.stride, dtype=layout.dtype, device=value.device
            ).copy_(value)
    return _run(step, None, lambda: known)


def on_symbols(plan: Plan, step: NodeStep, values: Mapping[str, Any]) -> Says:
    """The op's fake function on the recorded fake values: it may branch on a symbol otherwise than on a number."""
    with _quietly(plan.graph) as mode:
        if mode is None:
            return Says([], [], "the graph was not traced with fake values")
        return _run(step, None, lambda: {node: value_of(node) for node in step.node.all_input_nodes}, values)


def _run(
    step: NodeStep, mode: Any, arguments: Callable[[], Mapping[fx.Node, Any]], values: Mapping[str, Any] | None = None
) -> Says:
    try:
        with torch.no_grad():
            known = arguments()
            if mode is None:
                result = _call(step.node, known)
            else:
                with mode:
                    result = _call(step.node, known)
    except Exception as error:  # noqa: BLE001  a fake function is the user's code and may raise anything
        first = str(error).strip().splitlines()
        return Says([], [], f"{type(error).__name__}: {first[0][:200] if first else ''}")
    leaves = [result] if isinstance(result, torch.Tensor) else t.tree_leaves(result)
    return Says([_said(leaf, values) for leaf in leaves], [shared(leaf, known) for leaf in leaves])


def _said(leaf: Any, values: Mapping[str, Any] | None) -> Any:
    if isinstance(leaf, torch.Tensor):
        if values is None:
            return layout_of(leaf)
        traced = leaf_of(leaf, (0, 0), {})
        return traced.at(values) if isinstance(traced, Leaf) else None
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        expr = leaf.node.expr
        return (int(expr) if isinstance(leaf, torch.SymInt) else float(expr)) if expr.is_number else None
    return leaf if isinstance(leaf, (bool, int, float)) else None


def shared(leaf: Any, given: Mapping[fx.Node, Any]) -> frozenset[str]:
    """The names of the nodes among `given` whose memory a value shares."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return frozenset()
    key = storage_key(leaf)
    return frozenset(
        node.name
        for node, value in given.items()
        for tensor in t.tree_leaves(value)
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and storage_key(tensor) == key
    )


def _call(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    owner = node.graph.owning_module

    def look_up(argument: fx.Node) -> Any:
        if argument.op == "get_attr" and not isinstance(known.get(argument), torch.Tensor):
            return attribute(owner, str(argument.target))
        return known[argument]

    args, kwargs = map_arg(node.args, look_up), map_arg(node.kwargs, look_up)
    if node.op == "call_function":
        assert callable(node.target)
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    raise NotImplementedError(f"{node.op} has no fake function of its own")


def _recorded(plan: Plan, step: NodeStep, values: Mapping[str, Any], mode: Any) -> Mapping[fx.Node, Any]:
    """Static fakes of the recorded arguments; those of one storage are views of one."""
    wanted: dict[fx.Node, list[Any]] = {}
    spans: dict[tuple[Place, torch.dtype], int] = {}
    for node in step.node.all_input_nodes:
        wanted[node] = [
            (leaf, leaf.at(values)) if isinstance(leaf, Leaf) else (None, evaluate(leaf, values))
            for leaf in plan.leaves(node)
        ]
        for leaf, layout in wanted[node]:
            if leaf is not None and layout.layout is torch.strided:
                key = leaf.root, leaf.dtype
                spans[key] = max(spans.get(key, 0), (layout.offset or 0) + reach(layout.shape, layout.stride))
    bases: dict[Any, torch.Tensor] = {}
    known: dict[fx.Node, Any] = {}
    with mode:
        for node, leaves in wanted.items():
            rebuilt = [value if leaf is None else _view(leaf, value, spans, bases) for leaf, value in leaves]
            traced = value_of(node)
            if isinstance(traced, (list, tuple)) and len(rebuilt) == len(traced):
                known[node] = type(traced)(rebuilt) if type(traced) in (list, tuple) else rebuilt
            elif len(rebuilt) == 1:
                known[node] = rebuilt[0]
    return known


def _view(leaf: Leaf, layout: Layout, spans: Mapping[Any, int], bases: dict[Any, torch.Tensor]) -> torch.Tensor:
    if layout.layout is not torch.strided:
        return torch.empty(layout.shape, dtype=layout.dtype, device=layout.device, layout=layout.layout)
    key = leaf.root, leaf.dtype
    if key not in bases:
        bases[key] = torch.empty_strided((spans[key],), (1,), dtype=layout.dtype, device=layout.device)
    return torch.as_strided(bases[key], layout.shape, layout.stride, layout.offset or 0)


def _alone_mode() -> Any:
    """A fake mode with numbers for sizes, in which an op of data-dependent size gets a symbol."""
    return t.FakeTensorMode(shape_env=t.ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True)


@contextlib.contextmanager
def _quietly(graph: fx.Graph) -> Iterator[Any]:
    """The fake mode of a graph's recorded values with no guard added to its shapes; None when the values are of
    none."""
    values = (
        leaf for node in graph.nodes for leaf in t.tree_leaves(node.meta.get("val", node.meta.get("example_value")))
    )
    mode = next((leaf.fake_mode for leaf in values if isinstance(leaf, t.FakeTensor)), None)
    if mode is None or mode.shape_env is None:
        yield mode
        return
    env = mode.shape_env
    with env.suppress_guards(), env.ignore_fresh_unbacked_symbols(), mode:
        yield mode
