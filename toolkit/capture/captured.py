"""A captured graph with what is known of its inputs and outputs.

>>> captured.save("case")            # a case folder that every command takes
>>> captured.mutated                 # inputs that the function writes to
["running_mean"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dumps.errors import UsageError
from ...dumps.output import say
from ...dumps.schema import InputRecord

if TYPE_CHECKING:
    from torch.fx import GraphModule


@dataclass
class OutputDescription:
    """What one output of a graph is: "user", "mutation" (an input's new value), "alias base", "gradient", "token" or "saved".

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

    module: GraphModule
    stage: str
    inputs: list[Any]
    real: list[Any]
    inputs_described: list[InputRecord]
    outputs_described: list[OutputDescription]
    mutated: list[str] = field(default_factory=list[str])
    aliased: list[str] = field(default_factory=list[str])
    compile_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    in_spec: Any = None
    out_spec: Any = None
    raw_metadata: Any = None
    """Torch's own ViewAndMutationMeta."""
    notes: list[str] = field(default_factory=list[str])
    """What the function does that the graph does not hold, one sentence each."""

    def values(self, seed: int = 0) -> list[Any]:
        """Real inputs: the caller's, and for tangents normal numbers drawn with `seed`, of the traced layout."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        made: list[Any] = []
        for fake, real in zip(self.inputs, self.real, strict=True):
            if real is not None or not isinstance(fake, torch.Tensor):
                made.append(real)
                continue
            value = torch.empty_strided(_hints(fake.shape), _hints(fake.stride()), dtype=fake.dtype, device=fake.device)
            kind = torch.complex64 if fake.dtype.is_complex else torch.float32
            drawn = torch.randn(value.shape, generator=generator, dtype=kind)
            made.append(value.copy_(drawn))
        return made

    def save(self, path: str | Path, *, seed: int = 0) -> Path:
        """Writes a case folder with the descriptions beside the graph; inputs that are objects of this process, such as a
        DTensor's device mesh, are left out where they only pass through. Says `notes`. Raises UsageError where `path` exists.
        """
        from ...dumps.live import save_graph
        from ...dumps.torchside.encode import CARRY
        from .objects import without_objects

        if Path(path).exists():
            raise UsageError(f"cannot write {path}", "it exists already", "choose another name or delete it")
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
