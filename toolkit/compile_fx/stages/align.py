"""Alignment: which inputs must start on 16 bytes, and which overlap. The copy itself is put on behind cudagraphs, as in stock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ....dumps.wording import counted
from .. import _torch as t
from ..alignment import in_wrapper
from ..finishing import later, wraps_itself
from ..input_names import InputName, listed, name_at, names_for
from ..overlap import described

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.to_align` and says which inputs are looked at in each call, by whom."""
    compiled, names = work.compiled, names_for(work)
    work.notes.extend(described(work.inputs, names))
    if not isinstance(compiled, t.CompiledFxGraph):
        work.notes.append("left to the library: code ahead of time checks by itself")
        return
    if wraps_itself(work):
        work.notes.append("left to the customized partition wrapper")
        return
    to_check = list(compiled.inputs_to_check)
    deferred = bool(getattr(compiled, "_defers_input_alignment", False))
    work.to_align = in_wrapper(to_check, compiled.mutated_input_idxs, deferred)
    work.tell_align = later(pipeline, "align", work)
    work.notes.append(_sentence(work, to_check, names))


def _sentence(work: Work, to_check: list[int], names: list[InputName]) -> str:
    if not to_check:
        tensors = [value for value in work.inputs if isinstance(value, torch.Tensor)]
        if tensors and not any(t.is_gpu(value.device.type) for value in tensors):
            return "nothing to check: CPU kernels load from anywhere"
        return "nothing to check: " + (
            "no tensor is an input" if not tensors else "static, or not assumed to be aligned"
        )
    before = set(work.to_align)
    text = f"{counted(len(to_check), 'input')} checked: "
    text += listed(name_at(names, index) for index in to_check)
    if len(before) < len(to_check):
        text += "; in the generated code" + (
            f", and {listed(name_at(names, i) for i in sorted(before))} before it" if before else ""
        )
    return text
