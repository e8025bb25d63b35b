# pyright: basic, reportPrivateImportUsage=false
# ruff: noqa: F401
"""The private names of torch's compiled autograd that capture uses, and nowhere else in this package.

There is no public way to a backward as a graph: `torch._dynamo.config.compiled_autograd` only acts inside `torch.compile`. All
were read and run on 2.11.0 and 2.13.0; the C++ side calls methods of AutogradCompilerInstance that differ between the two, so
none of them is replaced, only the passes at its end.

>>> from . import _torch as t
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._C._dynamo import compiled_autograd as engine
from torch._dynamo import compiled_autograd as stock
from torch._dynamo import eval_frame
from torch._dynamo.external_utils import call_accumulate_grad, call_hook
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode_stack

CHECKED = ("2.11.0", "2.13.0")

AutogradCompilerInstance: Any = stock.AutogradCompilerInstance
BETWEEN = tuple(f"{torch.__path__[0]}/{name}" for name in (
    "_compile.py", "_ops.py", "autograd/function.py", "utils/_python_dispatch.py", "_dynamo/eval_frame.py",
))  # fmt: skip
"""Torch's own frames between the engine and a hook, and between an operator and the mode that sees it."""

_OTHERWISE_UNDER_A_MODE = frozenset({"ProdBackward0", "ProdBackward1", "CumprodBackward0"})
"""Derivative formulas that take another way when any dispatch mode is active (`isTensorSubclassLike` in FunctionsManual.cpp),
with other last bits. 52 formulas were compared on 2.11.0 and 2.13.0."""


def set_compiler(compiler: Any, dynamic: bool) -> tuple[Any, bool]:
    """Makes `compiler` capture the backwards from now on (None: none does); returns what did so until now."""
    return engine.set_autograd_compiler(compiler, dynamic)


def forced_eager() -> bool:
    """Whether the user's stance is "force_eager"."""
    return eval_frame._stance.stance == "force_eager"


def load_cudagraph_trees() -> None:
    """With a GPU a capture asks this module, which nobody may have imported yet."""
    if torch.cuda.is_available():
        from torch._inductor import cudagraph_trees


def is_plain_op(target: Any) -> bool:
    """Whether a call in a captured graph is torch's own arithmetic: an ATen operator, or the C++ backward of one."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in ("aten", "prims")
    return isinstance(target, stock.Op) and not target.is_custom_function


def not_to_be_watched(names: Iterable[str]) -> str:
    """Why a backward with these autograd nodes is not run under a tape, or nothing."""
    for name in names:
        if name in _OTHERWISE_UNDER_A_MODE:
            return f"{name} computes otherwise while it is watched"
        if name.startswith("CompiledFunction"):
            return "a part of its forward is compiled, and that part's backward is a graph of its own"
    return ""


def is_traced(outputs: Sequence[Any]) -> bool:
    """Whether a backward is a tracer's (AOTAutograd, make_fx, Dynamo, torch.func) and no run of the program's."""
    if _functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling():
        return True
    tracers = (FakeTensorMode, ProxyTorchDispatchMode, FunctionalTensorMode)
    if any(isinstance(mode, tracers) for mode in _get_current_dispatch_mode_stack()):
        return True
    return any(isinstance(value, (FakeTensor, FunctionalTensor)) for value in outputs)


def current_node() -> Any:
    """The autograd node that the engine runs now, or None. `torch.autograd.graph` has no function for it."""
    return torch._C._current_autograd_node()


def fed_sizes(node: Any) -> tuple[tuple[int, ...], ...]:
    """The sizes of the gradients that an autograd node takes; for one that accumulates, those of the parameter, and of the
    gradient that is there.
    """
    variable = getattr(node, "variable", None)
    if variable is not None:
        there = variable.grad
        return (tuple(variable.shape), *((tuple(there.shape),) if there is not None else ()))
    return tuple(tuple(item.shape) for item in getattr(node, "_input_metadata", ()))


def told_apart_by(node: Any) -> tuple[Any, ...]:
    """What else tells two nodes of one name and size apart: dtypes, the parameter, the layout of its gradient."""
    variable = getattr(node, "variable", None)
    if variable is not None:
        return (id(variable), variable.dtype, getattr(variable.grad, "layout", None))
    return (*(item.dtype for item in getattr(node, "_input_metadata", ())), getattr(node, "_saved_sparse", None))


def storage_key(value: torch.Tensor) -> int:
    """What two tensors over one memory have in common, while it is alive."""
    return value.untyped_storage()._cdata


def view_key(value: torch.Tensor) -> tuple[Any, ...]:
    """Equal for two tensor objects that are the same view of the same memory, while that is alive."""
    if value.layout is not torch.strided:
        return (id(value),)
    lazy = value.is_conj(), value.is_neg()
    return storage_key(value), value.storage_offset(), tuple(value.shape), tuple(value.stride()), value.dtype, *lazy


def written(func: Any, made: Any) -> list[int]:
    """The memories that an operator wrote to, as far as it returns what it wrote."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    values = pytree.tree_leaves(made)
    return [storage_key(value) for value in values if isinstance(value, torch.Tensor) and value.layout is torch.strided]


def weak_storage(value: torch.Tensor) -> Any:
    """Tells by `expired()` whether the memory of a tensor was given back."""
    return StorageWeakRef(value.untyped_storage()) if value.layout is torch.strided else _Expired()


class _Expired:
    @staticmethod
    def expired() -> bool:
        return True


def in_region() -> bool:
    """Whether a captured backward is running on this thread."""
    return bool(stock.in_compiled_autograd_region)


def user_compiler_on() -> bool:
    """Whether the script itself has compiled autograd on."""
    return bool(stock.compiled_autograd_enabled)


ENGINE_CALL = "_engine_run_backward"
ENGINE_CALLERS = (torch.autograd, torch.autograd.graph)
"""Whoever differentiates calls the engine through this name, in either module."""
