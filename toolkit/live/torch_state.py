"""Reads what torch reports about itself in a recorded program: compile ids, settings, modes, the ambient state.

Imports nothing but torch itself, and any name may be missing: a torch without one records less, and what is missing is
reported. Only reads: draws no random number and changes no setting.

>>> compile_id() is None                # outside of a compile
True
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any

from ...dumps.schema import Ambient
from ..torch_private import loaded
from ..torch_private.names import CONFIGS
from . import steps

CACHE_SWITCHES = {
    "functorch": ("enable_autograd_cache", "enable_remote_autograd_cache"),
    "inductor": ("fx_graph_cache", "fx_graph_remote_cache"),
}
"""Settings of caches that skip the compiler, and so hide graphs from the recorder."""

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


def compiles() -> int:
    """How many frame compiles Dynamo has begun since its reset. `counters` would miss those with fullgraph=True."""
    begun = loaded("frame_compiles")
    return sum(begun.values()) if begun is not None else 0


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


@contextmanager
def settings_put(state: Ambient) -> Iterator[None]:
    """Sets those of torch's `settings` that differ, for the block."""
    before = ambient(seed=False)
    put_settings(state)
    try:
        yield
    finally:
        put_settings(before)


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
