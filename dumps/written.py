"""The programs that graphdbg has written on this machine, by the hash of their text, in the cache folder: they may be
run again.

Also keeps facts about runs there. Imports no torch, and never fails: what could not be written or read is unknown.

>>> Path("repro.py").touch()
>>> remember(Path("repro.py"))
>>> here(Path("repro.py"))
True
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .atomic import write_file
from .errors import GraphdbgError

if TYPE_CHECKING:
    from .store import Run

_MOST = 200
"""The most runs that facts are kept for."""


def put(file: str, run: Run | None, facts: Mapping[str, Any]) -> None:
    """Keeps facts about graphs of a run, by id, before those already known of its other graphs."""
    if run is not None:
        with contextlib.suppress(OSError):
            put_at(file, _key(run), facts)


def put_at(file: str, key: str, facts: Mapping[str, Any]) -> None:
    """Keeps facts as `put` does, under any key."""
    with contextlib.suppress(OSError, RuntimeError, GraphdbgError):  # no home folder, or a full disk: not kept
        known = _read(file)
        before = known.pop(key, {})
        mine = dict(facts) | {name: known_fact for name, known_fact in before.items() if name not in facts}
        path = folder() / file
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, msgspec.json.encode(dict([*known.items(), (key, mine)][-_MOST:])))


def taken(file: str, run: Run, form: Any) -> dict[str, Any]:
    """The facts about graphs of a run, by id, each of type `form`; empty where a saved value has another type."""
    with contextlib.suppress(OSError):
        return taken_at(file, _key(run), form)
    return {}


def taken_at(file: str, key: str, form: Any) -> dict[str, Any]:
    """The facts kept under any key; see `taken`."""
    with contextlib.suppress(OSError, RuntimeError, msgspec.MsgspecError):
        return msgspec.convert(_read(file).get(key, {}), dict[str, form])
    return {}


def folder() -> Path:
    """The cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("graphdbg")


def _key(run: Run) -> str:
    """The run's folder and when its run.json was written, so that another run of that name has its own entries."""
    path = run.path.resolve()
    return f"{path}:{(path / 'run.json').stat().st_mtime_ns}"


def _read(file: str) -> dict[str, dict[str, Any]]:
    try:
        return msgspec.json.decode((folder() / file).read_bytes(), type=dict[str, dict[str, Any]])
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}


FILE = "written.txt"
"""The file in the cache folder with one hash per line."""


def remember(program: Path) -> None:
    """Records that graphdbg wrote this program."""
    with contextlib.suppress(OSError, RuntimeError):
        path = folder() / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        if not here(program):
            with path.open("a", encoding="ascii") as file:
                file.write(f"{_digest(program)}\n")


def here(program: Path) -> bool:
    """Whether the program was written on this machine and is unchanged."""
    with contextlib.suppress(OSError, RuntimeError):
        return _digest(program) in (folder() / FILE).read_text(encoding="ascii", errors="replace").split()
    return False


def _digest(program: Path) -> str:
    return hashlib.blake2b(program.read_bytes(), digest_size=20).hexdigest()
