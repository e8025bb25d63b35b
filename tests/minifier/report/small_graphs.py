"""Random small graphs with a fault planted in an operator, silu, or in their constants, at a rung that needs no C++
compiler.

What makes repros hard is in them: constants of no dimension and of several, views, writes in place to what is given,
inputs that lie in one memory, graphs that return nothing.

>>> gm, inputs, stage = small_graph(7)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Lock
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.live.eager import clone_inputs
from graphdbg.toolkit.verdicts.signature import Signature

FAULTS: dict[str, tuple[str, Signature]] = {
    "planted_decomposition": ("decomposed", Signature("accuracy", "compare", size=0.01)),
    "planted_raising_decomposition": ("decomposed", Signature("crash", "compile", "ZeroDivisionError")),
    "planted_nan_decomposition": ("decomposed", Signature("nan", "compare", detail="nan")),
    "planted_wide_decomposition": ("decomposed", Signature("metadata", "compare", detail="dtype")),
    "planted_printing": ("nop", Signature("accuracy", "compare", size=0.5)),
    "planted_constants": ("nop", Signature("accuracy", "compare", size=0.5)),
    "planted_strides": ("debug_nop", Signature("metadata", "run", detail="stride")),
}
"""Module that plants a fault when it is imported -> the rung that it is in, and how such a failure looks."""

_TRACING = Lock()
"""A tracer is for one thread alone."""

STAGES = ("forward", "inference", "backward", "dynamo")
STEPS = ("add", "mul", "view", "transpose", "slice", "select", "constant", "write", "copy", "sin")


def case_of(seed: int) -> tuple[str, fx.GraphModule, list[torch.Tensor], str]:
    """The fault, the graph, its inputs and the stage of one example."""
    fault = list(FAULTS)[seed % len(FAULTS)]
    gm, inputs, stage = small_graph(seed, constant=fault == "planted_constants")
    if FAULTS[fault][1].kind == "crash":  # what is traced again behind AOTAutograd, and cannot be, is no failure
        stage = "dynamo"
    elif FAULTS[fault][0] != "decomposed" and stage == "dynamo":
        stage = "inference"
    return fault, gm, inputs, stage


def small_graph(seed: int, *, constant: bool = False) -> tuple[fx.GraphModule, list[torch.Tensor], str]:
    """A traced graph of one to four steps around a silu, its inputs, and the stage that it is said to be of.
    `constant`: the first step is one with a constant."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    inputs = _inputs(rng)
    held = [torch.randn(4), torch.tensor(2.5), torch.randn(2, 4)]
    steps = [rng.choice(STEPS) for _ in range(rng.randint(1, 4))]
    steps[:1] = ["constant"] if constant else steps[:1]
    at, picks = rng.randrange(len(steps)), [rng.random() for _ in range(20)]
    empty, several, stage = rng.random() < 0.3, rng.random() < 0.4, rng.choice(STAGES)

    def run(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        known, pick = list(given), iter(picks)
        value = known[int(next(pick) * len(known))]
        for place, step in enumerate(steps):
            if place == at:
                value = torch.ops.aten.silu.default(value)
                known.append(value)
            other = known[int(next(pick) * len(known))]
            value = _taken(step, value, other, given, held[place % len(held)])
            known.append(value)
        if empty and (into := [item for item in given if item.shape[-1:] == value.shape[-1:] or value.dim() == 0]):
            into[0].add_(_apart(value if value.dim() <= into[0].dim() else value[0], into[0]))
            return ()
        return (value, known[-2]) if several else (value,)

    make: Callable[..., fx.GraphModule] = make_fx(run, tracing_mode="fake", _allow_non_fake_inputs=True)
    with _TRACING:
        return make(*clone_inputs(inputs)), inputs, stage


def _inputs(rng: random.Random) -> list[torch.Tensor]:
    """One to three tensors; some are parts of one memory, which may overlap."""
    form = rng.choice(("alone", "two", "halves", "overlapping", "base and part"))
    base = torch.randn(12)
    if form == "two":
        return [torch.randn(2, 4), torch.randn(4)]
    if form == "halves":
        return [base[:8].view(2, 4), base[8:]]
    if form == "overlapping":
        return [base[:8].view(2, 4), torch.randn(2, 4), base[4:12].view(2, 4)]
    if form == "base and part":
        return [base[:8].view(2, 4), base[2:6]]
    return [torch.randn(2, 4)]


def _taken(step: str, value: torch.Tensor, other: torch.Tensor, given: Any, held: torch.Tensor) -> torch.Tensor:
    """The value after one step; as it is where the step does not fit."""
    if step == "add" and other.shape == value.shape:
        return value + other
    if step == "constant" and (held.dim() == 0 or held.shape == value.shape[-held.dim() :]):
        return value * held
    if step == "transpose" and value.dim() == 2:
        return value.t()
    if step == "slice" and value.dim() and value.shape[0] > 1:
        return value[1:]
    if step == "select" and value.dim() == 2:
        return value[0]
    if step in ("write", "copy") and (into := [item for item in given if item.shape == value.shape]):
        apart = _apart(value, into[-1])
        into[-1].copy_(apart) if step == "copy" else into[-1].add_(apart)
        return value
    if step == "mul":
        return value * 2.0
    return torch.sin(value) if step == "sin" else value.reshape(-1) if step == "view" else value


def _apart(value: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """The value, in memory of its own: torch refuses writes of what overlaps."""
    return value.clone() if value.untyped_storage()._cdata == into.untyped_storage()._cdata else value
