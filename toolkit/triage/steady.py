# pyright: basic
"""What one execution of a graph takes in the steady state, compiled and in eager, turn by turn in one process: each is
the other's control.

For example: `steady(saved, server, How())` gives `Steady(compiled_s=0.00042, eager_s=0.0011, rounds=30, clear=True)`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

from ..isolation import ForkServer, ask
from ..replaying.replay import How

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

TASK = f"{__name__}:task"
ROUNDS, WARM, BUDGET_S = 30, 3, 10.0
FACTOR, LEAST_S = 1.2, 1e-3
"""Compiled code is slow where it takes so many times eager's time, and so much more."""


class Steady(NamedTuple):
    """Medians. `clear`: whether the slower one's quick runs are slower than the other's slow ones (quartiles).
    `without_s`: compiled without the work-around that was asked for; None where that does not compile. `compile_s`: of
    the compile, with that of a backward."""

    compiled_s: float
    eager_s: float
    rounds: int
    clear: bool
    without_s: float | None = None
    compile_s: float = 0.0

    @property
    def slow(self) -> bool:
        """Whether compiled code is slower than eager beyond chance."""
        return self.clear and self.compiled_s > FACTOR * self.eager_s and self.compiled_s - self.eager_s > LEAST_S


def steady(saved: SavedGraph, server: ForkServer, how: How, lines: str = "") -> Steady | None:
    """The measurement of a graph with its backward, if it has one; None where it cannot be run so. `lines`: a
    work-around of ours to run first."""
    answer = ask(TASK, {**how.payload(saved), "lines": lines}, how.limit_s, server=server).answer()
    return Steady(**answer.value) if answer.status == "done" else None


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """What the child does."""
    from ..live.case import Case
    from ..live.eager import clone_inputs, copy_graph
    from ..live.entries import shared_fakes
    from ..live.execution import Attributes, execute
    from ..live.spec import FULL_STAGES, in_force, no_caches, settings
    from ..rungs import rung

    live = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    gm, spec = live.gm, live.spec
    backward = spec.stage in FULL_STAGES and spec.ambient.grad and not spec.ambient.inference_mode
    attributes = Attributes(gm)
    inductor = rung("inductor")

    def timed(run: Any) -> float:
        parameters = [parameter for parameter in gm.parameters() if parameter.requires_grad] if backward else []
        inputs = clone_inputs(live.inputs)
        began = time.perf_counter()
        execute(run, inputs, seed=0, backward=backward, parameters=parameters)
        took = time.perf_counter() - began
        attributes.restore()
        return took

    def built() -> Any:
        copied = copy_graph(gm)
        return inductor.build(copied, shared_fakes(copied, live.inputs, spec.dynamic, False)[0], spec)

    with settings(spec.config), no_caches(), in_force(spec), inductor.around(gm, spec):
        runs = [partial(_called, gm)]
        if payload["lines"]:
            with suppress(Exception):  # what the work-around is for
                timed(before := built())
                runs.append(before)
        exec(payload["lines"], {})
        began = time.perf_counter()
        runs.insert(0, built())
        compile_s = time.perf_counter() - began + timed(runs[0])
        for run in runs * WARM:
            timed(run)
        taken: list[list[float]] = [[] for _ in runs]
        until = time.monotonic() + BUDGET_S
        while len(taken[0]) < WARM or (len(taken[0]) < ROUNDS and time.monotonic() < until):
            for run, times in zip(runs, taken, strict=True):
                times.append(timed(run))
    (fast, _, slow), (fast_eager, _, slow_eager) = (quantiles(times, n=4) for times in taken[:2])
    return {
        "compiled_s": median(taken[0]),
        "eager_s": median(taken[1]),
        "rounds": len(taken[0]),
        "clear": fast > slow_eager or fast_eager > slow,
        "without_s": median(taken[2]) if len(taken) > 2 else None,
        "compile_s": compile_s,
    }


def _called(gm: Any, inputs: list[Any]) -> list[Any]:
    from ..live.execution import leaves

    return leaves(gm(*inputs))
