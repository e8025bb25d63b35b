"""Our own CUDA graph of one call: inputs in memory of their own, a warm-up on a side stream, the recording, its replay.

Static inputs stay where they are; all others are copied to where they were recorded. Outputs are the same memory in each
call: the next call writes over them. An input that is written to is restored after the warm-up and handed back after
each replay, so that one call writes once. Must not record inputs on the CPU (their values would stay) nor copies of two
inputs that overlap (they would part).

>>> run = Recording(call, [x, weight], static=[1])
>>> run([x, weight])
[tensor(...)]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from ....dumps.errors import UsageError
from ....dumps.wording import counted
from .. import _torch as t
from ..alignment import starts_aligned
from ..input_names import listed, name_at
from ..overlap import shared
from .copying import Target, Targets

Call = Callable[[list[Any]], Any]
Capture = Callable[[Call, list[Any]], tuple[Callable[[], None], Sequence[Any]]]
"""Warms up and records a call; gives its replay and the outputs, whose memory each replay fills."""


def on_cuda(call: Call, inputs: list[Any]) -> tuple[Callable[[], None], Sequence[Any]]:
    """The warm-up, in which kernels are chosen, and the recording, both beside the current stream of the device."""
    here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        call(list(inputs))  # a boxed call empties its list
    beside.synchronize()
    here.wait_stream(beside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Workspaces of matrix products are taken anew while recording, from the recording's own memory: those of the warm-up
    # are freed as soon as anybody clears them, as torch's trees do, and a replay would write to memory that is gone.
    t.clear_workspaces()
    with torch.cuda.graph(graph, stream=beside, capture_error_mode="thread_local"):
        made = call(list(inputs))
    t.clear_workspaces()
    return graph.replay, made if isinstance(made, (list, tuple)) else (made,)


def refusal(inputs: Sequence[Any], static: Collection[int], mutated: Collection[int], names: Sequence[Any] = ()) -> str:
    """Why these inputs cannot be recorded, with their names; empty when they can."""
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            return f"{name_at(names, index)} is on the CPU, and a recording would keep the value that it has now"
    for first, second, _ in shared(inputs) if mutated else ():
        copied = first not in static or second not in static
        if copied and (first in mutated or second in mutated):
            written = first if first in mutated else second
            return (
                f"{name_at(names, first)} and {name_at(names, second)} overlap and {name_at(names, written)} is written to: "
                "copies of them would part"
            )
    return ""


class Recording:
    """One recorded call; call it with a list of inputs, which it empties. Raises UsageError for a static input that has moved.

    `static` are indices of inputs that stay where they are (a misaligned one is copied all the same), `mutated` of those
    that are written to. `check_sizes`: look at sizes and static inputs in each call (Inductor's `size_asserts`).
    """

    def __init__(
        self, call: Call, inputs: Sequence[Any], static: Collection[int] = (), *, mutated: Collection[int] = (),
        names: Sequence[Any] = (), check_sizes: bool = True, capture: Capture = on_cuda,
    ) -> None:  # fmt: skip
        started = time.perf_counter()
        tensors = [index for index, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        self.names, self.check_sizes, self.count = names, check_sizes, len(inputs)
        self.static = [index for index in tensors if index in static and starts_aligned(inputs[index])]
        self.misaligned = [index for index in tensors if index in static and index not in self.static]
        kept = set(self.static)
        self.targets = Targets([Target(inputs[index], index) for index in tensors if index not in kept], names)
        self.handed_back = [target for target in self.targets.all if target.index in mutated]
        self._places = [inputs[index].data_ptr() for index in self.static]
        places = list(inputs)
        for index in self.static:
            places[index] = inputs[index].detach()
        for target in self.targets.all:
            places[target.index] = target.buffer
        self.targets.fill(inputs)
        before = [(places[index], places[index].clone()) for index in self.static if index in mutated]
        self.replay, self.outputs = capture(call, places)
        for written, value in before:
            written.copy_(value)
        self._kept = places  # what the recording reads must live as long as it does
        self.seconds = time.perf_counter() - started

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self.check_sizes:
            self._check(inputs)
        self.targets.fill(inputs)
        back = [(target, inputs[target.index]) for target in self.handed_back]
        inputs.clear()
        self.replay()
        for target, given in back:
            target.hand_back(given)
        return list(self.outputs)

    def told(self) -> str:
        """What was recorded, for the report."""
        copied = len(self.targets.all)
        text = f"{counted(copied, 'input')} copied in each call, {len(self.static)} in place, {self.seconds:.2f} s"
        if self.misaligned:
            names = listed(name_at(self.names, index) for index in self.misaligned)
            text += f"; copied although static, since they do not start on 16 bytes: {names}"
        return text

    def _check(self, inputs: list[Any]) -> None:
        if len(inputs) != self.count:
            raise UsageError(
                "the recorded CUDA graph cannot be replayed", f"it takes {counted(self.count, 'input')} and got {len(inputs)}", ""
            )
        for index, place in zip(self.static, self._places, strict=True):
            if inputs[index].data_ptr() != place:
                raise UsageError(
                    "the recorded CUDA graph cannot be replayed",
                    f"{name_at(self.names, index)} was recorded as staying in place, and its memory has moved since",
                    "write to it in place (copy_), or set triton.cudagraph_trees to True, where it is recorded again, "
                    "or compile again after torch.compiler.reset()",
                )
        self.targets.check_sizes(inputs)
