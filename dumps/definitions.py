"""Cuts out of a program's text what a graph needs of it: operators and passes, and all definitions that those use.

An abstract syntax tree is cut: imports, definitions, the names that they reach, and the calls that register an
operator. The rest of the program (training) is left out: a statement is taken only where a name needs it, and a
statement whose value comes from a loss's backward or an optimizer's step is named in `missing`. Nothing is executed
here. No torch.

>>> program = 'import torch\\n@torch.library.custom_op("my::twice", mutates_args=())\\ndef twice(x): ...\\ntwice(1)'
>>> cut(program, {"my"}).program
'import torch\\n\\n\\n@torch.library.custom_op("my::twice", mutates_args=())\\ndef twice(x): ...\\n'
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from . import syntax

_REGISTERS = frozenset({"custom_op", "triton_op", "define", "impl", "impl_abstract", "Library", "fallthrough_kernel"})
_TRAINS = frozenset({"backward", "step", "fit", "train_step"})
_REGISTRATION = re.compile(r"\b(?:torch\.library|custom_op|triton_op|Library)\b")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class CutProgram(NamedTuple):
    """A program cut out of another. `program`: the text of a module; `values`: name asked for -> an expression over
    that module; `missing`: what could not be taken along; `makes`: whether the module defines an operator or a library
    of operators (else compiled code defines them)."""

    program: str
    values: dict[str, str]
    missing: list[str]
    statements: list[str]
    imports: list[str]
    makes: bool = True


class _Unit(NamedTuple):
    """One statement, and the bodies that enclose it, the module's first."""

    node: ast.stmt
    scopes: tuple[tuple[ast.stmt, ...], ...]


def cut(
    text: str, spaces: Collection[str] = (), values: Mapping[str, str] | None = None, *, line: int = 0
) -> CutProgram | None:
    """Cuts out the program that registers the operators of `spaces` and creates `values`; None where the text has
    neither, or is not Python.

    `spaces`: namespaces, or whole names of operators. `values`: a setting ("inductor.post_grad_custom_post_pass", of
    which the last part counts) -> the name of the function or class that is its value. `line`: the first line of one
    operator's definition; then only that definition is taken, with the registrations that stand in the same body.
    """
    try:
        tree = syntax.parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _DefinitionCut(tree, text).of(spaces, values or {}, line)


def whole(program: CutProgram, text_of: Callable[[str], str], most: int = 8) -> CutProgram:
    """Replaces each import from the user's other modules by the definition that it imports, where no name changes or
    clashes. `text_of`: module name -> its text, empty for other modules; `most`: how many imports deep.

    >>> program = cut("from helpers import scale\\ndef run(g): return scale", (), {"it": "run"})
    >>> whole(program, {"helpers": "scale = 3\\n"}.get).statements
    ['scale = 3', 'def run(g): return scale']
    """
    imports, before, kept = dict.fromkeys(program.imports), dict[str, None](), dict.fromkeys(program.statements)
    for text in program.imports if most else ():
        (statement,) = syntax.parsed(text).body
        if not isinstance(statement, ast.ImportFrom) or statement.level or statement.names[0].asname:
            continue
        name = statement.names[0].name
        inner = cut(text_of(statement.module or "") or "", (), {name: name})
        if inner is None or inner.missing or _REGISTRATION.search(inner.program):
            continue
        inner = whole(inner, text_of, most - 1)
        others = dict.fromkeys(other for other in (*imports, *before, *kept) if other != text)
        if _names(others).isdisjoint(_names(new for new in (*inner.imports, *inner.statements) if new not in others)):
            del imports[text]
            imports |= dict.fromkeys(inner.imports)
            before |= dict.fromkeys(inner.statements)
    statements = [*before, *kept]
    future = [line for line in program.program.splitlines() if line.startswith("from __future__")]
    text = _program([*future, *imports], statements)
    return program._replace(program=text, statements=statements, imports=[*imports])


def _names(statements: Iterable[str]) -> set[str]:
    return {name for text in statements for statement in syntax.parsed(text).body for name in _bound(statement)}


def _program(imports: Iterable[str], statements: Sequence[str]) -> str:
    head = "\n".join(
        sorted(imports, key=lambda text: (not text.startswith("from __f"), text.startswith("from "), text))
    )
    return "\n\n\n".join(text for text in (head, *statements) if text) + "\n"


class _DefinitionCut:
    def __init__(self, tree: ast.Module, text: str) -> None:
        self.lines = text.splitlines()
        self.units = list(_units(tree.body, ()))
        self.scope = tuple(_flat(tree.body))
        self.taken: list[_Unit] = []
        self.imports: dict[str, None] = {}
        self.missing: dict[str, None] = {}
        self.known: set[tuple[str, int]] = set()

    def of(self, spaces: Collection[str], values: Mapping[str, str], line: int) -> CutProgram | None:
        roots = self._registrations(spaces, line)
        expressions: dict[str, str] = {}
        for name, wanted in values.items():
            for unit, expression in self._given(name.rpartition(".")[2]):
                if self._reaches(expression, unit.scopes, wanted):
                    expressions[name] = ast.unparse(expression)
                    self._follow(expression, unit.scopes, expressions[name])
            if name not in expressions and (own := self._binding(wanted, (self.scope,))):
                expressions[name] = f"{wanted}()" if isinstance(own[0], ast.ClassDef) else wanted
                self._follow(ast.Name(wanted, ast.Load()), (self.scope,), wanted)
        if not roots and not expressions:
            return None
        for unit in roots:
            self._take(unit, "")
        later = [unit for unit in roots if not _makes(unit.node)]  # what is registered for an operator comes after it
        ordered = sorted(self.taken, key=lambda unit: (unit in later, len(unit.scopes) > 1, unit.node.lineno))
        statements = [self._text(unit.node) for unit in ordered]
        froms = [statement for statement in self.scope if isinstance(statement, ast.ImportFrom)]
        future = [ast.unparse(statement) for statement in froms if statement.module == "__future__"]
        imports = sorted(self.imports, key=lambda statement: (statement.startswith("from "), statement))
        program = _program([*future, *imports], statements)
        makes = len(later) < len(roots)
        return CutProgram(program, expressions, list(self.missing), statements, imports, makes)

    def _registrations(self, spaces: Collection[str], line: int) -> list[_Unit]:
        """The statements that register operators of the namespaces, including those that name the operator by a
        variable."""
        registrations = [unit for unit in self.units if _first(unit.node) == line]
        variables = {name for unit in registrations for name in _bound(unit.node)}
        units = [unit for unit in self.units if not line or any(unit.scopes == own.scopes for own in registrations)]
        for _ in range(4):
            before = len(registrations)
            for unit in units:
                if unit not in registrations and _registers(unit.node, spaces, variables):
                    registrations.append(unit)
                    variables |= _bound(unit.node) - {"_"}
            if len(registrations) == before:
                break
        return registrations

    def _given(self, name: str) -> Iterator[tuple[_Unit, ast.expr]]:
        """Yields the expressions that the program gives to the setting `name`: by assignment, as an argument, in a
        dict."""
        for unit in self.units:
            if isinstance(unit.node, _SCOPES):
                continue
            for node in ast.walk(unit.node):
                assigned = isinstance(node, ast.Assign) and any(
                    getattr(target, "attr", "") == name for target in node.targets
                )
                if isinstance(node, (ast.Assign, ast.keyword)) and (assigned or getattr(node, "arg", None) == name):
                    yield unit, node.value
                elif isinstance(node, ast.Dict):
                    pairs = zip(node.keys, node.values, strict=True)
                    yield from ((unit, value) for key, value in pairs if str(getattr(key, "value", "")).endswith(name))

    def _reaches(self, expression: ast.expr, scopes: tuple[tuple[ast.stmt, ...], ...], wanted: str) -> bool:
        """Whether an expression names the function or class `wanted`, directly or through one variable."""
        names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(expression) if isinstance(node, ast.Attribute)}
        bound = [statement for name in names for statement in self._binding(name, scopes)]
        values = [statement.value for statement in bound if isinstance(statement, ast.Assign)]
        behind = [node for value in values for node in ast.walk(value)]
        names |= {node.id for node in behind if isinstance(node, ast.Name)}
        if any(isinstance(node, ast.Lambda) for node in (*ast.walk(expression), *behind)):
            names.add("<lambda>")
        return wanted.rpartition(".")[2] in names

    def _take(self, unit: _Unit, why: str) -> None:
        if unit in self.taken:
            return
        if not isinstance(unit.node, _SCOPES) and self._trains(unit.node, set()):
            what = why or ast.unparse(unit.node)[:60]
            self.missing[f"{what}, which the program computes by training (line {unit.node.lineno})"] = None
            return
        self.taken.append(unit)
        self._follow(unit.node, unit.scopes, why)

    def _follow(self, node: ast.AST, scopes: tuple[tuple[ast.stmt, ...], ...], why: str) -> None:
        """Takes along the statements that bind the names which `node` reads; names without a binding go to
        `missing`."""
        for name in sorted(_free(node)):
            if (name, len(scopes)) in self.known:
                continue
            self.known.add((name, len(scopes)))
            bindings = self._binding(name, scopes)
            if not bindings and not self._star():
                self.missing[f"{name}, which is not defined in the module" + (f" ({why})" if why else "")] = None
            for statement in bindings:
                if isinstance(statement, (ast.Import, ast.ImportFrom)):
                    self.imports |= dict.fromkeys(_imports(statement, name))
                else:
                    self._take(_Unit(statement, self._scopes_of(statement, scopes)), name)

    def _star(self) -> bool:
        whole = [statement for statement in self.scope if isinstance(statement, ast.ImportFrom)]
        stars = [ast.unparse(statement) for statement in whole if statement.names[0].name == "*"]
        self.imports |= dict.fromkeys(stars)
        return bool(stars)

    def _binding(self, name: str, scopes: tuple[tuple[ast.stmt, ...], ...]) -> list[ast.stmt]:
        for scope in reversed(scopes):
            if binding := [statement for statement in scope if name in _bound(statement)]:
                return binding
        return []

    @staticmethod
    def _scopes_of(node: ast.stmt, scopes: tuple[tuple[ast.stmt, ...], ...]) -> tuple[tuple[ast.stmt, ...], ...]:
        depth = next(at for at in range(len(scopes), 0, -1) if node in scopes[at - 1])
        return scopes[:depth]

    def _trains(self, node: ast.AST, seen: set[str]) -> bool:
        """Whether running the statement runs a backward or a step, directly or in functions of the program that it
        calls."""
        for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
            if getattr(call.func, "attr", "") in _TRAINS:
                return True
            name = getattr(call.func, "id", "")
            if name and name not in seen:
                seen.add(name)
                bound = self._binding(name, (self.scope,))
                if any(self._trains(inner, seen) for inner in bound if isinstance(inner, ast.FunctionDef)):
                    return True
        return False

    def _text(self, node: ast.stmt) -> str:
        """The text of a statement as it was written; unparsed from the tree where it shares its lines with other
        statements."""
        first, last = _first(node), node.end_lineno or node.lineno
        text = textwrap.dedent("\n".join(self.lines[first - 1 : last]))
        try:
            again = syntax.parsed(text).body
        except SyntaxError:
            return ast.unparse(node)
        return text if len(again) == 1 and ast.dump(again[0]) == ast.dump(node) else ast.unparse(node)


def _units(
    body: Sequence[ast.stmt], around: tuple[tuple[ast.stmt, ...], ...], *, in_class: bool = False
) -> Iterator[_Unit]:
    """Yields every statement inside functions, classes, conditions and blocks, with its scopes. As in Python, methods
    do not see the names bound in the body of their class."""
    scope = tuple(_flat(body))
    scopes = (*around, scope)
    for statement in scope:
        yield _Unit(statement, scopes)
        if isinstance(statement, _SCOPES):
            inside = around if in_class else scopes
            yield from _units(statement.body, inside, in_class=isinstance(statement, ast.ClassDef))


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements of a body, with conditions and blocks replaced by the statements inside them. A condition
    or `try` that only defines (`try: import ...`) stays whole."""
    for statement in body:
        parts = [part for name in ("body", "orelse", "finalbody") for part in getattr(statement, name, [])]
        parts += [inner for handler in getattr(statement, "handlers", []) for inner in handler.body]
        if isinstance(statement, _SCOPES) or not parts or (_is_choice(statement) and all(map(_defines, parts))):
            yield statement
        else:
            yield from _flat([inner for inner in parts if isinstance(inner, ast.stmt)])


def _is_choice(statement: ast.stmt) -> bool:
    guard = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
    return isinstance(statement, (ast.If, ast.Try)) and not guard


def _defines(statement: ast.stmt) -> bool:
    return isinstance(statement, (*_SCOPES, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Pass, ast.Raise))


def _makes(statement: ast.stmt) -> bool:
    """Whether a statement defines an operator, or a library of operators."""
    functions = [head.func if isinstance(head, ast.Call) else head for head in _heads(statement)]
    words = {getattr(function, "attr", getattr(function, "id", "")) for function in functions}
    return not words.isdisjoint(("custom_op", "triton_op", "define", "Library"))


def _heads(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement that may register something: its decorators, or its value."""
    heads: list[ast.expr] = list(getattr(statement, "decorator_list", []))
    if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) and statement.value is not None:
        heads.append(statement.value)
    return heads


def _registers(statement: ast.stmt, spaces: Collection[str], variables: Collection[str]) -> bool:
    """Whether a statement registers something for an operator, which it names as text, by `torch.ops.namespace`, or by
    a variable that another such statement bound (the function under custom_op, a Library)."""
    for head in _heads(statement):
        function = head.func if isinstance(head, ast.Call) else head
        given = [*head.args, *(argument.value for argument in head.keywords)] if isinstance(head, ast.Call) else []
        while isinstance(function, ast.Call):  # torch.library.impl(...)(function)
            given, function = [*given, *function.args], function.func
        word = getattr(function, "attr", getattr(function, "id", ""))
        by_name = word.startswith("register_")  # with the whole name of an operator; nn.Module has such methods, too
        if word not in _REGISTERS and not by_name:
            continue
        owner = function.value if isinstance(function, ast.Attribute) else None
        lists = [argument.elts if isinstance(argument, (ast.List, ast.Tuple)) else [argument] for argument in given]
        listed = [item for items in lists for item in items]
        named = [argument for argument in (owner, *listed) if argument is not None]
        if any(isinstance(argument, ast.Name) and argument.id in variables for argument in named) or any(
            _means(argument, spaces, whole=by_name) for argument in listed
        ):
            return True
    return False


def _means(argument: ast.expr, spaces: Collection[str], *, whole: bool) -> bool:
    if isinstance(argument, ast.Constant):
        space, colons, _ = str(argument.value).partition("::")
        return bool(colons or not whole) and (space in spaces or argument.value in spaces)
    return isinstance(argument, ast.Attribute) and f"{ast.unparse(argument)}.".startswith(
        tuple(f"torch.ops.{space.replace('::', '.')}." for space in spaces)
    )


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


def _bound(statement: ast.AST) -> set[str]:
    """The names that a statement binds where it stands."""
    if isinstance(statement, _SCOPES):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Name):
        return {statement.id} if isinstance(statement.ctx, ast.Store) else set()
    if isinstance(statement, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return set()
    return {name for inner in ast.iter_child_nodes(statement) for name in _bound(inner)}


def _free(node: ast.AST) -> set[str]:
    """Names that a statement reads and does not bind."""
    read: set[str] = set()
    bound: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            (read if isinstance(part.ctx, ast.Load) else bound).add(part.id)
        elif isinstance(part, ast.arg):
            bound.add(part.arg)
        elif isinstance(part, (*_SCOPES, ast.Import, ast.ImportFrom)):
            bound |= _bound(part)
        elif isinstance(part, ast.ExceptHandler) and part.name:
            bound.add(part.name)
    return read - bound - set(dir(builtins)) - {"__file__", "__name__", "__doc__"}


def _imports(statement: ast.Import | ast.ImportFrom, name: str) -> Iterator[str]:
    for alias in statement.names:
        if (alias.asname or alias.name).partition(".")[0] == name:
            if isinstance(statement, ast.Import):
                yield ast.unparse(ast.Import([alias]))
            else:
                yield ast.unparse(ast.ImportFrom(statement.module, [alias], statement.level))
