"""The stages of a compile: the one table, in their order, and what they hand on to each other.

A stage is the function of its name in the module `home`. It takes the part that is compiled (`Work`) and, after it, the
fields of the part that its row names in `takes`; what it returns becomes the field `gives`. Part, options and what each
stage makes are small records with torch's own types.

`Pipeline.run` looks a stage up here, hands it what it takes and keeps what it gives. When each runs is torch's order:
`entering` runs capture, which calls the stages of Dynamo's and of the joint graph (`capturing`); for each half `inner`
runs post_grad to load where the cache has nothing, then `calls` runs align and cudagraphs, also for graphs that
AOTAutograd's cache had.

Imports no torch: help, completion and `--until` read the names here.

>>> STAGES["lower"].needed
'the scheduler takes the loops that lowering makes of each node'
>>> STAGES["lower"].takes, STAGES["lower"].gives
(('options', 'prepared'), 'lowered')
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...dumps.errors import UnknownWordError

if TYPE_CHECKING:
    from torch.fx import GraphModule
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from .. import torch_private as t


@dataclass(frozen=True)
class Stage:
    """One stage. `part`: the graph that it works on: Dynamo's, the joint one (of inference: the whole one), or one
    half.

    `calls`: the functions of torch that do the work. `unit`: the unit of its result, "" where that is not counted.
    `graphs`: recorded stages whose graphs this stage still has to process, the nearest first. `needed`: why it cannot
    be skipped, None where it can. `rewrites`: it turns a graph into a graph.
    """

    name: str
    part: str
    home: str
    does: str
    calls: tuple[str, ...]
    takes: tuple[str, ...] = ()
    gives: str = ""
    unit: str = ""
    graphs: tuple[str, ...] = ()
    needed: str | None = None
    rewrites: bool = False


_ALL = (
    Stage("pre_grad", "dynamo", "graphs", "rewrites Dynamo's graph before autograd sees it",
          calls=("pre_grad_passes",), gives="gm", unit="nodes", graphs=("dynamo",), rewrites=True),
    Stage("capture", "dynamo", "graphs", "traces through autograd, functionalises and decomposes (AOTAutograd)",
          calls=("aot_autograd", "aot_export_module"), takes=("options",), gives="captured", unit="nodes",
          graphs=("pre_grad", "dynamo", "compiled_autograd"),
          needed="what follows takes ATen graphs alone, and this stage makes them"),
    Stage("joint", "joint", "graphs", "rewrites the joint forward and backward graph, or the inference graph",
          calls=("joint_graph_passes",), takes=("options",), gives="gm", unit="nodes",
          graphs=("joint", "inference", "pre_grad", "dynamo"), rewrites=True),
    Stage("partition", "joint", "graphs", "splits the joint graph into forward and backward (min-cut)",
          calls=("min_cut_rematerialization_partition",), takes=("options",), gives="halves", unit="nodes",
          graphs=("joint", "joint_passed", "pre_grad", "dynamo"),
          needed="forward and backward are compiled apart, and this stage takes them apart"),
    Stage("post_grad", "half", "graphs", "views to reshapes, fake values, then the passes on the graph that is lowered",
          calls=("view_to_reshape", "fake_tensor_prop", "post_grad_passes"), takes=("options",), gives="prepared",
          unit="nodes", graphs=("forward", "backward", "inference", "joint", "dynamo"), rewrites=True),
    Stage("lower", "half", "code", "turns each node into loops or a call of a library",
          calls=("GraphLowering", "split_const_gm"), takes=("options", "prepared"), gives="lowered", unit="buffers",
          needed="the scheduler takes the loops that lowering makes of each node"),
    Stage("schedule", "half", "code", "orders the loops and fuses them into kernels",
          calls=("init_wrapper_code", "_update_scheduler"), takes=("lowered",), unit="groups",
          needed="code is generated from what the scheduler made"),
    Stage("codegen", "half", "code", "writes the kernels and the wrapper that calls them",
          calls=("scheduler.codegen", "wrapper_code.generate"), takes=("lowered",), gives="coded", unit="lines",
          needed="without code there is nothing to load"),
    Stage("load", "half", "code", "compiles what has to be compiled and loads it",
          calls=("_compile_to_module_lines", "AotCodeCompiler", "CompiledFxGraph", "CompiledAOTI"),
          takes=("options", "prepared", "lowered", "coded"), gives="compiled",
          needed="without it there is nothing to call"),
    Stage("align", "half", "calls", "copies inputs that do not start on 16 bytes where kernels rely on it (GPU)",
          calls=("clone_preserve_strides",), takes=("compiled",), gives="aligned"),
    Stage("cudagraphs", "half", "calls",
          "records the call as a CUDA graph and replays it, where asked for and possible",
          calls=("cudagraphify_impl", "customized_partition_wrapper"), takes=("options", "compiled"),
          gives="recorded"),
)  # fmt: skip

STAGES = {stage.name: stage for stage in _ALL}
"""Name -> stage, in order."""
NAMES = tuple(STAGES)
REWRITING = tuple(stage.name for stage in _ALL if stage.rewrites)
"""The stages that consist of passes."""


def reaches(until: str | None, stage: str) -> bool:
    """Whether a compile that stops after `until` (None, "": at the end) runs a stage."""
    return not until or order(until) >= order(stage)


def order(name: str) -> int:
    """The place of a stage in the list. Raises UsageError for a name that is none."""
    if name in STAGES:
        return NAMES.index(name)
    near = difflib.get_close_matches(name, NAMES, 1)
    fix = f"did you mean {near[0]!r}?" if near else ""
    raise UnknownWordError(f"no stage is called {name!r}", f"the stages are {', '.join(NAMES)}", fix)


def first_stage(recorded: str, *, training_joint: bool = False) -> str:
    """The first stage that runs for a graph recorded at `recorded`."""
    if recorded == "joint_passed":
        return "partition" if training_joint else "post_grad"
    return next((stage.name for stage in _ALL if recorded in stage.graphs), "lower")


@dataclass(frozen=True)
class CaptureOptions:
    """Options of Dynamo's part: AOTAutograd's `arguments`; ahead of time `export`, which captures an inference graph
    for a library. A hit of AOTAutograd's cache is noted in `caches`, the pipeline's."""

    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    export: Callable[[Work], None] | None = None
    caches: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


@dataclass(frozen=True)
class JointOptions:
    """Options of a joint graph. `arguments`: the partitioner's; `skip_invoke_subgraph`: graphs of invoke_subgraph have
    had the passes already; `at_end`: freezing, which runs after the passes and takes graph, inputs and notes."""

    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    skip_invoke_subgraph: bool = False
    at_end: Callable[[GraphModule, Sequence[Any], list[str]], None] | None = None


@dataclass(frozen=True)
class InnerOptions:
    """Options of one half, or of an inference graph. `arguments`: those of Inductor's inner compiler, by their own
    names, of which a key of its caches is made; `to_check`: inputs whose alignment each call has to check; `constants`:
    torch's, of the graph before its passes; `region`: the name that the user gave it; `open`: contexts that stay
    entered from lower to load."""

    arguments: dict[str, Any]
    constants: Any = None
    to_check: Sequence[int] = ()
    region: str | None = None
    open: ExitStack = field(default_factory=ExitStack)


@dataclass(frozen=True)
class Prepared:
    """A graph that can be lowered: with fake values, sizes and strides on its nodes.

    `runnable` is torch's text of a script that compiles the graph, `text` the graph after its passes; torch's caches
    keep both. `counted`: Inductor's counters before the compile, because a cache keeps what this compile added.
    """

    fake_mode: t.FakeTensorMode
    shape_env: ShapeEnv | None
    runnable: str
    text: str
    counted: Counter[str]


@dataclass(frozen=True)
class Lowered:
    """`graph` is torch's lowering, the handler `V.graph`; `strides` of the outputs as texts; `metrics` since it began.

    `constants`: ahead of time the lowering of the part that depends on constants alone.
    """

    graph: t.GraphLowering
    strides: Sequence[tuple[str, ...] | None]
    metrics: Any
    constants: t.GraphLowering | None


@dataclass(frozen=True)
class Coded:
    """The wrapper, with `.value`, its text, and the kernels, which are apart only ahead of time."""

    wrapper: Any
    kernels: Any


@dataclass(frozen=True)
class Aligned:
    """Inputs that a wrapper looks at before each call, if nothing is recorded; `tell` gets a sentence for each copy."""

    to_check: Sequence[int] = ()
    tell: Callable[[str], None] | None = None


@dataclass(eq=False)
class Work:
    """One part of a compile, and what its stages have made of it so far.

    A part is what is compiled as one graph: "dynamo" before it is traced, "joint" until it is split, then "forward" and
    "backward", or "inference" where there is no backward. `inputs` are example inputs, mostly fake. `notes` are the
    sentences of the stage that runs, for its report: why CUDA graphs were not used, what was frozen.
    """

    part: str
    gm: GraphModule
    inputs: Sequence[Any]
    options: CaptureOptions | JointOptions | InnerOptions = field(default_factory=JointOptions)
    notes: list[str] = field(default_factory=list[str])
    produced: tuple[int, str] | None = None
    """How much the last stage made, and of what: 64 "buffers", 19 "kernels", 812 "lines"."""
    captured: Any = None
    """A callable, or ahead of time nothing: `gm` is the captured graph then."""
    halves: tuple[GraphModule, GraphModule] | None = None
    prepared: Prepared | None = None
    lowered: Lowered | None = None
    coded: Coded | None = None
    compiled: t.OutputCode | None = None
    """A callable that takes one list; ahead of time with the path of the library."""
    aligned: Aligned | None = None
    recorded: bool = False
    """Whether calls are recorded as CUDA graphs; a recording then aligns its inputs itself."""
