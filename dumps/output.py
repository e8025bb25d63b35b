"""The one place that prints. stdout is data, stderr is narration.

>>> emit({"run": "myrun"}, as_json=True)      # one JSON document on stdout
>>> say("recorded 3 graphs")                  # a sentence on stderr
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from .errors import EnvironmentLackError

if TYPE_CHECKING:
    from rich.console import Console

READER_GONE_EXIT = 141
"""What a Unix program exits with when the reader of its stdout has closed it (`graphdbg ls --json | head -1`)."""


def emit(data: Any, *, as_json: bool) -> None:
    """Prints data on stdout: a JSON document when `as_json`, else its text as it is (no newline added to an empty text)."""
    text = json.dumps(data, ensure_ascii=False) if as_json else str(data)
    try:
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _nothing_more()
        raise SystemExit(READER_GONE_EXIT) from None
    except OSError as error:
        _nothing_more()
        why = error.strerror or str(error)
        raise EnvironmentLackError("cannot write stdout", why, "free some space or send it elsewhere") from error


def _nothing_more() -> None:
    """What could not be written is not tried again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Prints one narration line on stderr."""
    sys.stderr.write(text if text.endswith("\n") else text + "\n")
    sys.stderr.flush()


def terminal() -> Console | None:
    """A console on stderr for a view that is drawn again and again; None where stderr is no terminal that can do it."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return None if console.is_dumb_terminal else console
