"""What the house tests know of the tree: rooms, their modules, and which modules each of them imports.

>>> [module.name for module in modules("dumps")][:2]
['dumps', 'dumps.commands']
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("dumps", "toolkit", "minifier", "tui")
"""In the order of the house: a room imports from rooms to its left only."""

FLOORS = """
dumps.arguments
dumps
dumps.diff dumps.program dumps.why
dumps.browse
dumps.pack
dumps.commands dumps.torchside
toolkit.torch_private
toolkit.kernels toolkit.live
toolkit.cutting toolkit.isolation toolkit.triton
toolkit.capture toolkit.drawing toolkit.verdicts
toolkit.health toolkit.numerics toolkit.recorder
toolkit.debug_nop
toolkit.compilers
toolkit.rungs
toolkit.compile_fx
toolkit.judging
toolkit.kernel_checks toolkit.launching toolkit.replaying
toolkit.node_values
toolkit.blame
toolkit.stages
toolkit.triage
toolkit.program
toolkit toolkit.commands
minifier.executors minifier.passes
minifier.search
minifier minifier.in_pytest
minifier.progress minifier.report
minifier.program
minifier.commands
tui.widgets
tui
tui.commands tui.screens
"""
"""The sub-rooms of all rooms, lowest floor first: a sub-room imports from floors above its line here only, and from
itself. Sub-rooms of sub-rooms (`toolkit.triton.interpreting`) are part of theirs."""

DOORS = {
    "dumps.live": "dumps.torchside",
    "dumps.store": "dumps.program",
    "dumps.graph_folder": "dumps.program",
    "tui.app": "tui.screens",
}
"""Modules that lead upwards, each into one sub-room, inside their functions: a saved graph made live, its graph.py, a
screen that a key opens."""


@dataclass(frozen=True)
class Import:
    """One imported module: `graphdbg.`-less name for our own, the full name for others, and where it stands.

    `place` is "top", "function" or, under `if TYPE_CHECKING`, "typing".
    """

    module: str
    ours: bool
    relative: bool
    place: str
    line: int

    @property
    def top_level(self) -> bool:
        return self.place == "top"


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax of a file, read once in a process; the collector does not look at it again, which took it a second."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    gc.freeze()
    return tree


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file."""
    return list(ast.walk(parsed(path)))


@dataclass(frozen=True)
class Module:
    """One source file, named from the package's root: `dumps.store`; the front door is the empty name."""

    name: str
    path: Path

    @property
    def nodes(self) -> list[ast.AST]:
        return nodes(self.path)

    @property
    def tree(self) -> ast.Module:
        return parsed(self.path)

    @property
    def package(self) -> list[str]:
        parts = self.name.split(".") if self.name else []
        return parts if self.path.name == "__init__.py" else parts[:-1]

    @cached_property
    def imports(self) -> list[Import]:
        return [item for node, place in _walk(self.tree, "top") for item in self._read(node, place)]

    def _read(self, node: ast.Import | ast.ImportFrom, place: str) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _import(alias.name, False, place, node.lineno)
        elif node.level == 0:
            for alias in node.names:
                yield _import(f"{node.module}.{alias.name}", False, place, node.lineno)
        else:
            package = self.package
            start = package[: len(package) - (node.level - 1)] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield Import(".".join([*start, alias.name]), True, True, place, node.lineno)


def _import(name: str, relative: bool, place: str, line: int) -> Import:
    ours = name == "graphdbg" or name.startswith("graphdbg.")
    return Import(name.partition(".")[2] if ours else name, ours, relative, place, line)


def _walk(tree: ast.AST, place: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """All import statements with their place. Only statements hold statements: expressions are not looked into."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, place
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _walk(node, "typing")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(node, "function")
        else:
            yield from _walk(node, place)


def modules(*rooms: str) -> list[Module]:
    """All modules of the named rooms (all rooms when none is named), sorted by name; each is read once."""
    return sorted((module for room in rooms or ROOMS for module in _room(room)), key=lambda module: module.name)


@cache
def _room(room: str) -> list[Module]:
    results: list[Module] = []
    for path in sorted((ROOT / room).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        results.append(Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return results


@cache
def front() -> list[Module]:
    """The modules at the package's root."""
    return [
        Module("" if name == "__init__" else name, ROOT / f"{name}.py")
        for name in ("__init__", "__main__", "_version", "cli")
    ]


def own_targets(module: Module, names: set[str]) -> set[str]:
    """The modules that importing this one imports: `a.b.c` is module a.b.c, else name c of module a.b."""
    result = set()
    for item in module.imports:
        if item.ours and item.top_level:
            result.add(item.module if item.module in names else item.module.rpartition(".")[0])
    return result & names
