# pyright: basic
"""Replaces the functions by which Inductor asks for a device while it generates Triton kernels, and steers its choices
meanwhile.

Neither can be configured in torch. Importing this module imports torch; Inductor is imported by the functions.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import fx

from ...dumps.errors import DeviceMissingError
from .. import torch_private as t
from ..live.spec import setting
from ..torch_private import all_replaced, replaced
from .needs import require_triton
from .targets import WARP, Target


def places(answers: Any, capability: int) -> list[tuple[Any, str, Any]]:
    """(object, attribute, replacement) of each function that is asked about the device and cannot be configured."""
    version = (capability // 10, capability % 10)
    rows: list[tuple[Any, str, Any]] = [
        (torch.cuda, "get_device_properties", lambda device=None: answers),
        (torch.cuda, "get_device_capability", lambda device=None: version),
        (torch.cuda, "current_device", lambda: 0),
        (torch.cuda, "is_bf16_supported", lambda including_emulation=True: capability >= 80 or including_emulation),
        (torch.cuda, "is_tf32_supported", lambda: capability >= 80),
        (torch.cuda, "get_rng_state", lambda device="cuda": torch.get_rng_state()),  # for checkpointed regions
        (torch.cuda, "set_rng_state", lambda state, device="cuda": torch.set_rng_state(state)),
        (t.triton_helpers, "set_driver_to_gpu", lambda: None),
        (t.triton_helpers, "set_driver_to_cpu", lambda: None),
    ]
    if t.optional("select_conv_backend") and t.optional("conv_layout") and not torch.backends.cudnn.is_available():
        rows.append((*t.home("conv_layout"), _layout_of_cudnn))
    return [*rows, (t.C, "_cuda_getCurrentRawStream", lambda index: 0)]  # wrappers import it; some builds have none


def _layout_of_cudnn(input: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
    """The layout of a convolution's result as cuDNN computes it: channels-last if either operand is
    (`cudnn_conv_suggest_memory_format` of ATen/native/ConvUtils.h)."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(weight.dim())
    if last is None or torch.float64 in (input.dtype, weight.dtype):
        return torch.contiguous_format
    is_last = any(tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous() for tensor in (input, weight))
    return last if is_last else torch.contiguous_format


@contextlib.contextmanager
def interface(answers: Any, capability: int) -> Iterator[None]:
    """Registers a device interface for "cuda" that answers for the pretended device."""
    t.get_interface_for_device("cuda")  # fills the registry
    known, usual = t.device_interfaces, t.CudaInterface

    own = {"get_device_properties": answers, "current_device": 0, "set_device": None}
    fixed = {
        **own,
        **dict.fromkeys(("get_raw_stream", "exchange_device", "maybe_exchange_device"), 0),
        **dict.fromkeys(("synchronize", "raise_if_triton_unavailable"), None),
        **dict.fromkeys(("is_available", "is_triton_capable"), True),
        "device_count": 1,
        "get_compute_capability": capability,
    }
    supported = staticmethod(lambda including_emulation=False: capability >= 80 or including_emulation)
    worker = type("Worker", (usual.Worker,), _answering(own))
    members = {**_answering(fixed), "Worker": worker, "is_bf16_supported": supported}
    pretended = type("PretendedInterface", (usual,), members)
    with mock.patch.dict(known, dict.fromkeys(("cuda", "cuda:0"), pretended)):
        yield


def _answering(fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Static methods that always return the same value, whatever their arguments."""
    return {name: staticmethod(lambda *_, answer=answer, **__: answer) for name, answer in fixed.items()}


@contextlib.contextmanager
def config_for_emission() -> Iterator[None]:
    """Applies the settings under which Inductor compiles in this process, launches nothing by itself and autotunes
    nothing. Settings that a torch lacks are skipped."""
    config = t.inductor_config
    wanted = {
        "compile_threads": 1,
        "use_static_cuda_launcher": False,
        "use_static_triton_launcher": False,
        "autotune_local_cache": False,
        "autotune_remote_cache": False,
        "triton.cudagraphs": False,
        "shape_padding": bool(getattr(config, "force_shape_pad", False)),  # else timing decides
        "benchmark_fusion": False,
        "benchmark_combo_kernel": False,
        "benchmark_epilogue_fusion": False,
        "coordinate_descent_tuning": False,
        "triton.multi_kernel": 0,
    }
    known = {name: value for name, value in wanted.items() if setting("inductor", name)[0]}
    name = "graphsafe_rng_functionalization"  # else a GPU generator becomes an input of the graph
    with config.patch(known), t.functorch_config.patch({name: False} if setting("functorch", name)[0] else {}):
        yield


def chosen_without_timing() -> contextlib.AbstractContextManager[None]:
    """Makes Inductor take the first Triton template for a product (or the first choice of any kind), since it would
    time them.

    Its hook for filters (`add_preprocessing_fn`) belongs to the process, and is cleared with its caches.
    """
    usual = t.AlgorithmSelectorCache.__call__

    def call(self: Any, name: str, choices: list[Any], *more: Any, **named: Any) -> Any:
        templates: list[Any] = [choice for choice in choices if isinstance(choice, t.TritonTemplateCaller)]
        return usual(self, name, (templates or choices)[:1], *more, **named)

    return replaced(t.AlgorithmSelectorCache, "__call__", call)


_ASKED_ONCE = (
    "has_triton",
    "has_triton_package",
    "has_triton_tma",
    "has_triton_experimental_host_tma",
    "has_triton_tensor_descriptor_host_tma",
    "has_triton_tma_device",
    "has_triton_stable_tma_api",
    "triton_backend",
    "triton_hash_with_backend",
    "get_gpu_type",
    "get_gpu_dram_gbps",
    "get_gpu_shared_memory",
    "get_max_num_sms",
    "is_big_gpu",
    "get_device_tflops",
    "get_num_sms",
    "can_use_tma",
    "DeviceProperties.create",
    "joint_lazy_init",
    "codecache_get_cpp_compiler",
)


@contextlib.contextmanager
def answers_forgotten() -> Iterator[None]:
    """Clears torch's cached answers about the device, before and after the block."""

    def forget() -> None:
        for name in _ASKED_ONCE:
            getattr(t.loaded(name), "cache_clear", lambda: None)()

    forget()
    try:
        yield
    finally:
        forget()


def kernels_made_by(make: Callable[[str, str], Any]) -> contextlib.AbstractContextManager[None]:
    """Makes `async_compile.triton(name, source)` in a generated wrapper return `make(name, source)`."""
    return replaced(
        t.AsyncCompile, "triton", lambda self, kernel_name, source_code, *_, **__: make(kernel_name, source_code)
    )


def allocations(
    allocate: Callable[..., torch.Tensor], check: Callable[..., None]
) -> contextlib.AbstractContextManager[None]:
    """Replaces the allocation and check functions that generated wrappers import from torch's guards."""
    wanted = {
        "_empty_strided_cuda": allocate,
        "_empty_strided_cpu": allocate,
        "assert_size_stride": check,
        "assert_alignment": lambda *_: None,
    }
    known = t.dynamo_guards
    return all_replaced((known, name, value) for name, value in wanted.items() if hasattr(known, name))


def wrappers_loaded(report: Callable[[Any, Any], None]) -> contextlib.AbstractContextManager[None]:
    """Calls `report(lowering, module)` for each generated module that is loaded, with its Inductor lowering."""
    owner, name = t.home("GraphLowering._compile_to_module_lines")
    usual = getattr(owner, name)

    def load(self: Any, *arguments: Any) -> Any:
        module = usual(self, *arguments)
        report(self, module)
        return module

    return replaced(owner, name, load)


def nodes_of_buffers(lowering: Any) -> dict[str, str]:
    """Buffer name in the wrapper -> the node whose value it holds, where Inductor records it; inputs under their own
    names."""
    names = {name: name for name in lowering.graph_inputs}
    for name, buffer in lowering.name_to_buffer.items():
        node = buffer.get_origin_node() if hasattr(buffer, "get_origin_node") else None
        if node is not None:
            names[name] = str(node.name)
    return names


def compile_config(autotuner: Any, config: Any) -> Any:
    """Compiles one configuration with Inductor's own options; returns Triton's compiled kernel with every form, which
    Inductor's static launcher would reduce to machine code."""
    own = t.optional("StaticTritonCompileResult")
    never = staticmethod(lambda *_: None)
    with replaced(own, "can_statically_launch", never) if own is not None else contextlib.nullcontext():
        return autotuner._precompile_config(config).kernel


@contextlib.contextmanager
def guards_of_gpu() -> Iterator[None]:
    """Makes a torch built without CUDA ignore CUDA device guards, as a CUDA build does where there is no GPU: `~x`,
    `x.copy_(y)` and indexing of a fake tensor ask for one from C++.

    torch's own way to do so (`torch._C._ensureCUDADeviceGuardSet`) leaves such a build out.
    """
    table = _guard_table()
    if table is None or table[_CUDA]:
        yield
        return
    table[_CUDA] = table[_META]
    try:
        yield
    finally:
        table[_CUDA] = None


_CUDA, _META = 1, 14  # c10::DeviceType
_TABLE = "_ZN3c104impl26device_guard_impl_registryE"


def _guard_table() -> Any:
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        return (ctypes.c_void_p * (_META + 1)).in_dll(library, _TABLE)
    except (OSError, ValueError):  # another build: torch itself then reports what it lacks
        return None


Put = Callable[[fx.GraphModule, list[Any] | None], tuple[list[Any], list[torch.Tensor]]]


def put_on_gpu_behind_autograd(put: Put) -> contextlib.AbstractContextManager[None]:
    """Calls `put(gm, None)` to move graphs to the GPU between AOTAutograd and Inductor's joint passes, and `put(gm,
    fakes)` before each inner compile; tensors that it returns become additional inputs after the fakes.

    Autograd's engine refuses tensors of a GPU where torch has none, and Inductor's path has no public place between.
    """
    passes = t.recursive_joint_graph_passes

    def passes_there(gm: Any, *more: Any, **named: Any) -> Any:
        put(gm, None)
        if named.get("input_device") is not None:
            named["input_device"] = torch.device("cuda", 0)
        return passes(gm, *more, **named)

    def compiling_there(usual: Callable[..., Any]) -> Callable[..., Any]:
        def compile_half(gm: Any, fakes: Any, *more: Any, inner_compile: Callable[..., Any], **named: Any) -> Any:
            def inner(gm: Any, fakes: Any, *rest: Any, **given: Any) -> Any:
                moved, added = put(gm, list(fakes))
                compiled = inner_compile(gm, moved, *rest, **given)
                return _with_more(compiled, added) if added else compiled

            return usual(gm, fakes, *more, inner_compile=inner, **named)

        return compile_half

    halves = ("compile_fx_forward", "compile_fx_backward")
    rows = [(*t.home(name), compiling_there(t.look_up(name))) for name in halves]
    return all_replaced([(*t.home("recursive_joint_graph_passes"), passes_there), *rows])


def _with_more(compiled: Callable[[list[Any]], Any], added: list[torch.Tensor]) -> Callable[[list[Any]], Any]:
    def run(inputs: list[Any]) -> Any:
        given = [*inputs, *added]
        inputs.clear()
        return compiled(given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def memory_on_cpu() -> Iterator[None]:
    """Where there is no GPU, allocations on one get CPU memory: Inductor's passes compute constants on the graph's
    device, with every mode switched off. Fake tensors are not affected."""
    if torch.cuda.is_available():
        yield
        return
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "CUDA")
    library.impl("empty_strided", _empty_strided, "CUDA")
    try:
        with t.swapped("cuda_lazy_init", lambda: None):  # torch.full(device="cuda") initialises the device first
            yield
    finally:
        library._destroy()


def _empty(size: Any, dtype: Any = None, memory_format: Any = None, **_: Any) -> Any:
    return torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format)


def _empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Any:
    return torch.empty_strided(size, stride, dtype=dtype)


def graph_in_hand() -> Any:
    """The graph for which Inductor is generating or loading code on this thread; None otherwise."""
    graph = t.V.graph
    return graph if hasattr(graph, "name_to_buffer") else None


def mutated_buffers(graph: Any) -> set[str]:
    """Buffers that are written to again after their creation: only their final contents are the value of their node."""
    return {name for buffer in graph.name_to_buffer.values() for name in buffer.get_mutation_names()}


@contextlib.contextmanager
def pretending(target: Target) -> Iterator[None]:
    """Within the block, a GPU of that kind appears to be device 0."""
    require_triton()
    from triton.runtime import driver

    answers = properties(target)
    with (
        all_replaced([(driver, "_active", Driver(target)), *places(answers, target.capability)]),
        interface(answers, target.capability),
        config_for_emission(),
        answers_forgotten(),
        memory_on_cpu(),
        guards_of_gpu(),
        chosen_without_timing(),
    ):
        yield


def properties(target: Target) -> Any:
    """What `torch.cuda.get_device_properties` returns for such a GPU, with the fields that Inductor and Triton use."""
    chip = target.chip
    return SimpleNamespace(
        name=f"NVIDIA {chip.name}",
        major=target.capability // 10,
        minor=target.capability % 10,
        multi_processor_count=chip.processors,
        total_memory=chip.memory_bytes,
        L2_cache_size=chip.l2_bytes,
        regs_per_multiprocessor=chip.registers,
        max_threads_per_multi_processor=chip.threads,
        max_threads_per_block=1024,
        warp_size=WARP,
        gcnArchName="",
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=chip.shared_block,
        shared_memory_per_multiprocessor=chip.shared_processor,
        is_integrated=0,
        clock_rate=0,
        memory_clock_rate=0,
    )


class Driver:
    """A Triton driver for a pretended GPU: it answers queries that come before any launch."""

    def __init__(self, target: Target) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget(target.backend, target.capability, WARP)

    def get_current_target(self) -> Any:
        return self.target

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        raise DeviceMissingError("kernels cannot be timed", "they are compiled for a GPU that is not here")
