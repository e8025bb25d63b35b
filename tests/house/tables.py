"""The tables of docs that are made of screens, rungs, passes and commands: `python -m tests.house.tables` writes them
and docs/glossary.md, and begins the page of a new command.

>>> rungs()[2]
'| `eager` | node by node by torch itself, ... | always |'
"""

from __future__ import annotations

import re
from collections.abc import Callable

from graphdbg import cli
from graphdbg.dumps import glossary
from graphdbg.minifier.passes import PASSES
from graphdbg.toolkit.live.rung import LADDER, Facts
from graphdbg.tui.registry import SCREENS
from tests.house import reference

ROOT = reference.ROOT


def screens() -> list[str]:
    """A row for each screen of the workbench."""
    rows = [f"| {screen.digit} {name.capitalize()} | {screen.about} |" for name, screen in SCREENS.items()]
    return ["| screen | what it does |", "|---|---|", *rows]


def rungs() -> list[str]:
    """A row for each rung, in the ladder's order."""
    rows = [f"| `{name}` | {facts.words} | {_climbed(facts)} |" for name, facts in LADDER.items()]
    return ["| rung | how it runs the graph | `triage` climbs it |", "|---|---|---|", *rows]


def _climbed(facts: Facts) -> str:
    when = "always" if facts.is_usual else "where the run had it, or with `--all`" if facts.used_by else "with `--all`"
    return when + ("; never the first that fails" if facts.is_side else "")


def passes() -> list[str]:
    """A row for each pass of the minifier, in the order in which they run."""
    rows = [f"| `{name}` | {row.words} |" for name, row in PASSES.items() if row.words]
    return ["| `step` | `words` |", "|---|---|", *rows]


TABLES: dict[str, dict[str, Callable[[], list[str]]]] = {
    "docs/concepts/rungs.md": {"rungs": rungs},
    "docs/guides/workbench.md": {"screens": screens},
    "docs/minify-events.md": {"passes": passes},
    **reference.TABLES,
}
TABLES[reference.COMMAND_PAGES["tui"]]["screens"] = screens
TABLES[reference.COMMAND_PAGES["triage"]]["rungs"] = rungs
"""The tables of each page, by the name in the comments around them."""


def text_of(page: str) -> str:
    """The text of a page with its tables as they have to be; the beginning of one for a command that has none. Raises
    ValueError where a table has no place."""
    text = (ROOT / page).read_text(encoding="utf-8") if (ROOT / page).exists() else _begun(page)
    for name, rows in TABLES[page].items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        lines = "".join(f"{row}\n" for row in rows())
        text, times = place.subn(lambda marks, lines=lines: f"{marks[1]}\n{lines}\n{marks[2]}", text)
        if times != 1:
            raise ValueError(f"{page} has {times} places for the table {name}")
    return text


def _begun(page: str) -> str:
    """A page for a new command; somebody writes there what its help has no place for."""
    name = next(name for name, its in reference.COMMAND_PAGES.items() if its == page)
    return f"# graphdbg {name}\n\n{cli.COMMANDS[name][2]}\n\n<!-- help -->\n<!-- /help -->\n"


if __name__ == "__main__":
    for page in TABLES:
        (ROOT / page).write_text(text_of(page), encoding="utf-8")
    (ROOT / "docs" / "glossary.md").write_text(glossary.page(), encoding="utf-8")
