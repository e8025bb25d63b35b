# pyright: basic
"""Has Triton's language compute with our builder while a context is open, in this process, without TRITON_INTERPRET.

Every compiled function of Triton's standard library and of Inductor's helpers is replaced by one that runs as Python,
library functions by our table, reductions by ours. Everything is put back at the end.

For example:

    with interpreted():
        run(kernel, arguments, grid)
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import triton.language as tl

from ...torch_private import replaced, triton_helpers
from . import reducing
from ._triton import JITFunction, interpreter, numpy_type
from .builder import BUILDER, Endless
from .cooperating import MARK
from .memory import KernelMistake
from .rewriting import rewritten

_ROOMS = ("triton.language", "torch._inductor.runtime.triton_helpers")
_ACTIVE = 0


class Interpreted:
    """A compiled function that runs as Python: called by kernels and as a combine function.

    Its Python function runs as `rewriting` has it.
    """

    def __init__(self, compiled: Any) -> None:
        self.fn = compiled.fn
        self.__name__ = compiled.fn.__name__
        self.arg_names = list(getattr(compiled, "arg_names", ()))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        named.pop("_semantic", None)
        named.pop("_generator", None)
        return rewritten(self.fn)(*arguments, **named)


_made: dict[int, Interpreted] = {}


def of(compiled: Any) -> Interpreted:
    """The interpreted form of a compiled function."""
    known = _made.get(id(compiled))
    if known is None or known.fn is not compiled.fn:
        known = _made[id(compiled)] = Interpreted(compiled)
    return known


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """Lets Triton's language compute with this builder inside the block; may be nested."""
    global _ACTIVE
    if _ACTIVE:
        yield
        return
    scope = interpreter._LangPatchScope()
    _ACTIVE += 1
    with (
        replaced(interpreter, "interpreter_builder", BUILDER),
        replaced(interpreter, "interpreter_semantic", interpreter.TritonSemantic(BUILDER)),
    ):
        try:
            _functions(scope)
            _language(scope)
            _library(scope)
            remember(scope)
            yield
        finally:
            _ACTIVE -= 1
            scope.restore()


@contextlib.contextmanager
def functions_of(space: dict[str, Any]) -> Iterator[None]:
    """Runs compiled functions among a kernel's globals as Python, too: helpers that a user's kernel calls."""
    helpers = {name: value for name, value in space.items() if isinstance(value, JITFunction)}
    space.update({name: of(value) for name, value in helpers.items()})
    try:
        yield
    finally:
        space.update(helpers)


def _functions(scope: Any) -> None:
    for name, module in list(sys.modules.items()):
        if not name.startswith(_ROOMS) or not isinstance(module, ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, JITFunction):
                scope.set_attr(module, key, of(value))
    for key, value in list(vars(tl.tensor).items()):
        if isinstance(value, JITFunction):
            scope.set_attr(tl.tensor, key, _method(of(value)))


def _method(function: Interpreted) -> Any:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return function(self, *arguments, **named)

    return method


def _language(scope: Any) -> None:
    for module in (tl, tl.core):
        interpreter._patch_builtin(module, BUILDER, scope)
        interpreter._patch_builtin(module.tensor, BUILDER, scope)
        interpreter._patch_lang_tensor(module.tensor, scope)
        interpreter._patch_lang_core(module, scope)
    scope.set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.item()))
    scope.set_attr(tl.tensor, "__bool__", _truth)
    interpreter._patch_builtin(tl.math, BUILDER, scope)
    interpreter._patch_builtin(tl.core.tensor_descriptor_base, BUILDER, scope)
    for name, value in list(vars(triton_helpers).items()):
        if tl.core.is_builtin(value) and value.__module__ == triton_helpers.__name__:
            scope.set_attr(triton_helpers, name, _at_compile_time(value))
    if hasattr(triton_helpers, MARK):
        scope.set_attr(triton_helpers, MARK, lambda *_, **__: BUILDER.wait())
    for module in (tl, tl.core):
        scope.set_attr(module, "reduce", reducing.reduce)
        scope.set_attr(module, "associative_scan", reducing.scan)


def _at_compile_time(function: Any) -> Any:
    """A function of Inductor that the compiler evaluates: it asks for constants as such."""

    def call(*arguments: Any, **named: Any) -> Any:
        given = [
            tl.constexpr(argument) if argument is None or isinstance(argument, (bool, int, float)) else argument
            for argument in arguments
        ]
        return function(*given, **{**named, "_semantic": interpreter.interpreter_semantic})

    return call


def _truth(self: Any) -> bool:
    """The truth of a kernel's condition. Triton's own code asks whether an operand exists (`if mask:`), which is true
    whatever its value."""
    if sys._getframe(1).f_globals.get("__name__") in _OWN_CODE:
        return True
    BUILDER.asked += 1
    if BUILDER.asked > BUILDER.patience:
        raise Endless(f"a program of the kernel asked for conditions {BUILDER.patience} times: a loop does not end")
    if self.handle.data.size != 1:
        raise KernelMistake("a block of values was used as a condition: `and`, `or`, `if` and `while` take one value")
    return bool(self.handle.data.item())


_OWN_CODE = ("triton.language.semantic", "triton.language.core")


def _library(scope: Any) -> None:
    """libdevice: the generic module's functions are empty, those for CUDA call the builder by symbol."""
    from triton.language.extra import libdevice as generic
    from triton.language.extra.cuda import libdevice as of_cuda

    interpreter._patch_builtin(of_cuda, BUILDER, scope)
    for name, value in list(vars(of_cuda).items()):
        if callable(value) and not name.startswith("_") and name in vars(generic):
            scope.set_attr(generic, name, value)


# Triton's types and shapes made once instead of for each value: most of the time of an interpreted kernel went there.
# Same
# classes, same attributes; the constructors remember what they made for one element type and shape. Read on Triton
# 3.6.0.

core: Any = tl.core
_Block, _Tuple, _Constant = core.block_type, core.tuple, core.constexpr
_usual_block, _usual_equal = _Block.__init__, _Tuple.__eq__
_types: dict[Any, dict[str, Any]] = {}
_shapes: dict[Any, tuple[Any, Any]] = {}


def remember(scope: Any) -> None:
    """Replaces the constructors until the scope is restored."""
    scope.set_attr(_Block, "__init__", _block)
    scope.set_attr(core.tensor, "__init__", _tensor)
    scope.set_attr(_Tuple, "__eq__", _equal)
    scope.set_attr(interpreter, "_get_np_dtype", numpy_type)


def _block(self: Any, element_ty: Any, shape: Any) -> None:
    sizes = tuple(size.value if isinstance(size, _Constant) else size for size in shape)
    key = element_ty.__class__, element_ty.name, getattr(element_ty, "address_space", 1), sizes
    known = _types.get(key)
    if known is None:
        _usual_block(self, element_ty, shape)
        known = _types[key] = dict(vars(self))
    else:
        vars(self).update(known)


def _tensor(self: Any, handle: Any, type: Any) -> None:
    sizes = tuple(type.shape.values) if type.is_block() else ()
    known = _shapes.get(sizes)
    if known is None:
        known = _shapes[sizes] = _Tuple([_Constant(size) for size in sizes]), _Constant(math.prod(sizes))
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = known


def _equal(self: Any, other: Any) -> Any:
    if other is self:
        return _Constant(True)
    return _Constant(self.values == other.values) if isinstance(other, _Tuple) else _usual_equal(self, other)
