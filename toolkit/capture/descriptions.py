"""What AOTAutograd's descriptors say of inputs and outputs, in our words, and the caller's own values that they name.

>>> outputs_of(gm)[0]
OutputDescription(name='add', kind='user', source='output[0]')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...dumps.browse.roles import kind_of
from ...dumps.schema import InputRecord
from ..recorder.roles import of_aot
from .captured import OutputDescription


def inputs_of(gm: Any, stage: str) -> list[InputRecord]:
    """The role and the source of each placeholder."""
    return of_aot(gm, [], stage)


def outputs_of(gm: Any) -> list[OutputDescription]:
    """What each output is."""
    output = gm.graph.output_node()
    described = output.meta.get("desc") or [None] * len(output.args[0])
    return [
        OutputDescription(getattr(node, "name", str(node)), *kind_of(repr(one) if one is not None else None))
        for node, one in zip(output.args[0], described, strict=False)
    ]


class Values:
    """The caller's own values by the descriptor of an input: parameters and buffers by name, arguments by position, parts of a
    tensor subclass by attribute, and the storage that overlapping inputs share.
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

    def _shared(self, one: Any, fake: Any) -> Any:
        """The tensor over a whole storage of which `one` is a view, in the layout that was traced."""
        if not isinstance(one, torch.Tensor) or not isinstance(fake, torch.Tensor):
            return None
        layout = [int(size) for size in (*fake.shape, *fake.stride(), fake.storage_offset())]
        sizes, strides, offset = layout[: fake.dim()], layout[fake.dim() : -1], layout[-1]
        return one.detach().as_strided(sizes, strides, offset)
