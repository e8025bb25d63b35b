"""Reads what torch reports about itself in a recorded program: compile ids, counters, settings, modes, the ambient
state, wrappers.

Imports nothing but torch itself, and any name may be missing: a torch without one records less, and what is missing is
reported. Only reads: draws no random number and changes no setting, except for the caches that hide graphs, inside
compiler calls.

>>> compile_id() is None                # outside of a compile
True
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from ...dumps.schema import Ambient
from ..torch_private import loaded
from ..torch_private.names import CONFIGS
from . import steps

if TYPE_CHECKING:
    from ..recorder.session import Session

CACHE_SWITCHES = {
    "functorch": ("enable_autograd_cache", "enable_remote_autograd_cache"),
    "inductor": ("fx_graph_cache", "fx_graph_remote_cache"),
}
"""Settings of caches that skip the compiler, and so hide graphs from the recorder."""

CACHE_HITS = {"AOTAutograd": ("aot_autograd", "autograd_cache_hit"), "FX graph": ("inductor", "fxgraph_cache_hit")}
"""Cache -> the counter of its hits."""

DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps", "hpu")


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
    """An integer setting of torch._dynamo.config as in force on this thread; else None."""
    value = getattr(loaded("dynamo_config"), name, None)
    return value if isinstance(value, int) else None


def counter(group: str, name: str) -> int:
    """A counter of torch._dynamo.utils.counters (cache hits are reported nowhere else)."""
    counters = loaded("counters")
    return int(counters[group][name]) if counters is not None and group in counters else 0


def compiles() -> int:
    """How many frame compiles Dynamo has begun since its reset. `counters` would miss those with fullgraph=True."""
    begun = loaded("frame_compiles")
    return sum(begun.values()) if begun is not None else 0


class _Caches(threading.local):
    """The cache switches of this thread as they were before being turned off, and whether the caches stay on."""

    def __init__(self) -> None:
        self.off: list[tuple[Any, dict[str, Any]]] = []
        self.on = False


_caches = _Caches()


@contextmanager
def bypassed(session: Session, compile_name: str = "", cache: str = "", hidden: str = "") -> Iterator[None]:
    """Turns the caches that hide graphs off on this thread for the block, unless the session keeps them: a warm cache
    skips the compiler.

    Where the cache `cache` (a name in CACHE_HITS) hits nevertheless, the journal says that the compile's graphs
    `hidden` (their stages, in words) are not recorded.
    """
    hits_before = counter(*CACHE_HITS[cache]) if cache else 0
    off_before = len(_caches.off)
    keeps = session.options.keep_cache or _caches.on

    def forget() -> None:
        del _caches.off[off_before:]

    with ExitStack() as stack:
        stack.callback(forget)
        for config, switches in ({} if keeps else CACHE_SWITCHES).items():
            module = loaded(f"{config}_config")
            present = {switch: getattr(module, switch) for switch in switches if hasattr(module, switch)}
            if module is not None and any(present.values()):
                session.caches_were_on = True
                _caches.off.append((module, present))
                stack.enter_context(module.patch(dict.fromkeys(present, False)))
        yield
    if cache and session.options.stages != ["dynamo"] and counter(*CACHE_HITS[cache]) > hits_before:
        session.note(f"{compile_name}: {hidden} not recorded, hidden by the {cache} cache", hidden=True)


@contextmanager
def cached_apart(session: Session) -> Iterator[None]:
    """For a compile whose artifact the program may save, which torch builds from its cache entries: enables the disk
    caches as the program has them, but under a key of their own, so that none of their entries matches."""
    with ExitStack() as stack:
        with session.guarded("caches"):
            if not session.options.keep_cache and not _caches.on:
                from torch.compiler import config

                stack.enter_context(config.patch(cache_key_tag=f"{config.cache_key_tag}{uuid.uuid4()}"))  # type: ignore[attr-defined]
                for module, values in _caches.off:
                    there = {name: value for name, value in values.items() if "remote" not in name}
                    stack.enter_context(module.patch(there))
                session.caches_were_on = _caches.on = True
                stack.callback(setattr, _caches, "on", False)
        yield


def undisturbed() -> AbstractContextManager[Any]:
    """Hides the program's dispatch and torch-function modes, autocast and grad mode while the recorder computes on its
    tensors.

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


def is_traced(value: Any) -> bool:
    """Whether a tensor is fake or an operation on it would be recorded: eager's flex attention traces its functions."""
    mode = loaded("get_proxy_mode")
    return is_fake(value) or (mode is not None and mode() is not None)


def restride(gm: Any, example_inputs: Any) -> None:
    """Sets placeholders' fake values to the example inputs: a backward's input strides follow from the forward's
    layout, and AOTAutograd passes them only there. Inductor does the same a moment later."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, example_inputs, strict=True):
        if is_fake(value):
            node.meta["val"] = value


def norms(tensors: list[Any]) -> list[Any]:
    """The 2-norm of each tensor (all of one device and dtype), in one fused kernel where there is one. The public
    torch.nn.utils.get_total_norm would give one number for all."""
    return list(loaded("foreach_norm")(tensors, 2))


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured on this thread's stream, when nothing may be read from the device."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def is_a(value: Any, *names: str) -> bool:
    """Whether a value is of a class of torch's with one of these names, which not every torch has."""
    return any(base.__name__ in names for base in type(value).__mro__)


def tracing_facts(kind: str) -> dict[str, Any]:
    """The parts of AOTAutograd's metadata that Inductor reads while it compiles but that no argument carries."""
    context = loaded("TracingContext")
    tracing = context.try_get() if context is not None else None
    metadata = getattr(tracing, "fw_metadata", None)
    if metadata is None:
        return {}
    names = ("bw_donated_idxs",) if kind == "backward" else ("num_mutated_inp_runtime_indices", "static_input_indices")
    return {name: getattr(metadata, name) for name in names if getattr(metadata, name, None) is not None}


def aot_compiler_like(model: Any, compiler: Any) -> Any:
    """Wraps `compiler` in the class of `model`, by which AOTAutograd recognises cacheable compilers."""
    wrapper = loaded("SerializableAOTDispatchCompiler")
    if wrapper is not None and isinstance(model, wrapper):
        return wrapper(model.output_code_ty, compiler)
    return compiler


def is_inductor_partition(function: Any) -> bool:
    """Whether a partition function is Inductor's, whose own hooks see all of it."""
    return function is not None and function is loaded("partition_fn")


def backend_options(compiler_fn: Any) -> dict[str, Any]:
    """The Inductor options given to torch.compile, which its wrapper applies only while it compiles."""
    inner = [getattr(compiler_fn, name, None) for name in ("_torchdynamo_orig_backend", "_compiler_fn")]
    for candidate in (compiler_fn, *inner):
        options = getattr(candidate, "config", None)
        if isinstance(options, dict):
            return dict(options)
    return {}


def innermost_backend(compiler_fn: Any) -> Any:
    """The backend inside torch's wrappers; inside those, the compiler that AOTAutograd was given."""
    for _ in range(8):
        if str(getattr(compiler_fn, "__module__", None)).partition(".")[0] != "torch":
            break
        kwargs = getattr(compiler_fn, "kwargs", None)
        names = ("_torchdynamo_orig_backend", "_compiler_fn", "compiler_fn")
        inner = [getattr(compiler_fn, name, None) for name in names]
        inner += [kwargs.get("fw_compiler")] if isinstance(kwargs, dict) else []
        following = next((candidate for candidate in inner if callable(candidate)), None)
        if following is None:
            break
        compiler_fn = following
    return compiler_fn


def plain_callable(compiled: Any) -> Any:
    """What Dynamo would make of a compiled callable before wrapping it again: a lazy graph module's plain forward,
    recompiled now, without Dynamo's own `disable` wrapper, a second layer of which would cost every step. There are no
    public names for this."""
    lazy = loaded("LazyGraphModule")
    owner: Any = getattr(compiled, "__self__", None)
    if lazy is not None and isinstance(compiled, lazy):
        lazy.force_recompile(compiled)
    elif lazy is not None and isinstance(owner, lazy) and getattr(compiled, "__name__", "") == "_lazy_forward":
        lazy.force_recompile(owner)
        compiled = owner.forward
    while getattr(compiled, "_torchdynamo_wrapper_id", None) == id(compiled) and callable(
        getattr(compiled, "_torchdynamo_orig_callable", None)
    ):
        compiled = compiled._torchdynamo_orig_callable
    return compiled


def changed_settings(
    extra_inductor: Mapping[str, Any] | None = None, *, but_caches: bool = False
) -> dict[str, dict[str, Any]]:
    """Settings that are not at their default on this thread, by room of the configuration.

    `extra_inductor` are options that Inductor will apply while it compiles. With `but_caches` their switches are left
    out: the recorder itself has set them.
    """
    changed: dict[str, dict[str, Any]] = {}
    for room in CONFIGS:
        module = loaded(f"{room}_config")
        values = dict(_not_default(module)) if module is not None else {}
        if (left_out := values.pop("ignore_logging_functions", None)) and (theirs := steps.not_ours(left_out)):
            values["ignore_logging_functions"] = theirs
        if room == "inductor":
            values.update({name.replace("-", "_"): value for name, value in (extra_inductor or {}).items()})
        if but_caches:
            values = {name: value for name, value in values.items() if name not in CACHE_SWITCHES.get(room, ())}
        if values:
            changed[room] = dict(sorted(values.items()))
    return changed


def encoded_settings(*, but_caches: bool = False) -> dict[str, dict[str, Any]]:
    """The changed settings in the saved form."""
    changed = changed_settings(but_caches=but_caches)
    return {room: {name: encoded(value) for name, value in values.items()} for room, values in changed.items()}


def _not_default(module: Any) -> Iterable[tuple[str, Any]]:
    entries = getattr(module, "_config", None)
    is_default = getattr(module, "_is_default", None)
    if not isinstance(entries, dict) or is_default is None:
        return
    variables, others = _own_names(module, len(entries))
    touched = (variables[variable] for variable in copy_context() if variable in variables)
    for name in dict.fromkeys([*others, *touched]):
        if is_default(name):
            continue
        value, default = getattr(module, name), getattr(entries[name], "default", None)
        # The compiler sets some of its settings to their default for a while; those are not changed by anybody.
        if type(value) is not type(default) or not _same(value, default):
            yield name, value


@functools.cache
def _own_names(module: Any, _: int) -> tuple[dict[Any, str], list[str]]:
    """The settings of a config module, without aliases and deprecated names: context variable -> name for those never
    overridden and at their default, and the names of all others. `_`: the number of settings, a cache key. Asking for
    each setting every time would be slow."""
    entries: dict[str, Any] = module._config
    of_another = lambda entry: getattr(entry, "alias", None) is not None or getattr(entry, "deprecated", False)  # noqa: E731
    own = {name: getattr(entry, "user_override", None) for name, entry in entries.items() if not of_another(entry)}
    untouched = Context().run(lambda: {name for name in own if module._is_default(name)})
    named = {variable: name for name, variable in own.items() if name in untouched and isinstance(variable, ContextVar)}
    return named, [name for name in own if name not in named.values()]


def _same(value: Any, default: Any) -> bool:
    plain = (bool, int, float, str, type(None), list, tuple, dict)
    return value is default or (isinstance(value, plain) and bool(value == default))


def encoded(value: Any) -> Any:
    """A setting or keyword argument as an argument of the saved form (see dumps.schema), for records that exist
    already."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else {"float": "nan" if value != value else "inf" if value > 0 else "-inf"}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in value]}
    if isinstance(value, (list, set, frozenset)):
        return [encoded(item) for item in (value if isinstance(value, list) else sorted(value, key=str))]
    if isinstance(value, Mapping):
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    return {"opaque": [type(value).__qualname__, _text(value)]}


def _text(value: Any, limit: int = 200) -> str:
    name = getattr(value, "__qualname__", None)
    text = f"{getattr(value, '__module__', '')}.{name}" if name else repr(value)
    return text if len(text) <= limit else text[:limit] + "…"


def ambient(*, rng: bool = False, seed: bool = True) -> Ambient:
    """The state in force on this thread. With `rng` the states of the CPU and GPU generators are kept whole, as
    `cpu:<base64 of zlib>`, one word per device that is in use already.

    Without `seed` it holds nothing that differs between ranks with the same graph.
    """
    import torch

    states = ""
    if rng:
        from ...dumps.held import packed_state

        states = " ".join(f"{name}:{packed_state(bytes(state.tolist()))}" for name, state in generators())
    return Ambient(
        grad=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        autocast=_autocast(),
        autocast_cache=torch.is_autocast_cache_enabled(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        deterministic_warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        matmul_precision=_read_or(torch.get_float32_matmul_precision, "highest"),
        tf32=bool(_read_or(lambda: torch.backends.cuda.matmul.allow_tf32, False)),
        cudnn_tf32=bool(_read_or(lambda: torch.backends.cudnn.allow_tf32, True)),
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        threads=torch.get_num_threads(),
        seed=torch.initial_seed() if seed else 0,
        rng_state=states,
    )


def settings(state: Ambient) -> dict[str, Any]:
    """Name in words -> a setting of torch's that outlives the function which sets it."""
    return {
        "torch's choice of deterministic algorithms": (state.deterministic, state.deterministic_warn_only),
        "torch's precision of float32 matrix products": state.matmul_precision,
        "torch's default dtype": state.default_dtype,
        "torch's choice of TF32 in cuDNN": state.cudnn_tf32,
        "torch's number of threads": state.threads,
    }


def put_settings(state: Ambient) -> None:
    """Sets those of torch's `settings` that differ."""
    import torch

    now = ambient(seed=False)
    if (now.deterministic, now.deterministic_warn_only) != (state.deterministic, state.deterministic_warn_only):
        torch.use_deterministic_algorithms(state.deterministic, warn_only=state.deterministic_warn_only)
    if now.matmul_precision != state.matmul_precision:
        torch.set_float32_matmul_precision(state.matmul_precision)
    if now.default_dtype != state.default_dtype:
        torch.set_default_dtype(getattr(torch, state.default_dtype))
    if now.cudnn_tf32 != state.cudnn_tf32:
        torch.backends.cudnn.allow_tf32 = state.cudnn_tf32
    if state.threads and now.threads != state.threads:
        torch.set_num_threads(state.threads)  # Inductor writes this number into C++ kernels


def generators() -> list[tuple[str, Any]]:
    """(device, state) of the default generators of the CPU and of the GPUs in use; states are tensors of bytes on the
    CPU."""
    import torch

    states: list[tuple[str, Any]] = [("cpu", torch.get_rng_state())]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states += [(f"cuda:{i}", state) for i, state in enumerate(torch.cuda.get_rng_state_all())]
    return states


def _autocast() -> dict[str, str]:
    import torch

    on = [device for device in DEVICE_TYPES if _read_or(functools.partial(torch.is_autocast_enabled, device), False)]
    return {device: str(torch.get_autocast_dtype(device)).removeprefix("torch.") for device in on}


def _read_or(read: Callable[[], Any], otherwise: Any) -> Any:
    # torch refuses to tell TF32 settings when the old and the new interface were mixed, and autocast of absent devices.
    try:
        return read()
    except RuntimeError:
        return otherwise
