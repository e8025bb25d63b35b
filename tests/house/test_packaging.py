"""What is installed is what is here: packages, public names, the wheel's content, no paths of anybody's machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import graphdbg

from .source_tree import ROOMS, ROOT, Import, Module, front, modules, own_targets

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

INSTALLED = (*ROOMS, "examples")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_the_list_of_packages_is_the_folders() -> None:
    folders = {"graphdbg"}
    for room in INSTALLED:
        folders |= {
            "graphdbg." + ".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / room).rglob("__init__.py")
        }
    wrong = sorted(folders ^ set(project()["tool"]["setuptools"]["packages"]))
    assert not wrong, f"`packages` of pyproject.toml has each folder with __init__.py, and no other: {wrong}"


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for room in INSTALLED for path in (ROOT / room).rglob("*.py")}
    without = [str(folder) for folder in folders if not (folder / "__init__.py").exists()]
    assert not without, f"folders that lack an __init__.py: {without}"


def test_the_version_is_told_once() -> None:
    assert "version" not in project()["project"] and "version" in project()["project"]["dynamic"]
    assert project()["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "graphdbg._version.__version__"}}
    *_, assignment = ast.parse((ROOT / "_version.py").read_text(encoding="utf-8")).body
    assert isinstance(assignment, ast.Assign) and isinstance(assignment.value, ast.Constant), "setuptools would import"
    assert version("graphdbg") == graphdbg.__version__, "install once more: `touch _version.py` and `make .venv`"
    literal = re.compile(rf"['\"=]{re.escape(graphdbg.__version__)}['\"]")
    product = [module.path for module in (*modules(*INSTALLED), *front())] + [ROOT / "pyproject.toml"]
    assert [path.name for path in product if literal.search(path.read_text(encoding="utf-8"))] == ["_version.py"]


@pytest.mark.parametrize("name", graphdbg.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(graphdbg, name) is not None
    assert name in dir(graphdbg)


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'recrod'"):
        _ = graphdbg.recrod


OF_TORCH = re.compile(r"triton|setuptools|nvidia|cuda")
"""What a build of torch chooses for itself."""


def test_constraints_pin_what_the_project_asks_for_and_not_what_torch_chooses() -> None:
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert {name for item in (*dependencies(), *extra("dev")) if not OF_TORCH.match(name := name_of(item))} <= pinned
    assert [name for name in pinned if OF_TORCH.match(name)] == []


BROUGHT = {"functorch": "torch"}
"""Packages that come under another name."""


def test_what_is_imported_is_declared_or_guarded_and_an_extra() -> None:
    declared = {name_of(item).replace("-", "_") for item in dependencies()}
    extras = {
        name_of(item) for name in project()["project"]["optional-dependencies"] if name != "dev" for item in extra(name)
    }
    every = [*modules(*ROOMS), *front()]
    known = declared | extras
    undeclared = [
        f"{where.path}:{item.line} imports {root}" for where, item, root in imports(every) if root not in known
    ]
    assert not undeclared, f"put these packages into dependencies, or an extra, of pyproject.toml: {undeclared}"
    heavy = {where.name for where, item, root in imports(every) if root not in declared and item.top_level}
    named = {module.name for module in every}
    for _ in every:
        more = {module.name for module in every if own_targets(module, named) & heavy} - heavy
        if not more:
            break
        heavy |= more
    triton = ("toolkit.triton.", "toolkit.kernel_checks.", "toolkit.launching.")
    outside = sorted(name for name in heavy if not name.startswith(triton))
    assert outside == [], (
        "an extra is imported where a module is loaded outside of the room whose needs.py asks for it first"
    )


def imports(every: Sequence[Module]) -> Iterator[tuple[Module, Import, str]]:
    """Imports of what is neither Python's own nor ours, with the package by the name under which it is installed; what
    pytest loads may import pytest."""
    plugins = {name.rpartition(".")[0] for name in project()["project"]["entry-points"]["pytest11"].values()}
    for module in every:
        for item in module.imports:
            root = item.module.split(".")[0]
            if root == "pytest" and f"graphdbg.{module.name}".rpartition(".")[0] in plugins:
                continue
            if not item.ours and item.place != "typing" and root not in sys.stdlib_module_names:
                yield module, item, BROUGHT.get(root, root)


def dependencies() -> list[str]:
    return project()["project"]["dependencies"]


def extra(name: str) -> list[str]:
    return project()["project"]["optional-dependencies"][name]


def name_of(requirement: str) -> str:
    return re.split(r"[\[><=;~! ]", requirement)[0]


def test_no_tracked_file_names_this_machine() -> None:
    homes = {str(Path.home()), str(ROOT), str(ROOT.parent)} - {"/", "/tmp", "/home", "/root"}
    wrong = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        wrong += [f"{path}: {home}/" for home in homes if f"{home}/" in text]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_a_built_wheel_holds_the_packages_and_not_the_tests(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for path in tracked_files():
        if path.exists():
            target = source / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"graphdbg-{graphdbg.__version__}-")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"graphdbg/{p.relative_to(ROOT)}" for p in tracked_files() if p.relative_to(ROOT).parts[0] in INSTALLED}
    assert {name for name in wanted if name.endswith((".py", ".css", ".js"))} <= names
    assert {
        f"graphdbg/{name}"
        for name in ("__init__.py", "__main__.py", "_version.py", "cli.py", "SKILL.md", "docs/json.md")
    } <= names
    assert not [name for name in names if "tests/" in name]
