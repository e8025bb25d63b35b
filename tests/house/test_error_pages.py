"""Each family of errors has one code and one page, and every error that is raised is of a family."""

from __future__ import annotations

import ast
import re
import shlex

import pytest

from graphdbg.cli import COMMANDS, graphdbg
from graphdbg.dumps.errors import GraphdbgError

from . import error_pages
from .source_tree import front, modules

MOST = 60


def test_the_pages_are_those_of_the_classes() -> None:
    wanted = error_pages.pages()
    apart = sorted(path.name for path in set(error_pages.FOLDER.iterdir()) ^ set(wanted))
    assert not apart, f"run python -m tests.house.error_pages, and remove the pages of classes that are gone: {apart}"
    stale = [path.name for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"run python -m tests.house.error_pages: {stale}"


def test_codes_are_few_and_each_has_a_text_and_a_link() -> None:
    codes = set(error_pages.meanings())
    assert len(codes) <= MOST and all(re.fullmatch(r"GD\d\d", code) for code in codes)
    apart = sorted(codes ^ set(error_pages.texts()))
    assert not apart, f"tests/house/error_pages.txt has a part for each code of dumps/errors.py: {apart}"
    linked = re.findall(r"\[(GD\d\d)\]\(\1\.md\)", (error_pages.FOLDER / "index.md").read_text(encoding="utf-8"))
    assert linked == sorted(codes)


def test_every_error_that_is_raised_has_a_code() -> None:
    known = {kind.__name__: kind for kind in error_pages.classes()}
    defined, raised = set[str](), set[str]()
    for module in [*front(), *modules()]:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and any(_name(base) in known for base in node.bases):
                defined.add(node.name)
            elif isinstance(node, ast.Call) and _name(node.func) in known and not _is_foreign(node.func):
                raised.add(_name(node.func))
    assert defined == set(known) - {"GraphdbgError"}, "HOMES of error_pages.py lacks a module"
    bare = [name for name in raised if not known[name].code]
    assert not bare, f"raise a class of dumps/errors.py that has a `code` in place of {bare}"
    assert {family.__name__ for family in error_pages.families().values()} - raised <= {"CannotTakeError"}


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_foreign(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("click", "pytest")


@pytest.mark.parametrize("code", error_pages.texts())
def test_the_commands_of_a_page_exist(code: str) -> None:
    for line in error_pages.texts()[code]:
        words = shlex.split(line)[1:] if line.startswith("| ") else []
        if "graphdbg" not in words or "pip" in words or words[1:] == ["--help"]:
            continue
        name, *rest = words[words.index("graphdbg") + 1 :]
        assert name in COMMANDS, line
        command = graphdbg.get_command(None, name)  # type: ignore[arg-type, attr-defined]
        taken = {option for parameter in command.params for option in parameter.opts}
        own = rest[: rest.index("--")] if "--" in rest else rest
        assert {word for word in own if word.startswith("-")} <= taken | {"--help"}, line


def test_the_code_is_printed_last(capsys: pytest.CaptureFixture[str]) -> None:
    from graphdbg.cli import run

    for words, code in ((["ls", "nowhere"], "GD06"), (["nosuch"], "GD02"), (["show"], "GD02")):
        assert run(words) == 2
        assert capsys.readouterr().err.rstrip("\n").endswith(f" [{code}]")
    assert GraphdbgError("it fails").code == ""
