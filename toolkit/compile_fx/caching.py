"""The FX graph cache, local and remote, around code generation: looked up, filled, and what it said kept for the
report.

A pipeline that skips, replaces or stops neither reads nor writes any cache, AOTAutograd's included: its code is nobody
else's. Keys are torch's own, so what stock compiled is found here and the other way round.

For example:

    with apart(pipeline): load_or(work, pipeline, generate)
    work.cache, work.cache_detail  # -> ('hit', 'fx-graph-key...')
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from inspect import currentframe
from typing import Any

import torch

from ...dumps.errors import UsageError
from .. import torch_private as t
from ..live.entries import has_cpp_compiler
from ..torch_private.replacing import Function, Hooks
from . import logs
from .pipeline import Pipeline
from .stage import reaches
from .work import Work

Generate = Callable[[Work, Pipeline], None]


@contextlib.contextmanager
def apart(pipeline: Pipeline) -> Iterator[None]:
    """Without caches for a pipeline whose code may differ from stock."""
    if not pipeline.changes_code:
        yield
        return
    if t.dynamo_config.caching_precompile:
        raise UsageError(
            "the compile path cannot skip, replace or stop at a stage here",
            "torch._dynamo.config.caching_precompile keeps what is compiled for other processes",
            "turn it off",
        )
    functorch = {"enable_autograd_cache": False, "enable_remote_autograd_cache": False, "bundled_autograd_cache": False}
    inductor = _known(t.inductor_config, {"fx_graph_cache": False, "fx_graph_remote_cache": False})
    with (
        t.functorch_config.patch(_known(t.functorch_config, functorch)),
        t.inductor_config.patch(inductor),
        answered(pipeline.until),
    ):
        yield


def _known(module: Any, settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if hasattr(module, name)}


def load_or(work: Work, pipeline: Pipeline, generate: Generate) -> None:
    """Sets `work.compiled` from the cache, or by `generate`, which a miss then saves. Says in the last report what
    happened."""
    remote = t.should_use_remote_fx_graph_cache()
    info: dict[str, Any] | None = None
    key: tuple[str, Any] | None = None
    remote_cache = None
    started_ns = time.time_ns()
    _mark_static(work)
    cached = _may_cache(work, remote)
    if cached:
        key, info = t.FxGraphCache.prepare_key(work.gm, work.inputs, work.kwargs, work.inputs_to_check, remote)
        if key is not None:
            remote_cache = t.FxGraphCache.get_remote_cache() if remote else None
            work.compiled, info = t.FxGraphCache.load_with_key(
                *key,
                work.inputs,
                t.inductor_config.fx_graph_cache,
                remote_cache,
                is_backward=work.kwargs.get("is_backward", False),
                constants=work.constants,
            )
    state = info["cache_state"] if info is not None else "off"
    work.cache, work.cache_detail = state, str((info or {}).get("cache_bypass_reason") or (key[0] if key else ""))
    if state == "hit":
        _stamp(work, key)
    elif state == "miss":
        assert key is not None and info is not None
        bundle = _bundled(work, pipeline, generate)
        work.compiled._time_taken_ns = info["time_taken_ns"] = time.time_ns() - started_ns
        _stamp(work, key)
        if bundle is not None:
            info["triton_bundler_meta"] = str(bundle)
        t.FxGraphCache._save_graph(key[0], work.compiled, work.inputs, t.inductor_config.fx_graph_cache, remote_cache)
    elif t.functorch_config.bundled_autograd_cache:
        _bundled(work, pipeline, generate)
    else:
        try:
            generate(work, pipeline)
        except UsageError:
            raise  # of our own, such as a pass that this graph cannot do without
        except Exception as error:  # noqa: BLE001
            raise t.InductorError(error, currentframe()).with_traceback(error.__traceback__) from None
    _tell(work, pipeline, info, started_ns, remote)


def _may_cache(work: Work, remote: bool) -> bool:
    t.init_backend_registration()
    wrappers = (
        t.get_wrapper_codegen_for_device(device.type, t.inductor_config.cpp_wrapper, t.inductor_config.fx_wrapper)
        for device in t.get_all_devices(work.gm)
    )
    supported = all(wrapper.supports_caching for wrapper in wrappers if wrapper is not None)
    used = (
        not t.inductor_config.force_disable_caches
        and bool(t.inductor_config.fx_graph_cache or remote)
        and not t.V.aot_compilation
        and supported
        and not t.functorch_config.bundled_autograd_cache
    )
    t.set_feature_use("fx_cache", used)
    return used


def _mark_static(work: Work) -> None:
    """The key of the cache tells inputs that stay in place by this mark."""
    for index in work.kwargs["static_input_idxs"]:
        value: Any = work.inputs[index] if index < len(work.inputs) else None
        if isinstance(value, torch.Tensor) and t.is_gpu(value.device.type):
            value._is_inductor_static = True  # pyright: ignore[reportAttributeAccessIssue]


def _bundled(work: Work, pipeline: Pipeline, generate: Generate) -> Any:
    """Generates with Triton's results gathered, for a cache to keep; returns what was gathered, in words."""
    t.TritonBundler.begin_compile()
    try:
        generate(work, pipeline)
        bundle, told = t.TritonBundler.collect()
        work.compiled.set_triton_bundle(bundle)
    except (t.ShortenTraceback, t.SkipFrame):
        raise
    except Exception as error:  # noqa: BLE001
        raise t.InductorError(error, currentframe()).with_traceback(error.__traceback__) from None
    finally:
        t.TritonBundler.end_compile()
    return told


def _stamp(work: Work, key: tuple[str, Any] | None) -> None:
    assert key is not None
    work.compiled._fx_graph_cache_key, work.compiled._fx_graph_cache_debug_lines = key


def _tell(work: Work, pipeline: Pipeline, info: dict[str, Any] | None, started_ns: int, remote: bool) -> None:
    """Torch's own events of a cache, for its traces, and our report."""
    state = info["cache_state"] if info is not None else "disabled"
    event = dict(info) if info else {}
    t.CompileEventLogger.instant(f"fx_graph_cache_{state}", metadata=event, time_ns=started_ns)
    t.CompileEventLogger.try_add_pt2_compile(
        "inductor_compile",
        cache_state=state,
        cache_event_time=started_ns,
        key=event.get("key"),
        components=event.get("components"),
        cache_bypass_reason=event.get("cache_bypass_reason") if info else "cache not enabled",
        remote_cache_enabled=remote,
        local_cache_enabled=t.inductor_config.fx_graph_cache,
    )
    if info is not None:
        logs.trace_text(f"fx_graph_cache_{state}", lambda: json.dumps(event), "json")
    pipeline.tell_cache(work)


def answered(until: str | None) -> contextlib.AbstractContextManager[None]:
    """For a compile that stops after `until`: torch's question is answered by yes where no compiler can, and none is
    needed.

    Torch keeps the answer for the life of the process; nothing can be built in it anyway.
    """
    return contextlib.nullcontext() if reaches(until, "load") or has_cpp_compiler() else _hooks.inside(True)


def _answered(usual: Function) -> Function:
    return lambda units, code: True if _hooks.here else usual(units, code)


_hooks = Hooks(lambda: [(*t.home("VecISA.check_build"), _answered)])
