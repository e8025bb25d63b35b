"""GPUs that are too old: for bfloat16, where torch leaves the graph uncompiled without an error, and for Triton.

>>> bf16(case).what
'bfloat16 cannot be compiled for Tesla T4 (compute capability 7.5)'
"""

from __future__ import annotations

from typing import Any

from .case import Case
from .explained import Explained, NodeAt
from .nodes import at

KIND = "bfloat16 on an old GPU"


def bf16(case: Case) -> Explained | None:
    """Torch gives a graph with bfloat16 inputs or outputs up (SkipFrame) where the GPU only emulates it."""
    error = case.find("SkipFrame")
    if error is None or "bf16" not in str(error).lower():
        return None
    gpu = _gpu(case)
    values = _values(case)
    held = (
        f"{', '.join(values)} {'is' if len(values) == 1 else 'are'} bfloat16"
        if values
        else "it takes or returns bfloat16"
    )
    return case.told(
        KIND, f"bfloat16 cannot be compiled for {gpu}",
        f"{held}, and this GPU has no bfloat16 of its own, so torch gives the graph up (SkipFrame) and runs it uncompiled",
        "use float16 or float32 on it, or a GPU of compute capability 8.0 or more", nodes=_nodes(case, values),
    )  # fmt: skip


def too_old(case: Case) -> Explained | None:
    """Triton has no code for a GPU below 7.0."""
    error = case.find("GPUTooOldForTriton")
    if error is None:
        return None
    return case.told(
        "GPU too old for Triton", "the graph cannot be compiled for this GPU", str(error),
        "use a GPU of compute capability 7.0 or more, the CPU, or torch.compile with backend aot_eager",
    )  # fmt: skip


def _gpu(case: Case) -> str:
    for frame in case.inwards():
        if (properties := frame.f_locals.get("device_props")) is not None:
            major, minor = getattr(properties, "major", None), getattr(properties, "minor", None)
            capability = f" (compute capability {major}.{minor})" if major is not None else ""
            return f"{getattr(properties, 'name', 'this GPU')}{capability}"
    return "this GPU"


def _values(case: Case) -> list[str]:
    """Inputs that are bfloat16, else outputs."""
    lowering: Any = case.work.lowering if case.work is not None else None
    if lowering is None:
        return []
    inputs = [name for name, value in lowering.graph_inputs.items() if _is_bf16(value)]
    return inputs or [f"output {i}" for i, value in enumerate(lowering.graph_outputs or ()) if _is_bf16(value)]


def _is_bf16(value: Any) -> bool:
    dtype = getattr(value, "get_dtype", None)
    return dtype is not None and str(dtype()) == "torch.bfloat16"


def _nodes(case: Case, names: list[str]) -> list[NodeAt]:
    graph = getattr(case.work.gm, "graph", None) if case.work is not None else None
    return (
        [at(node) for node in graph.nodes if node.op == "placeholder" and node.name in names]
        if graph is not None
        else []
    )
