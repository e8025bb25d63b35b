"""Calls of compiled NumPy in a program: the wrappers that Dynamo writes, by torch's names. Texts only. Imports no
torch.

>>> wrapper("numpy.linalg.norm")
'torch._dynamo.utils.numpy_to_tensor_wrapper(torch._numpy.linalg.norm)'
"""

from __future__ import annotations

_UTILS = "torch._dynamo.utils"
MODULES = ("torch._numpy", _UTILS)
"""What a program with such calls imports."""


def is_numpy(target: str) -> bool:
    """Whether a target is a call of compiled NumPy."""
    return target.startswith("numpy.")


def wrapper(target: str) -> str:
    """The expression for the callable. The target is a dotted name of plain identifiers, which the caller has
    checked."""
    _, *path = target.split(".")
    if path == ["getattr"]:
        return f"{_UTILS}.numpy_attr_wrapper"
    if path[0] == "operator":
        return f"{_UTILS}.numpy_operator_wrapper({'.'.join(path)})"
    if path[0] == "ndarray" and len(path) == 2:
        return f'{_UTILS}.numpy_method_wrapper("{path[1]}")'
    return f"{_UTILS}.numpy_to_tensor_wrapper(torch._numpy.{'.'.join(path)})"


def helper(target: str) -> tuple[str, str]:
    """The name of a wrapper in a program for torch.compile, and the line that makes it: Dynamo does not trace the
    wrappers, it writes them."""
    name = target.replace(".", "_")
    return name, f"{name} = torch.compiler.allow_in_graph({wrapper(target)})"
