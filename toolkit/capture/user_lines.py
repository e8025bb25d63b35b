# pyright: basic
"""The user's lines of a graph that AOTAutograd traces, for nodes of the forward and of the backward.

Dynamo's graphs carry lines; a function that is called as it is carries none. Here the tracer of one capture keeps, of
each node's Python stack, the frames below the captured function. A backward node has no such frames, so it gets those
of the forward node that made its autograd node: both know the sequence number. Nothing is patched but that one tracer
object.

>>> lines = UserLines(marker=__file__)
>>> lines.attach()                      # while tracing: every node from here on has a stack_trace
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from .. import torch_private as t

_TORCH = str(Path(torch.__file__).parent)
_LAYERS = str(Path(torch.nn.modules.__file__).parent)
_CALLING = (torch.nn.modules.module.__file__,)
_OURS = str(Path(__file__).parent)


class UserLines:
    """Filters the stacks of one tracer. `marker` is the file whose frame calls the captured function."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.made: dict[int, list[traceback.FrameSummary]] = {}

    def attach(self) -> None:
        """Lets the tracer that is at work, if any, keep lines."""
        tracer = tracer_at_work()
        if tracer is not None:
            tracer.record_stack_traces = True
            tracer._filter_traceback_frames = self.filtered

    def filtered(self, stack: traceback.StackSummary) -> traceback.StackSummary:
        """The user's frames of a stack; those of the forward node where a backward node has none."""
        frames = list(stack)
        own = [place for place, frame in enumerate(frames) if frame.filename == self.marker]
        number = _running_number()
        mine = list(_of_user(frames[own[-1] + 1 :] if own else ()))
        if number is None:
            if mine:
                self.made.setdefault(t.autograd_sequence_number() - 1, mine)
        else:
            mine = list(_of_user(_below_engine(frames))) or self.made.get(number, [])
        return traceback.StackSummary.from_list(mine)


def _below_engine(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The frames below the autograd engine: a custom Function's backward, a hook, a recomputation."""
    engine = [place for place, frame in enumerate(frames) if frame.name == "_engine_run_backward"]
    return frames[engine[-1] + 1 :] if engine else []


def _of_user(frames: Iterable[traceback.FrameSummary]) -> Iterable[traceback.FrameSummary]:
    for frame in frames:
        layer = frame.filename.startswith(_LAYERS) and frame.filename not in _CALLING
        inside = frame.filename.startswith((_TORCH, _OURS)) or frame.filename.startswith("<")
        if layer or not inside:
            yield frame


def tracer_at_work() -> Any:
    """The tracer of the `make_fx` that is running; None outside one."""
    mode = t.get_proxy_mode()
    return None if mode is None else mode.tracer


def _running_number() -> int | None:
    """The sequence number of the autograd node that is running; None in a forward. (Its public form is in C++ only.)"""
    node = t.current_autograd_node()
    return None if node is None else node._sequence_nr()
