"""README, CONTRIBUTING and the Makefile say what is there: commands, options, rooms, targets."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from graphdbg import cli
from graphdbg.dumps import glossary

from .source_tree import ROOMS, ROOT
from .tables import TABLES, text_of

README = (ROOT / "README.md").read_text(encoding="utf-8")


def example_lines() -> list[str]:
    """Each `graphdbg ...` line in a code block of README."""
    blocks = re.findall(r"```(?:console|text)?\n(.*?)```", README, re.DOTALL)
    lines = [line.split("#")[0].strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("graphdbg ")]


@pytest.mark.parametrize("page", TABLES)
def test_tables_are_made_of_what_is_there(page: str) -> None:
    why = "run `python -m tests.house.tables`"
    assert (ROOT / page).exists(), f"there is no {page}: {why}, which begins it"
    assert (ROOT / page).read_text(encoding="utf-8") == text_of(page), why


@pytest.mark.parametrize("line", sorted(set(example_lines())))
def test_every_example_uses_options_that_exist(line: str) -> None:
    name, *words = shlex.split(line)[1:]
    command = cli.graphdbg.get_command(click.Context(cli.graphdbg), name)
    assert command is not None
    command.make_context(name, words, resilient_parsing=False)


@pytest.mark.parametrize("target", ["demo", "test", "test-full", "test-gpu", "lint", "bench"])
def test_the_makefile_has_the_targets(target: str) -> None:
    assert re.search(rf"^{target}: ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_ci_runs_what_readme_names() -> None:
    assert "make test" in README
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_contributing_maps_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    missing = [room for room in ROOMS if f"`{room}/`" not in text]
    assert not missing, f"CONTRIBUTING.md, under The rooms, lacks {missing}"


def test_contributing_names_what_is_there() -> None:
    text = re.sub(r"\s+", " ", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    paths = [
        path for path in re.findall(r"`([\w.-]+/[\w./-]*)`", text) if not re.search("NAME|ROOM|RUN|[.]cache", path)
    ]
    places = [ROOT, *(ROOT / room for room in ROOMS), ROOT / "tests"]
    gone = [path for path in paths if not any((place / path).exists() for place in places)]
    assert not gone, f"paths in CONTRIBUTING.md that are not there: {gone}"
    programs = set(re.findall(r"python -m (tests[\w.]+)", text)) - {"tests.bench.bench_x"}
    gone = [name for name in programs if not (ROOT / f"{name.replace('.', '/')}.py").exists()]
    assert not gone, f"programs in CONTRIBUTING.md that are not there: {gone}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"\bmake ([a-z-]+\b)(?= +#|`)", text)
    assert targets and [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_the_changelog_is_by_version_and_begins_with_this_one() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)", text, re.MULTILINE)
    form = re.compile(r"\[(\d+\.\d+\.\d+)\] - (unreleased|20\d\d-\d\d-\d\d)")
    assert all(form.fullmatch(head) for head in heads if head != "[Unreleased]"), heads
    assert next(form.findall(head)[0][0] for head in heads if head != "[Unreleased]") == cli.__version__
    assert [head for head in heads[1:] if not form.fullmatch(head) or "unreleased" in head] == []
    sections = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "For contributors"}
    other = set(re.findall(r"^### (.*)", text, re.MULTILINE)) - sections
    assert not other, f"CHANGELOG.md: {other}; a section is one of {sorted(sections)}"
    long = [number for number, line in enumerate(text.splitlines(), 1) if len(line) > 120]
    assert not long, f"lines of CHANGELOG.md with more than 120 letters: {long}"


def test_the_glossary_is_made_from_its_table() -> None:
    fix = "run `python -m tests.house.tables`"
    assert (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8") == glossary.page(), fix


def test_help_explains_the_words_that_it_uses() -> None:
    command = cli.graphdbg.get_command(click.Context(cli.graphdbg), "replay")
    assert command is not None
    assert f"rung: {glossary.WORDS['rung']}" in (command.epilog or "")
