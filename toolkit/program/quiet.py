"""Silences what a run beside the program's own prints, logs and warns; other threads are heard.

>>> with quiet() as heard:
...     print("twice")
>>> heard.getvalue()
'twice\\n'
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from ..torch_private import all_replaced


class _Here:
    """A stream that hears one thread, and passes on what the others write."""

    def __init__(self, stream: Any, heard: io.StringIO) -> None:
        self._stream, self._heard, self._thread = stream, heard, threading.get_ident()

    def write(self, text: str) -> int:
        return (self._heard if threading.get_ident() == self._thread else self._stream).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Sends standard output, error, logging and warnings of this thread into what is yielded; no warning counts as
    shown."""
    heard, thread, handle = io.StringIO(), threading.get_ident(), logging.Logger.handle
    ours = lambda logger, record: None if threading.get_ident() == thread else handle(logger, record)  # noqa: E731
    unheard: Any = ("ignore", None, Warning, None, 0)
    streams = [(sys, name, _Here(getattr(sys, name), heard)) for name in ("stdout", "stderr")]
    warnings.filters.insert(0, unheard)  # type: ignore[attr-defined]  # in place: catch_warnings would make torch's warn again
    try:
        with all_replaced([*streams, (logging.Logger, "handle", ours)]):
            yield heard
    finally:
        with contextlib.suppress(ValueError):
            warnings.filters.remove(unheard)  # type: ignore[attr-defined]
