"""docs/reference names what is there: commands, options, exit codes, variables, public names, files; each help ends
with examples that parse."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import click
import pytest

import graphdbg
from graphdbg import cli
from graphdbg.dumps import graph_folder, kernels, manual, process, sidecar, sources, trust
from graphdbg.minifier import casefile, events, steering
from graphdbg.minifier.report import as_test, issue

from .answers import tables
from .reference import COMMAND_PAGES, ROOT, command, help_text
from .source_tree import nodes

REFERENCE = ROOT / "docs" / "reference"
ROOMS = ("dumps", "toolkit", "minifier", "tui")
FILES = (
    graph_folder.RUN_FILE,
    graph_folder.GRAPH_FILE,
    graph_folder.PROGRAM_FILE,
    graph_folder.INPUTS_FILE,
    graph_folder.JOURNAL_FILE,
    graph_folder.GRAPHS_FOLDER,
    graph_folder.CODE_FOLDER,
    graph_folder.TENSORS_FOLDER,
    kernels.WHOLE,
    process.FILE,
    process.EXIT_FILE,
    graph_folder.LIST_FILE,
    sidecar.TABLE,
    sources.LIST,
    trust.MARK,
    steering.CONTROL_FILE,
    events.EVENTS_FILE,
    casefile.NAME,
    as_test.NAME,
    issue.ISSUE,
    issue.REPRO,
    issue.SIDECAR,
    issue.ARTIFACTS,
)
OWN = re.compile(r"_?(PYTEST_)?GRAPHDBG\w*")


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def parsed(line: str) -> None:
    """Raises click.ClickException where a command line has options that are not there."""
    name, *words = shlex.split(line, comments=True)[1:]
    command(name).make_context(name, words, resilient_parsing=False)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_help_ends_with_two_examples_that_parse(name: str) -> None:
    ending = help_text(name).partition("Examples:")[2]
    lines = [line for line, _ in manual.EXAMPLES[name]]
    why = f"EXAMPLES of dumps/manual.py needs two lines or more for {name}, each with `  # what it does`"
    assert len(lines) >= 2 and all(about for _, about in manual.EXAMPLES[name]), why
    for line in lines:
        assert line.split()[:2] == ["graphdbg", name] and line in ending
        parsed(line)


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("name", cli.COMMANDS)
def test_no_line_of_help_is_broken_badly(name: str, columns: int) -> None:
    text = help_text(name, columns)
    described = text.partition("Options:")[0].splitlines()
    wide = [line for line in text.splitlines() if len(line) > columns]
    assert not wide, f"wider than {columns} columns: {wide}"
    lonely = [
        line
        for before, line, after in zip(described, described[1:], described[2:], strict=False)
        if before.strip() and after.strip() and len(line.split()) == 1 and len(before) > columns // 2
    ]
    assert not lonely, f"a line of one word at {columns} columns; say the paragraph in other words: {lonely}"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_command_has_a_page_with_its_options_and_codes(name: str) -> None:
    text, again = page(f"commands/{name}.md"), "run `python -m tests.house.tables`"
    options = [word for option in command(name).params if isinstance(option, click.Option) for word in option.opts]
    missing = [word for word in options if word not in text]
    assert not missing, f"the page lacks {missing}: {again}"
    assert f"[`{name}`]({name}.md)" in page("commands/index.md"), f"commands/index.md lacks {name}: {again}"
    codes = page("exit-codes.md")
    for code in manual.EXITS[name]:
        assert f"| [`{name}`](commands/{name}.md) | {code} |" in codes, f"exit-codes.md lacks {name}, {code}: {again}"
    for code in manual.ALWAYS:
        assert f"| {code} |" in codes
    path = f"reference/commands/{name}.md"
    assert path in (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), f"{path} has no line in the nav of mkdocs.yml"


@pytest.mark.parametrize("path", [*COMMAND_PAGES.values(), "docs/reference/exit-codes.md", "docs/reference/files.md"])
def test_the_command_lines_of_a_page_parse(path: str) -> None:
    fences = re.findall(r"^```text\n(.*?)^```", (ROOT / path).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in (line.removeprefix("$ ") for text in fences for line in text.splitlines()):
        if line.startswith("graphdbg ") and "--help" not in line:
            parsed(line.partition(" > ")[0].partition(";")[0])


def test_links_between_pages_of_the_reference_lead_somewhere() -> None:
    for path in REFERENCE.rglob("*.md"):
        for link in re.findall(r"\]\(([\w/.-]+\.md)", path.read_text(encoding="utf-8")):
            target = (path.parent / link).resolve()
            assert target.exists() or REFERENCE not in target.parents, f"{path}: {link}"


def test_every_public_name_is_on_the_page_of_python() -> None:
    text = page("python.md")
    names = [name for name in graphdbg.__all__ if f"### `{name}`" not in text and f"`graphdbg.{name}`" not in text]
    assert not names, f"docs/reference/python.md needs a heading ### `NAME` for each of these: {names}"


def variables_read() -> Iterator[str]:
    """The environment variables that the code reads by a name that stands there, and all that are named after us."""
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in nodes(path) if re.search("environ|getenv|GRAPHDBG", text) else []:
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and OWN.fullmatch(node.value):
                    yield node.value
                yield from _literal(node)


def _literal(node: ast.AST) -> Iterator[str]:
    """The name in `os.environ["X"]`, `os.environ.get("X")` and `"X" in os.environ`."""
    place, name = "", None
    if isinstance(node, ast.Subscript):
        place, name = ast.unparse(node.value), node.slice
    elif isinstance(node, ast.Call) and node.args:
        place, name = ast.unparse(node.func), node.args[0]
    elif isinstance(node, ast.Compare):
        place, name = ast.unparse(node.comparators[0]), node.left
    reads = place in ("os.environ", "os.getenv") or place.startswith("os.environ.")
    if reads and isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value


def test_every_variable_that_the_code_reads_is_on_the_page_of_settings() -> None:
    text = page("settings.md")
    names = set(variables_read())
    assert {"GRAPHDBG", "GRAPHDBG_ARM", "NO_COLOR", "XDG_STATE_HOME"} <= names
    unsaid = sorted(name for name in names if not re.search(rf"`{name}\b", text))
    assert not unsaid, f"environment variables that docs/reference/settings.md has to say: {unsaid}"
    ours = set(OWN.findall(text)) and {match[0] for match in OWN.finditer(text)}
    assert sorted(ours - names - {"GRAPHDBG_OPTIONS"}) == []


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_on_the_page_of_files(name: str) -> None:
    assert name in page("files.md")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_json_answer_has_a_section(name: str) -> None:
    takes = any("--json" in parameter.opts for parameter in command(name).params)
    sections = [section for section in tables() if section.split()[0] == name]
    assert bool(sections) == takes, f"docs/json.md and --json of {name}"
