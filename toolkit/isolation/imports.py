"""Imports the modules that a user names with `--import`, in the child that replays a graph: they register ops, or
change torch. `--trust` is passed on as one more module.

Never imports what a dump names, only what the user asked for.

>>> import_modules(["json"])
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ...dumps import opening, syntax
from ...dumps.errors import CannotImportError, NeedsTrustError, UsageError
from ...dumps.output import say

if TYPE_CHECKING:
    from ...dumps.store import Run, SavedGraph


def import_modules(names: Sequence[str]) -> None:
    """Imports modules in order, a path as a file, and makes Inductor reread tables that they may have changed. Raises
    UsageError with file and line for a module whose import raises anything."""
    for name in names:
        try:
            _import(name)
        except (Exception, SystemExit) as error:
            where = _place(error)
            why = f"{type(error).__name__}: {error}" + (f" ({where})" if where and where not in str(error) else "")
            fix = "correct it, or give the module that registers the ops"
            raise CannotImportError(f"cannot import {shown(name)}", why, fix) from error
    if names:
        from .warming import forget_copied_tables

        forget_copied_tables()


def _import(name: str) -> ModuleType:
    if not _is_path(name):
        return importlib.import_module(name)
    path = Path(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # the file may import its neighbours
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _place(error: BaseException) -> str:
    """Where an import failed: the line of a syntax error, else the innermost line that is not of Python's own
    machinery."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames[-1].filename != __file__ else ""


def checked(names: Sequence[str], target: str = "") -> tuple[str, ...]:
    """The modules to import, in a form to pass on: paths made absolute. The script of the run that `target` names is
    not imported, which would run it again; its definitions are run as recorded instead.

    Reads files and imports nothing. Raises UsageError for what is not there, and for a file that is no Python.
    """
    modules: list[str] = []
    for name in names:
        path = name if name == TRUST else file_of(name)
        if name != TRUST and path and path.endswith(".py"):
            text = _parsed(name, path)
            if target and _is_script(path, text, target):
                say(
                    f"{shown(name)} is the script of this run: its definitions are run as recorded "
                    "(--trust), not the script"
                )
                name = TRUST
        modules.append(str(Path(path).absolute()) if _is_path(name) else name)
    return tuple(dict.fromkeys(modules))


def file_of(name: str) -> str:
    """The file of a module, found without importing it; "" for one without a file. Raises UsageError where there is no
    such module."""
    if _is_path(name):
        if not Path(name).is_file():
            raise CannotImportError(
                f"cannot import {name}", "there is no such file", "give a module's name, or the path of its file"
            )
        return name
    first, _, rest = name.partition(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:  # already imported, and without a spec
        return ""
    if spec is None:
        why = f"Python finds no module {first} from here"
        raise CannotImportError(f"cannot import {name}", why, "give the name of a module, or its file")
    if not rest:
        return spec.origin or ""
    inside = Path(*rest.split("."))
    places = [Path(home) / inside for home in spec.submodule_search_locations or ()]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
    return str(files[0]) if files else ""


def _parsed(name: str, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        syntax.parsed(text)
    except OSError as error:
        raise CannotImportError(f"cannot import {name}", str(error)) from error
    except SyntaxError as error:
        raise CannotImportError(
            f"cannot import {name}", f"{error.msg} ({Path(path).name}:{error.lineno})", "correct it"
        ) from error
    return text


def _is_script(path: str, text: str, target: str) -> bool:
    """Whether a file is the script that a run recorded. Raises UsageError where it was but has changed since."""
    from ...dumps.store import resolve

    try:
        recorded = resolve(target)
    except UsageError:
        return False
    copies = [copy for name, copy in _scripts(recorded) if name == Path(path).name]
    if copies and text not in copies:
        why = "it is the script of this run: importing it would run it again, and it changed since the recording"
        raise NeedsTrustError(
            f"{path} is not imported", why, "leave --import out and add --trust, which runs the definitions as recorded"
        )
    return bool(copies)


def _scripts(recorded: Run | SavedGraph) -> list[tuple[str, str | None]]:
    """The script of each of a run's processes: its name, and the kept copy of its text."""
    from ...dumps.sources import Sources

    run = recorded if hasattr(recorded, "processes") else getattr(recorded, "run", None)
    scripts: list[tuple[str, str | None]] = []
    for process in getattr(run, "processes", ()):
        name = Path((process.record.argv or [""])[0]).name
        kept = Sources(process.path)
        scripts.append((name, next((kept.text(file) for file in kept.records if Path(file).name == name), None)))
    return scripts


def _is_path(name: str) -> bool:
    return os.sep in name or name.endswith(".py")


def shown(name: str) -> str:
    """A module as to type it: a path relative to the current folder where that is shorter."""
    return name if not _is_path(name) else min(name, os.path.relpath(name), key=len)


def homes_of(names: Sequence[str]) -> list[str]:
    """The folders that another process needs on its path to import these modules. Imports none of them."""
    folders: list[str] = []
    for name in without_trust(names):
        if _is_path(name):
            folders.append(str(Path(name).parent))
            continue
        spec = importlib.util.find_spec(name.partition(".")[0])
        places = [] if spec is None else [*(spec.submodule_search_locations or ()), *filter(None, [spec.origin])]
        folders += [str(Path(place).parent) for place in places[:1] if Path(place).exists()]
    return list(dict.fromkeys(folders))


def run_line(program: str, imports: Sequence[str]) -> str:
    """The command line that runs a repro. PYTHONPATH covers those of the modules that the repro imports, if they were
    given as files or are in the current folder.

    >>> run_line("small/repro.py", ["json", "/home/ann/plant.py"])
    'PYTHONPATH=/home/ann python small/repro.py'
    """
    here = str(Path.cwd())
    with contextlib.suppress(OSError):
        text = opening.read_text(Path(program), named=True)
        imports = [name for name in imports if f"import {Path(name).stem if _is_path(name) else name}" in text]
    named = [(name, home) for name in without_trust(imports) for home in homes_of([name])]
    folders = dict.fromkeys("." if home == here else home for name, home in named if _is_path(name) or home == here)
    found_by = f"PYTHONPATH={shlex.quote(os.pathsep.join(folders))} " if folders else ""
    return found_by + shlex.join(["python", program])


TRUST = "graphdbg.toolkit.triton.trusted"
"""The module that stands for the option `--trust` (see `triton.trusted`): passed on with the imports, it needs no
option of its own."""


def with_trust(imports: Sequence[str], trust: bool) -> tuple[str, ...]:
    """The modules to import, with TRUST added where the user trusts the dump."""
    return (*(name for name in imports if name != TRUST), *([TRUST] if trust or TRUST in imports else []))


def without_trust(imports: Sequence[str]) -> tuple[str, ...]:
    """The modules without TRUST: those that the user named."""
    return tuple(name for name in imports if name != TRUST)


def given(words: Sequence[str]) -> tuple[str, ...]:
    """The modules from the words of a command line: the inverse of `option_words`."""
    named = [after for word, after in itertools.pairwise(words) if word == "--import"]
    return (*named, *([TRUST] if "--trust" in words else []))


def option_words(imports: Sequence[str]) -> list[str]:
    """The words of a command line for these modules: ["--import", "my_ops", "--trust"]."""
    words = [word for name in without_trust(imports) for word in ("--import", shown(name))]
    return [*words, *(["--trust"] if TRUST in imports else [])]
