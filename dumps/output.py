"""The one place that prints. stdout is data, stderr is narration.

On a full disk or a closed stdout the command ends with a sentence and an exit code; narration to a closed stderr is
dropped; characters that a stream's encoding lacks are written as escapes.

Printed text may quote a dump, a folder's name or a key in it: no control character except line breaks reaches a
terminal or a file, whatever its origin; a JSON document has them all as \\u escapes.

>>> emit({"run": "myrun"}, as_json=True)      # one JSON document on stdout, finished as `answers` says
{"run": "myrun", "next": []}
>>> say("recorded 3 graphs")                  # a sentence on stderr
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from .answers import finished
from .errors import CannotWriteError, EnvironmentLackError
from .tables import CONTROL, on_terminal, visible

if TYPE_CHECKING:
    from rich.console import Console

READER_GONE_EXIT, HUNG_UP_EXIT = 141, 129
"""The exit codes of a Unix program whose stdout was closed by its reader (`graphdbg ls --json | head -1`), and whose
terminal went away."""


def emit(data: Any, *, as_json: bool, next: Sequence[str] = ()) -> None:
    """Prints data on stdout: a JSON document when `as_json`, else its text as it is (no newline added to an empty
    text). `next`: commands to paste, for a document that has none of its own."""
    text = json_text(finished(data, next, json_text)) if as_json else visible(str(data), colours=on_terminal())
    try:
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _nothing_more(sys.stdout)
        raise SystemExit(READER_GONE_EXIT) from None
    except OSError as error:
        _nothing_more(sys.stdout)
        raise _cannot_write(error) from error


def _cannot_write(error: OSError) -> EnvironmentLackError:
    return CannotWriteError("cannot write stdout", error.strerror or str(error), "free some space or send it elsewhere")


def _has_all_letters() -> bool:
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def _nothing_more(stream: TextIO) -> None:
    """Drops the unwritten text of a stream, so that the interpreter does not try to write it again when it ends."""
    with contextlib.suppress(OSError, ValueError):  # the stream has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Closed(io.TextIOBase):
    """Stands for a stdout that was already closed when the process began."""

    def write(self, s: str, /) -> int:
        raise OSError(errno.EBADF, "it is closed")


def make_ready() -> None:
    """Prepares the standard streams; to be called once, before any file is opened. A closed stdin, stdout or stderr is
    replaced by the null device, else the next opened file would take its number and be written to."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = cast("TextIO", sys.stdout or _Closed())
    sys.stderr = cast("TextIO", sys.stderr or open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123


def settle(code: int) -> int:
    """Flushes the streams and returns the exit code: that of CannotWriteError where stdout could not be written."""
    for stream in (sys.stdout, sys.stderr):
        if code == HUNG_UP_EXIT:
            _nothing_more(stream)  # a thread that paints may still write, and Python would end with 120
        try:
            stream.flush()
        except OSError as error:
            _nothing_more(stream)
            if stream is sys.stdout and code == 0:
                lack = _cannot_write(error)
                say(f"graphdbg: {lack.said}")
                code = lack.exit_code
    return code


def json_text(data: Any) -> str:
    """One JSON document in one line, without characters that control a terminal."""
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(data, ensure_ascii=not _has_all_letters()))


def say(text: str) -> None:
    """Prints one narration line on stderr; does nothing where stderr cannot be written."""
    text = visible(text, colours=sys.stderr.isatty())
    with contextlib.suppress(OSError):
        sys.stderr.write(text if text.endswith("\n") else text + "\n")
        sys.stderr.flush()


def terminal() -> Console | None:
    """A console on stderr for a view that is redrawn; None where stderr is no terminal, or one that cannot redraw."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return None if console.is_dumb_terminal else console
