"""Where a judged execution left NaN, and whose NaN it is: the model's own where eager gives it too, else the compiled graph's.

A NaN that eager has as well is no failure of the compiler, so it does not change the verdict; it is what a person who looks for
the origin of a NaN wants to be told. Only reads.

>>> sentence("inductor", ["output 0", "output 3"], ["output 0", "output 3"])
"NaN in output 0, output 3; eager gives NaN too: the model's own"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .execution import Execution

_SHOWN = 6


def places(execution: Execution, changed: Sequence[int]) -> list[str]:
    """The results of an execution that hold a NaN: "output 3", "gradient 0", "input 5 afterwards"."""
    named: list[tuple[str, Any]] = [(f"output {index}", value) for index, value in enumerate(execution.outputs)]
    named += [(f"gradient {index}", value) for index, value in enumerate(execution.gradients)]
    named += [(f"input {index} afterwards", execution.inputs[index]) for index in changed if index < len(execution.inputs)]
    return [name for name, value in named if _has_nan(value)]


def _has_nan(value: Any) -> bool:
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
        return False
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return False
    try:
        return bool(torch.isnan(value.detach()).any())
    except RuntimeError:  # a float of 8 bits or less has no arithmetic
        return bool(torch.isnan(value.detach().to(torch.float32)).any())


def sentence(rung: str, found: Sequence[str], eager: Sequence[str]) -> str:
    """Whose NaN it is, in words; empty when there is none."""
    if not found and not eager:
        return ""
    if not found:
        return f"eager gives NaN in {_some(eager)}; {rung} does not"
    text = f"NaN in {_some(found)}"
    if rung == "eager":
        return f"{text}: the model's own"
    alone = [name for name in found if name not in eager]
    if not alone:
        return f"{text}; eager gives NaN too: the model's own"
    if not eager:
        return f"{text}; only the compiled graph gives NaN, eager does not"
    return f"{text}; of these only the compiled graph gives NaN in {_some(alone)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
