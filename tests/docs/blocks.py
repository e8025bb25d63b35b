"""The code blocks of a page of the site, as they stand in its Markdown.

>>> page = 'Text\\n\\n```console\\n$ true\\n$ echo 1 2\\n1 2\\n```\\n'
>>> [(block.language, [command.line for command in block.commands]) for block in blocks(page)]
[('console', ['true', 'echo 1 2'])]
>>> blocks(page)[0].commands[1].shown
['1 2']
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)?(?P<rest>.*)$")
TITLE = re.compile(r'title="([^"]+)"')
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
EXITS = re.compile(r"\s+# exits with (\d+)\s*$")


@dataclass
class Command:
    """One `$ ` line of a console block: what the shell gets, the exit code that the page says, and the output shown
    below it; `at` is the number of the line after the command, from 0."""

    line: str
    exits: int
    at: int
    shown: list[str] = field(default_factory=list)


@dataclass
class Block:
    """A fenced block: `text` without its indentation, `title` (the file that it is, or ""), `number` of the first line
    of its text, from 0, and why it is not run ("": it is)."""

    language: str
    title: str
    text: str
    number: int
    indent: str
    not_run: str

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block; a line that ends in a backslash goes on in the next."""
        commands: list[Command] = []
        going_on = False
        for number, line in enumerate(self.text.splitlines(), self.number):
            if going_on:
                last = commands[-1]
                last.line, last.at = f"{last.line}\n{line.removeprefix('> ')}", number + 1
            elif line.startswith("$ "):
                commands.append(Command(line.removeprefix("$ "), 0, number + 1))
            elif commands:
                commands[-1].shown.append(line)
            going_on = going_on_after(line, going_on)
        for command in commands:
            if code := EXITS.search(command.line):
                command.exits, command.line = int(code[1]), command.line[: code.start()]
        return commands


def going_on_after(line: str, going_on: bool) -> bool:
    """Whether the line after this one belongs to the same command."""
    return (going_on or line.startswith("$ ")) and line.endswith("\\")


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page, those inside of admonitions, too."""
    lines = text.splitlines()
    result: list[Block] = []
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        at += 1
        if not fence:
            continue
        indent, number = fence["indent"], at
        while at < len(lines) and lines[at] != f"{indent}```":
            at += 1
        title = TITLE.search(fence["rest"])
        body = "\n".join(line.removeprefix(indent) for line in lines[number:at])
        before = next((line for line in reversed(lines[: number - 1]) if line.strip()), "")
        exempt = NOT_RUN.search(before)
        result.append(
            Block(fence["language"] or "", title[1] if title else "", body, number, indent, exempt[1] if exempt else "")
        )
        at += 1
    return result


def pages() -> list[Path]:
    """README and every page of the site."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
