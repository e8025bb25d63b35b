# pyright: basic
"""Findings as they come, one for each kernel, kind, line and argument, with the line of the kernel that is running.

For example:

    collected = Collected()
    collected.add("load", at, access, access.outside)
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..triton.interpreting.memory import Access
from ..triton.interpreting.session import Launch
from .findings import KernelFault, UserLine


@dataclass
class LaunchPlace:
    """The launch that runs, with its nodes and the user's lines; `number`: the program, in the order in which they
    run."""

    launch: Launch
    nodes: list[str] = field(default_factory=list)
    lines: list[UserLine] = field(default_factory=list)
    node_of: dict[str, str] = field(default_factory=dict)
    number: int = 0
    is_empty: Callable[[str], bool] = lambda node: False
    scattering: str = ""
    """A node of the graph that may itself write one place twice."""

    def __post_init__(self) -> None:
        self.file = self.launch.function.__code__.co_filename
        self.name = self.launch.function.__name__

    @property
    def program(self) -> tuple[int, int, int]:
        """The program's place in the grid."""
        x, y, _ = (int(index) for index in self.launch.grid)
        return self.number % x, self.number // x % y, self.number // (x * y)

    def text(self, line: int) -> str:
        """The text of a line of the kernel's file."""
        return linecache.getline(self.file, line).strip()

    def line(self) -> int:
        """The line of the kernel itself that is being run, whatever it has called."""
        frame: Any = sys._getframe(1)
        number = 0
        while frame is not None:
            code = frame.f_code
            if code.co_filename == self.file and code.co_name == self.name:
                return frame.f_lineno
            if code.co_filename == self.file:
                number = number or frame.f_lineno
            frame = frame.f_back
        return number


class Collected:
    """All findings of a run. `Finding.programs` counts programs that have it, `count` accesses."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int, str], KernelFault] = {}
        self._last: dict[tuple[str, str, int, str], tuple[int, int]] = {}

    def all(self) -> list[KernelFault]:
        """All findings in the order in which they came."""
        return list(self._found.values())

    def add(
        self,
        kind: str,
        at: LaunchPlace,
        access: Access | None,
        lanes: np.ndarray,
        *,
        line: int = 0,
        detail: str = "",
        note: bool = False,
    ) -> KernelFault:
        """Adds a finding. `lanes`: the lanes of the program in which it occurred."""
        line = line or at.line()
        text = at.text(line)
        argument = argument_of(at.launch, access, text)
        key = (at.launch.kernel, kind, line, argument)
        program = (at.launch.number, at.number)
        known = self._found.get(key)
        if known is not None:
            known.count += 1
            known.programs += self._last[key] != program
            known.note &= note
            self._last[key] = program
            return known
        fault = KernelFault(kind, at.launch.kernel, at.launch.number, at.program, line, text, note=note, detail=detail)
        fault.nodes, fault.lines = at.nodes, at.lines
        places = np.flatnonzero(lanes)
        fault.lanes = int(places.size)
        if places.size:
            fault.first_lane, fault.last_lane = int(places[0]), int(places[-1])
        _argument(fault, at, access, argument, lanes)
        self._found[key], self._last[key] = fault, program
        return fault


def argument_of(launch: Launch, access: Access | None, text: str) -> str:
    """The kernel's name of what was accessed: of several that lie in one storage, the one that the line names."""
    if access is None or access.zone is None:
        return ""
    storage = access.zone.storage._cdata
    names = [name for name, tensor in launch.tensors.items() if tensor.untyped_storage()._cdata == storage]
    return next((name for name in names if name in text), names[0] if names else "")


def _argument(fault: KernelFault, at: LaunchPlace, access: Access | None, argument: str, lanes: np.ndarray) -> None:
    if access is None or access.zone is None:
        return
    tensor = at.launch.tensors.get(argument)
    fault.argument = argument
    fault.buffer = at.launch.buffers.get(argument, "")
    fault.node = at.node_of.get(fault.buffer, "")
    fault.storage = access.zone.data.nbytes // access.dtype.itemsize
    if tensor is not None:
        fault.dtype, fault.shape = str(tensor.dtype).removeprefix("torch."), [int(size) for size in tensor.shape]
    chosen = np.broadcast_to(access.index, lanes.shape)[lanes]
    if chosen.size:
        fault.element = int(chosen.reshape(-1)[0])
