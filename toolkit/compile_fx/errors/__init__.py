"""Explains errors of the compile path: what failed, why, what to do, in which kernel, for which nodes, at which line.

`explain` looks at an exception of torch's; `explained` does so for a failing stage and leaves the account on the
exception: as its attribute, and from Python 3.11 on as a note, which tracebacks show below the error. Nothing else of
the exception changes. Torch wraps errors in others; the note moves to the outermost, so that it is shown once. Torch is
imported only once there is an error.

For example: `explained(error, work, "load").kind` gives `'C++ compile error'`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import compilers, nodes
from .case import ErrorContext, Explained, NodeAt, chain_of

if TYPE_CHECKING:
    from ..stage import Work

__all__ = ["ATTRIBUTE", "Explained", "NodeAt", "carried", "explain", "explained"]

ATTRIBUTE = "graphdbg_explained"
"""The attribute that carries the text; the record is `graphdbg_account`."""
_RECORD = "graphdbg_account"

Family = Callable[[ErrorContext, Any], Explained | None]

FAMILIES: tuple[tuple[tuple[str, ...], Family], ...] = (
    (("SkipFrame",), compilers.bf16),
    (("GPUTooOldForTriton",), compilers.too_old),
    (("InvalidCxxCompiler",), compilers.no_cpp_compiler),
    (("TritonMissing",), compilers.no_triton),
    (("FileNotFoundError",), compilers.no_program),
    ((), compilers.memory),
    ((), compilers.recursion),
    (("CppCompileError",), compilers.cpp_refused),
    ((), compilers.triton_refused),
    ((), compilers.resources),
    ((), compilers.not_python),
    ((), compilers.worker),
    ((), nodes.mixed),
    (("MissingOperatorWithDecomp", "MissingOperatorWithoutDecomp"), nodes.not_lowered),
    ((), nodes.no_fake),
    ((), nodes.aliases),
    (("LoweringException",), nodes.no_fallback),
    ((), nodes.no_operator),
    (
        ("DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode"),
        nodes.depends_on_data,
    ),
    ((), nodes.of_a_pass),
)
"""Asked in this order. A function is asked about errors that are, or wrap, an instance of one of its class names (no
names: about all errors); the first account counts."""


def explain(error: BaseException, work: Work | None, stage: str) -> Explained:
    """The account of an error that a stage raised. `work` is the stage's, None where there was none yet; changes
    nothing.

    An account is never the reason that the error itself is lost: where making one fails, the account says so.
    """
    case = ErrorContext.of(error, work, stage)
    try:
        for names, family in FAMILIES:
            raised = case.find(*names)
            if (raised is not None or not names) and (account := family(case, raised)) is not None:
                return account
        return nodes.anything(case)
    except Exception as defect:  # noqa: BLE001
        plain = case.about("error", f"the stage {stage} failed", case.said())
        plain.notes.append(f"(graphdbg could not say more of it: {type(defect).__name__}: {defect})")
        return plain


def explained(error: BaseException, work: Work | None, stage: str) -> Explained:
    """The account of an error that passes through a stage, made in the first stage and attached to the error from there
    on."""
    known = carried(error)
    if known is None:
        known = explain(error, work, stage)
        _put(error, known)
    return known


def carried(error: BaseException) -> Explained | None:
    """The account that is attached to an error, or to one that it wraps; moves it to the error itself. None where there
    is none."""
    for link in chain_of(error):
        known = getattr(link, _RECORD, None)
        if isinstance(known, Explained):
            if link is not error:
                _drop(link, known)
                _put(error, known)
            return known
    return None


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
