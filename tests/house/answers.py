"""The tables of docs/json.md as a schema, and whether an answer fits.

>>> misfits("ls", {"runs": [], "next": []})
[]
"""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from graphdbg import cli

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
MOST_BYTES = 6000
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "any": (object,),
}


@cache
def tables() -> dict[str, dict[str, str]]:
    """Heading -> field -> type."""
    results: dict[str, dict[str, str]] = {}
    name = ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            name = line.lstrip("#").strip().strip("`")
        elif row := re.match(r"\| (?:`(\w+\??)`|\*`?([^*`]+)`?\*) \|\s*([^|]*?)\s*\|", line):
            results.setdefault(name, {})[row[1] or f"*{row[2]}"] = row[3]
    return results


def fields(name: str) -> dict[str, str]:
    """Those of a table, with those of the tables that it takes in."""
    results: dict[str, str] = {}
    for field, kind in tables()[name].items():
        results |= fields(field[1:]) if field.startswith("*") else {field: kind}
    return results


def misfits(name: str, answer: Any, path: str = "") -> list[str]:
    """What does not fit into the table of that name; with no path it is a whole answer."""
    known = fields(name) | ({"next": "[string]", "cut?": "object"} if not path else {})
    wanted = {field.rstrip("?"): kind for field, kind in known.items()}
    bad = [f"{path}{field}: not in docs/json.md" for field in answer if field not in wanted]
    bad += [f"{path}{field}: missing" for field in known if not field.endswith("?") and field not in answer]
    for field, value in answer.items():
        if field in wanted and not fits(wanted[field], value, f"{path}{field}", bad):
            bad.append(f"{path}{field}: {value!r:.80} is no {wanted[field]}")
    return bad


def fits(kind: str, value: Any, path: str, bad: list[str]) -> bool:
    """Whether a value has the type; what is wrong inside it goes to `bad`."""
    for word in kind.split(" or "):
        if word.startswith("["):
            if isinstance(value, list) and all(fits(word[1:-1], item, f"{path}[]", bad) for item in value):
                return True
        elif word in _TYPES:
            if isinstance(value, _TYPES[word]) and not (isinstance(value, bool) and word in ("integer", "number")):
                return True
        elif isinstance(value, dict):
            bad += misfits(word, value, f"{path}.")
            return True
    return False


def checked(name: str, line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The answer to a command line, held against its table; of a minification the last line."""
    capsys.readouterr()
    words = shlex.split(line)
    try:
        code = cli.run([words[0], "--json", *words[1:]])
    except SystemExit as left:
        code = left.code
    assert code in (0, 1, 4), line
    printed = capsys.readouterr().out
    assert len(printed.encode()) <= MOST_BYTES, line
    answer = json.loads(printed.splitlines()[-1])
    assert misfits(name, answer) == [], line
    for command in answer["next"]:
        pasted(command)
    return answer


def pasted(command: str) -> None:
    """A command of `next` is one that the command line takes."""
    words = shlex.split(command)
    assert words[0] in ("graphdbg", "python"), command
    if words[0] == "graphdbg":
        result = cli.graphdbg.get_command(click.Context(cli.graphdbg), words[1])
        assert result is not None, command
        result.make_context(words[1], words[2:])
