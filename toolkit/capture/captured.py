# pyright: basic
"""A captured graph with what is known of its inputs and outputs: what AOTAutograd's descriptors say of them, in our
words, and the caller's own values that they name.

For example:

    captured.save("case")            # a case folder that every command takes
    captured.mutated                 # inputs that the function writes to
    # ["running_mean"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ...dumps.errors import NoGraphError
from ...dumps.output import say
from ...dumps.roles import kind_of
from ...dumps.schema import InputRecord


@dataclass
class OutputDescription:
    """What one output of a graph is: "user", "mutation" (an input's new value), "alias base", "gradient", "token" or
    "saved".

    `source` says of what: `output[0]`, `running_mean`. A gradient that no input needs is None and "unknown".
    """

    name: str
    kind: str
    source: str


@dataclass
class Captured:
    """A functional graph. `inputs` are the fake values it was traced with, in the order of its placeholders; `stage` is
    "joint" or "inference"; `real` are the caller's own values where they are known, None where they are not (tangents).
    """

    module: fx.GraphModule
    stage: str
    inputs: list[Any]
    real: list[Any]
    inputs_described: list[InputRecord]
    outputs_described: list[OutputDescription]
    mutated: list[str] = field(default_factory=list[str])
    aliased: list[str] = field(default_factory=list[str])
    compile_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    raw_metadata: Any = None
    """Torch's own ViewAndMutationMeta."""
    notes: list[str] = field(default_factory=list[str])
    """What the function does that the graph does not hold, one sentence each."""

    def values(self, seed: int = 0) -> list[Any]:
        """Real inputs: the caller's, and for tangents normal numbers drawn with `seed`, of the traced layout."""
        generator = torch.Generator().manual_seed(seed)
        inputs: list[Any] = []
        for fake, real in zip(self.inputs, self.real, strict=True):
            if real is not None or not isinstance(fake, torch.Tensor):
                inputs.append(real)
                continue
            value = torch.empty_strided(_hints(fake.shape), _hints(fake.stride()), dtype=fake.dtype, device=fake.device)
            kind = torch.complex64 if fake.dtype.is_complex else torch.float32
            drawn = torch.randn(value.shape, generator=generator, dtype=kind, device="cpu")
            inputs.append(value.copy_(drawn))
        return inputs

    def save(self, path: str | Path, *, seed: int = 0) -> Path:
        """Writes a case folder with the descriptions beside the graph; inputs that are objects of this process, such as
        a DTensor's device mesh, are left out where they only pass through. Says `notes`. Raises UsageError where `path`
        exists.
        """
        from ...dumps.live import save_graph
        from ...dumps.torchside.encode import CARRY

        module, places = without_objects(self.module, self.inputs)
        values = self.values(seed)
        module.meta[CARRY] = {"inputs": [self.inputs_described[place] for place in places]}
        kwargs = dict(self.compile_kwargs)
        if "static_lifetime_input_indices" in kwargs:
            static = set(kwargs["static_lifetime_input_indices"])
            kwargs["static_lifetime_input_indices"] = [at for at, place in enumerate(places) if place in static]
        for note in self.notes:
            say(f"graphdbg: {note}")
        return save_graph(module, [values[place] for place in places], path, stage=self.stage, compile_kwargs=kwargs)


def _hints(sizes: Sequence[Any]) -> list[int]:
    return [size.node.hint if hasattr(size, "node") else int(size) for size in sizes]


def outputs_of(gm: Any) -> list[OutputDescription]:
    """The description of each output of a traced graph."""
    output = gm.graph.output_node()
    described = output.meta.get("desc") or [None] * len(output.args[0])
    return [
        OutputDescription(
            getattr(node, "name", str(node)), *kind_of(repr(description) if description is not None else None)
        )
        for node, description in zip(output.args[0], described, strict=False)
    ]


class CallerValues:
    """The caller's own values by the descriptor of an input: parameters and buffers by name, arguments by position,
    parts of a tensor subclass by attribute, and the storage that overlapping inputs share.
    """

    def __init__(self, module: torch.nn.Module, flat: Sequence[Any]) -> None:
        self.module, self.flat = module, flat

    def of(self, described: Any, fake: Any) -> Any:
        """The value, detached; None for what the caller has none of, such as a tangent or an effect token."""
        value = self._of(described, fake)
        if not isinstance(value, torch.Tensor):
            return value
        fits = isinstance(fake, torch.Tensor) and value.dim() == fake.dim() and value.dtype == fake.dtype
        return value.detach() if fits else None

    def _of(self, described: Any, fake: Any) -> Any:
        kind = type(described).__name__
        if kind == "ParamAOTInput":
            return self.module.get_parameter(described.target)
        if kind == "BufferAOTInput":
            return self.module.get_buffer(described.target)
        if kind == "PlainAOTInput":
            return self.flat[described.idx] if described.idx < len(self.flat) else None
        if kind == "SubclassGetAttrAOTInput":
            base = self._of(described.base, None)
            return None if base is None else getattr(base, described.attr)
        if kind in ("SyntheticBaseAOTInput", "ViewBaseAOTInput"):
            return self._shared(self._of(described.base_of, None), fake)
        return None

    def _shared(self, tensor: Any, fake: Any) -> Any:
        """The tensor over a whole storage of which `tensor` is a view, in the layout that was traced."""
        if not isinstance(tensor, torch.Tensor) or not isinstance(fake, torch.Tensor):
            return None
        layout = [int(size) for size in (*fake.shape, *fake.stride(), fake.storage_offset())]
        sizes, strides, offset = layout[: fake.dim()], layout[fake.dim() : -1], layout[-1]
        return tensor.detach().as_strided(sizes, strides, offset)


_PLAIN = (
    torch.Tensor,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    int,
    float,
    bool,
    complex,
    str,
    torch.dtype,
    torch.device,
)


def without_objects(module: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, list[int]]:
    """(the graph without inputs that are objects, the places of those that stay). The same graph where it has none.

    Objects of the process, such as the device mesh of a DTensor, cannot be held by a case. Most only pass through to
    the outputs, beside the local tensors that they describe: the input goes, the outputs that were it become None.

    Raises UsageError where a node computes with such an object.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    objects = {
        node for node, value in zip(placeholders, inputs, strict=True) if not isinstance(value, (*_PLAIN, type(None)))
    }
    if not objects:
        return module, list(range(len(placeholders)))
    for node in objects:
        users = [user.name for user in node.users if user.op != "output"]
        if users:
            kind = type(inputs[placeholders.index(node)]).__name__
            raise NoGraphError(
                "the graph cannot be saved", f"{users[0]} computes with {node.name}, an object of this process ({kind})"
            )
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node in objects:
            continue
        if node.op == "output":
            outputs = [None if output in objects else output for output in node.args[0]]
            last = graph.output(tuple(copies[output] if isinstance(output, fx.Node) else output for output in outputs))
            last.meta.update(node.meta)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    flat = fx.GraphModule(module, graph)
    flat.meta.update(module.meta)
    return flat, [place for place, node in enumerate(placeholders) if node not in objects]
