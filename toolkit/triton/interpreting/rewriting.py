# pyright: basic
"""A kernel's Python function with the meaning that Triton's compiler gives it where Python has another: `not`, `and`,
`or` and `assert` of blocks, and numbers that are assigned, which become tensors.

Python asks a block whether it is true, which it has no answer to; Triton computes element by element. Everything else
stays as it is written, with its lines. A function whose source cannot be read runs unchanged.

For example: `rewritten(kernel.fn)(*arguments)`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import weakref
from collections.abc import Callable
from typing import Any

import triton.language as tl

from ._triton import interpreter
from .builder import BUILDER
from .memory import KernelMistake

_SEMANTIC = interpreter.TritonSemantic(BUILDER)
_made: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def rewritten(function: Any) -> Any:
    """The function with Triton's meaning, or the function itself where nothing changes."""
    known = _made.get(function)
    if known is None:
        known = _made[function] = _rewritten(function)
    return known


def _rewritten(function: Any) -> Any:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return function
    definition = next(
        (
            statement
            for statement in tree.body
            if isinstance(statement, ast.FunctionDef) and statement.name == function.__name__
        ),
        None,
    )
    if definition is None:
        return function
    definition.decorator_list = []
    definition.returns = None
    for argument in (*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs):
        argument.annotation = None  # names of types need not be there when it runs
    definition.args.defaults, definition.args.kw_defaults = [], [None] * len(definition.args.kwonlyargs)
    body = _Meaning().visit(definition)
    ast.increment_lineno(body, first - 1)
    free = function.__code__.co_freevars
    outer = ast.parse(f"def outer({', '.join([*_TOOLS, *free])}):\n    return {definition.name}").body[0]
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
        later: list[ast.expr] = [ast.Lambda(_no_arguments(), value) for value in node.values]
        return ast.copy_location(
            _call("_graphdbg_and" if isinstance(node.op, ast.And) else "_graphdbg_or", later), node
        )

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


def _no_arguments() -> ast.arguments:
    return ast.arguments([], [], None, [], [], None, [])


def _tensor(value: Any) -> Any:
    """The value that an assigned name holds, as in Triton's `visit_Assign`."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_tensor(part) for part in value)
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
    "_graphdbg_tensor": _tensor,
}
