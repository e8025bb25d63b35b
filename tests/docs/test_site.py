"""The site builds with no dead link and asks no other host for anything; what pages type uses options that exist; the
moving picture shows what README shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest

from graphdbg import cli

from .blocks import ROOT, Block, blocks, pages
from .moving_picture import COMMANDS, lines_of
from .run_pages import first_missing

README = (ROOT / "README.md").read_text(encoding="utf-8")
RUNNABLE = ("console", "sh", "bash")
PARENT = click.Context(cli.graphdbg, **cli.graphdbg.context_settings)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Asked(HTMLParser):
    """What a browser fetches by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video") and held.get("src"):
            self.asked.append(held["src"] or "")
        if tag == "link" and held.get("rel") != "canonical" and held.get("href"):
            self.asked.append(held["href"] or "")


@pytest.mark.long
def test_a_page_asks_no_other_host(site: Path) -> None:
    elsewhere: list[str] = []
    for page in site.rglob("*.html"):
        parser = Asked()
        parser.feed(page.read_text(encoding="utf-8"))
        elsewhere += [f"{page.relative_to(site)}: {url}" for url in parser.asked if re.match(r"(https?:)?//", url)]
    assert not elsewhere
    assert len(list(site.rglob("*.html"))) > len(pages()) / 2


def typed(block: Block) -> list[str]:
    """The graphdbg commands of a block, whole: lines that end in a backslash are joined."""
    lines = block.text.replace("\\\n", " ").splitlines()
    words = [line.removeprefix("$ ") for line in lines if block.language != "console" or line.startswith("$ ")]
    return [line for line in words if line.startswith("graphdbg ")]


def all_typed() -> list[tuple[str, str]]:
    """(page, command) of every command that a page types."""
    return [
        (str(page.relative_to(ROOT)), line)
        for page in pages()
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language in RUNNABLE
        for line in typed(block)
    ]


def test_every_command_of_a_page_uses_options_that_exist() -> None:
    wrong: list[str] = []
    for page, line in all_typed():
        words = shlex.split(line, comments=True)
        cut = next(
            (at for at, word in enumerate(words) if word in ("|", ">", ">>", "2>&1", "2>", "&&", ";", "&")), None
        )
        name, *rest = [*words[1:cut], ""][:-1] or [""]
        command = cli.graphdbg.get_command(click.Context(cli.graphdbg), name)
        if command is None:
            wrong += [] if name in ("--version", "--help", "-h") else [f"{page}: {line}: no command {name!r}"]
            continue
        try:
            command.make_context(name, rest, parent=PARENT, resilient_parsing="--help" in rest)
        except (click.ClickException, SystemExit) as error:
            wrong.append(f"{page}: {line}: {error}")
    assert not wrong, "\n".join(wrong)


def test_readme_fits() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120 and max(map(len, lines)) <= 120


def test_the_moving_picture_shows_what_readme_shows() -> None:
    said = lines_of((ROOT / "docs" / "pictures" / "moving.svg").read_text(encoding="utf-8"))
    (session,) = [block for block in blocks(README) if block.language == "console" and not block.not_run]
    assert [command.line for command in session.commands] == list(COMMANDS)
    for command in session.commands:
        assert first_missing([f"$ {command.line}", *command.shown], said) is None, command.line
