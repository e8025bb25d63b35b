# pyright: basic, reportPrivateImportUsage=false
# ruff: noqa: F401
"""The private names of AOTAutograd that capture calls, and nowhere else in this package.

`torch.export` is public, but traces no backward and refuses much of what `torch.compile` takes; `make_fx` is public and knows
neither mutations nor aliases. All were read and run on 2.11.0 and 2.13.0; where these differ, the difference is here.

>>> from . import _torch as t
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo import compiled_autograd
from torch._dynamo.source import ConstantSource
from torch._dynamo.utils import assert_no_fake_params_or_buffers
from torch._functorch import aot_autograd as stock
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import graph_capture
from torch._functorch._aot_autograd.descriptors import BufferAOTInput, InputMutationAOTOutput, PlainAOTOutput
from torch._functorch._aot_autograd.functional_utils import (
    assert_functional_graph,
    propagate_input_mutation_stacktraces,
)
from torch._functorch._aot_autograd.graph_capture_wrappers import (
    aot_dispatch_subclass,
    create_functionalized_fn,
    create_joint,
    fn_input_mutations_to_outputs,
    fn_prepped_for_autograd,
    handle_effect_tokens_fn,
)  # fmt: skip
from torch._functorch._aot_autograd.graph_compile import _create_wrappers_for_dispatch as wrappers_for_dispatch
from torch._functorch._aot_autograd.runtime_wrappers import pre_compile
from torch._functorch._aot_autograd.schemas import OutputType
from torch._functorch._aot_autograd.utils import copy_fwd_metadata_to_bw_nodes, simple_wraps, unlift_tokens
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils import _pytree as pytree

CHECKED = ("2.11.0", "2.13.0")
Prepared = tuple[Any, Any, Any, Any, Any, Any, Any, Any]

_STREAM_STEPS = (
    "assign_backward_streams", "assign_epilogue_copy_streams", "insert_backward_syncs", "sync_deallocations",
    "wrap_all_sync_nodes_with_control_deps",
)  # fmt: skip
"""What a joint graph with streams of its own goes through, in this order, as far as this torch has it."""


def prepare(
    module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any], decompositions: Any, keep_mutations: bool
) -> Prepared:
    """Parameters lifted, arguments flattened and made fake: (function, fakes, descriptions, config, mode, symbols, in, out)."""
    call: Any = stock.prepare_aot_module_simplified
    device = [None] if "boxed_forward_device_index" in inspect.signature(call).parameters else []
    made = call(
        module, tuple(args), kwargs, decompositions, keep_mutations, *device, False, flatten=True,
        force_non_lazy_backward_lowering=True,
    )  # fmt: skip
    function, _, _, _, fakes, described, config, mode, symbols, in_spec, out_spec = made[:11]
    return function, fakes, described, config, mode, symbols, in_spec, out_spec


def state(stack: contextlib.ExitStack, prepared: Prepared) -> Any:
    """AOTAutograd's state: what is mutated and aliased, whether a backward is needed. Its contexts stay entered on `stack`."""
    call, fakes, described, config, mode, symbols, _, _ = prepared
    stack.enter_context(compiled_autograd._disable())
    return stock.create_aot_state(stack, call, fakes, described, config, mode, symbols)


def trace(function: Callable[..., Any], args: Any, described: Any, config: Any) -> Any:
    """The function as a graph of ATen operators, its placeholders and output described in `meta["desc"]`."""
    return graph_capture._create_graph(function, args, described, aot_config=config)


def detached(args: Any) -> Any:
    """The arguments as they were before tracing, which may change their metadata."""
    return pytree.tree_map_only(torch.Tensor, graph_capture._detach_and_copy_item_memo, args)


def order_streams(gm: Any, metadata: Any, *, joint: bool) -> None:
    """Streams and their waits as AOTAutograd places them. Graphs of one stream are left as they are."""
    for name in _STREAM_STEPS if joint else ("assign_epilogue_copy_streams", "wrap_all_sync_nodes_with_control_deps"):
        step = getattr(graph_capture, name, None)
        if step is not None:
            step(gm)
    getattr(graph_capture, "populate_fw_metadata_with_stream_indices", lambda *_: None)(gm, metadata)
    if joint:
        getattr(graph_capture, "_extract_tangent_source_stack_traces", lambda *_: None)(gm, metadata)


def repro_modules() -> tuple[Any, Any, Any]:
    """Torch's own repro tools, whose `run_repro` a script calls at its end: after AOTAutograd, after Dynamo, ahead of time."""
    from torch._dynamo.repro import after_aot, after_dynamo, aoti

    return after_aot, after_dynamo, aoti


def input_reader(save_dir: str | None) -> Any:
    """What a repro script's `load_args` fills: values from `save_dir` where they are kept, else random ones."""
    from torch._dynamo.debug_utils import InputReader

    return InputReader(save_dir=save_dir)


TRACED = (FakeTensor, FunctionalTensor)
"""Tensors that exist only while tracing."""


def tracer_at_work() -> Any:
    """The tracer of the `make_fx` that is running; None outside one."""
    mode = get_proxy_mode()
    return None if mode is None else mode.tracer


def node_name_of(value: torch.Tensor) -> str | None:
    """The node that made a tensor in the graph that is being traced; None where none did."""
    tracer = tracer_at_work()
    plain = value.from_functional() if isinstance(value, FunctionalTensor) else value
    made = None if tracer is None else get_proxy_slot(plain, tracer, None)
    return None if made is None else made.proxy.node.name


def running_autograd_number() -> int | None:
    """The sequence number of the autograd node that is running; None in a forward. (Its public form is in C++ only.)"""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def last_autograd_number() -> int:
    """The sequence number of the autograd node that was made last."""
    return torch.autograd._get_sequence_nr() - 1


def buffer_mutation(name: str) -> Any:
    """The description of a buffer's new value."""
    return InputMutationAOTOutput(BufferAOTInput(name))


def mark_mutated(metadata: Any, place: int) -> None:
    """Says that an input's data are written."""
    metadata.input_info[place] = dataclasses.replace(metadata.input_info[place], mutates_data=True)
    metadata.num_mutated_inp_runtime_indices += 1


def set_inductor(name: str, value: Any) -> bool:
    """Changes a setting of Inductor for good; False where this torch has none of that name."""
    from torch._inductor import config

    try:
        config.patch({name: value}).__enter__()
    except (KeyError, AttributeError):
        return False
    return True
