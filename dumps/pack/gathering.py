"""What a run knows of people and machines, gathered before anything is redacted: homes, users, hosts, folders, source files.

Also this machine is looked at, since a run is mostly packed where it was recorded. Must not raise for a part that cannot be read:
that part is left out later, by name.

>>> machine, places = gather(open_run("myrun"))
>>> machine.users, places.roots
({'ann'}, ['/home/ann/gpt'])
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from .. import journal
from ..errors import GraphdbgError
from ..graph_folder import JOURNAL_FILE
from ..process import host_name
from ..redact import user_name
from ..store import Run, SavedGraph
from .places import Places, is_absolute
from .texts import Machine

_FILE = re.compile(r'File "(/[^"\n]+)"')
_CACHE_USER = re.compile(r"/torchinductor_([A-Za-z0-9][\w.-]*)/")
_SCRIPTS = (".py", ".ipynb")


def gather(run: Run) -> tuple[Machine, Places]:
    """The machine that the run tells of, and the places of its source files."""
    machine = Machine({str(Path.home())}, {user_name()}, {host_name()})
    files: dict[str, None] = {}
    for text in _texts(run):
        machine.learn(text)
        machine.users.update(_CACHE_USER.findall(text))
        if is_absolute(text) and text.endswith(_SCRIPTS):
            files[text] = None
        else:
            files.update(dict.fromkeys(_FILE.findall(text)))
    machine.hosts.update(process.record.host for process in run.processes)
    machine.hosts.discard("")
    machine.users.discard("")
    places = Places(files)
    for path in (run.path.absolute(), run.path.resolve()):
        machine.folders |= {str(path), str(path.parent)}
    machine.folders |= set(places.roots)
    machine.folders = {folder for folder in machine.folders if folder.count("/") > 1}
    return machine, places


def _texts(run: Run) -> Iterator[str]:
    """All texts that may name a file or a home; those that name the main program come first."""
    for process in run.processes:
        yield from process.record.argv
    yield from run.record.command
    yield from _leaves([run.record.environment, run.record.config])
    seen: set[str] = set()
    for process in run.processes:
        with contextlib.suppress(GraphdbgError):
            for event in journal.read(process.path / JOURNAL_FILE).events:
                yield from _leaves(event.fields)
    for row in run.rows:
        if not row.saved:
            continue
        saved = SavedGraph(row.path, run, row)  # one at a time: a run may hold a gigabyte of records
        with contextlib.suppress(GraphdbgError, OSError):
            fresh = [text for text in saved.record.strings if text not in seen]
            seen.update(fresh)
            yield from fresh
            yield from _leaves([saved.record.compile_kwargs, saved.record.config])
            for file in saved.code_files():
                yield from _lines_with_paths(file.read_text())


def _lines_with_paths(text: str) -> Iterable[str]:
    marks = ("/torchinductor_", "File: /", "/home/", "/Users/")
    return (line for line in text.splitlines() if any(mark in line for mark in marks))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        held = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        for item in held:
            yield from _leaves(item)
