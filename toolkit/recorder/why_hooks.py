"""Why a graph exists: what Dynamo finds out while it compiles a frame, journalled as events of kind "why" (dumps/why reads them).

Every wrapper but the one for DDP is around a short call that Dynamo makes in passing, never around the tracing itself, so no
stack and no log of the user has a frame of ours. Must not force text that Dynamo would not make: no log is switched on.

>>> signpost_event(original)("dynamo", "_convert_frame_assert._compile", {"compile_id": "0/0", "co_name": "forward", ...})
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from ...dumps.ids import compile_name
from . import ddp_parts, guard_values
from .live_torch import dynamo_setting
from .session import Session, active
from .why_journal import GUARD, TEXT, journal, now, skip, stack_of, text_of

if TYPE_CHECKING:
    from .flight import Graph

_REASONS = 3
_SYMBOLS = 64
_WRAPPER = "/torch/_dynamo/external_utils.py"
_TOLD_ELSEWHERE = ("suppressed", "custom frame execution strategy", "Dynamo-generated code")


class _Here(threading.local):
    code: CodeType | None = None
    wrapped: str | None = None


_here = _Here()


def _after(observe: Callable[..., None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that calls the original and then `observe(session, result, *args, **kwargs)`, whose errors go no further."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            session = active()
            if session is not None:
                with session.guarded("why"):
                    observe(session, result, *args, **kwargs)
            return result

        return wrapper

    return wrap


@_after
def has_tensor_in_frame(session: Session, result: Any, frame: Any, *_: Any) -> None:
    """Remembers the code that is about to be compiled, for the name that its class gives it. A module of torch's own is compiled
    inside a small wrapper of torch's, which does not say whose it is."""
    _here.code, _here.wrapped = frame.f_code, None
    inner = frame.f_locals.get("fn") if frame.f_code.co_filename.endswith(_WRAPPER) else None
    if inspect.isroutine(inner):
        _here.wrapped = getattr(inner, "__qualname__", None)
    elif inner is not None:
        _here.wrapped = type(inner).__qualname__
    if result is False:
        skip(session, frame.f_code, "no tensor-related objects found in frame")


@_after
def signpost_event(session: Session, _: Any, category: str, name: str, parameters: Mapping[str, Any], *__: Any) -> None:
    """A frame is about to be compiled: Dynamo's own telemetry names its function, its id, and how often it was compiled."""
    if not (name.endswith("_compile") and "co_name" in parameters and "compile_id" in parameters):
        return
    (code, wrapped), _here.code = (_here.code, _here.wrapped), None
    function = str(parameters["co_name"])
    if code is not None and code.co_name == function:
        function = getattr(code, "co_qualname", function)
    else:
        wrapped = None
    thread = threading.current_thread()
    journal(
        session, "frame", compile=compile_name(str(parameters["compile_id"])), function=function, of=wrapped,
        file=parameters.get("co_filename"), line=parameters.get("co_firstlineno"), cached=parameters.get("cache_size"),
        thread=None if thread is threading.main_thread() else thread.name,
    )  # fmt: skip


def get_and_maybe_log_recompilation_reasons(original: Callable[..., Any]) -> Callable[..., Any]:
    """The guards that failed, newest compiled version first; it raises where recompiles are errors."""
    signature = inspect.signature(original)

    def tell(reasons: list[str], args: Any, kwargs: Any, error: str | None) -> None:
        session = active()
        if session is None:
            return
        with session.guarded("why"):
            given = signature.bind(*args, **kwargs).arguments
            if given.get("skip_logging"):
                return
            texts = list(dict.fromkeys(str(reason)[:GUARD] for reason in reasons))[:_REASONS]
            values = guard_values.found(given.get("frame"), texts)
            journal(session, "recompile", compile=now(), reasons=texts, of=len(reasons), now=values or None, error=error)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            reasons = original(*args, **kwargs)
        except Exception as error:
            tell([], args, kwargs, str(error)[:TEXT])
            raise
        tell(reasons, args, kwargs, None)
        return reasons

    return wrapper


@_after
def exceeds_recompile_limit(session: Session, result: Any, *_: Any, **__: Any) -> None:
    """Whether a frame is given up because it was compiled too often."""
    exceeded, limit = result if isinstance(result, tuple) else (result, None)
    if exceeded:
        journal(session, "limit", compile=now(), limit=limit, value=dynamo_setting(str(limit)))


def log_graph_break(original: Callable[..., Any]) -> Callable[..., Any]:
    """Called once for each graph break that is not an error, with the exception that says why and where."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is not None:
            with session.guarded("why"):
                _break(session, signature.bind(*args, **kwargs).arguments)
        return original(*args, **kwargs)

    return wrapper


def _break(session: Session, given: Mapping[str, Any]) -> None:
    error, reason = given.get("exc"), str(given.get("reason") or "")
    if getattr(error, "logged", False):
        return
    then = "resumed"
    if "cannot resume from" in reason[:80]:
        then = "rest skipped"
    elif reason.startswith("Failed to handle graph break gracefully"):
        then = "frame skipped"
    stack = getattr(error, "real_stack", None) or given.get("user_stack")
    journal(session, "break", compile=now(), then=then, stack=stack_of(stack), text=text_of(error, reason))


def restart_analysis(original: Callable[..., Any]) -> Callable[..., Any]:
    """Dynamo starts a frame over: RestartAnalysis and its subclasses are made in order to be raised."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        session = active()
        if session is not None:
            with session.guarded("why"):
                name = type(self).__name__
                text = None if name == "SpeculationRestartAnalysis" else str(getattr(self, "restart_reason", None) or self)
                journal(session, "restart", compile=now(), error=name, text=text and text[:TEXT])

    return wrapper


def exception_handler(original: Callable[..., Any]) -> Callable[..., Any]:
    """A frame could not be compiled; the exception is seen before Dynamo adds stacks to its message."""

    @functools.wraps(original)
    def wrapper(e: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is not None and not getattr(e, "logged", False):
            with session.guarded("why"):
                inner = getattr(e, "inner_exception", None)
                error = inner if isinstance(inner, BaseException) else e
                journal(
                    session, "failed", compile=now(), error=type(error).__name__, outer=type(e).__name__,
                    stack=stack_of(getattr(e, "real_stack", None)), text=text_of(error, ""),
                )  # fmt: skip
        return original(e, *args, **kwargs)

    return wrapper


@_after
def handle_skip(session: Session, _: Any, self: Any, result: Any, frame: Any, *__: Any) -> None:
    """A frame that was left alone, with the reason; those that have an event of their own are not told twice."""
    reason = getattr(result, "skip_reason", None)
    if reason is None or getattr(result, "guarded_code", None) is not None:
        return
    code: CodeType = frame.f_code
    if "suppressed" in reason and code.co_flags & inspect.CO_GENERATOR:
        skip(session, code, "generator functions cannot be compiled")
    elif not any(words in reason for words in _TOLD_ELSEWHERE):
        skip(session, code, str(reason))


def compile_submod(original: Callable[..., Any]) -> Callable[..., Any]:
    """DDP's optimizer cuts a graph at its buckets: one call for each part."""

    @functools.wraps(original)
    def wrapper(self: Any, input_mod: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is not None:
            with session.guarded("why"):
                journal(session, "part", compile=now(), **ddp_parts.described(self, input_mod))
        result = original(self, input_mod, *args, **kwargs)
        if session is not None:
            with session.guarded("why"):
                journal(session, "part end", compile=now())
        return result

    return wrapper


def symbols(session: Session, name: str, graph: Graph | None) -> None:
    """Journals the symbols of a Dynamo graph, so that a reader can tell which sizes became dynamic without opening records."""
    record = graph.record if graph is not None else None
    if record is None or not record.symbols:
        return
    with session.guarded("why"):
        found = [(item.name, item.source, item.hint, item.lower, item.upper) for item in record.symbols[:_SYMBOLS]]
        journal(session, "symbols", compile=name, symbols=found)
