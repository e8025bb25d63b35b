"""One compiler call in progress: the graphs captured inside it, and how they end.

A Flight opens around a call into the compiler. Each graph captured meanwhile is journalled `captured` and `compiling`,
and settled as `compiled` or `failed` when the innermost flight around it ends. State is per thread; a Flight holds
records, never graphs or tensors. Of the user's files that a graph's stacks name a copy is kept, as Python knows it: not
those of torch, of installed packages and of Python itself. Notes what replays will lack: settings of the user that
cannot be saved (custom passes, callables) and backends of the user's own. While the compiler works, the caches that
hide graphs are off.

For example:

    with flying(session) as flight:
        flight.capture(gm, "joint", {"num_fwd_outputs": 1})
        result = original(gm)
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from ...dumps.graph_folder import GraphText
from ...dumps.ids import compile_name
from ...dumps.journal import BACKEND
from ...dumps.names import NAMES, input_source
from ...dumps.pack.redact import is_absolute, known
from ...dumps.permitted import of_the_process
from ...dumps.schema import Ambient, GraphRecord, InputRecord
from ...dumps.writer import ProcessWriter
from ..live import roles as roles_of
from ..live.spec import NOT_THE_USERS, home_of, is_opaque, registered_here
from ..live.torch_state import CACHE_SWITCHES, ambient, changed_settings, compile_id, encoded, is_a, undisturbed
from ..torch_private import loaded
from .session import Function, Session, hook

_FILE = re.compile(r'^\s*File "([^"\n]+)", line \d+', re.MULTILINE)

_WITH_GRADIENTS = ("joint", "joint_passed", "backward", "post_grad_backward")
_VISIBLE = "user_visible_output_idxs"


class PackedSave:
    """Saves a graph, now or later. Until then the record is kept packed: its objects take fifty times as much
    memory."""

    def __init__(self, writer: ProcessWriter, record: GraphRecord) -> None:
        self.writer = writer
        self.record: GraphRecord | None = record
        self._data = b""

    def pack(self) -> None:
        """Packs the record, which can no longer be amended then."""
        if self.record is not None:
            self._data = zlib.compress(msgspec.msgpack.encode(self.record), 1)
            self.record = None

    def __call__(self, text: GraphText | None = None) -> None:
        record = self.record or msgspec.msgpack.decode(zlib.decompress(self._data), type=GraphRecord)
        self.writer.save_graph(record, text=text)
        keep_sources(self.writer, record)


def keep_sources(writer: ProcessWriter, record: GraphRecord) -> None:
    """Keeps a copy of each source file that the record's stacks name and that was not kept yet, while there is room."""
    files = {file for text in record.strings if 'File "' in text for file in _FILE.findall(text)} | _script()
    for file in sorted(files - writer.sources.known):
        if is_absolute(file) and known(file) is not None:
            writer.sources.known.add(file)
            continue
        text = "".join(linecache.getlines(file))  # also of notebook cells, which are no files
        if not text or (writer.gate is not None and not writer.gate.admit_more(len(text), record.id)):
            continue
        writer.sources.keep(file, text)


def _script() -> set[str]:
    """The path of the program's main script, which stacks need not name."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return {os.path.abspath(file)} if file else set()  # noqa: PTH100  only the text of a path is wanted


class Graph:
    """One captured graph. `record`: complete while the compiler call lasts, later only what the first run needs."""

    def __init__(self, record: GraphRecord) -> None:
        self.id = record.id
        self.stage = record.stage
        self.record: GraphRecord | None = record
        self.opened = time.perf_counter()
        self.watched = False
        self.save: PackedSave | None = None
        self.text: GraphText | None = None


CACHE_HITS = {"AOTAutograd": ("aot_autograd", "autograd_cache_hit"), "FX graph": ("inductor", "fxgraph_cache_hit")}
"""Cache -> the counter of its hits."""


def counter(group: str, name: str) -> int:
    """A counter of torch._dynamo.utils.counters (cache hits are reported nowhere else)."""
    counters = loaded("counters")
    return int(counters[group][name]) if counters is not None and group in counters else 0


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


class Flight:
    """One compiler call on this thread. `name` is the compile name that its graphs share ("0_0")."""

    def __init__(self, session: Session, name: str, compile_id: str | None) -> None:
        self.session = session
        self.name = name
        self.compile_id = compile_id
        self.open: list[Graph] = []
        self.options: Mapping[str, Any] = {}
        self.dynamo_roles: list[InputRecord] = []
        self.dynamo_outputs: list[tuple[str, str]] = []
        self.main: dict[str, Any] = {}
        self.inference: list[Graph] = []
        self.graph_id: int | None = None

    def capture(
        self,
        gm: Any,
        stage: str,
        compile_kwargs: Mapping[str, Any] | None = None,
        *,
        roles: list[InputRecord] | None = None,
        settle: bool = True,
        grows: bool = False,
    ) -> Graph | None:
        """Saves a graph and journals it as being compiled; None when it is not wanted or could not be saved.

        `roles`: of the graph's inputs, where the stage does not determine them. `grows`: the record may be amended by
        the inner compiler.
        """
        session = self.session
        if not session.wants(stage):
            return None
        with session.guarded(f"{self.name}/{stage}"):
            writer = session.writer()
            local = self._local(writer, stage)
            if session.refuses(local):
                return None
            record = self.encoded(gm, local, stage, compile_kwargs, self._roles(gm, stage) if roles is None else roles)
            graph = Graph(record)
            save = PackedSave(writer, record)
            if session.waits(local, save):
                graph.save = save
            else:
                graph.text = GraphText(record) if grows else None
                save(graph.text)
            if settle:
                self.open.append(graph)
                session.event("compiling", graph.id)
            return graph
        return None

    def _local(self, writer: ProcessWriter, stage: str) -> str:
        """An unused graph id; the backward of forward.2 gets backward.2."""
        forward = _forwards.get(self.graph_id, "") if self.graph_id is not None and stage.endswith("backward") else ""
        local = writer.unique_id(self.name, stage, like=forward if forward.startswith(f"{self.name}/") else "")
        if self.graph_id is not None and stage == "forward":
            _forwards[self.graph_id] = local
        return local

    def encoded(
        self,
        gm: Any,
        local: str,
        stage: str,
        compile_kwargs: Mapping[str, Any] | None,
        roles: list[InputRecord] | None,
        state: Ambient | None = None,
    ) -> GraphRecord:
        """Encodes a graph under the settings in force; settings that cannot be saved are noted."""
        from ...dumps import live

        session = self.session
        config = changed_settings(self.options, but_caches=not session.options.keep_cache)
        state = state or ambient(seed=False)  # the seed belongs to the process: inputs and settings record it
        with undisturbed():
            record = live.encode(
                gm,
                id=local,
                stage=stage,
                compile_id=self.compile_id,
                compile_kwargs=compile_kwargs,
                ambient=state,
                config=config,
                roles=roles or (),
                sink=session.writer().tensors,
            )
        record.versions = session.versions
        if stage != "compiled_autograd":
            self._call(record)
        note_settings(session, config, record)
        for name, function in registered_here():
            _note(session, name, inspect.unwrap(function))
        return record

    def _call(self, record: GraphRecord) -> None:
        """Saves the user's names for the outputs of Dynamo's graph, and for its inputs where this graph may return
        their gradients."""
        outputs = self.dynamo_outputs or self.session.outputs.get(self.name, [])
        roles = self._dynamos()
        inputs = [input_source(role.source, role.role) for role in roles] if record.stage in _WITH_GRADIENTS else []
        if outputs or inputs:
            record.graph.meta[NAMES] = {"dict": [["outputs", [list(pair) for pair in outputs]], ["inputs", inputs]]}

    def _roles(self, gm: Any, stage: str) -> list[InputRecord] | None:
        """The roles of the inputs, from Dynamo's graph and AOTAutograd's descriptors; None where neither has them."""
        with self.session.guarded("roles of the inputs"):
            if stage in ("dynamo", "pre_grad"):
                names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
                known = {role.name: role for role in self.session.roles.get(self.name, self.dynamo_roles)}
                if names == list(known):
                    return list(known.values())
                if not known.keys() & set(names):
                    return None
                self.session.cut.add(self.name)  # a part of Dynamo's graph: later graphs number the part's inputs
                self.dynamo_roles = [known.get(name) or InputRecord(name, "unknown", "") for name in names]
                return self.dynamo_roles
            if stage != "compiled_autograd":
                return roles_of.of_aot(gm, self._dynamos(), stage)
        return None

    def _dynamos(self) -> list[InputRecord]:
        """The roles of the inputs of the graph that AOTAutograd received; empty where they are unknown."""
        return self.dynamo_roles or ([] if self.name in self.session.cut else self.session.roles.get(self.name, []))

    def amend(self, graph: Graph, gm: Any, compile_kwargs: Mapping[str, Any]) -> None:
        """Adds the inner compiler's arguments to a graph that was captured before they were known."""
        record = graph.record
        if record is None:
            return
        with self.session.guarded(graph.id):
            record.compile_kwargs.update({key: encoded(value) for key, value in compile_kwargs.items()})
            nodes, given = record.graph.nodes, gm.graph.output_node().meta
            if nodes and nodes[-1].op == "output" and _VISIBLE in given:
                nodes[-1].meta[_VISIBLE] = encoded(given[_VISIBLE])
            if graph.save is None:
                self.session.writer().amend(record, graph.text)

    def settle(self, failure: BaseException | None) -> None:
        """Journals the end of all graphs still open in this call."""
        for graph in self.open:
            seconds = round(time.perf_counter() - graph.opened, 6)
            if graph.save is not None:
                graph.save.pack()
                if failure is not None:
                    self.session.release(graph.id)
            if failure is None:
                self.session.event("compiled", graph.id, seconds=seconds)
            elif is_a(failure, "RestartAnalysis", "SkipFrame", "SkipCodeRecursiveException"):
                self.session.event("skipped", graph.id, reason=f"Dynamo starts over ({type(failure).__name__})")
            else:
                fields = failure_fields(failure, here.fault or graph.stage)
                self.session.event("failed", graph.id, seconds=seconds, **fields)
        self.open.clear()


class _ThreadState(threading.local):
    """State of one thread: its flights, the depth inside each recursive pass, and the stage in which the current
    failure began."""

    def __init__(self) -> None:
        self.flights: list[Flight] = []
        self.depths: dict[str, int] = {}
        self.fault: str | None = None
        self.joints: list[dict[str, Any]] = []
        self.inner: list[tuple[str, dict[str, Any]]] = []
        self.aot: list[Graph | None] = []


here = _ThreadState()

_names: dict[int, tuple[str, str | None]] = {}
"""Inductor's graph_id -> the forward's compile name and compile id: a backward compiled later without a compile id uses
them."""

_forwards: dict[int, str] = {}
"""Inductor's graph_id (or the negative number of a call to another AOT backend) -> the id of the forward."""


def current(session: Session) -> Flight | None:
    """The innermost flight of this session on this thread."""
    return next((flight for flight in reversed(here.flights) if flight.session is session), None)


@contextmanager
def flying(session: Session, *, graph_id: int | None = None, compile_id: str | None = None) -> Iterator[Flight]:
    """Opens a flight for a compiler call. When the block ends, its graphs are settled; the outermost flight counts the
    seconds.

    `compile_id`: for a graph outside any compiler call.
    """
    outer = current(session)
    flight = Flight(session, compile_name(compile_id), compile_id) if compile_id else _named(session, outer, graph_id)
    if outer is not None:
        flight.options, flight.dynamo_roles, flight.main = outer.options, outer.dynamo_roles, outer.main
        flight.dynamo_outputs = outer.dynamo_outputs
    here.flights.append(flight)
    start = time.perf_counter() - session.recording_seconds  # excludes the time spent recording
    failure: BaseException | None = None
    try:
        yield flight
    except BaseException as error:
        failure = error
        if here.fault is None and flight.open:
            here.fault = flight.open[-1].stage
        raise
    finally:
        flight.settle(failure)
        here.flights.remove(flight)
        if failure is None or not here.flights:
            here.fault = None
        if outer is None:
            session.compile_seconds += time.perf_counter() - session.recording_seconds - start
        del failure  # its traceback holds the frames that hold the graph


def _named(session: Session, outer: Flight | None, graph_id: int | None) -> Flight:
    wanted = compile_id()
    if wanted is not None:
        flight = Flight(session, compile_name(wanted), wanted)
    elif outer is not None:
        flight = Flight(session, outer.name, outer.compile_id)
    elif graph_id is not None and graph_id in _names:
        flight = Flight(session, *_names[graph_id])
    else:
        name = "x0_0"
        with session.guarded("compile name"):
            name = session.writer().fresh_compile()
        flight = Flight(session, name, None)
    if graph_id is not None:
        _names[graph_id] = (flight.name, flight.compile_id)
        flight.graph_id = graph_id
    return flight


def in_flight(body: Callable[..., Any], updated: Sequence[str] = ("__dict__",)) -> Callable[[Function], Function]:
    """Makes a hook around a call into the compiler, which opens a flight: `body(flight, original, *args, **kwargs)`."""

    def call(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
        with flying(session, graph_id=kwargs.get("graph_id")) as flight:
            return body(flight, original, *args, **kwargs)

    return hook(call, updated)


def in_pass(group: str) -> Callable[[Callable[..., Any]], Callable[[Function], Function]]:
    """Makes a hook around a pass that calls itself for the subgraphs of higher-order operators. `body(flight, original,
    *args, **kwargs)` runs for the outermost call inside a flight, whose graph contains the subgraphs."""

    def of(body: Callable[..., Any]) -> Callable[[Function], Function]:
        def call(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
            flight = current(session)
            with level(group) as depth:
                if depth or flight is None:
                    return original(*args, **kwargs)
                return body(flight, original, *args, **kwargs)

        return hook(call)

    return of


@contextmanager
def level(group: str) -> Iterator[int]:
    """Counts how deep this thread is inside one recursive group of passes: 0 for the outermost call."""
    depth = here.depths.get(group, 0)
    here.depths[group] = depth + 1
    try:
        yield depth
    finally:
        here.depths[group] = depth


def failure_fields(error: BaseException, stage: str) -> dict[str, str]:
    """A failure as journal fields: the innermost exception that the compiler wrapped, and the stage it happened in."""
    inner = getattr(error, "inner_exception", None)
    while isinstance(inner, BaseException):
        error, inner = inner, getattr(inner, "inner_exception", None)
    message = str(error)
    message = message if len(message) <= 4000 else message[:4000] + "…"
    return {"stage": stage, "type": type(error).__name__, "message": message}


def note_settings(session: Session, config: Mapping[str, Mapping[str, Any]], record: GraphRecord) -> None:
    """Journals which of the settings in force (`config`) could not be saved in the record of a graph."""
    for room, values in record.config.items():
        for name, value in values.items():
            if is_opaque(value) and not of_the_process(name):
                _note(session, f"setting {room}.{name}", config.get(room, {}).get(name))


def note_backend(session: Session, backend: Any) -> None:
    """Journals a backend that belongs to neither torch nor graphdbg: a replay runs one of graphdbg's."""
    inner = innermost_backend(backend)
    if home_of(inner).__module__.partition(".")[0] not in NOT_THE_USERS:
        _note(session, BACKEND, inner)


def _note(session: Session, unsaved: str, value: Any) -> None:
    home = home_of(_culprit(value))
    module = str(getattr(home, "__module__", None) or "")
    what = f"{module}.{getattr(home, '__qualname__', home)}"
    code = getattr(home, "__code__", None) or getattr(getattr(home, "__dict__", {}).get("__call__"), "__code__", None)
    file = getattr(code, "co_filename", None) or getattr(sys.modules.get(module), "__file__", None) or ""
    place = {"file": file, "line": getattr(code, "co_firstlineno", 0)} if file else {}
    session.note(f"{unsaved} cannot be saved: {what}", unsaved=unsaved, what=what, module=module, **place)


def _culprit(value: Any) -> Any:
    """The innermost part of a value that cannot be saved."""
    inside: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = value
    return next((_culprit(item) for item in inside if is_opaque(encoded(item))), value)


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
