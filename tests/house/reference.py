"""The generated parts of docs/reference: commands, exit codes, the Python surface. `tables.py` writes them.

>>> help_of("ls")[0]
'```text'
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import cast
from unittest.mock import patch

import click
import pytest

import graphdbg
from graphdbg import cli
from graphdbg.dumps import manual
from graphdbg.minifier.in_pytest import plugin
from graphdbg.toolkit import compilers
from graphdbg.toolkit.backends import BACKENDS
from graphdbg.toolkit.compile_fx import STAGES

from .source_tree import parsed

ROOT = Path(__file__).resolve().parents[2]
COMMAND_PAGES = {name: f"docs/reference/commands/{name}.md" for name in cli.COMMANDS}
COLUMNS = 100


def command(name: str) -> click.Command:
    """A command as `graphdbg NAME` runs it."""
    got = cli.graphdbg.get_command(click.Context(cli.graphdbg), name)
    assert got is not None
    got._help_option = None  # click keeps that of the first context, which in another test may know no -h
    return got


def help_text(name: str, columns: int = COLUMNS) -> str:
    """What `graphdbg NAME --help` prints in a terminal of so many columns."""
    with patch.dict(os.environ, {"COLUMNS": str(columns)}):
        parent = click.Context(cli.graphdbg, info_name="graphdbg", **cli.graphdbg.context_settings)
        return command(name).get_help(click.Context(command(name), info_name=name, parent=parent))


def help_of(name: str) -> list[str]:
    """The help of a command as a block."""
    return ["```text", f"$ graphdbg {name} --help", *help_text(name).splitlines(), "```"]


def commands() -> list[str]:
    """Each command under its heading, with its line."""
    rows: list[str] = []
    for heading in dict.fromkeys(row[0] for row in cli.COMMANDS.values()):
        rows += [f"## {heading}", "", "| command | what it does |", "|---|---|"]
        of_it = [(name, line) for name, (group, _, line) in cli.COMMANDS.items() if group == heading]
        rows += [f"| [`{name}`]({name}.md) | {line} |" for name, line in of_it] + [""]
    return rows[:-1]


def exit_codes() -> list[str]:
    """The codes of each command that are its own."""
    rows = [
        f"| [`{name}`](commands/{name}.md) | {code} | {meaning} |"
        for name, codes in manual.EXITS.items()
        for code, meaning in codes.items()
    ]
    return ["| command | code | meaning |", "|---|---|---|", *rows]


def usual_codes() -> list[str]:
    """The codes that any command may end with."""
    return ["| code | meaning |", "|---|---|", *(f"| {code} | {meaning} |" for code, meaning in manual.ALWAYS.items())]


def repro_codes() -> list[str]:
    """The codes of a repro.py."""
    return ["| code | meaning |", "|---|---|", *(f"| {code} | {meaning} |" for code, meaning in manual.REPRO.items())]


def compile_stages() -> list[str]:
    """The table of stages of the compile path."""
    rows = ["| stage | of | what it does | calls of torch | takes | gives |", "|---|---|---|---|---|---|"]
    for stage in STAGES.values():
        calls, takes = (", ".join(f"`{name}`" for name in names) for names in (stage.calls, ("gm", *stage.takes)))
        gives = f"`{stage.gives}`" if stage.gives else ""
        rows.append(f"| `{stage.name}` | {stage.part} | {stage.does} | {calls} | {takes} | {gives} |")
    return rows


class _Group:
    """Stands for pytest's parser, and keeps the options that the plugin adds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def getgroup(self, name: str, description: str) -> _Group:
        return self

    def addoption(self, name: str, *, help: str, metavar: str = "", **_: object) -> None:
        self.rows.append((f"{name} {metavar}".strip(), help))


def pytest_options() -> list[str]:
    """The options that the plugin gives pytest."""
    group = _Group()
    plugin.pytest_addoption(cast("pytest.Parser", group))
    return ["| option | what it does |", "|---|---|", *(f"| `{name}` | {about} |" for name, about in group.rows)]


_HOME: dict[str, str] = vars(graphdbg)["_HOME"]
_COMPILERS: dict[str, str] = vars(compilers)["_HOME"]
TABLES: dict[str, dict[str, Callable[[], list[str]]]] = {
    **{page: {"help": partial(help_of, name)} for name, page in COMMAND_PAGES.items()},
    "docs/reference/commands/index.md": {"commands": commands},
    "docs/reference/exit-codes.md": {"codes": exit_codes, "usual": usual_codes, "repro": repro_codes},
    "docs/reference/settings.md": {"pytest": pytest_options},
    "docs/reference/python.md": {
        "graphdbg": lambda: entries((name, _HOME[name]) for name in graphdbg.__all__ if name in _HOME),
        "minifier": lambda: entries([("minifier", "minifier.dropin")]),
        "compilers": lambda: entries(
            (name, f"toolkit.compilers.{_COMPILERS.get(name, name)}") for name in compilers.__all__
        ),
        "backends": lambda: [f'* `torch.compile(model, backend="{name}")`' for name in (*BACKENDS, "graphdbg_triton")],
        "stages": compile_stages,
        "compile_fx": lambda: entries(
            [
                ("compile_fx", "toolkit.compile_fx.entering"),
                *((name, "toolkit.compile_fx.pipeline") for name in ("Pipeline", "StageReport")),
            ]
        ),
        "capture": lambda: entries((name, "toolkit.capture.aot") for name in ("inference_graph", "joint_graph")),
    },
}
"""The generated parts of each page, by the name in the comments around them."""


def entries(names: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> list[str]:
    """A section for each name: signature, docstring, and of a class its public fields, properties and methods."""
    rows: list[str] = []
    for name, module in names:
        node = _definition(module, name)
        rows += [f"### `{name}`", "", "```text"]
        if isinstance(node, ast.ClassDef):
            rows += [f"class {name}", "```", "", *_prose(node), *_members(node)]
        elif isinstance(node, ast.FunctionDef):
            rows += [*_signature(name, node), "```", "", *_prose(node)]
        else:
            rows += [name, "```", "", *_said_below(module, name)]
        rows.append("")
    return rows[:-1]


@cache
def _module(module: str) -> ast.Module:
    """The syntax of a module of ours, by its name below graphdbg."""
    path = ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return parsed(source)


def _definition(module: str, name: str) -> ast.stmt:
    """What binds a name at the top of a module, or of the one it comes from; of an instance `name = Class()` that
    class's `__call__`."""
    body = _module(module).body
    for node in body:
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            package = module.split(".")[: -node.level]
            return _definition(".".join([*package, *(node.module or "").split(".")]), name)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name:
            value = getattr(node, "value", None)
            of_class = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
            parts = [
                part for item in body if isinstance(item, ast.ClassDef) and item.name == of_class for part in item.body
            ]
            calls = [part for part in parts if isinstance(part, ast.FunctionDef) and part.name == "__call__"]
            return calls[0] if calls else node
    raise LookupError(f"{module} binds no {name}")


def _signature(name: str, node: ast.FunctionDef) -> list[str]:
    """`name(a, b=1) -> R`, on lines of its own for each parameter where it is long."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = zip_longest(reversed(positional), reversed(arguments.defaults))
    texts = [_parameter(item, default) for item, default in pairs if item.arg != "self"][::-1]
    if arguments.vararg:
        texts.append("*" + _parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        texts.append("*")
    texts += [_parameter(item, value) for item, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        texts.append("**" + _parameter(arguments.kwarg, None))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({', '.join(texts)}){returns}"
    return [line] if len(line) <= COLUMNS else [f"{name}(", *(f"    {text}," for text in texts), f"){returns}"]


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    text = f"{arg.arg}: {ast.unparse(arg.annotation)}" if arg.annotation else arg.arg
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _prose(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    """The docstring as Markdown: its examples in a block."""
    rows: list[str] = []
    for paragraph in inspect.cleandoc(ast.get_docstring(node) or "").split("\n\n"):
        code = paragraph.startswith((">>>", "    "))
        rows += ["```text", *paragraph.splitlines(), "```", ""] if code else [*paragraph.splitlines(), ""]
    return rows[:-1]


def _said_below(module: str, name: str) -> list[str]:
    """The string that stands below a name at the top of a module."""
    body = _module(module).body
    at = body.index(_definition(module, name))
    below = body[at + 1] if at + 1 < len(body) else None
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
        return inspect.cleandoc(str(below.value.value)).splitlines()
    return []


def _members(node: ast.ClassDef) -> list[str]:
    """A row for each public field, property and method of a class."""
    rows: list[tuple[str, str]] = []
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and not part.target.id.startswith("_"):
            rows.append((part.target.id, f"`{ast.unparse(part.annotation)}`"))
        elif isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            is_property = any("property" in ast.unparse(decorator) for decorator in part.decorator_list)
            shown = part.name if is_property else " ".join(" ".join(_signature(part.name, part)).split())
            rows.append((shown, (ast.get_docstring(part) or "").split("\n\n")[0].replace("\n", " ")))
    cells = [f"| `{_cell(shown)}` | {_cell(about)} |" for shown, about in rows]
    return ["", "| member | what it is |", "|---|---|", *cells] if rows else []


def _cell(text: str) -> str:
    """A text with no mark in it that would end a cell."""
    return text.replace("|", r"\|")
