"""A case whose kernels for a GPU failed on Triton's interpreter, written as a program for the GPU that they are for.

Stock torch cannot interpret Inductor's kernels, so the program runs them: its tensors are on `cuda`. Where it was written there
may be no GPU; then it says that it cannot tell, and nobody has seen it fail. Pure data.

>>> on_gpu(case).record.graph.nodes[0].value.device
'cuda'
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from .case import Case

RUNG = "triton_interpret"
DEVICE = "cuda"
SENTENCE = "Found with Inductor's Triton kernels on Triton's interpreter, with no GPU; it needs one of NVIDIA's."


def on_gpu(case: Case) -> Case:
    """The same case with what lies on the CPU moved to the GPU, for that rung; any other as it is."""
    if case.rung != RUNG:
        return case
    return replace(case, record=_moved(case.record), inputs=_moved(case.inputs))


def _moved(value: Any) -> Any:
    """A record with each tensor and each device argument that names the CPU on the GPU."""
    if isinstance(value, msgspec.Struct):
        changed = {name: _moved(getattr(value, name)) for name in value.__struct_fields__}
        if changed.get("device") == "cpu":
            changed["device"] = DEVICE
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, dict):
        pairs: list[tuple[Any, Any]] = list(value.items())  # pyright: ignore[reportUnknownArgumentType]
        return {key: DEVICE if (key, one) == ("device", "cpu") else _moved(one) for key, one in pairs}
    if isinstance(value, (list, tuple)):
        items: list[Any] = [_moved(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
        return items if isinstance(value, list) else tuple(items)
    return value
