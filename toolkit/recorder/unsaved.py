"""Settings of the user's that no record can hold (custom passes, callables) and backends of the user's own: what
replays lack.

Journalled once in each process, when a graph is saved under them; reported when the recording ends. Reads live values
only to name them, never calls them. The closing words come from the journal alone. Imports no torch.

>>> lines([{"unsaved": "setting inductor.post_grad_custom_post_pass", "what": "mypass.P", "module": "mypass"}])
['graphdbg: setting inductor.post_grad_custom_post_pass (mypass.P) has no saved form: replays run without it, ...']
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dumps.journal import DECOMPOSITION
from ...dumps.permitted import of_the_process
from ..live.spec import is_opaque
from ..live.torch_state import encoded, innermost_backend

if TYPE_CHECKING:
    from ...dumps.schema import GraphRecord
    from .session import Session

_MOST = 5

_NOT_THE_USERS = ("torch", "graphdbg", "builtins")


def note_settings(session: Session, config: Mapping[str, Mapping[str, Any]], record: GraphRecord) -> None:
    """Journals which of the settings in force, `config`, have no saved form in the record of a graph."""
    for room, values in record.config.items():
        for name, value in values.items():
            if is_opaque(value) and not of_the_process(name):
                _note(session, f"setting {room}.{name}", config.get(room, {}).get(name))


def note_backend(session: Session, backend: Any) -> None:
    """Journals a backend that belongs to neither torch nor graphdbg: a replay runs one of graphdbg's."""
    inner = innermost_backend(backend)
    if _home(inner).__module__.partition(".")[0] not in _NOT_THE_USERS:
        _note(session, "backend", inner)


def note_decompositions(session: Session) -> None:
    """Journals the decompositions of torch's own operators that are the user's."""
    module = sys.modules.get("torch._inductor.decomposition")
    for operator, function in list(getattr(module, "decompositions", {}).items()):
        home = str(getattr(_home(function), "__module__", None) or "torch")
        if home.partition(".")[0] not in _NOT_THE_USERS and str(operator).startswith(("aten.", "prims.")):
            _note(session, f"{DECOMPOSITION}{operator}", function)


def _note(session: Session, unsaved: str, value: Any) -> None:
    home = _home(_culprit(value))
    module = str(getattr(home, "__module__", None) or "")
    what = f"{module}.{getattr(home, '__qualname__', home)}"
    code = getattr(home, "__code__", None) or getattr(getattr(home, "__dict__", {}).get("__call__"), "__code__", None)
    file = getattr(code, "co_filename", None) or getattr(sys.modules.get(module), "__file__", None) or ""
    place = {"file": file, "line": getattr(code, "co_firstlineno", 0)} if file else {}
    session.note(f"{unsaved} cannot be saved: {what}", unsaved=unsaved, what=what, module=module, **place)


def _culprit(value: Any) -> Any:
    """The first thing inside a value that has no saved form."""
    inside: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = value
    return next((_culprit(item) for item in inside if is_opaque(encoded(item))), value)


def _home(value: Any) -> Any:
    """The function or class that the user wrote."""
    while isinstance(value, functools.partial):
        value = value.func
    value = getattr(value, "__func__", value)  # a bound method
    return value if hasattr(value, "__qualname__") else type(value)


def lines(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each of these notes, over all processes of a run."""
    sentences = list(dict.fromkeys(_sentence(note) for note in notes if "unsaved" in note))
    more = (
        [f"graphdbg: and {len(sentences) - _MOST} more that cannot be saved: replays name them"]
        if len(sentences) > _MOST
        else []
    )
    return [f"graphdbg: {text}" for text in sentences[:_MOST]] + more


def trust_helps(notes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether `--trust` brings back one of these."""
    return any(note["unsaved"].startswith("setting ") for note in notes if "unsaved" in note)


def _sentence(note: Mapping[str, Any]) -> str:
    file, line = str(note.get("file") or ""), note.get("line")
    place = f", {Path(file).name}" + (f":{line}" if line else "") if file else ""
    named = f"{note['unsaved']} ({str(note.get('what', '')).removeprefix('__main__.')}{place})"
    if note["unsaved"] == "backend":
        return f"{named} cannot be saved: a replay runs Inductor, or another rung, in its place"
    module = str(note.get("module") or "")
    if note["unsaved"].startswith(DECOMPOSITION):
        but = "" if module in ("", "__main__") else f", unless --import {module} registers it"
        return f"{named} has no saved form: replays run torch's own{but}"
    imported = "" if module in ("", "__main__") else f" or --import {module} sets it"
    return f"{named} has no saved form: replays run without it, unless --trust runs its recorded source{imported}"
