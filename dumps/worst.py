"""Which graph a command takes where a run was named and one graph is wanted: the worst that is known; and what is known.

The last verdicts are kept in the cache folder, never in a run. Judges nothing, imports no torch, and fails for no reason: a
verdict that could not be kept or read is not known.

>>> keep(run, {"0_0/forward": (1, "fails: wrong numbers", "relative error 0.5 to float64, eager's own 1e-7")})
>>> worst_known(run)
(SavedGraph('myrun/0_0/forward'), 'its last verdict is fails: wrong numbers')
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .atomic import write_file
from .errors import GraphdbgError, UsageError

if TYPE_CHECKING:
    from .store import Run, SavedGraph

FILE = "verdicts.json"
"""Its name in the cache folder."""

_MOST = 200
"""Of so many runs the last verdicts are kept."""

Told = tuple[int, str, str]
"""What is kept of a verdict: its exit code, what it comes to in a few words, and its reason."""
_Known = dict[str, dict[str, Told]]
_FAILS, _UNSURE = 1, 4
"""Exit codes that say what a verdict comes to."""


def keep(run: Run | None, found: Mapping[str, Told]) -> None:
    """Keeps verdicts on graphs of a run, by id, the one to begin with first."""
    if run is None:
        return
    with contextlib.suppress(OSError, RuntimeError, GraphdbgError):  # no home folder, a full disk: then it is not known
        known, key = _read(), _key(run)
        before = known.pop(key, {})
        mine = dict(found) | {name: told for name, told in before.items() if name not in found}
        kept = dict([*known.items(), (key, mine)][-_MOST:])
        path = _file()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, msgspec.json.encode(kept))


def worst_known(run: Run) -> tuple[SavedGraph, str]:
    """The graph, and why it is that one ("" where it is the only one). Raises UsageError for a run without graphs."""
    graphs = run.graphs()
    if not graphs:
        why = "nothing was compiled, or nothing could be saved"
        raise UsageError(f"{run.path} holds no graphs", why, f"see graphdbg ls {run.path}")
    if len(graphs) == 1:
        return graphs[0], ""
    failing, why = last_failing(run)
    if failing:
        return failing, why
    for one in graphs:
        if one.status == "failed":
            error = (one.error or "").strip().splitlines()
            return one, "it failed in the run" + (f": {error[0][:160]}" if error else "")
    unsure, why = _told(run, _UNSURE)
    if unsure:
        return unsure, why
    compiled = [one for one in graphs if one.status in ("compiled", "ran")]
    if compiled:
        return compiled[0], "no graph of the run is known to fail, and it is the first that was compiled"
    return graphs[0], "no graph of the run is known to fail, and it is the first that was saved"


def last_failing(run: Run) -> tuple[SavedGraph | None, str]:
    """The graph to begin with of those whose last verdict is that they fail, and that in words; None where there is none."""
    return _told(run, _FAILS)


def last_verdicts(run: Run) -> dict[str, Told]:
    """The last verdicts on graphs of a run, by id."""
    with contextlib.suppress(OSError, RuntimeError):
        return _read().get(_key(run), {})
    return {}


def _told(run: Run, code: int) -> tuple[SavedGraph | None, str]:
    known, graphs = last_verdicts(run), {one.id: one for one in run.graphs()}
    found = next((graphs[name] for name, told in known.items() if told[0] == code and name in graphs), None)
    return found, f"its last verdict is {known[found.id][1]}" if found else ""


def _file() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("graphdbg") / FILE


def _key(run: Run) -> str:
    """The run's folder and when it was begun: another run of that name has verdicts of its own."""
    path = run.path.resolve()
    return f"{path}:{(path / 'run.json').stat().st_mtime_ns}"


def _read() -> _Known:
    try:
        return msgspec.json.decode(_file().read_bytes(), type=_Known)
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}
