"""Leaves an account on an exception: as its attribute, and from Python 3.11 on as a note, which tracebacks show below the error.

Nothing else of the exception changes. Torch wraps errors in others; the note moves to the outermost, so that it is shown once.

>>> told(error, work, "lower")
>>> error.graphdbg_explained
'LoweringException in ...'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..work import Work
from .explain import explain
from .explained import Explained

ATTRIBUTE = "graphdbg_explained"
"""The attribute that carries the text; the record is `graphdbg_account`."""
_RECORD = "graphdbg_account"


def told(error: BaseException, work: Work | None, stage: str) -> Explained:
    """The account of an error that passes through a stage: made where it first passes, carried from there on."""
    known = carried(error)
    if known is None:
        known = explain(error, work, stage)
        _put(error, known)
    return known


def carried(error: BaseException) -> Explained | None:
    """The account that an error, or one that it wraps, has already; the error has it afterwards. None where there is none."""
    for one in _wrapped(error):
        known = getattr(one, _RECORD, None)
        if isinstance(known, Explained):
            if one is not error:
                _drop(one, known)
                _put(error, known)
            return known
    return None


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    for _ in range(20):
        if at is None:
            return
        yield at
        inner = getattr(at, "inner_exception", None)
        at = inner if isinstance(inner, BaseException) else at.__cause__ or at.__context__


def _put(error: BaseException, known: Explained) -> None:
    text = known.text()
    setattr(error, _RECORD, known)
    setattr(error, ATTRIBUTE, text)
    add_note: Callable[[str], None] | None = getattr(error, "add_note", None)  # not in Python 3.10
    if add_note is not None:
        add_note(_note(text))


def _drop(error: BaseException, known: Explained) -> None:
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list) and (note := _note(known.text())) in notes:
        notes.remove(note)


def _note(text: str) -> str:
    return f"graphdbg: {text}"
