"""A case whose kernels for a GPU failed on Triton's interpreter, written as a program for the GPU that they are for.

Stock torch cannot interpret Inductor's kernels, so the program runs them: its tensors are on `cuda`. Where it was written there
may be no GPU; then it says that it cannot tell, and nobody has seen it fail. Pure data.

>>> on_gpu(case).record.graph.nodes[0].value.device
'cuda'
"""

from __future__ import annotations

from dataclasses import replace

from ...dumps.relocate import relocated
from .case import Case

RUNG = "triton_interpret"
DEVICE = "cuda"
SENTENCE = "Found with Inductor's Triton kernels on Triton's interpreter, with no GPU; it needs one of NVIDIA's."


def on_gpu(case: Case) -> Case:
    """The same case with what lies on the CPU moved to the GPU, for that rung; any other as it is."""
    if case.rung != RUNG:
        return case
    inputs = relocated(case.inputs, "cpu", DEVICE) if case.inputs is not None else None
    return replace(case, record=relocated(case.record, "cpu", DEVICE), inputs=inputs)
