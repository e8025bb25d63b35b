# pyright: basic
"""Has Triton's language compute with our builder while a context is open, in this process, without TRITON_INTERPRET.

Also: programs that wait for each other (cooperative reductions): each in a thread of its own, of which one runs at a
time.

Also: A kernel's Python function with the meaning that Triton's compiler gives it where Python has another: `not`,
`and`, `or` and `assert` of blocks, and numbers that are assigned, which become tensors.

Also: reductions and scans with any combine function, halving along the axis: log2(n) calls on whole arrays.

Every compiled function of Triton's standard library and of Inductor's helpers is replaced by one that runs as Python,
library functions by our table, reductions by ours. Everything is put back at the end.

For example:

    with interpreted():
        run(kernel, arguments, grid)
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import triton.language as tl

from ....dumps import syntax
from ...torch_private import replaced, triton_helpers
from ._triton import Handle, JITFunction, interpreter, numpy_type
from .builder import BUILDER, Endless
from .memory import KernelMistake

MARK = "x_grid_barrier"
"""Inductor's name for a barrier between programs; a kernel whose source has it is cooperative."""


class Programs:
    """Runs programs that wait for each other, one at a time. `start(number)` runs a program; `resumed(number)` is
    called each time before it continues."""

    def __init__(self, start: Callable[[int], None], resumed: Callable[[int], None]) -> None:
        self.start, self.resumed = start, resumed
        self._turns: dict[int, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._now = 0
        self._ended: set[int] = set()
        self._errors: list[BaseException] = []
        self._stopped = False

    def run(self, count: int) -> None:
        """Runs programs 0 to count - 1. Raises the first error of any program."""
        threads = [threading.Thread(target=self._body, args=(number,), daemon=True) for number in range(count)]
        self._turns = {number: threading.Semaphore(0) for number in range(count)}
        for thread in threads:
            thread.start()
        try:
            while len(self._ended) < count and not self._errors:
                for number in range(count):
                    if number not in self._ended and not self._errors:
                        self._now = number
                        self.resumed(number)
                        self._turns[number].release()
                        self._back.acquire()
        finally:
            self._stopped = True
            for number in range(count):
                self._turns[number].release()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def wait(self) -> None:
        """Called by the running program at a barrier: lets the other programs run up to their own barrier."""
        number = self._now
        self._back.release()
        self._turns[number].acquire()
        if self._stopped:
            raise _OtherFailed

    def _body(self, number: int) -> None:
        self._turns[number].acquire()
        if self._stopped:
            return
        try:
            self.start(number)
        except _OtherFailed:
            return
        except BaseException as error:  # noqa: BLE001  raised again by the thread that asked
            self._errors.append(error)
        self._ended.add(number)
        self._back.release()


class _OtherFailed(BaseException):
    """Ends a waiting program because another one failed."""


_SEMANTIC = interpreter.TritonSemantic(BUILDER)
_rewritten_functions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def rewritten(function: Any) -> Any:
    """The function rewritten to Triton's semantics, or the function itself where that changes nothing."""
    known = _rewritten_functions.get(function)
    if known is None:
        known = _rewritten_functions[function] = _rewritten(function)
    return known


def _rewritten(function: Any) -> Any:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = syntax.parsed(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return function
    named = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == function.__name__)
    definition = next(named, None)
    if definition is None:
        return function
    definition.decorator_list = []
    definition.returns = None
    for argument in (*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs):
        argument.annotation = None  # names in annotations may not exist at run time
    definition.args.defaults, definition.args.kw_defaults = [], [None] * len(definition.args.kwonlyargs)
    body = _Meaning().visit(definition)
    ast.increment_lineno(body, first - 1)
    free = function.__code__.co_freevars
    outer = syntax.parsed(f"def outer({', '.join([*_TOOLS, *free])}):\n    return {definition.name}").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body.insert(0, body)
    module = ast.fix_missing_locations(ast.Module([outer], []))
    space: dict[str, Any] = {}
    exec(compile(module, function.__code__.co_filename, "exec", dont_inherit=True), function.__globals__, space)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    rebuilt = space["outer"](*_TOOLS.values(), *cells)
    rebuilt.__defaults__, rebuilt.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return rebuilt


class _Meaning(ast.NodeTransformer):
    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(_call("_graphdbg_not", [node.operand]), node) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        nothing = ast.arguments([], [], None, [], [], None, [])
        later: list[ast.expr] = [ast.Lambda(nothing, value) for value in node.values]
        name = "_graphdbg_and" if isinstance(node.op, ast.And) else "_graphdbg_or"
        return ast.copy_location(_call(name, later), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = ast.copy_location(_call("_graphdbg_tensor", [node.value]), node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.copy_location(ast.Assign([node.target], _call("_graphdbg_tensor", [value])), node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        given = [node.test] if node.msg is None else [node.test, node.msg]
        return ast.copy_location(ast.Expr(_call("_graphdbg_assert", given)), node)


def _call(name: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _as_tensor(value: Any) -> Any:
    """The value that an assigned name holds, as in Triton's `visit_Assign`."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_as_tensor(part) for part in value)
    return _SEMANTIC.to_tensor(value, False)


def _not(value: Any) -> Any:
    return value.__not__() if isinstance(value, tl.tensor) else not value


def _joined(method: str, stops_at: bool) -> Callable[..., Any]:
    """Joins operands as Triton's `visit_BoolOp` does: numbers short-circuit, tensors are joined element by element."""

    def join(*later: Callable[[], Any]) -> Any:
        tensors: list[Any] = []
        value: Any = None
        for condition in later:
            value = condition()
            if isinstance(value, tl.tensor):
                tensors.append(value)
            elif bool(value) is stops_at:
                return value
        while len(tensors) > 1:
            right = tensors.pop()
            tensors.append(getattr(tensors.pop(), method)(right))
        return tensors[0] if tensors else value

    return join


def _assert(condition: Any, message: Any = "") -> None:
    if isinstance(condition, tl.tensor):
        tl.device_assert(condition, str(message))
    elif not condition:
        raise KernelMistake(message)


_TOOLS: dict[str, Any] = {
    "_graphdbg_not": _not,
    "_graphdbg_and": _joined("logical_and", False),
    "_graphdbg_or": _joined("logical_or", True),
    "_graphdbg_assert": _assert,
    "_graphdbg_tensor": _as_tensor,
}


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    """`tl.reduce`. `input`: a tensor or a tuple of them."""
    given = tuple(input) if isinstance(input, (tuple, tl.tuple)) else (input,)
    axis, keep = _plain(axis), bool(_plain(keep_dims))
    arrays, kinds = [tensor.handle.data for tensor in given], [tensor.dtype for tensor in given]
    rank, place = arrays[0].ndim, 0
    if axis is None:
        arrays = [array.reshape(-1) for array in arrays]
    else:
        place = axis % rank
    while (size := arrays[0].shape[place]) > 1:
        even = size - size % 2
        left = [np.take(array, range(0, even, 2), place) for array in arrays]
        right = [np.take(array, range(1, even, 2), place) for array in arrays]
        combined = _combined(combine_fn, left, right, kinds)
        if size % 2:
            last = [np.take(array, range(even, size), place) for array in arrays]
            combined = [np.concatenate(pair, place) for pair in zip(combined, last, strict=True)]
        arrays = combined
    if axis is None:
        shape = (1,) * rank if keep else ()
        arrays = [array.reshape(shape) for array in arrays]
    elif not keep:
        arrays = [np.squeeze(array, place) for array in arrays]
    return _results(input, arrays, kinds)


def scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
    """`tl.associative_scan`, an inclusive scan."""
    given = tuple(input) if isinstance(input, (tuple, tl.tuple)) else (input,)
    arrays, kinds = [tensor.handle.data for tensor in given], [tensor.dtype for tensor in given]
    place = _plain(axis) % arrays[0].ndim
    backwards = bool(_plain(reverse))
    if backwards:
        arrays = [np.flip(array, place) for array in arrays]
    size, step = arrays[0].shape[place], 1
    while step < size:  # rolls whole arrays: Triton allows only power-of-two shapes; the first lanes keep their values
        before = [np.roll(array, step, place) for array in arrays]
        combined = _combined(combine_fn, before, arrays, kinds)
        head = (slice(None),) * place + (slice(step),)
        for array, old in zip(combined, arrays, strict=True):
            array[head] = old[head]
        arrays = combined
        step *= 2
    if backwards:
        arrays = [np.flip(array, place) for array in arrays]
    return _results(input, map(np.ascontiguousarray, arrays), kinds)


def _results(input: Any, arrays: Iterable[np.ndarray], kinds: list[Any]) -> Any:
    result = tuple(_made_tensor(array, kind) for array, kind in zip(arrays, kinds, strict=True))
    return result if isinstance(input, (tuple, tl.tuple)) else result[0]


def _combined(combine: Any, left: list[np.ndarray], right: list[np.ndarray], kinds: list[Any]) -> list[np.ndarray]:
    operands = [_made_tensor(numbers, kind) for numbers, kind in zip([*left, *right], kinds * 2, strict=True)]
    combined = combine(*operands)
    results = combined if isinstance(combined, (tuple, list, tl.tuple)) else (combined,)
    shape = left[0].shape
    pairs = zip(results, left, strict=True)
    return [np.array(np.broadcast_to(part.handle.data, shape), array.dtype) for part, array in pairs]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _made_tensor(data: np.ndarray, kind: Any) -> Any:
    scalar = kind.scalar
    if not data.shape:
        return tl.tensor(Handle(data.reshape(1), scalar), scalar)
    return tl.tensor(Handle(data, scalar), tl.block_type(scalar, list(data.shape)))


_ROOMS = ("triton.language", "torch._inductor.runtime.triton_helpers")
_ACTIVE = 0


class Interpreted:
    """A compiled function that runs as Python: called by kernels and as a combine function.

    Its Python function runs as `rewritten` returns it.
    """

    def __init__(self, compiled: Any) -> None:
        self.fn = compiled.fn
        self.__name__ = compiled.fn.__name__
        self.arg_names = list(getattr(compiled, "arg_names", ()))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        named.pop("_semantic", None)
        named.pop("_generator", None)
        return rewritten(self.fn)(*arguments, **named)


_interpreted: dict[int, Interpreted] = {}


def of(compiled: Any) -> Interpreted:
    """The interpreted form of a compiled function."""
    known = _interpreted.get(id(compiled))
    if known is None or known.fn is not compiled.fn:
        known = _interpreted[id(compiled)] = Interpreted(compiled)
    return known


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """Within the block, Triton's language computes with this builder; may be nested."""
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
    """Within the block, compiled functions among a kernel's globals run as Python, too: helpers that a user's kernel
    calls."""
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
        scope.set_attr(module, "reduce", reduce)
        scope.set_attr(module, "associative_scan", scan)


def _at_compile_time(function: Any) -> Any:
    """Wraps an Inductor function that Triton evaluates at compile time: it expects numbers as constexpr."""

    def call(*arguments: Any, **named: Any) -> Any:
        plain = (bool, int, float, type(None))
        given = [tl.constexpr(argument) if isinstance(argument, plain) else argument for argument in arguments]
        return function(*given, **{**named, "_semantic": interpreter.interpreter_semantic})

    return call


def _truth(self: Any) -> bool:
    """The truth value of a kernel's condition. For Triton's own code, which asks whether an operand exists (`if
    mask:`), always True."""
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
    """Patches libdevice: the generic module's functions are empty, those for CUDA call the builder by symbol."""
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
