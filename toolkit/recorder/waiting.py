"""`--after-step N`: what is captured before the optimizer's Nth step waits in memory, and is written only if it runs after it.

A model that is compiled once, in its first step, is so recorded whole with the inputs of a step that matters, while compiles
that belong to the beginning of a long run leave nothing. What never runs again is counted as left out.

>>> waiting = Waiting(100)
>>> waiting.postpone("0_0/forward", save)        # True before step 100: save() is called by release("0_0/forward")
True
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ...dumps.schema import GraphRecord
from . import sources, steps

if TYPE_CHECKING:
    from ...dumps.writer import ProcessWriter

Action = Callable[[], object]


class Waiting:
    """What waits, by compile name, in order. With `after_step` 0 nothing ever waits."""

    def __init__(self, after_step: int) -> None:
        self.after_step = after_step
        self._actions: dict[str, list[Action]] = {}
        self._lock = threading.RLock()

    @property
    def now(self) -> bool:
        """Whether the step has not come yet."""
        return self.after_step > 0 and steps.count() < self.after_step

    def begin(self, name: str) -> bool:
        """Whether the graphs of a compile wait; from here on all that happens to them does."""
        if not self.now and name not in self._actions:
            return False
        with self._lock:
            self._actions.setdefault(name, [])
        return True

    def postpone(self, local: str, action: Action) -> bool:
        """Keeps an action for later when the graph's compile waits."""
        with self._lock:
            actions = self._actions.get(local.partition("/")[0])
            if actions is None:
                return False
            actions.append(action)
            return True

    def release(self, local: str) -> None:
        """Does all that waits for a graph's compile, in order."""
        with self._lock:
            actions = self._actions.pop(local.partition("/")[0], [])
        for action in actions:
            action()


class PackedSave:
    """Saving a graph later. The record is packed when the compiler is done with it: as objects it is fifty times as large."""

    def __init__(self, writer: ProcessWriter, record: GraphRecord) -> None:
        self.writer = writer
        self.record: GraphRecord | None = record
        self._data = b""

    def pack(self) -> None:
        """Called when nothing is amended any more."""
        if self.record is not None:
            self._data = zlib.compress(msgspec.msgpack.encode(self.record), 1)
            self.record = None

    def __call__(self) -> None:
        record = self.record or msgspec.msgpack.decode(zlib.decompress(self._data), type=GraphRecord)
        self.writer.save_graph(record, self.writer.tensors)
        sources.keep(self.writer, record)
