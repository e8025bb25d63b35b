"""Imports point one way: dumps <- toolkit <- minifier <- tui <- cli; no circles; who may know torch and textual."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from .source_tree import DOORS, FLOORS, ROOMS, ROOT, Import, Module, front, modules, own_targets
from .survey import circles, files

LEAVES = {"__version__", "examples"}
"""What any room may take from the package's root: the version, and the example scripts, which import nothing of
ours."""


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    wrong = [
        f"{module.path}:{item.line} imports {item.module}"
        for module in modules(room)
        for item in module.imports
        if item.ours and item.module.split(".")[0] not in allowed | LEAVES
    ]
    assert not wrong, "\n".join(wrong)


def test_a_sub_room_imports_only_floors_below_it() -> None:
    """Imports inside functions count, those for types do not."""
    floors = {name: floor for floor, line in enumerate(FLOORS.split("\n")) for name in line.split()}
    known = {module.name: module for module in modules()}
    new = {_sub_room(module) for module in known.values()} ^ set(floors)
    assert not new, f"FLOORS of tests/house/source_tree.py names each sub-room once, at its floor: {sorted(new)}"
    wrong = []
    for module in known.values():
        here = _sub_room(module)
        for item in module.imports:
            target = known.get(item.module) or known.get(item.module.rpartition(".")[0])
            if not item.ours or item.place == "typing" or target is None or _sub_room(target) == here:
                continue
            if item.place == "function" and DOORS.get(module.name) == _sub_room(target):
                continue
            if floors[_sub_room(target)] >= floors[here]:
                wrong.append(f"{module.path}:{item.line} imports {item.module}")
    why = "a sub-room imports only from floors below its own (FLOORS of tests/house/source_tree.py):"
    assert not wrong, "\n".join([why, *wrong])


def _sub_room(module: Module) -> str:
    return ".".join(module.package[:2])


def test_inside_the_package_imports_are_relative() -> None:
    wrong = [
        f"{module.path}:{item.line} imports graphdbg.{item.module}"
        for module in [*modules(), *front()]
        for item in module.imports
        if item.ours and not item.relative
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_import_each_other_in_no_circle() -> None:
    result = circles(files(ROOT))
    assert not result, f"modules that import each other, imports inside functions included: {result}"


def test_imports_of_a_module_stand_once_and_together() -> None:
    wrong: list[str] = []
    for module in [*modules("dumps", "toolkit", "minifier", "tui"), *front()]:
        blocks = [
            item for item in module.tree.body if isinstance(item, ast.If) and "TYPE_CHECKING" in _names(item.test)
        ]
        names = Counter((item.module, item.place) for item in module.imports if item.place != "function")
        twice = [name for (name, _), times in names.items() if times > 1]
        if len(blocks) > 1 or twice:
            wrong.append(f"{module.path}: {len(blocks)} blocks for type checkers; twice: {', '.join(twice)}")
    assert not wrong, "\n".join(wrong)


def _names(test: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}


def test_only_tui_imports_textual() -> None:
    wrong = [
        f"{module.path}:{item.line}"
        for module in [*modules("dumps", "toolkit", "minifier"), *front()]
        for item in module.imports
        if item.module.split(".")[0] == "textual" and not item.ours
    ]
    assert not wrong, "\n".join(wrong)


def test_reading_the_saved_form_needs_no_torch() -> None:
    """In dumps only torchside may bring torch in when it is imported, and only live.py, inside its functions, goes
    there."""
    room = modules("dumps")
    names = {module.name for module in room}
    heavy = {module.name for module in room if any(_is_torch(item) and item.top_level for item in module.imports)}
    grown = True
    while grown:
        more = {module.name for module in room if own_targets(module, names) & heavy} - heavy
        grown = bool(more)
        heavy |= more
    outside = sorted(name for name in heavy if not name.startswith("dumps.torchside."))
    assert not outside, f"these bring in torch when they are imported; only dumps/torchside/ may: {outside}"
    wrong = [
        f"{module.path}:{item.line} imports {item.module}"
        for module in room
        if not module.name.startswith("dumps.torchside") and module.name != "dumps.live"
        for item in module.imports
        if item.place != "typing"
        if _is_torch(item) or (item.ours and {item.module, item.module.rpartition(".")[0]} & heavy)
    ]
    assert not wrong, "\n".join(wrong)


def _is_torch(item: Import) -> bool:
    return not item.ours and item.module.split(".")[0] == "torch"
