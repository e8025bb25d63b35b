"""The private names of torch that the recorder needs, and nowhere else in this room.

Each entry says which public alternative is missing and the versions it was checked on. Everything is looked up late and may be
missing: a torch without one of them records fewer stages and says which.

>>> [hook.name for hook in HOOKS if hook.required_for]
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

CHECKED = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""Versions of torch on which recordings were made and compared with plain runs: all on the CPU, 2.11.0 on a GPU too.

docs/torch-versions.md says what each gave. "Checked: 2.13.0" below means: there the code around the name was read as well.
"""


class Hook(NamedTuple):
    """One function of torch that the recorder wraps: where it lies, and which stages are lost when it is not there."""

    module: str
    attribute: str
    required_for: tuple[str, ...]
    why: str

    @property
    def name(self) -> str:
        """`torch._inductor.compile_fx.partition_fn`."""
        return f"{self.module}.{self.attribute}"


HOOKS = (
    Hook(
        "torch._dynamo.output_graph", "OutputGraph.call_user_compiler", ("dynamo",),
        # TORCH_COMPILE_OVERRIDE_BACKENDS sees every graph too, but loses the user's backend, mode and options. Checked: 2.13.0.
        "every backend, with its options, is called through here",
    ),
    Hook(
        "torch._inductor.compile_fx", "_compile_fx_main", (),
        # No public hook frames one compile_fx call made without Dynamo. Checked: 2.13.0.
        "frames a direct call of compile_fx, which has no compile id",
    ),
    Hook(
        "torch._inductor.compile_fx", "_recursive_pre_grad_passes", ("pre_grad",),
        # inductor.config.pre_grad_custom_pass is public but belongs to the user. Checked: 2.13.0.
        "its result is the pre_grad graph",
    ),
    Hook(
        "torch._inductor.compile_fx", "partition_fn", ("joint",),
        # joint_custom_pre_pass is public but belongs to the user, and does not tell joint from inference. Checked: 2.13.0.
        "its argument is the joint graph",
    ),
    Hook(
        "torch._inductor.compile_fx", "_recursive_joint_graph_passes", ("joint_passed", "inference"),
        # joint_custom_post_pass is public but belongs to the user. Checked: 2.13.0.
        "its result is the graph after the joint passes, its argument the inference graph",
    ),
    Hook(
        "torch._inductor.compile_fx", "_compile_fx_inner", ("forward", "backward"),
        # compile_fx(inner_compile=) is public but would have to be passed by the user's backend. Checked: 2.13.0.
        "the inner compiler, with its keyword arguments and its result",
    ),
    Hook(
        "torch._inductor.compile_fx", "_recursive_post_grad_passes",
        ("post_grad_forward", "post_grad_backward", "post_grad_inference"),
        # post_grad_custom_post_pass is public but belongs to the user. Checked: 2.13.0.
        "the graph after the post-grad passes",
    ),
    Hook(
        "torch._functorch.aot_autograd", "aot_module_simplified", (),
        # Backends made with aot_autograd() take compilers, but only from their author. Checked: 2.13.0.
        "joint, forward, backward and inference graphs of AOT backends that are not Inductor",
    ),
    # The rest says why a graph exists. TORCH_LOGS and TORCH_TRACE tell the same to a log, which would have to be switched on and
    # makes torch build every payload; torch._dynamo.explain runs the program again. All but one were run on 2.11.0 too.
    Hook(
        "torch._dynamo.convert_frame", "has_tensor_in_frame", (),
        # torch._dynamo.callback.on_compile_start tells no code, and outermost compiles only. Checked: 2.13.0.
        "the code object about to be compiled, whose qualified name has the class",
    ),
    Hook(
        "torch._dynamo.convert_frame", "signpost_event", (),
        # The same. Dynamo's own telemetry of one frame about to be compiled. Checked: 2.13.0.
        "function, file, line and compile id of each frame",
    ),
    Hook(
        "torch._dynamo.convert_frame", "get_and_maybe_log_recompilation_reasons", (),
        # torch._dynamo.utils.guard_failures has the texts of the same call, without compile ids. Checked: 2.13.0.
        "the guards whose failure made a frame compile again",
    ),
    Hook(
        "torch._dynamo.convert_frame", "exceeds_recompile_limit", (),
        # Only a log line and an exception that Dynamo catches tell it. Checked: 2.13.0.
        "that a frame is given up because it was compiled too often",
    ),
    Hook(
        "torch._dynamo.symbolic_convert", "InstructionTranslatorBase.log_graph_break", (),
        # torch._dynamo.utils.counters["graph_break"] counts reasons without lines. Checked: 2.13.0.
        "graph breaks with their reason and user stack",
    ),
    Hook(
        "torch._dynamo.exc", "RestartAnalysis.__init__", (),
        # CompilationMetrics.restart_reasons is a set without attempts, kept only for the last compiles. Checked: 2.13.0.
        "why Dynamo started a frame over",
    ),
    Hook(
        "torch._dynamo.convert_frame", "exception_handler", (),
        # A user's own except clause sees it, where Dynamo does not suppress it. Checked: 2.13.0.
        "why a frame could not be compiled (fullgraph=True, unsupported code, a failing backend)",
    ),
    Hook(
        "torch._dynamo.convert_frame", "CatchErrorsWrapper._handle_skip", (),
        # torch._dynamo.eval_frame.get_skip_reasons is as private, and fullgraph=True switches it on. 2.13.0; not in 2.11, 2.12.
        "frames that were left alone",
    ),
    Hook(
        "torch._dynamo.backends.distributed", "SubmodCompiler.compile_submod", (),
        # DDPOptimizer keeps its buckets on an object that nobody can reach. Checked: 2.13.0.
        "the parts into which DDP cuts a graph",
    ),
)  # fmt: skip

WHY_NAMES = frozenset(hook.name for hook in HOOKS if hook.module.startswith("torch._dynamo.") and hook.required_for == ())
"""The hooks without which `ls --why` knows less."""

ALIASES = {
    "torch._functorch.aot_autograd.aot_module_simplified": (
        ("torch._dynamo.backends.common", "aot_module_simplified"),
        ("functorch.compile", "aot_module_simplified"),
    ),
}
"""Modules that may have taken a hooked name with `from ... import` before the recorder started."""

BACKWARD_CALLERS = ("torch.autograd", "torch.autograd.graph")
BACKWARD_CALL = "_engine_run_backward"
"""Every `backward()` and `grad()` calls the engine by this name, in one of these modules. Hooks see the gradients of one
value; nothing public sees a whole backward. Checked: 2.11.0, 2.13.0."""

CONFIGS = {
    "dynamo": "torch._dynamo.config",
    "functorch": "torch._functorch.config",
    "inductor": "torch._inductor.config",
}
"""Room of the configuration in a record -> its module."""

CACHE_SWITCHES = {
    "functorch": ("enable_autograd_cache", "enable_remote_autograd_cache"),
    "inductor": ("fx_graph_cache", "fx_graph_remote_cache"),
}
"""Settings (all public) whose caches skip the compiler and so hide graphs. Checked: 2.13.0."""


def compile_id() -> str | None:
    """torch's id of the compile in progress on this thread, with its attempt ("0/0", "0/0_1", "!1/0/0"), or None.

    torch.compiler has no function for it. Checked: 2.13.0 (`current_trace_id` carries the attempt).
    """
    guards = sys.modules.get("torch._guards")
    context = getattr(guards, "CompileContext", None)
    if context is None:
        return None
    current = context.current_trace_id() if hasattr(context, "current_trace_id") else context.current_compile_id()
    return None if current is None else str(current)


def dynamo_setting(name: str) -> int | None:
    """A number in torch._dynamo.config, as it is in force on this thread. Checked: 2.13.0."""
    value = getattr(sys.modules.get(CONFIGS["dynamo"]), name, None)
    return value if isinstance(value, int) else None


def has_dynamo_setting(name: str) -> bool:
    """Whether this torch knows a setting of Dynamo; False before Dynamo is imported."""
    return hasattr(sys.modules.get(CONFIGS["dynamo"]), name)


def counter(group: str, name: str) -> int:
    """A counter of torch._dynamo.utils.counters (cache hits are told nowhere else). Checked: 2.13.0."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters[group][name]) if counters is not None and group in counters else 0


def undisturbed() -> AbstractContextManager[Any]:
    """Hides the program's dispatch and torch-function modes, autocast and grad mode while the recorder computes on its tensors.

    A FlopCounterMode of the user must not count our statistics. Public alternatives exist for grad mode only. Checked: 2.13.0.
    """
    import torch

    stack = ExitStack()
    dispatch = sys.modules.get("torch.utils._python_dispatch")
    if dispatch is not None and hasattr(dispatch, "_disable_current_modes"):
        stack.enter_context(dispatch._disable_current_modes())
    for name in ("DisableTorchFunction", "_DisableAutocast"):
        if hasattr(torch._C, name):
            stack.enter_context(getattr(torch._C, name)())
    stack.enter_context(torch.no_grad())
    return stack


def is_fake(value: Any) -> bool:
    """Whether a value is a fake tensor: a compiled graph called with one is being traced, not run. Checked: 2.13.0."""
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
    return fake is not None and isinstance(value, fake)


def norms(tensors: list[Any]) -> list[Any]:
    """The 2-norm of each tensor of one device and dtype, in one fused kernel where there is one. torch.nn.utils.get_total_norm,
    which is public, adds them up to one number. Checked: 2.13.0."""
    import torch

    return list(torch._foreach_norm(tensors, 2))  # pyright: ignore[reportPrivateImportUsage]


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured on this thread's stream, when nothing may be read from the device."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def is_restart(error: BaseException) -> bool:
    """Whether an exception is Dynamo's way to start over or to leave a frame alone, not a failure. Checked: 2.13.0."""
    return any(base.__name__ in ("RestartAnalysis", "SkipFrame", "SkipCodeRecursiveException") for base in type(error).__mro__)


def is_serializable(compiled: Any) -> bool:
    """Whether a compiled callable is one that Dynamo recognises by its class, to save it. Checked: 2.13.0."""
    return any(base.__name__ == "SerializableCallable" for base in type(compiled).__mro__)


def tracing_facts(kind: str) -> dict[str, Any]:
    """What Inductor reads of AOTAutograd's metadata while it compiles; no argument carries it. Checked: 2.13.0."""
    context = getattr(sys.modules.get("torch._guards"), "TracingContext", None)
    tracing = context.try_get() if context is not None else None
    metadata = getattr(tracing, "fw_metadata", None)
    if metadata is None:
        return {}
    names = ("bw_donated_idxs",) if kind == "backward" else ("num_mutated_inp_runtime_indices", "static_input_indices")
    return {name: getattr(metadata, name) for name in names if getattr(metadata, name, None) is not None}


def aot_compiler_like(model: Any, compiler: Any) -> Any:
    """`compiler` wrapped the way `model` is: AOTAutograd tells cacheable compilers by their class. Checked: 2.13.0."""
    module = sys.modules.get("torch._functorch.aot_autograd")
    wrapper = getattr(module, "SerializableAOTDispatchCompiler", None)
    if wrapper is not None and isinstance(model, wrapper):
        return wrapper(model.output_code_ty, compiler)
    return compiler


def is_inductor_partition(function: Any) -> bool:
    """Whether a partition function is Inductor's, whose own hooks see all of it. Checked: 2.13.0."""
    module = sys.modules.get("torch._inductor.compile_fx")
    return module is not None and function is not None and function is getattr(module, "partition_fn", None)


def backend_options(compiler_fn: Any) -> dict[str, Any]:
    """The options given to torch.compile for Inductor: its wrapper applies them only while it compiles. Checked: 2.13.0."""
    inner = [getattr(compiler_fn, name, None) for name in ("_torchdynamo_orig_backend", "_compiler_fn")]
    for candidate in (compiler_fn, *inner):
        options = getattr(candidate, "config", None)
        if isinstance(options, dict):
            return dict(options)
    return {}


def innermost_backend(compiler_fn: Any) -> Any:
    """The backend under the wrappers that torch puts around it, and the compiler that AOTAutograd was given. Checked: 2.13.0."""
    for _ in range(8):
        if str(getattr(compiler_fn, "__module__", None)).partition(".")[0] != "torch":
            break
        kwargs = getattr(compiler_fn, "kwargs", None)
        inner = [getattr(compiler_fn, name, None) for name in ("_torchdynamo_orig_backend", "_compiler_fn", "compiler_fn")]
        inner += [kwargs.get("fw_compiler")] if isinstance(kwargs, dict) else []
        following = next((one for one in inner if callable(one)), None)
        if following is None:
            break
        compiler_fn = following
    return compiler_fn


def undisabled(compiled: Any) -> Any:
    """What lies under Dynamo's own `disable` wrapper, as Dynamo would unwrap it before wrapping anew: a second layer would cost
    every step. Public names for it are missing. Checked: 2.13.0."""
    while getattr(compiled, "_torchdynamo_wrapper_id", None) == id(compiled) and callable(
        getattr(compiled, "_torchdynamo_orig_callable", None)
    ):
        compiled = compiled._torchdynamo_orig_callable
    return compiled


def forced_lazy_graph_off(compiled: Any) -> Any:
    """Recompiles a lazy graph module now, as Dynamo would if it saw it; returns the plain forward. Checked: 2.13.0."""
    lazy = getattr(sys.modules.get("torch.fx._lazy_graph_module"), "_LazyGraphModule", None)
    if lazy is None:
        return compiled
    owner = getattr(compiled, "__self__", None)
    if isinstance(compiled, lazy):
        lazy.force_recompile(compiled)
        return compiled
    if owner is not None and isinstance(owner, lazy) and getattr(compiled, "__name__", "") == "_lazy_forward":
        lazy.force_recompile(owner)
        return owner.forward
    return compiled
