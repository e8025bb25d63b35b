# pyright: basic
"""The graph behind each generated wrapper: nodes and user lines of kernels and buffers, and eager's value of any node.

For example:

    with wrappers.open():
        compiled = rung.build(gm, fakes, spec)
    wrappers.of(call).behind("triton_poi_fused_relu_0", 0)
    # (['relu'], [UserLine('model.py:12', 'y = x.relu()')])
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ...dumps.allowlist import words
from ...dumps.walk import user_frame
from ..kernels.heard import kernels_heard
from ..live.eager import clone_inputs, is_uninitialised, run_graph
from ..triton import pretended
from ..triton.interpreting.on_cpu import devices_on_cpu
from ..triton.interpreting.session import InterpretedLaunch
from .findings import UserLine
from .tracking import LaunchPlace

_SCATTERS = words(
    """
    index_put index_put_ _unsafe_index_put _index_put_impl_ scatter scatter_ index_copy index_fill index_copy_
    index_fill_
    """
)


_NUMBER = re.compile(r"_\d+$")


class Wrapper:
    """One generated module. `nodes`: buffer name in the wrapper -> node."""

    def __init__(self, lowering: Any, calls: dict[str, list[list[fx.Node]]]) -> None:
        self.module: fx.GraphModule = lowering.module
        self.nodes = pretended.nodes_of_buffers(lowering)
        self.calls = calls
        self._by_name = {node.name: node for node in self.module.graph.nodes}

    def behind(self, kernel: str, call: int) -> tuple[list[str], list[UserLine]]:
        """The nodes of the `call`th launch of a kernel, in graph order, and their user lines."""
        known = self.calls.get(kernel, [[]])
        nodes = known[min(call, len(known) - 1)]
        order = {node: place for place, node in enumerate(self.module.graph.nodes)}
        nodes = sorted(nodes, key=lambda node: order.get(node, len(order)))
        return [node.name for node in nodes], list(dict.fromkeys(line for node in nodes if (line := line_of(node))))

    def place(self, launch: InterpretedLaunch, call: int) -> LaunchPlace:
        """The `call`th launch of a kernel, with its nodes and lines."""
        nodes, lines = self.behind(launch.kernel, call)
        return LaunchPlace(launch, nodes, lines, self.nodes, is_empty=self.is_empty, scattering=self.scattering(nodes))

    @property
    def outputs(self) -> list[str]:
        """The node name of each output; "" for an output that is no node."""
        outputs: Any = self.module.graph.output_node().args[0]
        return [getattr(output, "name", "") for output in outputs]

    def is_empty(self, node: str) -> bool:
        """Whether a node is uninitialised memory that the program itself allocates."""
        graph_node = self._by_name.get(node)
        return graph_node is not None and is_uninitialised(graph_node)

    def scattering(self, nodes: Sequence[str]) -> str:
        """The first of these nodes that scatters: the graph itself may then write a place twice."""
        return next((name for name in nodes if name in self._by_name and _name(self._by_name[name]) in _SCATTERS), "")

    def eager(self, inputs: Sequence[Any], wanted: Collection[str]) -> dict[str, torch.Tensor]:
        """Eager's values of these nodes of the graph behind the kernels: copies made right after each ran. Raises
        GraphRunError."""
        values: dict[str, torch.Tensor] = {}

        def keep(node: fx.Node, value: Any) -> Any:
            if node.name in wanted and isinstance(value, torch.Tensor):
                values[node.name] = value.detach().clone()
            return value

        with devices_on_cpu(), torch.no_grad():
            run_graph(self.module, clone_inputs(list(inputs)), hook=keep)
        return values


def _name(node: fx.Node) -> str:
    return getattr(node.target, "__name__", str(node.target)).partition(".")[0]


def line_of(node: fx.Node) -> UserLine | None:
    """The user's line of a node."""
    place, code = user_frame(node.stack_trace or "")
    return UserLine(place, code) if place else None


class Wrappers:
    """The wrappers that are loaded while `open` is active."""

    def __init__(self) -> None:
        self._heard: list[tuple[str, list[fx.Node]]] = []
        self._known: list[tuple[Callable[..., Any], Wrapper]] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[Wrappers]:
        """Collects the wrappers of the compiles inside the block."""
        heard = kernels_heard(lambda row, nodes, _: self._heard.append((row.name, nodes)))
        with heard, pretended.wrappers_loaded(self._loaded):
            yield self

    def of(self, call: Callable[..., Any]) -> Wrapper | None:
        """The wrapper with that `call` function."""
        return next((wrapper for known, wrapper in self._known if known is call), None)

    def _loaded(self, lowering: Any, module: Any) -> None:
        calls: dict[str, list[list[fx.Node]]] = {}
        for name, nodes in self._heard:
            for known in {name, _NUMBER.sub("", name)}:  # a user's kernel is recorded under its own name
                calls.setdefault(known, []).append(nodes)
        self._heard = []
        self._known.append((module.call, Wrapper(lowering, calls)))
