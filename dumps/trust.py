"""Whether a dump is trusted: its source runs only under `--trust`, its settings apply also where this user recorded it
here.

Nothing that is read from a dump, a journal or the environment grants trust: `bind` marks a run that is recorded here,
and `ours` checks for that mark.

>>> given()
False
>>> with granted():
...     given()
True
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Generator
from pathlib import Path

MARK = ".recorder"
"""The file in a folder that holds its id."""
PLACE = "recorded"
"""The folder, in the state folder, with one file per id."""

RINGS = "armed"
"""The folder, in the state folder, with the ring buffers."""

_RUN, _DEPTH, _GRAPH_DEPTH = "run.json", 8, 4
_MADE = ("case", ".work")
"""Entries that a minification creates in its folder; what lies in them is of a graph that is trusted."""
_MOST = 500
_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


def place() -> Path:
    """The folder of the ids, which may not exist yet. Raises RuntimeError where there is no home folder."""
    wanted = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return (wanted if wanted.is_absolute() else Path("~/.local/state").expanduser()) / "graphdbg" / PLACE


def rings() -> list[Path]:
    """The ring buffers that armed processes keep beside the ids (see toolkit.recorder.armed)."""
    try:
        return sorted((place().parent / RINGS).iterdir())
    except (OSError, RuntimeError, KeyError):
        return []


def bind(folder: Path) -> None:
    """Marks a folder that the caller has just created as this user's own, unless it holds an id already."""
    with contextlib.suppress(OSError, RuntimeError, KeyError):
        known, name = place(), os.urandom(16).hex()
        known.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder / MARK, name)
        _write(known / name, f"{_stamp(folder)}\n{os.path.realpath(folder)}\n")
        _forget(known)


def ours(path: Path) -> bool:
    """Whether a run, a graph in one, or the case in a minification's folder lies in a marked folder that no link leads
    to and nobody else may write."""
    try:
        folder = _holder(os.path.realpath(path))
        return folder is not None and _is_bound(folder)
    except (OSError, RuntimeError, KeyError, ValueError):
        return False


def _holder(path: str) -> Path | None:
    """The folder whose id decides about a path; None where there is none."""
    for above in (Path(path), *Path(path).parents[:_DEPTH]):
        parts = Path(path).relative_to(above).parts
        if (above / _RUN).exists():
            return above if not parts or (len(parts) == _GRAPH_DEPTH and parts[1] == "graphs") else None
        if os.path.lexists(above / MARK):
            return above if not parts or parts[0] in _MADE else None
    return None


def _is_bound(folder: Path) -> bool:
    status, known = folder.stat(), place()
    name = _text(folder / MARK)
    if not (_own(status) and _own(known.stat()) and re.fullmatch(r"[0-9a-f]{32}", name)):
        return False
    return _text(known / name).partition("\n")[0] == _stamp(folder)


def _stamp(folder: Path) -> str:
    status, mark = folder.stat(), os.lstat(folder / MARK)
    return f"{status.st_dev} {status.st_ino} {mark.st_ino} {mark.st_ctime_ns}"


def _own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & stat.S_IWOTH


def _text(path: Path) -> str:
    """The text of a short file of this user; empty where it belongs to another user, or is no file. Raises OSError."""
    handle = os.open(path, _READ)
    try:
        status = os.fstat(handle)
        return os.read(handle, 8192).decode("utf-8", "replace") if stat.S_ISREG(status.st_mode) and _own(status) else ""
    finally:
        os.close(handle)


def _write(path: Path, text: str) -> None:
    """Writes a new file. Raises OSError where it exists."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        os.write(handle, os.fsencode(text))
    finally:
        os.close(handle)


def _forget(known: Path) -> None:
    """Removes ids once there are many: first those whose folder has gone or changed, then the oldest."""
    names = [entry.name for entry in os.scandir(known)]
    if len(names) <= _MOST:
        return
    kept: list[tuple[float, str]] = []
    for name in names:
        with contextlib.suppress(OSError):
            stamp, _, folder = _text(known / name).partition("\n")
            if stamp == _stamp(Path(folder.rstrip("\n"))):
                kept.append(((known / name).stat().st_mtime, name))
    newest = {name for _, name in sorted(kept)[-_MOST * 9 // 10 :]}
    for name in names:
        if name not in newest:
            with contextlib.suppress(OSError):
                (known / name).unlink()


Ready = Callable[[], object]
_given = False
_ready: Ready | None = None
_ours = False
_made: set[str] = set()


def given() -> bool:
    """Whether the user has said `--trust`."""
    return _given


def trusted(run: Path | None = None) -> bool:
    """Whether the settings of a run, or of a graph by its folder, may name commands, paths and code (see `permitted`):
    if this user recorded it here, or said `--trust`. Without a path: whether those of the run that this process works
    on may."""
    if given() or run is None:
        return given() or _ours
    return str(run.absolute()) in _made or ours(run)


def settle() -> None:
    """Notes that this process works only on a run that its parent process knows to be the user's own."""
    global _ours
    _ours = True


def vouch(case: Path) -> None:
    """Trusts a case that this process has just written, of a live graph of its own."""
    _made.add(str(case.absolute()))


def grant(ready: Ready | None = None) -> None:
    """Grants trust from now on. `ready` is called before the first kernel is loaded, to prepare the kernels'
    launcher."""
    global _given, _ready
    _given, _ready = True, ready or _ready


@contextlib.contextmanager
def granted() -> Generator[None]:
    """Grants trust within a block."""
    global _given, _ready
    before = _given, _ready
    grant()
    try:
        yield
    finally:
        _given, _ready = before


def prepare() -> None:
    """Calls `ready`, once, before the first kernel is loaded."""
    global _ready
    ready, _ready = _ready, None
    if ready is not None:
        ready()
