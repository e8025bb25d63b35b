"""The user's file of a node with its line marked: from the copy that the dump keeps, else the lines that its stack
recorded.

A copy is shown as it is, and where its line is not the one that the stack quotes, that is said. A run of before there
were copies falls back to the file of that name on this machine, if the quoted line still stands there. Opens nothing
else.

>>> from graphdbg.dumps.browse.about import About
>>> sheet = sheet_of_frame(saved, About(saved, view).stack(view.position("addmm")), 0)
>>> sheet.title, sheet.lines[sheet.top]
('train.py:11 in forward', '        return self.down(torch.nn.functional.gelu(self.up(x)))')
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from ..store import SavedGraph
from ..walk import Frame
from .sheet import DIM, HERE, TITLE, Line, Sheet, line

_MOST_BYTES = 1 << 21


def sheet_of_frame(saved: SavedGraph, stack: Sequence[Frame], number: int = 0) -> Sheet:
    """The file of one frame; the frames alone where there is no text of it. Raises UnreadableError for a damaged
    copy."""
    if not stack:
        return Sheet("no line", [line(("no stack was recorded for this node", DIM))])
    number %= len(stack)
    frame = stack[number]
    choice = f"{number + 1}/{len(stack)}" if len(stack) > 1 else ""
    text = saved.sources.text(frame.file)
    path, notes = "", list[str]()
    if text is not None:
        path = str(saved.sources.path(frame.file) or "")
        if not quoted(text, frame):
            notes.append(f"line {frame.line} of the dump's copy is not what the stack quotes: {frame.code}")
    else:
        text = _present(frame)
        if text is not None:
            path = frame.file
            notes.append(
                "the run kept no copy: this is the file on this machine as it is now; the quoted line is the same"
            )
    if text is None:
        return _recorded(stack, number, choice, saved.sources.why_not(frame.file))
    lines = text.splitlines()
    at = min(frame.line, len(lines)) - 1
    title = frame.where + (f" in {frame.function}" if frame.function else "")
    marked = [range(at, at + 1)] if at >= 0 else []
    return Sheet(title, lines, max(0, at), marked, language="python", choice=choice, notes=notes, path=path)


def quoted(text: str, frame: Frame) -> bool:
    """Whether the text has the line that the frame quotes, where it says."""
    lines = text.splitlines()
    return 0 < frame.line <= len(lines) and (not frame.code or lines[frame.line - 1].strip() == frame.code)


def _present(frame: Frame) -> str | None:
    """The file on this machine, if it is a readable Python file whose line is the quoted one."""
    path = Path(frame.file)
    try:
        if not frame.code or path.suffix != ".py" or not path.is_absolute():
            return None
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return None
        text = path.read_text(encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError):
        return None
    return text if quoted(text, frame) else None


def _recorded(stack: Sequence[Frame], number: int, choice: str, why: str) -> Sheet:
    """The frames with the lines that they quote."""
    lines: list[Line] = [
        line((f"{stack[number].file}: {why}; these are the lines that the stack quotes", DIM)),
        line(""),
    ]
    marked: list[range] = []
    for place, frame in enumerate(stack):
        if place == number:
            marked.append(range(len(lines), len(lines) + 2))
        kind = HERE if place == number else TITLE if frame.user else DIM
        lines.append(line((frame.where, kind), (f" in {frame.function}" if frame.function else "", DIM)))
        lines.append(line(f"    {frame.code}"))
    return Sheet(stack[number].where, lines, marked[0].start, marked, choice=choice)
