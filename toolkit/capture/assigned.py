# pyright: basic
"""What a module assigns to itself while it is captured: buffers become outputs, everything else is restored and
reported.

`self.seen = self.seen + 1` of a buffer is no write that functionalisation sees. As in `torch.export`, the value that
was assigned last becomes an output in front, described as that buffer's mutation; unlike there, buffers of inner
modules count too. Attributes that are no buffers would keep fake tensors after tracing; they get their old values back.

For example:

    with Assigned(module) as assigned: ...      # trace
    assigned.nodes()  # -> {'inner.seen': 'add'}
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook

from .. import torch_private as t
from .user_lines import tracer_at_work

_ABSENT = object()


class Assigned:
    """Watches the assignments of a module and its children. `names` are the buffers that were assigned, in order."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.paths = {id(submodule): path for path, submodule in module.named_modules()}
        self.before = [(path, submodule, dict(submodule.__dict__)) for path, submodule in module.named_modules()]
        self.buffers = [(submodule, dict(submodule._buffers)) for submodule in module.modules()]
        self.names: dict[str, str] = {}
        self.kept: list[str] = []
        """Attributes that are no buffers and were assigned a tensor."""

    def __enter__(self) -> Assigned:
        self._handle = register_module_buffer_registration_hook(self._saw)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()
        for submodule, buffers in self.buffers:
            submodule._buffers.clear()
            submodule._buffers.update(buffers)
        self.restore()

    def restore(self) -> None:
        """Gives attributes that hold a traced tensor their old values: so that a later call does not see an earlier
        one."""
        for path, submodule, before in self.before:
            for name in [name for name, value in submodule.__dict__.items() if _traced(value)]:
                if (full := f"{path}.{name}".lstrip(".")) not in self.kept:
                    self.kept.append(full)
                if name in before:
                    submodule.__dict__[name] = before[name]
                else:
                    del submodule.__dict__[name]

    def notes(self, *, joint: bool) -> list[str]:
        """What the graph does not hold, one sentence for each."""
        lost = [f"{name} is set to a tensor by the function; the graph does not hold that" for name in self.kept]
        if joint and self.names:
            names = ", ".join(self.names)
            lost.append(
                f"{names} is assigned anew, which a joint graph does not hold; write into it (copy_) to have it there"
            )
        return lost

    def _saw(self, module: torch.nn.Module, name: str, value: Any) -> None:
        path = self.paths.get(id(module))
        if path is not None and isinstance(value, torch.Tensor):
            self.names[f"{path}.{name}".lstrip(".")] = _node_name_of(value) or ""

    def outputs(self, gm: Any, metadata: Any) -> None:
        """Adds the assigned buffers to the outputs of a traced inference graph, in front."""
        output = gm.graph.output_node()
        nodes = {node.name: node for node in gm.graph.nodes}
        added = {name: nodes[node] for name, node in self.names.items() if node in nodes}
        output.args = ((*added.values(), *output.args[0]),)
        output.meta["desc"] = [
            *(t.InputMutationAOTOutput(t.BufferAOTInput(name)) for name in added),
            *output.meta["desc"],
        ]
        places = {getattr(described, "target", None): place for place, described in enumerate(_inputs(gm))}
        for name in added:
            place = places.get(name)
            if place is not None and not metadata.input_info[place].mutates_data:
                metadata.input_info[place] = dataclasses.replace(metadata.input_info[place], mutates_data=True)
                metadata.num_mutated_inp_runtime_indices += 1


def _inputs(gm: Any) -> list[Any]:
    """The descriptions of the inputs in the metadata's order: it does not count effect tokens."""
    described = [node.meta.get("desc") for node in gm.graph.find_nodes(op="placeholder")]
    return [description for description in described if not type(description).__name__.endswith("TokenAOTInput")]


def _traced(value: Any) -> bool:
    """Whether a value holds a tensor that exists only while tracing."""
    return any(isinstance(leaf, (t.FakeTensor, t.FunctionalTensor)) for leaf in t.tree_leaves(value))


def _node_name_of(value: torch.Tensor) -> str | None:
    """The node that made a tensor in the graph that is being traced; None where none did."""
    tracer = tracer_at_work()
    plain: Any = value.from_functional() if isinstance(value, t.FunctionalTensor) else value  # pyright: ignore
    slot = None if tracer is None else t.get_proxy_slot(plain, tracer, None)
    return None if slot is None else slot.proxy.node.name
