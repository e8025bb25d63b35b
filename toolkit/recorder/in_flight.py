"""Where a long compile is at the moment: a thread records the pass and the Python stack of what is being compiled, at
growing intervals. A thread that holds the interpreter inside C code cannot be read; then the last record stands.

>>> stacks = Stacks(lambda graph, **fields: session.event("note", graph, **fields))
>>> stacks.event("compiling", "0_0/forward")
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

FIRST_S, FACTOR = 5.0, 1.5
"""When a compile is looked at first, and how much later each time."""
MOST_FRAMES = 40
_PASSES = ("/torch/_inductor/fx_passes/", "/torch/_inductor/pattern_matcher")
_OURS = __name__.partition(".")[0]


class Stacks:
    """The graphs that are being compiled, by thread. Used by one process; `note` journals what is seen of the innermost
    graph."""

    def __init__(self, note: Callable[..., object]) -> None:
        self._note = note
        self._lock = threading.Lock()
        self._open: dict[str, tuple[int, float]] = {}
        self._begun = threading.Event()
        self._thread: threading.Thread | None = None

    def event(self, kind: str, graph: str) -> None:
        """Records that a graph came to that state."""
        with self._lock:
            if kind != "compiling":
                self._open.pop(graph, None)
                return
            self._open[graph] = threading.get_ident(), time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="graphdbg-in-flight", daemon=True)
                self._thread.start()
        self._begun.set()

    def _watch(self) -> None:
        due: dict[str, float] = {}
        while True:
            with self._lock:
                waiting = dict(self._open)
                if not waiting:
                    self._begun.clear()
            if not waiting:
                self._begun.wait()
                continue
            now = time.monotonic()
            innermost = {thread: graph for graph, (thread, _) in waiting.items()}
            due = {graph: due.get(graph, waiting[graph][1] + FIRST_S) for graph in innermost.values()}
            for thread, graph in innermost.items():
                if now >= due[graph]:
                    since = waiting[graph][1]
                    due[graph] = since + FACTOR * (now - since)
                    with contextlib.suppress(Exception):  # the program is ending, or the graph was just done
                        self._look(thread, graph, now - since)
            time.sleep(min(1.0, max(0.05, min(due.values()) - now)))

    def _look(self, thread: int, graph: str, seconds: float) -> None:
        frame = sys._current_frames().get(thread)  # documented, for debuggers
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        shown = [at_frame for at_frame in frames if str(at_frame.f_globals.get("__name__")).partition(".")[0] != _OURS]
        if shown:
            inside = next(
                (at_frame for at_frame in shown if any(part in at_frame.f_code.co_filename for part in _PASSES)),
                shown[0],
            )
            at = _line_of(shown[0]) if inside is shown[0] else f"{inside.f_code.co_name} at {_line_of(shown[0])}"
            stack = [_line_of(at_frame) for at_frame in reversed(shown[:MOST_FRAMES])]
            self._note(graph, at=at, after=round(seconds, 1), stack=stack)


def _line_of(frame: FrameType) -> str:
    """A frame as "fuse_nodes, torch/_inductor/scheduler.py:2345"; files without the folders before their package."""
    file = frame.f_code.co_filename.replace("\\", "/")
    short = file.rpartition("-packages/")[2] or file
    return f"{frame.f_code.co_name}, {short}:{frame.f_lineno}"
