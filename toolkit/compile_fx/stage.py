"""The stages of a compile, in their order: the one list. What a stage does is in `stages/<home>.py`, `NAME(work,
pipeline)`.

Imports no torch: help, completion and `--until` read the names here.

>>> STAGES["lower"].needed
'the scheduler takes the loops that lowering makes of each node'
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ...dumps.errors import UnknownWordError


@dataclass(frozen=True)
class Stage:
    """One stage. `needed`: why it cannot be skipped, None where it can. `rewrites`: it turns a graph into a graph."""

    name: str
    home: str
    does: str
    needed: str | None = None
    rewrites: bool = False


_ALL = (
    Stage("pre_grad", "graphs", "rewrites Dynamo's graph before autograd sees it", rewrites=True),
    Stage("capture", "graphs", "traces through autograd, functionalises and decomposes (AOTAutograd)",
          "what follows takes ATen graphs alone, and this stage makes them"),
    Stage("joint", "graphs", "rewrites the joint forward and backward graph, or the inference graph", rewrites=True),
    Stage("partition", "graphs", "splits the joint graph into forward and backward (min-cut)",
          "forward and backward are compiled apart, and this stage takes them apart"),
    Stage("post_grad", "graphs", "views to reshapes, fake values, then the passes on the graph that is lowered",
        rewrites=True),
    Stage("lower", "code", "turns each node into loops or a call of a library",
          "the scheduler takes the loops that lowering makes of each node"),
    Stage("schedule", "code", "orders the loops and fuses them into kernels", "code is generated from what the "
        "scheduler made"),
    Stage("codegen", "code", "writes the kernels and the wrapper that calls them",
        "without code there is nothing to load"),
    Stage("load", "load", "compiles what has to be compiled and loads it", "without it there is nothing to call"),
    Stage("align", "calls", "copies inputs that do not start on 16 bytes where kernels rely on it (GPU)"),
    Stage("cudagraphs", "calls", "records the call as a CUDA graph and replays it, where asked for and possible"),
)  # fmt: skip

STAGES = {stage.name: stage for stage in _ALL}
"""Name -> stage, in order."""
NAMES = tuple(STAGES)


def reaches(until: str | None, stage: str) -> bool:
    """Whether a compile that stops after `until` (None, "": at the end) runs a stage."""
    return not until or order(until) >= order(stage)


def order(name: str) -> int:
    """The place of a stage in the list. Raises UsageError for a name that is none."""
    if name in STAGES:
        return NAMES.index(name)
    near = difflib.get_close_matches(name, NAMES, 1)
    raise UnknownWordError(
        f"no stage is called {name!r}",
        f"the stages are {', '.join(NAMES)}",
        f"did you mean {near[0]!r}?" if near else "",
    )


_FIRST = {
    "dynamo": "pre_grad",
    "pre_grad": "capture",
    "compiled_autograd": "capture",
    "joint": "joint",
    "inference": "joint",
    "joint_passed": "post_grad",
    "forward": "post_grad",
    "backward": "post_grad",
}


def first_stage(recorded: str, *, training_joint: bool = False) -> str:
    """The first stage that runs for a graph recorded at `recorded`."""
    if recorded == "joint_passed" and training_joint:
        return "partition"
    return _FIRST.get(recorded, "lower")
