"""Journals why a graph exists: what Dynamo decides while it compiles a frame, as events of kind "why" (read by
dumps/why).

Every wrapper but the one for DDP is around a short helper call of Dynamo, never around the tracing itself, so that no
stack or log of the user contains our frames. Formats no text that Dynamo would not, and enables no log. Writes little:
long texts and skipped functions once each, since a training run may meet the same graph break in 500 recompiles.

For example: `signpost_event(original)("dynamo", "_convert_frame_assert._compile", {"compile_id": "0/0", ...})`.
"""

from __future__ import annotations

import functools
import inspect
import re
import sysconfig
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...dumps import syntax
from ...dumps.ids import compile_name
from ...dumps.why import wording
from ..live import roles
from ..live.torch_state import compile_id, dynamo_setting
from .session import Function, Session, hook, lacking

if TYPE_CHECKING:
    from ...dumps.writer import ProcessWriter
    from .flight import Graph

_NAME = re.compile(
    r"""(?<![\w.'"])[A-Za-z_]\w*(?:\.(?:size|stride)\(\)\[\d+\]|\.[A-Za-z_]\w*(?!\w|\()|\[(?:'[^']*'|"[^"]*"|\d+)\])*""",
    re.ASCII,
)
_STEP = re.compile(
    r"""\.(?P<of>size|stride)\(\)\[(?P<dim>\d+)\]|\.(?P<attribute>\w+)|\[(?P<key>'[^']*'|"[^"]*"|\d+)\]"""
)
_LENGTH = re.compile(r"len\((.+)\)")
_LITERAL = re.compile(r"""(?<!\[)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_ABOUT_TYPES = (" is None", " is not None", "___check_type_id")
_MOST = 4
_LONGEST = 60
_ABSENT = object()


def failing_values(frame: Any, reasons: Iterable[str]) -> dict[str, int | float | bool | str | None]:
    """Names in the first guard that failed -> their present values: plain numbers, text or None; for guards on types
    the type, as "<Tensor>"."""
    text = next(iter(reasons), "").partition("\n")[0].partition("  # ")[0].partition(": ")[2]
    if frame is None or not text or text.startswith("tensor "):
        return {}
    values: dict[str, Any] = {}
    scope, outer = frame.f_locals, frame.f_globals
    for match in _NAME.finditer(_LITERAL.sub("''", text)):
        name = match[0]
        value = _resolve(name, scope, outer)
        if isinstance(value, (list, tuple, dict, str)) and f"len({name})" in text:
            name, value = f"len({name})", len(value)
        if type(value) in (int, float, bool, type(None)) or (type(value) is str and len(value) <= _LONGEST):
            values[name] = value
        elif value is not _ABSENT and any(words in text for words in _ABOUT_TYPES):
            values[name] = f"<{type(value).__name__}>"
        if len(values) == _MOST:
            break
    return values


def also_failing(entry: Any, frame: Any, first: str) -> list[tuple[str, int | float | bool | str]]:
    """The guards `name == constant` of a compiled version that fail in a frame besides the first one, each with the
    present value: torch stops at the first, though the others would cause recompiles of their own."""
    failing: list[tuple[str, int | float | bool | str]] = []
    for part in getattr(getattr(entry, "guard_manager", None), "code_parts", None) or ():
        name, equals, constant = wording.short(str(part)).partition(" == ")
        measured = _LENGTH.fullmatch(name)
        held = measured[1] if measured else name
        if not equals or not _NAME.fullmatch(held):
            continue
        try:
            wanted = syntax.literal(constant)
        except (SyntaxError, ValueError):
            continue
        value: Any = _resolve(held, frame.f_locals, frame.f_globals)
        if measured:
            value = len(value) if type(value) in (list, tuple, dict) else None
        plain = type(value) in (int, float, bool, str) and type(value) is type(wanted)
        if plain and value != wanted and (text := f"{name} == {constant}") not in first and len(text) <= _LONGEST:
            failing.append((text, value))
    return failing[:_MOST]


def _resolve(name: str, scope: Any, outer: Any) -> Any:
    root = re.match(r"\w+", name)
    if root is None:
        return _ABSENT
    value: Any = outer if root[0] == "G" and "G" not in scope else scope.get(root[0], _ABSENT)
    for step in _STEP.finditer(name, root.end()):
        value = _inside(value, step)
    return value


def _inside(value: Any, step: re.Match[str]) -> Any:
    if step["of"]:
        return _extent(value, step["of"], int(step["dim"]))
    if step["attribute"]:
        return _attribute(value, step["attribute"])
    key: Any = step["key"][1:-1] if step["key"][0] in "'\"" else int(step["key"])
    if type(value) is dict:
        return value.get(key, _ABSENT)
    if type(value) in (list, tuple) and isinstance(key, int) and key < len(value):
        return value[key]
    return _ABSENT


def _attribute(value: Any, name: str) -> Any:
    """Reads an attribute without calling `__getattr__`: from the object's `__dict__`, or a module's `_modules`,
    `_buffers` and `_parameters`."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return _ABSENT
    if name == "__dict__":
        return own
    for holder in (own, *(own.get(part) for part in ("_modules", "_buffers", "_parameters"))):
        if isinstance(holder, dict) and name in holder:
            return holder[name]
    return _ABSENT


def _extent(value: Any, of: str, dim: int) -> Any:
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or dim >= value.dim():
        return _ABSENT
    return value.shape[dim] if of == "size" else value.stride()[dim]


TEXT = 2400
GUARD = 1200
_REASONS = 3
_SYMBOLS = 64
_STACK = 8
_SKIPS = 1000
_NAMES = 6
_WRAPPER = "/torch/_dynamo/external_utils.py"
_TOLD_ELSEWHERE = ("suppressed", "custom frame execution strategy", "Dynamo-generated code")

_PATHS = sysconfig.get_paths()
_LIBRARY = (_PATHS["stdlib"], _PATHS["platstdlib"])
_SITE = (_PATHS["purelib"], _PATHS["platlib"])
_HERE = tuple(str(Path(__file__).parents[2] / room) for room in ("dumps", "toolkit"))
_USUAL = ("no tensor-related objects", "skipfiles", "No ops traced")
"""Skip reasons that are not worth a note for library code."""

_signature = functools.cache(inspect.signature)


class _Journaled:
    """What one journal already contains: a long text is written once and then referred to by number."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.skips: set[tuple[str, ...]] = set()


class _FrameState(threading.local):
    code: CodeType | None = None
    wrapped: str | None = None
    compiler: int = 0
    part: int = 0


_here = _FrameState()

_journaled: WeakKeyDictionary[ProcessWriter, _Journaled] = WeakKeyDictionary()


def journal(session: Session, what: str, **fields: Any) -> None:
    """Writes one "why" event. Before the first one of a journal, an event names the hooks that this torch lacks."""
    writer = session.writer()
    journaled = _journaled.get(writer)
    if journaled is None:
        journaled = _journaled[writer] = _Journaled()
        ours = (hook for hook in lacking.values() if hook.module.startswith("torch._dynamo.") and not hook.stages)
        missing = [f"{hook.lost} (it has no {hook.whole()})" for hook in ours]
        session.event("why", what="begin", missing=missing or None)
    text = fields.pop("text", None)
    if text:
        number = journaled.texts.get(text)
        if number is None:
            number = journaled.texts[text] = len(journaled.texts)
            fields["text"] = text
        fields["text_id"] = number
    session.event("why", what=what, **fields)


def now() -> str | None:
    """The name of the compile and attempt in progress on this thread, as in folders: "0_0_a1"; None outside a
    compile."""
    current = compile_id()
    return None if current is None else compile_name(current)


def skip(session: Session, code: CodeType, reason: str) -> None:
    """Journals that Dynamo skipped a function, once per reason; not for functions of torch, Python or graphdbg."""
    file, line = code.co_filename, code.co_firstlineno
    installed = file.startswith(_SITE)
    if file.startswith((*_HERE, "<")) or "/torch/" in file or (file.startswith(_LIBRARY) and not installed):
        return
    if installed and any(words in reason for words in _USUAL):
        return
    function = getattr(code, "co_qualname", code.co_name)
    key = (function, file, str(line), reason)
    journaled = _journaled.get(session.writer())
    if journaled is not None and (key in journaled.skips or len(journaled.skips) >= _SKIPS):
        return
    journal(session, "skip", function=function, file=file, line=line, reason=reason[:GUARD])
    _journaled[session.writer()].skips.add(key)


def text_of(error: Any, otherwise: str) -> str:
    """The message of a Dynamo exception, without what Dynamo adds for logs; `otherwise` where it has none."""
    text = str(getattr(error, "msg", None) or error or otherwise)
    return text if len(text) <= TEXT else text[:TEXT] + "…"


def stack_of(stack: Any) -> list[list[Any]] | None:
    """The innermost frames of a traceback summary, outermost first: file, line, function, code."""
    frames = list(stack or ())[-_STACK:]
    return [[frame.filename, frame.lineno, frame.name, (frame.line or "")[:200]] for frame in frames] or None


def _after(observe: Callable[..., None]) -> Callable[[Function], Function]:
    """Makes a hook that calls the original and then `observe(session, result, *args, **kwargs)`, whose errors are not
    raised."""

    def call(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        with session.guarded("why"):
            observe(session, result, *args, **kwargs)
        return result

    return hook(call)


@_after
def has_tensor_in_frame(session: Session, result: Any, frame: Any, *_: Any) -> None:
    """Remembers the code that is about to be compiled, for its qualified name; for a module of torch's own, which
    Dynamo compiles inside a small wrapper, also the wrapped function's or class's name."""
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
    """Records that a frame is about to be compiled, from Dynamo's telemetry: function, compile id, number of cached
    versions."""
    if not (name.endswith("_compile") and "co_name" in parameters and "compile_id" in parameters):
        return
    code, _here.code = _here.code, None
    function, wrapped = str(parameters["co_name"]), None
    if code is not None and code.co_name == function:
        function, wrapped = getattr(code, "co_qualname", function), _here.wrapped
    thread = threading.current_thread()
    journal(
        session,
        "frame",
        compile=compile_name(str(parameters["compile_id"])),
        function=function,
        of=wrapped,
        file=parameters.get("co_filename"),
        line=parameters.get("co_firstlineno"),
        cached=parameters.get("cache_size"),
        thread=None if thread is threading.main_thread() else thread.name,
    )


@hook
def get_and_maybe_log_recompilation_reasons(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
    """Journals the guards that failed, newest compiled version first. The original raises where recompiles are
    errors."""
    given = functools.partial(_signature(original).bind, *args, **kwargs)
    try:
        reasons = original(*args, **kwargs)
    except Exception as error:
        _recompile(session, given, [], str(error)[:TEXT])
        raise
    _recompile(session, given, reasons, None)
    return reasons


def _recompile(
    session: Session, bind: Callable[[], inspect.BoundArguments], reasons: list[str], error: str | None
) -> None:
    with session.guarded("why"):
        given = bind().arguments
        if not given.get("skip_logging"):
            kinds: dict[str, str] = {}
            for reason in map(str, reasons):
                kinds.setdefault(wording.alike(wording.guard(reason).text), reason[:GUARD])
            texts, frame = list(kinds.values())[:_REASONS], given.get("frame")
            entries: Any = given.get("cache_entries", given.get("cache_entry"))
            newest = next(iter(entries), None) if isinstance(entries, list) else entries
            also = also_failing(newest, frame, texts[0]) if texts and frame is not None else []
            values = {"now": failing_values(frame, texts) or None, "also": also or None}
            journal(session, "recompile", compile=now(), reasons=texts, **values, error=error)


@_after
def exceeds_recompile_limit(session: Session, result: Any, *_: Any, **__: Any) -> None:
    """Journals that a frame is given up because it was compiled too often."""
    exceeded, limit = result if isinstance(result, tuple) else (result, None)
    if exceeded:
        journal(session, "limit", compile=now(), limit=limit, value=dynamo_setting(str(limit)))


@hook
def log_graph_break(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
    """Journals a graph break that is not an error, from the exception that says why and where."""
    with session.guarded("why"):
        _break(session, _signature(original).bind(*args, **kwargs).arguments)
    return original(*args, **kwargs)


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


@_after
def restart_analysis(session: Session, _: Any, self: Any, *__: Any, **___: Any) -> None:
    """Journals that Dynamo restarts the analysis of a frame: called when a RestartAnalysis exception is created."""
    name = type(self).__name__
    text = None if name == "SpeculationRestartAnalysis" else str(getattr(self, "restart_reason", None) or self)
    journal(session, "restart", compile=now(), error=name, text=text and text[:TEXT])


@hook
def exception_handler(session: Session, original: Function, e: Any, *args: Any, **kwargs: Any) -> Any:
    """Journals that a frame could not be compiled, before Dynamo adds stacks to the exception's message."""
    with session.guarded("why"):
        if not getattr(e, "logged", False):
            inner = getattr(e, "inner_exception", None)
            error = inner if isinstance(inner, BaseException) else e
            names = {"error": type(error).__name__, "outer": type(e).__name__}
            stack = stack_of(getattr(e, "real_stack", None))
            journal(session, "failed", compile=now(), **names, stack=stack, text=text_of(error, ""))
    return original(e, *args, **kwargs)


@_after
def handle_skip(session: Session, _: Any, self: Any, result: Any, frame: Any, *__: Any) -> None:
    """Journals a frame that was left alone, with the reason, unless it has an event of its own."""
    reason = getattr(result, "skip_reason", None)
    if reason is None or getattr(result, "guarded_code", None) is not None:
        return
    code: CodeType = frame.f_code
    if "suppressed" in reason and code.co_flags & inspect.CO_GENERATOR:
        skip(session, code, "generator functions cannot be compiled")
    elif not any(words in reason for words in _TOLD_ELSEWHERE):
        skip(session, code, str(reason))


@hook
def compile_submod(session: Session, original: Function, self: Any, input_mod: Any, *args: Any, **kwargs: Any) -> Any:
    """Journals one part of a graph that DDP's optimizer splits at its buckets: called once per part. Reads metadata
    only."""
    with session.guarded("why"):
        _here.part = _here.part + 1 if _here.compiler == id(self) else 1
        _here.compiler = id(self)
        placeholders = [node for node in input_mod.graph.nodes if node.op == "placeholder"]
        inputs = zip(roles.of_dynamo(input_mod), placeholders, strict=True)
        parameters = [(item, node.meta.get("example_value")) for item, node in inputs if item.role == "parameter"]
        journal(
            session,
            "part",
            compile=now(),
            part=_here.part,
            of=sum(node.op == "call_module" for node in self.module.graph.nodes),
            parameters=len(parameters),
            bytes=sum(value.numel() * value.element_size() for _, value in parameters if value is not None),
            names=[item.source for item, _ in parameters[:_NAMES]],
        )
    result = original(self, input_mod, *args, **kwargs)
    with session.guarded("why"):
        journal(session, "part end", compile=now())
    return result


def symbols(session: Session, name: str, graph: Graph | None) -> None:
    """Journals the symbols of a Dynamo graph, so that a reader can see which sizes became dynamic without opening
    records."""
    record = graph.record if graph is not None else None
    if record is None or not record.symbols:
        return
    with session.guarded("why"):
        rows = [(item.name, item.source, item.hint, item.lower, item.upper) for item in record.symbols[:_SYMBOLS]]
        journal(session, "symbols", compile=name, symbols=rows)
