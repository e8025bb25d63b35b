"""Going on with an unfinished minification: what its folder says of it, so that `--resume -o OUT` alone is enough.

What was typed again is taken; of the rest, what an answer depends on comes from the folder. A limit that has ended the search
does not end it again.

>>> resumed(Path("small"), Options(jobs=4), typed={"jobs"})
Unfinished(graph='/runs/myrun/0_0/graphs/0_0/forward', options=Options(...), directory='/home/me')
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ..dumps.errors import UsageError
from ..toolkit.imports import option_words
from .isolated import JOURNAL_FILE
from .journal import about
from .options import Options

LIMITS = ("max_time", "max_queries")


@dataclass(frozen=True)
class Unfinished:
    """A minification that can go on. `directory`: where its first process was started."""

    graph: str
    options: Options
    directory: str


def resumed(out: Path, options: Options, typed: Collection[str]) -> Unfinished:
    """What to go on with; `typed` are the fields that the user gave now. Raises UsageError where there is nothing."""
    path = out / JOURNAL_FILE
    known = about(path)
    if known is None:
        why = "it has no journal" if out.is_dir() else "there is no such folder"
        raise UsageError(f"there is nothing to go on with in {out}", why, "minify without --resume")
    old = Options.from_json(known.get("options", {}))
    kept = {field.name: getattr(old, field.name) for field in fields(old) if field.name not in typed}
    if kept.get("max_queries") and answers(path) >= kept["max_queries"]:
        kept["max_queries"] = None
    if kept.get("max_time"):
        kept["max_time"] = None
    return Unfinished(str(known.get("graph", "")), replace(options, **kept), str(known.get("directory", "")))


def again(out: Path, options: Options | None = None) -> str:
    """The command that goes on in a folder. Trust has to be said again."""
    words = [word for word in option_words(options.imports) if word == "--trust"] if options is not None else []
    return shlex.join(["graphdbg", "minify", "--resume", "-o", str(out), *words])


def answers(path: Path) -> int:
    """How many answers a journal has, roughly (its notes count too)."""
    return max(0, path.read_bytes().count(b"\n") - 2)
