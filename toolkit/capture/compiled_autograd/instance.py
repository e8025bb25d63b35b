# pyright: basic
"""The capturing object: torch's own, with its passes seen and told to its owner.

Torch's C++ engine calls its methods, which differ between versions; only those are overridden that come after the capture,
and those that tell something. An error in one of the others would leave the autograd graph unusable, so ours only note.

>>> with enable(compiler_fn, instance=watched(begun)):
...     loss.backward()
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ... import torch_private as t
from .passes import OURS, PASSES, PassReport, observed


class Told:
    """What a capture tells: torch's number for it, autograd nodes by number (in the order of their calls), reasons for compiling
    again, the reports of the passes, and the places of inputs that are moved to the GPU.
    """

    def __init__(self) -> None:
        self.number = -1
        self.nodes: dict[int, str] = {}
        self.reasons: list[str] = []
        self.passes: list[PassReport] = []
        self.moved_inputs: list[int] = []


def watched(begun: Callable[[Told], None], skip: Collection[str] = ()) -> type:
    """A class for `enable(instance=)` that calls `begun` when a capture begins, and leaves out the passes in `skip`."""

    class Watched(t.AutogradCompilerInstance):
        told: Told

        def begin_capture(self, *args: Any) -> Any:
            self.told = Told()
            begun(self.told)
            made = super().begin_capture(*args)
            self.told.number = self.id
            return made

        def wrap_fake(self, x: Any, source: Any) -> Any:
            """Sizes as numbers: symbols, which torch would make, take most of the time of a capture that is not run."""
            return self.fake_tensor_mode.from_tensor(x, source=source, static_shapes=True)

        def log_compile_reasons(self, compile_reasons: list[str]) -> None:
            self.told.reasons.extend(compile_reasons)
            super().log_compile_reasons(compile_reasons)

        def set_node_origin(self, node_name: str, nodecall_index: int, pyobj: Any) -> None:
            self.told.nodes[nodecall_index] = node_name
            super().set_node_origin(node_name, nodecall_index, pyobj)

    for name, method in PASSES:
        if hasattr(t.AutogradCompilerInstance, method):
            setattr(Watched, method, _seen(name, method, skip))
    return Watched


def _seen(name: str, method: str, skip: Collection[str]) -> Callable[..., Any]:
    def run(self: Any, *args: Any) -> Any:
        graph = self.fx_tracer.graph
        ours = OURS.get(name)
        stock = getattr(t.AutogradCompilerInstance, method)
        own = (lambda: ours(graph)) if ours else (lambda: stock(self, *args))
        made = observed(name, own, graph, self.told.passes, skip=name in skip)
        if name == "cpu_scalars_to_gpu":
            self.told.moved_inputs = made or []
            return self.told.moved_inputs
        return made

    return run
