"""The definitions that a graph needs from the user's own program: searched for in the modules of this process when the
graph is recorded, and run when it is loaded, with `--trust` only.

The module of an operator is a module of the user whose text contains the operator's namespace. Recording reads texts
and names, and calls nothing.

>>> ensure(record, "run/0_0/forward")       # does nothing without trust
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import linecache
import os
import re
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, cast

from .. import trust
from ..allowlist import WITH_TORCH, is_custom
from ..definitions import CutProgram, cut, whole
from ..errors import EnvironmentLackError, NotRegisteredError, UntrustedSourceError
from ..output import say
from ..pack.redact import known
from ..process import command_words
from ..schema import DefinitionRecord, GraphRecord
from ..walk import contents, given, nodes
from . import torch_private as t

MODULE_PREFIX = "graphdbg_source_"


def run(name: str, program: str, where: str, what: str, package: str = "", file: str = "") -> ModuleType:
    """Runs a program as a module and returns it; a pass may read the `file` that it was written in, for its uuid.
    Raises RefusedError without trust, EnvironmentLackError where the program fails here."""
    if not trust.given():
        why = f"the dump holds source code for {what}"
        raise UntrustedSourceError(where, why, "read it, then add --trust to run it")
    key = hashlib.sha256(f"{name}\n{program}".encode()).hexdigest()[:16]
    path = f"graphdbg-sources/{key}/{name}.py"
    linecache.cache[path] = (len(program), None, program.splitlines(keepends=True), path)
    module = ModuleType(f"{MODULE_PREFIX}{key}")
    module.__file__, module.__package__ = file if os.path.isfile(file) else path, package or None  # noqa: PTH113
    sys.modules[module.__name__] = module  # inspect looks there
    try:
        exec(compile(program, path, "exec"), vars(module))  # trusted
    except Exception as error:
        sys.modules.pop(module.__name__, None)
        why = f"{what} fails here ({type(error).__name__}: {error})"
        raise NotRegisteredError(where, why, "load the dump with the packages that it was recorded with") from error
    return module


SCRIPTS = ("__main__", "__mp_main__")
_SPACE = re.compile(r"""["'](\w+)::|Library\(\s*["'](\w+)["']""")
_RESERVED = ("torch", "graphdbg")

_ran: dict[int, tuple[DefinitionRecord, ModuleType]] = {}


def of_record(
    record: GraphRecord, config: Mapping[str, Mapping[str, Any]], functions: Iterable[str]
) -> list[DefinitionRecord]:
    """The definitions of a graph's operators, which are among its `functions`, and of the settings in force that have
    no saved form. Never fails: a definition that cannot be cut out of its text is left out."""
    spaces = {op.partition("::")[0] for op in operators(functions)}
    return [*of_spaces(spaces), *_of_settings(record, config)]


def of_spaces(spaces: Collection[str]) -> Iterator[DefinitionRecord]:
    """Yields the definitions of the operators of these namespaces."""
    left = set(spaces)
    for definition, _ in _ran.values():
        if left & set(definition.spaces):
            yield definition
            left -= set(definition.spaces)
    for module, file in _own_files() if left else ():
        if (registered := left & _spaces_in(file)) and (program := _cut(file, _spaces_in(file), ())) is not None:
            if not program.makes and module in SCRIPTS:
                program = program._replace(missing=[*program.missing, "the compiled code that registers it"])
            elif not program.makes:
                program = CutProgram(_imported(module), {}, [], [], [])
            yield _definition(module, file, program, sorted(registered))
            left -= registered


def _imported(module: str) -> str:
    """The program for a module whose operators are defined by compiled code that the module loads."""
    return f"import {module}\n"


def _definition(module: str, file: str, cut_program: CutProgram, spaces: Sequence[str] = ()) -> DefinitionRecord:
    values, missing = cut_program.values, cut_program.missing
    return DefinitionRecord(module, file, cut_program.program, [*spaces], values, missing, command_words())


def _of_settings(record: GraphRecord, config: Mapping[str, Mapping[str, Any]]) -> Iterator[DefinitionRecord]:
    for room, values in record.config.items():
        for name, value in values.items():
            setting = f"{room}.{name}"
            if not any(True for _ in contents(value, "opaque")):
                continue
            if (ran := next((entry for entry, _ in _ran.values() if setting in entry.values), None)) is not None:
                yield ran
                continue
            home = _home(config.get(room, {}).get(name))
            wanted, own = getattr(home, "__qualname__", ""), str(getattr(home, "__module__", ""))
            if not wanted or own.partition(".")[0] in (*_RESERVED, "builtins"):
                continue
            for module, file in sorted(_own_files(), key=lambda entry: (entry[0] not in SCRIPTS, entry[0] != own)):
                if module in (own, *SCRIPTS) and (program := _cut(file, (), ((setting, wanted),))) is not None:
                    yield _definition(module, file, program)
                    break


def _home(value: Any) -> Any:
    """The function or class behind a value, such as a partial or a method; for a list, that of its first item."""
    while isinstance(value, (list, tuple, Mapping)) and value:
        items: Iterable[Any] = cast(Any, value).values() if isinstance(value, Mapping) else cast(Any, value)
        value = next(iter(items))
    while isinstance(value, functools.partial):
        value = cast(Any, value).func
    function: Any = getattr(cast(Any, value), "__func__", cast(Any, value))
    return function if hasattr(function, "__qualname__") else cast(Any, type(function))


def _own_files() -> list[tuple[str, str]]:
    """(module, file) of each module of this process that belongs to no library."""
    return _files_of(len(sys.modules))


@functools.lru_cache(1)
def _files_of(count: int) -> list[tuple[str, str]]:
    files: list[tuple[str, str]] = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or not file.endswith(".py") or name.partition(".")[0] in _RESERVED:
            continue
        file = os.path.abspath(file)  # noqa: PTH100  only the text of a path is wanted
        if known(file) is None:
            files.append((name, file))
    return files


@functools.cache
def _spaces_in(file: str) -> frozenset[str]:
    """The namespaces of operators whose names occur in a file."""
    text = "".join(linecache.getlines(file))
    return frozenset(quoted or other for quoted, other in _SPACE.findall(text)) - WITH_TORCH


@functools.cache
def _cut(file: str, spaces: frozenset[str] | tuple[()], values: tuple[tuple[str, str], ...]) -> CutProgram | None:
    files = dict(_own_files())
    program = cut("".join(linecache.getlines(file)), spaces, dict(values))
    return program and whole(program, lambda name: "".join(linecache.getlines(files[name])) if name in files else "")


def operators(functions: Iterable[str]) -> set[str]:
    """ "namespace::op" of each target that is an operator from outside torch."""
    return {"::".join(name.split(".")[:2]) for name in functions if is_custom(name)}


def _functions(record: GraphRecord) -> set[str]:
    """The functions that a graph calls or passes as arguments."""
    called = {node.target for node in nodes(record.graph) if node.op == "call_function"}
    return called | {str(name) for node in nodes(record.graph) for name in contents(given(node), "function")}


def ensure(record: GraphRecord, where: str) -> None:
    """Runs the definitions of the graph's own operators and settings that this process lacks, where the user trusts the
    dump."""
    if not record.definitions or not trust.given():
        return
    lacking = {op.partition("::")[0] for op in operators(_functions(record)) if not t.op_schemas(op)}
    for definition in record.definitions:
        if definition.program and not definition.missing and (definition.values or lacking & set(definition.spaces)):
            _run(definition, where)


def _run(definition: DefinitionRecord, where: str) -> ModuleType:
    key = hash((definition.program, *definition.argv))
    if key not in _ran:
        folder = os.path.dirname(definition.file)  # noqa: PTH120
        if folder and folder not in sys.path:
            sys.path.append(folder)
        what = f"what it needs of {os.path.basename(definition.file)}"  # noqa: PTH119
        package = definition.module.rpartition(".")[0]
        name = os.path.basename(definition.file).removesuffix(".py")  # noqa: PTH119
        if not definition.argv and "sys.argv" in definition.program:
            say(f"{what} reads sys.argv, which the dump does not hold: here it is {sys.argv}; record again")
        with _words(definition.argv or sys.argv):
            _ran[key] = definition, run(name, definition.program, where, what, package, definition.file)
    return _ran[key][1]


@contextlib.contextmanager
def _words(argv: list[str]) -> Generator[None]:
    before, sys.argv = sys.argv, list(argv)
    try:
        yield
    finally:
        sys.argv = before


def setting(name: str) -> tuple[bool, Any]:
    """(whether a program that ran here defines the value of a setting, the value)."""
    for definition, module in _ran.values():
        if name in definition.values:
            return True, eval(definition.values[name], vars(module))  # trusted, as its program is
    return False, None


def refused(record: GraphRecord, target: str, error: EnvironmentLackError) -> EnvironmentLackError:
    """The error for an operator that is not registered here: why, and what to do. `error` itself where no definition of
    it was recorded."""
    space = target.partition(".")[0]
    definition = next((known for known in record.definitions if space in known.spaces), None)
    if definition is None:
        return error
    name = os.path.basename(definition.file)  # noqa: PTH119
    why = f"the op {target!r} is not registered in this process; {name} defines it"
    if definition.missing:
        why = f"{why}, and could not be saved whole: it lacks {'; '.join(definition.missing)}"
        return NotRegisteredError(error.what, why, error.fix)
    if not definition.program:
        return NotRegisteredError(error.what, f"{why}, and its source is not in the dump", error.fix)
    instead = "" if definition.module in SCRIPTS else f", or --import {definition.module}"
    imported = definition.program == _imported(definition.module)
    runs = f"imports {name}" if imported else "runs its definition as recorded"
    return NotRegisteredError(error.what, why, f"add --trust, which {runs}{instead}")
