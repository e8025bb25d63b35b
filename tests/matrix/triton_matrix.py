"""The interpreter against eager: the twenty models' graphs at each stage, kernel for kernel with no GPU.

    python -m tests.matrix.triton_matrix                                 # every model: dynamo, joint, forward, backward
    python -m tests.matrix.triton_matrix gru unet --ways dynamic,bfloat16
    python -m tests.matrix.triton_matrix --stages backward

`ways`: static (recorded sizes as numbers), dynamic (their symbols kept), bfloat16 (the step under autocast). "agrees"
is the judge's verdict: outputs, gradients and changed inputs against eager and float64. Error: the largest relative
error of an output, to float64 where there is a reference. Exit code: 1 if any graph disagrees.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from graphdbg.dumps.schema import Ambient
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.eager import clone_inputs, run_graph
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs.triton_interpret import TritonInterpret
from graphdbg.toolkit.triton.interpreting.session import Interpretation, InterpretedLaunch, LaunchObserver
from tests.models.triton_graphs import MODELS, Graph, graphs_of

WAYS: dict[str, dict[str, Any]] = {"static": {}, "dynamic": {"dynamic": True}, "bfloat16": {"autocast": torch.bfloat16}}
STAGES = ("dynamo", "joint", "forward", "backward", "inference")
HEAD = ("model", "way", "stage", "kernels", "launches", "programs", "agrees", "error", "interpreter s", "eager s")


UNTRACED = {("graph_convolution", "bfloat16")}
"""What torch itself refuses: a scatter of two types."""


class Counting(LaunchObserver):
    """Counts what ran."""

    def __init__(self) -> None:
        self.kernels: set[str] = set()
        self.launches = self.programs = 0

    def before(self, launch: InterpretedLaunch) -> None:
        self.kernels.add(launch.kernel)
        self.launches += 1
        self.programs += launch.grid[0] * launch.grid[1] * launch.grid[2]


class Counted(TritonInterpret):
    """The rung, with a count of its last run."""

    def session(self) -> Interpretation:
        self.count = Counting()
        return Interpretation(self.count)


@dataclass
class Row:
    """One graph's line."""

    graph: Graph
    way: str
    verdict: str
    count: Counting
    error: float | None
    seconds: float
    eager_s: float

    @property
    def agrees(self) -> bool:
        """Whether nothing was wrong, and something was compared."""
        return self.verdict == "ok"

    def cells(self) -> list[str]:
        """The line's words."""
        error = "-" if self.error is None else f"{self.error:.1e}"
        count = [str(item) for item in (len(self.count.kernels), self.count.launches, self.count.programs)]
        return [
            self.graph.model,
            self.way,
            self.graph.stage,
            *count,
            "yes" if self.agrees else self.verdict[:200],
            error,
            f"{self.seconds:.1f}",
            f"{self.eager_s:.3f}",
        ]


def rows(model: str, way: str, stages: tuple[str, ...] = STAGES) -> Iterator[Row]:
    """The lines of one model. Each stage is judged on graphs of its own: a compile adds to the symbols that graphs
    share."""
    if (model, way) in UNTRACED:
        return
    present = [index for index, item in enumerate(graphs_of(model, **WAYS[way])) if item.stage in stages]
    for index in present:
        yield row(graphs_of(model, **WAYS[way])[index], way)


def row(graph: Graph, way: str = "static") -> Row:
    """Judges one graph."""
    began = time.perf_counter()
    run_graph(graph.gm, clone_inputs(graph.inputs))
    eager_s = time.perf_counter() - began
    rung = Counted()
    ambient = Ambient(autocast={"cpu": "bfloat16"} if way == "bfloat16" and graph.stage == "dynamo" else {})
    spec = ReplaySpec(graph.stage, graph.kwargs, ambient, dynamic=graph.dynamic)
    outcome = judge(Live(graph.gm, graph.inputs, spec), rung)
    errors = [error.rung for error in outcome.errors if error.rung is not None]
    count = getattr(rung, "count", Counting())
    return Row(graph, way, outcome.text, count, max(errors, default=None), outcome.seconds, eager_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--ways", default="static,dynamic,bfloat16")
    parser.add_argument("--stages", default=",".join(STAGES))
    asked = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    built: list[Row] = []
    for model in asked.models or list(MODELS):
        for way in asked.ways.split(","):
            for item in rows(model, way, tuple(asked.stages.split(","))):
                print("| " + " | ".join(item.cells()) + " |", flush=True)
                built.append(item)
    right = sum(item.agrees for item in built)
    programs = sum(item.count.programs for item in built)
    launches = sum(item.count.launches for item in built)
    print(f"\n{right} of {len(built)} graphs agree with eager; {programs} programs of {launches} launches")
    sys.exit(0 if right == len(built) else 1)


if __name__ == "__main__":
    main()
