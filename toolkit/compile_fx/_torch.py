# pyright: basic, reportPrivateImportUsage=false, reportAttributeAccessIssue=false
# ruff: noqa: F401
"""The private names of Inductor that the compile path calls, and nowhere else in this package.

There is no public way into any of it: `torch.compile` and `torch._inductor.compile` do all of it at once. All were read and
run on 2.11.0 and 2.13.0; where these differ, the difference is here. Importing this module imports Inductor (5-10 s).

>>> from . import _torch as t
>>> t.JOINT_TAKES_DEVICE
True
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch._inductor.async_compile
import torch._inductor.debug
from torch import fx
from torch._dynamo import compiled_autograd
from torch._dynamo import config as dynamo_config
from torch._dynamo import logging as dynamo_logging
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.backends import common as dynamo_common
from torch._dynamo.exc import ShortenTraceback, SkipFrame
from torch._dynamo.repro.after_aot import save_graph_repro
from torch._dynamo.repro.after_aot import wrap_compiler_debug as _wrap_compiler_debug
from torch._dynamo.utils import (
    CompileEventLogger,
    chromium_event_timed,
    counters,
    detect_fake_mode,
    dynamo_timed,
    flatten_graph_inputs,
    get_inputs_devices,
    get_metrics_context,
    lazy_format_graph_code,
    preserve_rng_state,
)  # fmt: skip
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import (
    SerializableAOTDispatchCompiler,
    aot_export_module,
    aot_module_simplified,
    make_boxed_func,
)  # fmt: skip
from torch._functorch.compile_utils import fx_graph_cse
from torch._guards import CompileContext, TracingContext, tracing
from torch._inductor import compile_fx as _stock
from torch._inductor import config, ir, metrics
from torch._inductor import debug as inductor_debug
from torch._inductor.async_compile import AsyncCompile, CompiledTritonKernels
from torch._inductor.codecache import FxGraphCache as _FxGraphCache
from torch._inductor.codecache import code_hash, output_code_log
from torch._inductor.codegen import cpp as codegen_cpp
from torch._inductor.codegen import triton as codegen_triton
from torch._inductor.codegen.common import get_wrapper_codegen_for_device, init_backend_registration
from torch._inductor.constant_folding import ConstantFolder, constant_fold, replace_node_with_constant
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.cpu_vec_isa import VecISA
from torch._inductor.debug import DebugContext, create_mapping_pre_post_grad_nodes, save_args_for_compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.exc import InductorError
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
from torch._inductor.fx_passes.pre_grad import pre_grad_passes
from torch._inductor.graph import GraphLowering
from torch._inductor.graph import log_module_code as _log_module_code
from torch._inductor.ir import IRNode
from torch._inductor.output_code import CompiledAOTI as _CompiledAOTI
from torch._inductor.output_code import CompiledFxGraph as _CompiledFxGraph
from torch._inductor.output_code import (
    CompiledFxGraphConstantsWithGm,
    OutputCode,
    set_tracing_context_output_strides,
)  # fmt: skip
from torch._inductor.runtime.runtime_utils import cache_dir
from torch._inductor.triton_bundler import TritonBundler
from torch._inductor.utils import (
    BoxedBool,
    ValueWithLineMap,
    any_is_symbolic,
    count_tangents,
    get_all_devices,
    get_first_incompatible_cudagraph_node,
    is_gpu,
    num_fw_fixed_arguments,
    shape_env_from_inputs,
    should_use_remote_fx_graph_cache,
)  # fmt: skip
from torch._inductor.utils import output_node as _output_node
from torch._inductor.virtualized import V as _handlers
from torch._logging import trace_structured
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses import FakeTensorMode
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.symbolic_shapes import SymExprPrinter, free_unbacked_symbols
from torch.fx.graph import CodeGen
from torch.fx.graph import _PyTreeCodeGen as PyTreeCodeGen
from torch.utils import _pytree as pytree
from torch.utils._ordered_set import OrderedSet
from torch.utils._python_dispatch import _disable_current_modes as modes_off
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

distributed_autotune: Any = None
with contextlib.suppress(ImportError):  # not in every torch
    from torch._inductor import distributed_autotune

# Their signatures differ between torches, or torch does not type them: what is called is looked at here, not by a type checker.
V: Any = _handlers
stock: Any = _stock
log_module_code: Any = _log_module_code
CompiledAOTI: Any = _CompiledAOTI
CompiledFxGraph: Any = _CompiledFxGraph
wrap_compiler_debug: Any = _wrap_compiler_debug
output_node: Any = _output_node
FxGraphCache: Any = _FxGraphCache

CHECKED = ("2.11.0", "2.13.0")


def _takes(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters


AOT_RUNS_PRE_GRAD = _takes(aot_module_simplified, "pre_grad_passes")
"""Whether AOTAutograd calls the pre-grad passes itself, behind its cache (2.13), or they come before it (2.11)."""
AOT_TAKES_EXTRA = _takes(aot_module_simplified, "compiler_config_extra")
AOT_TAKES_REGION = _takes(aot_module_simplified, "compile_region_name")
JOINT_TAKES_DEVICE = _takes(joint_graph_passes, "input_device")
INNER_TAKES_DECOMPOSITIONS = _takes(GraphLowering.__init__, "get_decomp_fn")
OUTPUT_TAKES_REGION = _takes(CompiledFxGraph.__init__, "compile_region_name")
PATCHES_CPP_WRAPPER = _takes(stock.get_cpp_wrapper_config, "log_cudagraph_skip")
"""Whether the inner compiler sets the C++ wrapper's configuration again, for backwards that are compiled later."""


def config_extra(gm: Any) -> Any:
    """What the compiles of one graph share: the cudagraphs box, the graph's number, the forward's device."""
    make = stock.create_compiler_config_extra
    return make(gm) if _takes(make, "gm") else make(config)


@contextlib.contextmanager
def around_whole() -> Iterator[None]:
    """The context of a whole compile, as stock's."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    with (
        _use_lazy_graph_module(dynamo_config.use_lazy_graph_module),
        enable_python_dispatcher(),
        torch.fx.traceback.preserve_node_meta(config.trace.provenance_tracking_level == 1),
        torch._inductor.debug.reset_provenance_globals(),
    ):
        yield


@contextlib.contextmanager
def around_inner(kwargs: dict[str, Any]) -> Iterator[None]:
    """The context of one inner compile, as stock's; a backward may enter it long after the whole compile has ended."""
    from torch.fx._lazy_graph_module import _use_lazy_graph_module
    from torch.utils._python_dispatch import _disable_current_modes

    with contextlib.ExitStack() as stack:
        if kwargs["cpp_wrapper"] and PATCHES_CPP_WRAPPER:
            stack.enter_context(config.patch(stock.get_cpp_wrapper_config(log_cudagraph_skip=False)))
        stack.enter_context(_disable_current_modes())
        stack.enter_context(_use_lazy_graph_module(dynamo_config.use_lazy_graph_module))
        stack.enter_context(
            dynamo_timed(
                "compile_fx_inner", phase_name="inductor_compile", log_pt2_compile_event=True, log_waitcounter=True,
                waitcounter_name_override="compile_inductor",
                dynamo_compile_column_us="inductor_cumulative_compile_time_us",
            )
        )  # fmt: skip
        stack.enter_context(stock.with_fresh_cache_if_config())
        stack.enter_context(DebugContext())
        CompileEventLogger.pt2_compile("inductor_compile", is_backward=kwargs["is_backward"])
        yield


def subgraph_names(gm: fx.GraphModule, skip_invoke_subgraph: bool = False) -> list[str]:
    """Graphs inside a graph that one of its nodes refers to."""
    return list(stock._get_subgraph_names(gm, skip_invoke_subgraph))


def text_of(gm: fx.GraphModule, **options: Any) -> str:
    """Readable code of a graph with strides and devices."""
    return gm.print_readable(print_output=False, include_stride=True, include_device=True, **options)


def trace_text(name: str, make: Callable[[], str], encoding: str = "string") -> None:
    """One artifact of torch's structured trace."""
    trace_structured("artifact", metadata_fn=lambda: {"name": name, "encoding": encoding}, payload_fn=make)


@contextlib.contextmanager
def on_device_of(gm: fx.GraphModule) -> Iterator[None]:
    """The CUDA device of a graph that has one."""
    with stock.get_cuda_device_context(gm):
        yield


def deeper_recursion() -> None:
    """Deep models need it; never lowered."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2000))


@functools.cache
def step_log() -> Callable[..., None]:
    """Torch's numbered log of a compile's steps."""
    return dynamo_logging.get_step_logger(stock.log)


def freezing() -> Any:
    """Torch's passes that freeze, with their patterns: imported when something is frozen."""
    from torch._inductor import freezing, freezing_utils
    from torch._inductor.fx_passes.freezing_patterns import freezing_passes

    return freezing, freezing_utils, freezing_passes


def autocast_off() -> contextlib.AbstractContextManager[None]:
    """Autocast off for all devices at once; public contexts know one device each."""
    return torch._C._DisableAutocast() if torch._C._is_any_autocast_enabled() else contextlib.nullcontext()


def ahead() -> Any:
    """What only a compile ahead of time needs of export and packaging, imported then."""
    from torch._export.utils import _compiling_state_context, _detect_fake_mode_from_gm
    from torch._functorch._aot_autograd.subclass_parametrization import unwrap_tensor_subclass_parameters
    from torch._guards import compile_context
    from torch._inductor import package, utils
    from torch._library import fake_class_registry, opaque_object
    from torch.export._unlift import _unlift
    from torch.export.unflatten import _assign_attr, _AttrKind

    return SimpleNamespace(
        compiling_state=_compiling_state_context, fake_mode_of=_detect_fake_mode_from_gm,
        unwrap_subclasses=unwrap_tensor_subclass_parameters, compile_context=compile_context, package=package,
        utils=utils, unlift=_unlift, assign=_assign_attr, kinds=_AttrKind, fake_classes=fake_class_registry,
        is_opaque_type=opaque_object.is_opaque_type,
    )  # fmt: skip


def is_tensor_or(value: Any, *others: type) -> bool:
    return isinstance(value, (torch.Tensor, *others))


def static_of_forward(fixed: int) -> Sequence[int]:
    """Indices of inputs whose memory stays where it is: parameters and buffers."""
    return stock.get_static_input_idxs(fixed)


def known_true(condition: Any) -> bool:
    """Whether a condition, perhaps on symbolic sizes, holds by what is already known: no guard is added."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def hint_of(value: Any) -> int | None:
    """An integer, or the one that a symbolic one stood for when it was traced; None where there is none. No guard is added."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    hint = value.node.hint
    return hint if isinstance(hint, int) else None


def storage_id(tensor: torch.Tensor) -> int | None:
    """What tensors on one storage have in common, fake ones too; None for those without a storage."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse, opaque
        return None


def copy_all(into: list[torch.Tensor], given: list[torch.Tensor]) -> None:
    """Many copies as one operation."""
    torch._foreach_copy_(into, given)  # pyright: ignore[reportPrivateImportUsage]


def is_fake(value: Any) -> bool:
    from torch._subclasses.fake_tensor import is_fake

    return is_fake(value)


def bisector_disables_cudagraphs() -> bool:
    """Torch's own bisector counts each time that it is asked."""
    from torch._inductor.compiler_bisector import CompilerBisector

    return CompilerBisector.disable_subsystem("inductor", "cudagraphs")


def tell_cudagraphs_skipped(reason: str) -> None:
    """Torch's log, counter and metric of a skip. Raises RuntimeError where the setting `cudagraph_or_error` asks for that."""
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    log_cudagraph_skip_and_bump_counter(reason)


def customized_partition_wrapper() -> Callable[..., Any] | None:
    """What the user set by `set_customized_partition_wrappers`, where graphs are partitioned."""
    from torch._inductor.utils import _unstable_customized_partition_wrapper as customized

    return customized.wrapper if config.graph_partition else None


def partition_wrapper_metadata(count: int, index: int) -> Any:
    from torch._inductor.utils import CUDAGraphWrapperMetadata

    return CUDAGraphWrapperMetadata(count, index)


def placeholder_info(name: str) -> Any:
    """What torch's trees know of an input: here a name alone, for a value that one partition hands to another."""
    from torch._inductor.cudagraph_utils import PlaceholderInfo

    return PlaceholderInfo(name=name, stack_trace=None, users=[], mutating_use_stack_trace=None)


def tree_of_cudagraphs(call: Any, inputs: list[Any], static: Sequence[int], **facts: Any) -> Callable[[list[Any]], Any]:
    """Torch's CUDA graph trees around one function."""
    from torch._inductor.cudagraph_trees import cudagraphify_impl

    return cudagraphify_impl(call, inputs, static, **facts)


def tree_manager(device_index: int) -> Any:
    """The manager that a forward in a tree has made."""
    from torch._inductor.cudagraph_trees import get_manager

    return get_manager(device_index, create_if_none_exists=False)


def cudagraph_unsafe_ops() -> frozenset[str]:
    """Operators by name that torch never records."""
    from torch._inductor.utils import FORBIDDEN_CUDAGRAPH_OPS

    return FORBIDDEN_CUDAGRAPH_OPS


def as_one_operator(compiled: Any) -> Callable[[list[Any]], Any]:
    """The compiled call, seen by dispatch modes as one operator (the setting `wrap_inductor_compiled_regions`)."""
    from torch._higher_order_ops import wrap
    from torch.utils._python_dispatch import is_in_torch_dispatch_mode

    call = shown = compiled.current_callable
    region = getattr(compiled, "compile_region_name", None)
    if hasattr(wrap, "InductorCompiledCallable"):  # 2.13: with the graph, for fake values
        _restore_graph(compiled)
        shown = wrap.InductorCompiledCallable(call, compiled._original_gm, compile_region_name=region)
    named = {"name": region} if region is not None and shown is not call else {}

    def run(inputs: list[Any]) -> Any:
        return wrap.inductor_compiled_code(shown, inputs, **named) if is_in_torch_dispatch_mode() else call(inputs)

    return run


def _restore_graph(compiled: Any) -> None:
    """From a cache the graph comes as bytes."""
    if compiled._original_gm is None and compiled._serialized_original_gm is not None:
        from torch.fx._graph_pickler import GraphPickler
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        compiled._original_gm = GraphPickler.loads(compiled._serialized_original_gm, mode)
        compiled._original_gm.recompile()
        compiled._serialized_original_gm = None


def clear_workspaces() -> None:
    """Frees the memory that cuBLAS keeps for each stream; the next matrix product takes it anew. No public call does."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None and torch.cuda.is_available():
        clear()


def mode_options(mode: str) -> dict[str, Any]:
    """Settings of one of torch.compile's modes; RuntimeError for a name that is none."""
    import torch._inductor

    return torch._inductor.list_mode_options(mode)


def compile_lock() -> Any:
    """One backward is compiled at a time, also by threads of autograd."""
    from torch._dynamo.convert_frame import compile_lock as lock

    return lock


def static_of_backward(gm: fx.GraphModule) -> Sequence[int]:
    """Indices of a backward's inputs that stay in place although its forward was split around CUDA graphs (2.13)."""
    from torch._inductor import utils

    return utils.get_static_bw_input_idxs(gm)


def bisected(subsystem: str) -> bool:
    """Whether torch's bisector leaves out a subsystem of Inductor in this run."""
    from torch._inductor.compiler_bisector import CompilerBisector

    return CompilerBisector.disable_subsystem("inductor", subsystem)


def fake_script_objects(gm: Any, inputs: Sequence[Any]) -> Any:
    """A context that gives the module and its inputs with fake script objects in place of real ones."""
    from torch._export.non_strict_utils import _fakify_script_objects

    return _fakify_script_objects(gm, inputs, {}, detect_fake_mode(inputs))


def recompile_now(gm: fx.GraphModule) -> None:
    """Makes a lazy graph module write its code, so that `forward` is there."""
    from torch.fx._lazy_graph_module import _LazyGraphModule

    _LazyGraphModule.force_recompile(gm)


def warm_up_autotuning() -> None:
    """Starts torch's pool of autotuning processes where it is asked for; 2.11 has none."""
    with contextlib.suppress(ImportError):
        from torch._inductor.autotune_process import AutotuneProcessPool, use_pipelined_autotuning

        if use_pipelined_autotuning():
            AutotuneProcessPool.get_instance().warm_up()


def library_of(*args: Any, **kwargs: Any) -> Any:
    """Builds a shared library of generated C++; its path."""
    from torch._inductor.codecache import AotCodeCompiler

    return AotCodeCompiler.compile(*args, **kwargs)


def reason_against_recording(device_nodes: Any) -> str | None:
    """Why what was lowered cannot be a CUDA graph, by its devices."""
    from torch._inductor.cudagraph_utils import check_lowering_disable_cudagraph

    return check_lowering_disable_cudagraph(device_nodes)


def is_script_object(value: Any) -> bool:
    """Whether a value is a stand-in for a script object."""
    from torch._library.fake_class_registry import FakeScriptObject

    return isinstance(value, FakeScriptObject)
