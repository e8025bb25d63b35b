"""What a recorded program's torch says of itself: compile ids, counters, settings, modes, wrappers.

Nothing is imported for it, and everything may be missing: a torch without a name records less and says what.

>>> compile_id()
'0/0'
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any

from ..torch_private import loaded

CACHE_SWITCHES = {
    "functorch": ("enable_autograd_cache", "enable_remote_autograd_cache"),
    "inductor": ("fx_graph_cache", "fx_graph_remote_cache"),
}
"""Settings whose caches skip the compiler and so hide graphs."""


def compile_id() -> str | None:
    """torch's id of the compile in progress on this thread, with its attempt ("0/0", "0/0_1", "!1/0/0"), or None.

    torch.compiler has no function for it.
    """
    context = loaded("CompileContext")
    if context is None:
        return None
    current = context.current_trace_id() if hasattr(context, "current_trace_id") else context.current_compile_id()
    return None if current is None else str(current)


def dynamo_setting(name: str) -> int | None:
    """A number in torch._dynamo.config, as it is in force on this thread."""
    value = getattr(loaded("dynamo_config"), name, None)
    return value if isinstance(value, int) else None


def has_dynamo_setting(name: str) -> bool:
    """Whether this torch knows a setting of Dynamo; False before Dynamo is imported."""
    return hasattr(loaded("dynamo_config"), name)


def counter(group: str, name: str) -> int:
    """A counter of torch._dynamo.utils.counters (cache hits are told nowhere else)."""
    counters = loaded("counters")
    return int(counters[group][name]) if counters is not None and group in counters else 0


def undisturbed() -> AbstractContextManager[Any]:
    """Hides the program's dispatch and torch-function modes, autocast and grad mode while the recorder computes on its tensors.

    A FlopCounterMode of the user must not count our statistics. Public alternatives exist for grad mode only.
    """
    import torch

    stack = ExitStack()
    for name in ("modes_off", "DisableTorchFunction", "DisableAutocast"):
        context = loaded(name)
        if context is not None:
            stack.enter_context(context())
    stack.enter_context(torch.no_grad())
    return stack


def is_fake(value: Any) -> bool:
    """Whether a value is a fake tensor: a compiled graph called with one is being traced, not run."""
    fake = loaded("FakeTensor")
    return fake is not None and isinstance(value, fake)


def norms(tensors: list[Any]) -> list[Any]:
    """The 2-norm of each tensor of one device and dtype, in one fused kernel where there is one. torch.nn.utils.get_total_norm,
    which is public, adds them up to one number."""
    return list(loaded("foreach_norm")(tensors, 2))


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured on this thread's stream, when nothing may be read from the device."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def is_restart(error: BaseException) -> bool:
    """Whether an exception is Dynamo's way to start over or to leave a frame alone, not a failure."""
    return any(base.__name__ in ("RestartAnalysis", "SkipFrame", "SkipCodeRecursiveException") for base in type(error).__mro__)


def is_serializable(compiled: Any) -> bool:
    """Whether a compiled callable is one that Dynamo recognises by its class, to save it."""
    return any(base.__name__ == "SerializableCallable" for base in type(compiled).__mro__)


def tracing_facts(kind: str) -> dict[str, Any]:
    """What Inductor reads of AOTAutograd's metadata while it compiles; no argument carries it."""
    context = loaded("TracingContext")
    tracing = context.try_get() if context is not None else None
    metadata = getattr(tracing, "fw_metadata", None)
    if metadata is None:
        return {}
    names = ("bw_donated_idxs",) if kind == "backward" else ("num_mutated_inp_runtime_indices", "static_input_indices")
    return {name: getattr(metadata, name) for name in names if getattr(metadata, name, None) is not None}


def aot_compiler_like(model: Any, compiler: Any) -> Any:
    """`compiler` wrapped the way `model` is: AOTAutograd tells cacheable compilers by their class."""
    wrapper = loaded("SerializableAOTDispatchCompiler")
    if wrapper is not None and isinstance(model, wrapper):
        return wrapper(model.output_code_ty, compiler)
    return compiler


def is_inductor_partition(function: Any) -> bool:
    """Whether a partition function is Inductor's, whose own hooks see all of it."""
    return function is not None and function is loaded("partition_fn")


def backend_options(compiler_fn: Any) -> dict[str, Any]:
    """The options given to torch.compile for Inductor: its wrapper applies them only while it compiles."""
    inner = [getattr(compiler_fn, name, None) for name in ("_torchdynamo_orig_backend", "_compiler_fn")]
    for candidate in (compiler_fn, *inner):
        options = getattr(candidate, "config", None)
        if isinstance(options, dict):
            return dict(options)
    return {}


def innermost_backend(compiler_fn: Any) -> Any:
    """The backend under the wrappers that torch puts around it, and the compiler that AOTAutograd was given."""
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
    every step. Public names for it are missing."""
    while getattr(compiled, "_torchdynamo_wrapper_id", None) == id(compiled) and callable(
        getattr(compiled, "_torchdynamo_orig_callable", None)
    ):
        compiled = compiled._torchdynamo_orig_callable
    return compiled


def forced_lazy_graph_off(compiled: Any) -> Any:
    """Recompiles a lazy graph module now, as Dynamo would if it saw it; returns the plain forward."""
    lazy = loaded("LazyGraphModule")
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
