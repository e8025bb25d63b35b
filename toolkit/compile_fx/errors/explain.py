"""`explain`: asks each family of errors in turn whether an exception is one of its own.

The list is in order: what says most comes first, the last takes anything. An account is never the reason that the error itself is
lost: where making one fails, the account says so.

>>> explain(error, work, "lower").kind
'unsupported operator'
"""

from __future__ import annotations

from collections.abc import Callable

from ..work import Work
from . import compilers, cpp_kernel, limits, mixed_devices, old_gpu, operators, passes, triton_kernel
from .case import Case
from .explained import Explained

Family = Callable[[Case], Explained | None]

FAMILIES: tuple[Family, ...] = (
    old_gpu.bf16,
    old_gpu.too_old,
    compilers.missing,
    limits.memory,
    limits.recursion,
    cpp_kernel.compile_error,
    triton_kernel.compile_error,
    triton_kernel.resources,
    triton_kernel.not_python,
    limits.worker,
    mixed_devices.mixed,
    operators.unsupported,
    operators.depends_on_data,
    passes.of_a_pass,
)
"""Asked in this order; the first account counts."""


def explain(error: BaseException, work: Work | None, stage: str) -> Explained:
    """The account of an error that a stage raised. `work` is the stage's, None where there was none yet; changes nothing."""
    case = Case.of(error, work, stage)
    try:
        for family in FAMILIES:
            if (found := family(case)) is not None:
                return found
        return passes.anything(case)
    except Exception as defect:  # noqa: BLE001
        plain = case.told("error", f"the stage {stage} failed", case.said())
        plain.notes.append(f"(graphdbg could not say more of it: {type(defect).__name__}: {defect})")
        return plain
