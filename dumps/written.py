"""Which programs graphdbg has written on this machine, by the hash of their text, in the cache folder: these may be run
again.

Imports no torch, and never fails: what could not be kept or read was not written here.

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
"""The most runs that something is kept for."""


def put(file: str, run: Run | None, facts: Mapping[str, Any]) -> None:
    """Keeps what was found of graphs of a run, by id, before what was known of others."""
    if run is not None:
        with contextlib.suppress(OSError):
            put_at(file, _key(run), facts)


def put_at(file: str, key: str, facts: Mapping[str, Any]) -> None:
    """The same as `put`, under any key."""
    with contextlib.suppress(OSError, RuntimeError, GraphdbgError):  # no home folder, a full disk: then it is not known
        known = _read(file)
        before = known.pop(key, {})
        mine = dict(facts) | {name: known_fact for name, known_fact in before.items() if name not in facts}
        path = folder() / file
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, msgspec.json.encode(dict([*known.items(), (key, mine)][-_MOST:])))


def taken(file: str, run: Run, form: Any) -> dict[str, Any]:
    """The findings on graphs of a run, by id, each of that type; nothing where a saved value has another type."""
    with contextlib.suppress(OSError):
        return taken_at(file, _key(run), form)
    return {}


def taken_at(file: str, key: str, form: Any) -> dict[str, Any]:
    """The same as `taken`, under any key."""
    with contextlib.suppress(OSError, RuntimeError, msgspec.MsgspecError):
        return msgspec.convert(_read(file).get(key, {}), dict[str, form])
    return {}


def folder() -> Path:
    """The cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("graphdbg")


def _key(run: Run) -> str:
    """The run's folder and when it began, so that another run of that name has its own entries."""
    path = run.path.resolve()
    return f"{path}:{(path / 'run.json').stat().st_mtime_ns}"


def _read(file: str) -> dict[str, dict[str, Any]]:
    try:
        return msgspec.json.decode((folder() / file).read_bytes(), type=dict[str, dict[str, Any]])
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}


FILE = "written.txt"
"""The name of the file in the cache folder: one hash a line."""


def remember(program: Path) -> None:
    """Records that this program is ours."""
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
