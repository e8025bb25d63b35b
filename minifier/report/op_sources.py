"""The registration of a custom operator as source, cut out of the module that registered it in this process.

What is taken: the function under `torch.library.custom_op`, its `register_*` statements, and whatever those use, as
long as that is torch, numpy or Python's own library. Nothing is guessed: a name that cannot be followed means no
source. The user's module is not imported: `--import` has done so.

For example:

    source_of("mine::scale").statements[0].splitlines()[0]
    # '@torch.library.custom_op("mine::scale", mutates_args=())'
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

_ROOTS = frozenset({"torch", "numpy", *sys.stdlib_module_names}) - {"__future__"}
_LONGEST = 120
"""Lines of source above which an operator is better imported, or stood in for."""


@dataclass(frozen=True)
class OpSource:
    """Statements in order, and imports that they need beside `import torch`."""

    statements: tuple[str, ...]
    imports: tuple[str, ...]


def source_of(name: str) -> OpSource | None:
    """The source of `namespace::op`; None where it was not registered here by `custom_op`, or cannot be cut out."""
    if "torch" not in sys.modules:
        return None
    from ...toolkit import torch_private as t

    function = getattr(t.custom_ops.get(name), "_init_fn", None)
    if function is None:
        return None
    try:
        text = inspect.getsource(cast("Any", inspect.getmodule(function)))
        return _cut(text, function, name)
    except (OSError, TypeError, SyntaxError, _Lost):
        return None


class _Lost(Exception):
    """A name has no definition that could be included."""


def _cut(text: str, function: Callable[..., Any], name: str) -> OpSource | None:
    chain = _chain(ast.parse(text).body, function.__code__.co_firstlineno)
    if not chain:
        return None
    own = next(
        candidate
        for candidate in chain[-1]
        if isinstance(candidate, ast.FunctionDef) and _first(candidate) == function.__code__.co_firstlineno
    )
    taken: list[ast.stmt] = [own, *(candidate for candidate in chain[-1] if _registers(candidate, own.name, name))]
    imports: set[str] = set()
    known: set[str] = set()
    for statement in taken:
        for used in sorted(_free(statement) - known):
            known.add(used)
            definition = _definition(used, chain)
            if isinstance(definition, str):
                imports.add(definition)
            elif definition is not None and definition not in taken:
                taken.append(definition)
    lines = text.splitlines()
    ordered = sorted(taken, key=lambda candidate: candidate.lineno)
    statements = tuple(
        textwrap.dedent("\n".join(lines[_first(candidate) - 1 : candidate.end_lineno])) for candidate in ordered
    )
    if sum(len(candidate.splitlines()) for candidate in statements) > _LONGEST:
        return None
    return OpSource(statements, tuple(sorted(imports - {"import torch"})))


def _first(statement: ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _chain(body: Sequence[ast.stmt], line: int) -> list[list[ast.stmt]]:
    """The bodies that hold the function that begins in that line, outermost first."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and _first(statement) == line:
            return [list(body)]
        inner: list[Any] = [*getattr(statement, "body", []), *getattr(statement, "orelse", [])]
        deeper = _chain([item for item in inner if isinstance(item, ast.stmt)], line)
        if deeper:
            return [list(body), *deeper]
    return []


def _registers(statement: ast.stmt, own: str, name: str) -> bool:
    """Whether a statement registers something for the operator: `own.register_fake(...)`, `register_fake("name", ...)`,
    or a lowering or decomposition for `torch.ops.namespace.name`, by itself or in a list.
    """
    heads = getattr(statement, "decorator_list", [])
    heads = [*heads, *([statement.value] if isinstance(statement, ast.Expr) else [])]
    for head in heads:
        called = head.func if isinstance(head, ast.Call) else head
        arguments = head.args[:1] if isinstance(head, ast.Call) else []
        word = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if not (word.startswith("register_") or (word == "impl" and isinstance(called, ast.Attribute))):
            continue
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == own:
            return True
        listed = [
            item
            for argument in arguments
            for item in (argument.elts if isinstance(argument, (ast.List, ast.Tuple)) else [argument])
        ]
        if any(_means(argument, own, name) for argument in listed):
            return True
    return False


def _means(argument: ast.expr, own: str, name: str) -> bool:
    """Whether an argument is the operator: its name as text, the variable of its function,
    `torch.ops.namespace.name`."""
    if isinstance(argument, ast.Constant):
        return argument.value == name
    if isinstance(argument, ast.Name):
        return argument.id == own
    path = "torch.ops." + name.replace("::", ".")
    return isinstance(argument, ast.Attribute) and ast.unparse(argument).removesuffix(".default") == path


def _free(statement: ast.stmt) -> set[str]:
    """Names that a statement reads and does not bind itself."""
    read: set[str] = set()
    bound: set[str] = set()
    for inner in ast.walk(statement):
        if isinstance(inner, ast.Name):
            (read if isinstance(inner.ctx, ast.Load) else bound).add(inner.id)
        elif isinstance(inner, ast.arg):
            bound.add(inner.arg)
        elif isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
            bound.add(inner.name)
        elif isinstance(inner, (ast.Import, ast.ImportFrom)):
            _allowed(inner)
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in inner.names}
    return read - bound - set(dir(builtins))


def _definition(name: str, chain: Sequence[Sequence[ast.stmt]]) -> ast.stmt | str | None:
    """The statement that binds a name, or the text of the import that does; None for a name that needs none."""
    for body in reversed(chain):
        for statement in body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for alias in statement.names:
                    if (alias.asname or alias.name.partition(".")[0]) == name:
                        _allowed(statement)
                        return ast.unparse(
                            ast.Import([alias])
                            if isinstance(statement, ast.Import)
                            else ast.ImportFrom(statement.module, [alias], statement.level)
                        )
                continue
            binds = [statement.name] if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else []
            if name in (_targets(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else binds):
                return statement
    raise _Lost(name)


def _targets(statement: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def _allowed(statement: ast.Import | ast.ImportFrom) -> None:
    names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else [statement.module or ""]
    if isinstance(statement, ast.ImportFrom) and statement.level:
        raise _Lost(statement.module or ".")
    for name in names:
        if name.partition(".")[0] not in _ROOTS:
            raise _Lost(name)
