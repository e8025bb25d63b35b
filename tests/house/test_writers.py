"""Who prints, and who makes text safe for where it goes: one place each, so that no text of a dump gets by another way.

A dump's text is escaped where it is printed (`dumps.output`), where it becomes code (`dumps.inert`, and `repr` in
`dumps.program.text`), in pictures and pages (`dumps.markup`) and in the text of an issue (`minifier.report.issue`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from .source_tree import ROOT, Module, front, modules

PRINTERS = {
    "dumps/output.py": "what prints",
    "toolkit/isolation/child.py": "a child's own streams, which are read by us",
    "toolkit/autoload.py": "one sentence of our own where a recording cannot begin, before anything is imported",
}
ESCAPERS = {
    r"html\.escape|&amp;|&lt;": {"dumps/markup.py"},
    r"unicode_escape": set[str](),
    r"isprintable\(\) else": {"dumps/inert.py", "dumps/program/module.py"},
    r"`{3}\{|\{fence\}": {"minifier/report/issue.py"},
}
"""What only an escaper does, and where it may stand."""


def sources() -> list[tuple[str, Module]]:
    """All modules of the package, by their paths."""
    return [(str(item.path.relative_to(ROOT)), item) for item in (*front(), *modules())]


def printed(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and call of whatever writes to a stream of the process."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        console = called.rpartition(".")[2] == "Console" and not any(keyword.arg == "file" for keyword in node.keywords)
        streams = re.fullmatch(r"(?:sys\.)?(?:__)?(?:stdout|stderr)(?:__)?(?:\.buffer)?\.(?:write|writelines)", called)
        to_file = called == "os.write" and node.args and ast.unparse(node.args[0]) in ("1", "2")
        if called in ("print", "click.echo", "click.secho", "rich.print", "pprint") or console or streams or to_file:
            yield node.lineno, called


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "click.echo(x)",
        "sys.stdout.write(x)",
        "sys.stderr.buffer.write(x)",
        "Console(stderr=True)",
        "os.write(2, x)",
    ],
)
def test_each_way_to_print_is_found(text: str) -> None:
    assert list(printed(ast.parse(text)))


def test_one_module_prints() -> None:
    results = [
        f"{name}:{line} {called}"
        for name, module in sources()
        if name not in PRINTERS
        for line, called in printed(module.tree)
    ]
    assert results == [], "print with emit() and say() of dumps/output.py, which escape what a terminal would obey"


@pytest.mark.parametrize("pattern", ESCAPERS)
def test_one_escaper_for_each_place(pattern: str) -> None:
    names = {name for name, module in sources() if re.search(pattern, module.path.read_text(encoding="utf-8"))}
    assert names == ESCAPERS[pattern]


def test_whoever_is_excused_prints() -> None:
    there = {name for name, module in sources() if name in PRINTERS and list(printed(module.tree))}
    assert there == set(PRINTERS)
