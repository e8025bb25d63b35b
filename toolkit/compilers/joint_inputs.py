"""The example inputs of a joint graph, which itself never runs: those of its forward, and the tangents of its backward.

Put together from what was saved of both when the backward has run for the first time; storages are named by their content, so
nothing is copied.

>>> joint = JointInputs(session, "0_0/joint")
>>> backward = joint.watch("backward", "0_0/backward", backward)
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from ...dumps.compressed import stored
from ...dumps.graph_folder import INPUTS_FILE
from ...dumps.reading import read_record
from ...dumps.schema import InputRecord, InputsRecord, TensorValue
from ..recorder.session import Session


class JointInputs:
    """What one joint graph waits for: the ids of its forward and backward, and the backward's first run."""

    def __init__(self, session: Session, local: str) -> None:
        self.session = session
        self.local = local
        self.parts: dict[str, str] = {}

    def watch(self, stage: str, local: str, compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Takes note of the forward; returns the backward so that its first run completes the joint graph's inputs."""
        self.parts[stage] = local
        if stage != "backward":
            return compiled
        waiting = True

        @functools.wraps(compiled)
        def run(args: list[Any]) -> Any:
            nonlocal waiting
            result = compiled(args)
            if waiting:
                waiting = False
                with self.session.guarded(f"inputs of {self.local}"):
                    self._write()
            return result

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _write(self) -> None:
        writer = self.session.writer()
        parts = [writer.graph_path(self.parts[stage]) / INPUTS_FILE for stage in ("forward", "backward") if stage in self.parts]
        if len(parts) < 2 or any(stored(path) is None for path in parts):
            return
        forward, backward = (read_record(path, InputsRecord) for path in parts)
        items = [item for item in forward.inputs if item.role != "tangent"]
        first = 1 + max((group for item in items for group in _groups(item)), default=-1)
        tangents = [_renumbered(item, first) for item in backward.inputs if item.role == "tangent"]
        forward.inputs = items + tangents
        writer.save_inputs(self.local, forward)


def _values(item: InputRecord) -> list[TensorValue]:
    values = (item.value, item.stored.value if item.stored is not None else None)
    return [value for value in values if isinstance(value, TensorValue)]


def _groups(item: InputRecord) -> list[int]:
    return [value.storage for value in _values(item) if value.storage is not None]


def _renumbered(item: InputRecord, first: int) -> InputRecord:
    """Alias groups are counted anew in each record."""
    seen = itertools.filterfalse(lambda value: value.storage is None, {id(value): value for value in _values(item)}.values())
    for value in seen:
        value.storage = (value.storage or 0) + first
    return item
