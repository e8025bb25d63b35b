"""How reasons get into the journal: one event each, long texts once, functions that were left alone once.

Must write little: a training run may meet the same graph break in 500 recompiles.

>>> journal(session, "limit", compile="0_8", limit="recompile_limit", value=8)
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...dumps.ids import compile_name
from .live_torch import compile_id

if TYPE_CHECKING:
    from ...dumps.writer import ProcessWriter
    from .session import Session

TEXT = 2400
GUARD = 1200
_STACK = 8
_SKIPS = 1000

_PATHS = sysconfig.get_paths()
_LIBRARY = (_PATHS["stdlib"], _PATHS["platstdlib"])
_SITE = (_PATHS["purelib"], _PATHS["platlib"])
_HERE = tuple(str(Path(__file__).parents[2] / room) for room in ("dumps", "toolkit"))
_USUAL = ("no tensor-related objects", "skipfiles", "No ops traced")
"""Reasons that say nothing in the code of libraries."""


class _Told:
    """What one journal holds already: long texts are written once and then referred to by number."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.skips: set[tuple[str, ...]] = set()


_told: WeakKeyDictionary[ProcessWriter, _Told] = WeakKeyDictionary()


def journal(session: Session, what: str, **fields: Any) -> None:
    """Writes one event; the first of a journal is preceded by one that names the functions this torch lacks."""
    writer = session.writer()
    told = _told.get(writer)
    if told is None:
        from .patches import missing, tells_why

        told = _told[writer] = _Told()
        lacking = [f"{hook.lost} (it has no {hook.whole()})" for hook in missing() if tells_why(hook)]
        session.event("why", what="begin", missing=lacking or None)
    text = fields.pop("text", None)
    if text:
        number = told.texts.get(text)
        if number is None:
            number = told.texts[text] = len(told.texts)
            fields["text"] = text
        fields["text_id"] = number
    session.event("why", what=what, **fields)


def now() -> str | None:
    """The compile in progress on this thread with its attempt, as a folder name: "0_0_a1"."""
    current = compile_id()
    return None if current is None else compile_name(current)


def skip(session: Session, code: CodeType, reason: str) -> None:
    """A function of the program that was left alone, once for each reason; torch's own, Python's and ours are not told."""
    file = code.co_filename
    if file.startswith((*_HERE, "<")) or "/torch/" in file or (file.startswith(_LIBRARY) and not file.startswith(_SITE)):
        return
    if file.startswith(_SITE) and any(words in reason for words in _USUAL):
        return
    function = getattr(code, "co_qualname", code.co_name)
    key = (function, code.co_filename, str(code.co_firstlineno), reason)
    told = _told.get(session.writer())
    if told is not None and (key in told.skips or len(told.skips) >= _SKIPS):
        return
    journal(session, "skip", function=function, file=code.co_filename, line=code.co_firstlineno, reason=reason[:GUARD])
    _told[session.writer()].skips.add(key)


def text_of(error: Any, otherwise: str) -> str:
    """What an exception of Dynamo says, without what it adds for logs."""
    text = str(getattr(error, "msg", None) or error or otherwise)
    return text if len(text) <= TEXT else text[:TEXT] + "…"


def stack_of(stack: Any) -> list[list[Any]] | None:
    """The innermost frames of a traceback summary, outermost first: file, line, function, code."""
    frames = list(stack or ())[-_STACK:]
    return [[frame.filename, frame.lineno, frame.name, (frame.line or "")[:200]] for frame in frames] or None
