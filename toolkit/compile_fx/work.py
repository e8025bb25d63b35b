"""What the stages of one part of a compile hand on to each other.

A part is what is compiled as one graph: "dynamo" before it is traced, "joint" until it is split, then "forward" and
"backward", or "inference" where there is no backward. Imports no torch.

>>> work = Work("inference", gm, inputs)
>>> work.kwargs["static_input_idxs"] = [0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Work:
    """The state of one part.

    `gm` is replaced by stages that rewrite; `inputs` are example inputs, mostly fake; `kwargs` are the arguments of
    Inductor's inner compiler (capture: of AOTAutograd, partition: of the partitioner), by their own names.
    """

    part: str
    gm: Any
    inputs: Sequence[Any]
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    skip_invoke_subgraph: bool = False
    """For joint: graphs of invoke_subgraph have had these passes already."""
    compile_region_name: str | None = None
    at_end: Callable[[Work], None] | None = None
    """For joint: freezing, which comes behind the passes."""
    export: Callable[[Work], None] | None = None
    """For capture, ahead of time: what captures an inference graph for a library."""
    halves: tuple[Any, Any] | None = None
    """After partition: forward and backward."""
    inputs_to_check: Sequence[int] = ()
    """Indices of inputs whose start has to be looked at in each call."""
    fake_mode: Any = None
    shape_env: Any = None
    runnable: str = ""
    """Torch's own text of a script that compiles this graph, kept in its caches."""
    post_grad_text: str = ""
    lowering: Any = None
    """After lower: torch's GraphLowering, the handler `V.graph`."""
    output_strides: list[Any] = field(default_factory=list[Any])
    metrics: Any = None
    counters_before: Any = None
    """Inductor's metrics and counters, of which a cache keeps what this compile added."""
    const_lowering: Any = None
    """Ahead of time: the lowering of the part that only depends on constants."""
    wrapper_code: Any = None
    kernel_code: Any = None
    module: Any = None
    call: Callable[..., Any] | Any = None
    """After load: the generated entry, or ahead of time the path of the library."""
    compiled: Any = None
    """What torch calls an OutputCode; a callable that takes one list."""
    constants: Any = None
    to_align: Sequence[int] = ()
    """After align: inputs that a wrapper looks at before each call, if nothing is recorded."""
    tell_align: Callable[[str], None] | None = None
    recorded: bool = False
    """After cudagraphs: calls are recorded, and a recording sees to its inputs itself."""
    cache: str = "off"
    """What the FX graph cache said: off, bypass, miss or hit, with the reason or the key behind it."""
    cache_detail: str = ""
    made: tuple[int, str] | None = None
    """How much the last stage made, and of what: 64 "buffers", 19 "kernels", 812 "lines"."""
    notes: list[str] = field(default_factory=list[str])
    """Sentences for the report: why CUDA graphs were not used, what was frozen."""
    open: ExitStack = field(default_factory=ExitStack)
    """Contexts that stay entered from lower to load."""
