"""Opens recorded data: a run with its graphs, or one graph, by its folder or by the name that a user typed. Reading
needs no torch.

Also: the inputs of a graph that never runs itself. They are taken, by placeholder name, from the graphs of the same
compile that ran in its place.

Everything is lazy: opening a run reads journals only, a graph's record is read, checked and kept on first use. Nothing
found in a dump is executed, imported or trusted.

>>> run = open_run("myrun")
>>> saved = run.graph("0_0/forward")
>>> saved.record.graph.nodes[0].name
'primals_1'
>>> gm, inputs = saved.module(), saved.inputs(seed=0)      # torch is imported here
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from . import held, ids, index, journal, kernels, sidecar
from .displayed import Displayed
from .errors import GraphdbgError, NoSuchRunError, NotStoredError, UnreadableError, UsageError, WrongKindError
from .graph_folder import (
    CODE_FOLDER,
    GRAPH_FILE,
    GRAPHS_FOLDER,
    INPUTS_FILE,
    JOURNAL_FILE,
    PROGRAM_FILE,
    RUN_FILE,
    TENSORS_FOLDER,
)
from .opening import opened
from .output import say
from .reading import plain_name, read_bytes, read_if_there, read_record, stored
from .schema import (
    FROM_TRACE,
    OF_A_TRACE,
    GraphRecord,
    InputRecord,
    InputsRecord,
    RunRecord,
    StoredTensor,
    TensorValue,
    Value,
)
from .sources import Sources
from .tensors import TensorStore
from .validate import check_graph, check_inputs
from .wording import typed_path, why_not_there

if TYPE_CHECKING:
    from torch.fx import GraphModule


def borrowed(saved: SavedGraph) -> InputsRecord | None:
    """The inputs of this graph as observed when other graphs of its compile ran in its place; None when none of them
    ran."""
    if saved.run is None:
        return None
    compile_name = saved.local_id.partition("/")[0]
    beside = [graph for graph in saved.run.graphs() if graph.process == saved.process]
    mine = [graph for graph in beside if graph.local_id.partition("/")[0] == compile_name]
    by_name: dict[str, InputRecord] = {}
    first: InputsRecord | None = None
    groups = 0
    wanted = _placeholders(saved)
    for lender in _lenders(saved, mine):
        seen = lender.own_inputs_record
        if seen is None:
            continue
        first = first or seen
        for item in seen.inputs:
            if item.name in wanted:
                by_name.setdefault(item.name, _regrouped(item, groups))
        groups += 1 + max((value.storage or 0 for item in seen.inputs for value in _values(item)), default=0)
    if first is None or not by_name:
        return None
    inputs = [by_name[name] for name in wanted if name in by_name]
    return msgspec.structs.replace(first, inputs=inputs)


def _placeholders(saved: SavedGraph) -> list[str]:
    table = saved.table
    return [name for name, op in zip(table.name, table.op, strict=True) if table.strings[op] == "placeholder"]


def _lenders(saved: SavedGraph, mine: Sequence[SavedGraph]) -> Iterator[SavedGraph]:
    """Yields the graphs that run in place of this one. Numbers (".N") count per stage, so some graphs are matched by
    the order of capture."""
    places = [graph.local_id for graph in mine]
    if saved.local_id not in places:
        return
    at = places.index(saved.local_id)
    by_id = dict(zip(places, mine, strict=True))
    compile_name, _, rest = saved.local_id.partition("/")
    number = "".join(rest.partition(".")[1:])
    if saved.stage.startswith("post_grad_"):
        kind = saved.stage.removeprefix("post_grad_")
        near = (graph for graph in reversed(mine[:at]) if graph.stage == "joint_passed")
        lender = by_id.get(f"{compile_name}/{kind}{number}")
        if kind == "inference" and (lender is None or lender.own_inputs_record is None):
            lender = next(near, None)  # freezing: the inner compiler gets another graph than the passes
        if lender is not None:
            yield lender
    elif saved.stage == "pre_grad":
        yield from [graph for graph in reversed(mine[:at]) if graph.stage == "dynamo"][:1]
    elif saved.stage in ("joint", "joint_passed"):
        forward = next((graph for graph in mine[at + 1 :] if graph.stage in ("forward", "inference")), None)
        if forward is not None and forward.stage == "forward":
            yield forward
            number = "".join(forward.local_id.partition("/")[2].partition(".")[1:])
            backward = by_id.get(f"{compile_name}/backward{number}")
            if backward is not None:
                yield backward


def _values(item: InputRecord | StoredTensor | Value | None) -> Iterator[TensorValue]:
    """Yields the tensors in an input's record, including the inner tensors and bases of others."""
    if isinstance(item, TensorValue):
        yield item
        yield from _values(item.base)
    if isinstance(item, (InputRecord, StoredTensor)):
        yield from _values(item.value)
    if isinstance(item, InputRecord):
        yield from _values(item.stored)
    for part in item.inner.values() if isinstance(item, (StoredTensor, TensorValue)) else ():
        yield from _values(part)


def _regrouped(item: InputRecord, by: int) -> InputRecord:
    """Returns a copy with all storage numbers shifted by `by`, as each record numbers its storages from 0."""
    copy = deepcopy(item)
    for value in _values(copy):
        value.storage = None if value.storage is None else value.storage + by
    return copy


class CodeFile:
    """One file of generated code. `name`: its name; `path`: the file that stores it, maybe compressed and with
    others."""

    def __init__(self, path: Path, name: str = "") -> None:
        self.path = path
        self.name = name or plain_name(path.name)
        self.stem = Path(self.name).stem

    def read_bytes(self) -> bytes:
        """The text as it was generated; raises UnreadableError."""
        return self.read_text().encode("utf-8", "backslashreplace")

    def read_text(self) -> str:
        """The text as it was generated, as str; raises UnreadableError."""
        text = read_bytes(self.path).decode("utf-8", "backslashreplace")
        return text if self.name == plain_name(self.path.name) else kernels.split(text)[self.name]


def _code_files(folder: Path) -> list[CodeFile]:
    paths = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    by_name = {plain_name(path.name): CodeFile(path) for path in paths}
    whole = by_name.get(kernels.WHOLE)
    if whole is not None and whole.path.name != kernels.WHOLE:
        for name in kernels.split(whole.read_text()):
            by_name.setdefault(name, CodeFile(whole.path, name))
    return [by_name[name] for name in sorted(by_name)]


class SavedGraph(Displayed):
    """One saved graph: in a run, or a case folder of its own (then `run` is None and its status is "saved").

    >>> saved.id, saved.record.stage, saved.inputs()[0].shape
    ('0_0/forward', 'forward', torch.Size([16, 8]))
    """

    def __init__(self, path: Path, run: Run | None = None, row: index.ListedGraph | None = None) -> None:
        self.path = path
        self.run = run
        self._row = row
        self.process = row.process if row else None
        """The name of the process folder."""
        self.rank = row.rank if row else None
        """The rank of the process, where it had one."""
        self.status = row.status if row else "saved"
        """The graph's last state in the journal; "saved" for a case folder."""
        self.error = row.error if row else None
        """Why the graph failed, or that its process died while it was in flight."""
        self.seconds = row.seconds if row else None
        """Seconds that the graph took to compile."""

    def __repr__(self) -> str:
        return f"SavedGraph({str(self.path)!r})"

    @property
    def id(self) -> str:
        """The id that commands take, prefixed by the rank or process where the run has several."""
        return self._row.id if self._row else self.record.id

    @property
    def name(self) -> str:
        """The name that commands take: RUN/ID, or the path of a case folder; in an archive, below its path."""
        return f"{self.run.name}/{self.id}" if self.run else str(typed_path(self.path))

    @property
    def local_id(self) -> str:
        """The id inside its process: "0_0/forward"."""
        return self._row.local if self._row else self.record.id

    @property
    def stage(self) -> str:
        """One of schema.STAGES."""
        return self._row.stage if self._row else self.record.stage

    @property
    def tensors_dir(self) -> Path:
        """The folder of tensor storages."""
        return (self.run.path if self.run else self.path) / TENSORS_FOLDER

    @cached_property
    def tensors(self) -> TensorStore:
        """The tensor storages."""
        return TensorStore(self.tensors_dir)

    @property
    def kept(self) -> Callable[[str], memoryview] | None:
        """Returns the bytes of a storage by its name; None where the run has no storages."""
        return self.tensors.get if self.tensors_dir.is_dir() else None

    @cached_property
    def record(self) -> GraphRecord:
        """The whole graph, checked. Raises UnreadableError or RefusedError naming the file and the place in it."""
        record = read_record(self.path / GRAPH_FILE, GraphRecord)
        check_graph(record, str(typed_path(self.path / GRAPH_FILE)))
        if self._row and record.id != self._row.local:
            why = f"its id is {record.id!r}, but it is in the folder of {self._row.local!r}"
            raise UnreadableError(f"cannot read {self.path / GRAPH_FILE}", why)
        return record

    @property
    def sourced(self) -> bool:
        """Whether the record holds source of the user's program that `--trust` runs; False where it cannot be read."""
        with suppress(GraphdbgError):
            return any(definition.program and not definition.missing for definition in self.record.definitions)
        return False

    @cached_property
    def inputs_record(self) -> InputsRecord | None:
        """The inputs as observed in a real execution, checked: when this graph ran, or graphs in its place (see
        `borrowed`); None when none of these ran."""
        own = self.own_inputs_record
        return own if own is not None else borrowed(self)

    @cached_property
    def own_inputs_record(self) -> InputsRecord | None:
        """The inputs that were observed when this graph itself ran, from its own folder; None when it never ran."""
        path = self.path / INPUTS_FILE
        if (last := self._held_inputs()) is not None:
            return last
        record = read_if_there(path, InputsRecord)
        if record is not None:
            check_inputs(record, str(path))
        return record

    def _held_inputs(self) -> InputsRecord | None:
        """The inputs in the graph's held file, while that has not been converted to inputs.json."""
        if self.run is None or self._row is None:
            return None
        path = self.run.path / self._row.process / held.FOLDER / self._row.local
        if not path.is_file():
            return None
        liveness = next(process.liveness for process in self.run.processes if process.name == self._row.process)
        record, damage = held.of_graph(path, self.path, liveness, self.tensors)
        if damage:
            say(f"graphdbg: {damage}")
        return record

    @cached_property
    def table(self) -> sidecar.Table:
        """The nodes as columns, from the sidecar; from the record when the sidecar is missing."""
        return sidecar.read_table(self.path / sidecar.TABLE) if self.has_table else sidecar.build(self.record)

    @property
    def has_table(self) -> bool:
        """Whether there is a table.msgpack; otherwise the whole graph.json is read, which takes a while."""
        return stored(self.path / sidecar.TABLE) is not None

    @cached_property
    def sources(self) -> Sources:
        """The copies of the user's source files that its process kept; none for a case folder."""
        return Sources(self.run.path / self._row.process if self.run and self._row else self.path)

    @property
    def program_path(self) -> Path:
        """graph.py: the same graph as a program. A run has it from the end of the graph's process on."""
        return self.path / PROGRAM_FILE

    def program(self) -> str:
        """The text of graph.py, from the record where there is none yet. Raises RefusedError when the graph has no
        program."""
        if self.program_path.is_file():
            return read_bytes(self.program_path).decode("utf-8", "backslashreplace")
        from .program.module import program

        return program(self.record)

    def code_files(self) -> list[CodeFile]:
        """The files of generated code, by name; empty when none was generated."""
        folder = self.path / CODE_FOLDER
        return _code_files(folder) if folder.is_dir() else []

    def module(self) -> GraphModule:
        """The live graph with its parameters, buffers and constants: an fx.GraphModule that takes `inputs()`, one by
        one. Imports torch. Raises UnreadableError for a damaged record, RefusedError for what is not run without trust.

        >>> saved.module()(*saved.inputs())[0].shape
        torch.Size([2, 4])
        """
        from . import live

        return live.module(self.record, self.tensors, where=str(typed_path(self.path / GRAPH_FILE)))

    def inputs(self, seed: int = 0) -> list[Any]:
        """Real inputs in the order of the placeholders (tensors, numbers): stored ones where there are any, the others
        synthesised from `seed`. Imports torch. Raises UnreadableError for a damaged record.

        >>> [tuple(value.shape) for value in saved.inputs(seed=0)]
        [(16, 8), (16,), (2, 8), (4, 16), (4,)]
        """
        from . import live

        return live.inputs(self.record, self.inputs_record, self.tensors, seed, where=str(typed_path(self.path)))


class Run(Displayed):
    """One recorded command. Its processes and rows are read once, on first use.

    >>> run = Run(Path("myrun"))
    >>> len(run.graphs()), run.graph("0_0/f").id
    (16, '0_0/forward')
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = read_record(path / RUN_FILE, RunRecord)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The name that commands take: the path of the folder, or of the archive that it was unpacked from."""
        return str(typed_path(self.path))

    @cached_property
    def processes(self) -> list[index.Process]:
        """The recorded processes."""
        return index.processes(self.path)

    @cached_property
    def rows(self) -> list[index.ListedGraph]:
        """One row per graph that the journals or folders know, saved or not, in order of capture."""
        return index.rows(self.processes)

    @property
    def of_a_trace(self) -> str:
        """A sentence for a run that was not recorded; empty for one that was."""
        return OF_A_TRACE if self.record.inputs_policy == FROM_TRACE else ""

    @property
    def inputs_json(self) -> dict[str, str]:
        """`of_a_trace` as a field of JSON answers; {} for a recorded run."""
        return {"inputs": OF_A_TRACE} if self.of_a_trace else {}

    def events(self, process: index.Process) -> list[journal.Event]:
        """The journal of one of its processes."""
        return journal.read(process.path / JOURNAL_FILE).events

    @property
    def damage(self) -> list[str]:
        """One sentence per torn journal line or unreadable small file."""
        return [sentence for process in self.processes for sentence in process.damage]

    def graphs(self) -> list[SavedGraph]:
        """The saved graphs in order of capture, process by process."""
        return [SavedGraph(row.path, self, row) for row in self.rows if row.saved]

    def graph(self, text: str) -> SavedGraph:
        """The graph named by an exact id or an unambiguous prefix; raises UsageError with the candidates.

        >>> run.graph("0_0/forward").id
        '0_0/forward'
        """
        addresses = [ids.Address(row.process, row.rank, row.local) for row in self.rows]
        row = self.rows[ids.find(text, addresses, self.name)]
        if not row.saved:
            why = row.error or f"its status is {row.status}, but its folder is missing"
            raise NotStoredError(f"graph {row.id} of {self.name} was not saved", why)
        return SavedGraph(row.path, self, row)


def open_run(path: str | Path) -> Run:
    """Opens a run folder; raises UsageError when there is none, UnreadableError when run.json is damaged or newer.

    >>> [graph.id for graph in open_run("myrun").graphs()][:2]
    ['0_0/dynamo', '0_0/pre_grad']
    """
    path = Path(path)
    if not index.is_run(path):
        why = why_not_there(path, "run.json")
        raise NoSuchRunError(f"{path} is not a run", why, "see the runs here with graphdbg ls")
    return Run(path)


def resolve(text: str, cwd: str | Path | None = None) -> SavedGraph | Run:
    """Opens the target of `text`, relative to `cwd`: a run folder, RUN/ID (an id or its unambiguous beginning, with
    `1:` before it where needed), a graph's own folder inside a run, a case folder, or a folder that holds one as
    `case/`. A file that `pack` wrote stands for the run in it.

    Raises UsageError with what was looked for, and where.
    """
    path = Path(os.path.normpath(Path(cwd or "") / text))
    try:
        if not text or "\0" in text:
            why = "a run, RUN/ID or a case folder is needed"
            raise NoSuchRunError(f"{text!r} is not a name", why, "list the runs here: graphdbg ls")
        if is_script(text, cwd):
            fix = f"record it first: graphdbg dump -o myrun {shlex.quote(text)}"
            why = "the command needs a run, a graph of a run or a case folder"
            raise WrongKindError(f"{text} is a script", why, fix)
        if any(place.is_file() for place in (path, *path.parents)):
            from .archive import folder_of  # late: hardly ever needed

            path = folder_of(path)
        for folder in (path, *path.parents):
            if index.is_run(folder):
                run = Run(folder)
                return run if folder == path else _inside(run, path.relative_to(folder))
        for folder in (path, path / "case"):
            if stored(folder / GRAPH_FILE) is not None:
                return SavedGraph(folder)
        why = why_not_there(path, "run.json and no graph.json")
    except (OSError, ValueError) as error:
        raise NoSuchRunError(f"{text!r} cannot be opened", str(error)) from error
    if (program := path / "repro.py").is_file() and (path / "calls.jsonl").is_file():
        blame = "it holds the repro of a program"
        what = f"{text} holds no graph"
        raise WrongKindError(what, blame, f"run: python {shlex.quote(str(program))}")
    raise NoSuchRunError(f"{text} is neither a run, a graph of a run nor a case folder", why, _hint(Path(cwd or ".")))


def is_script(text: str, cwd: str | Path | None = None) -> bool:
    """Whether `text` names a program where something saved is expected: a name that ends in .py, or an executable text
    with #!."""
    path = Path(cwd or "") / text
    try:
        if path.is_dir():
            return False
        if path.suffix == ".py":
            return True
        with opened(path, named=True) as file:
            return file.read(2) == b"#!" and os.access(path, os.X_OK)
    except (OSError, ValueError):
        return False


def resolve_graph(text: str, cwd: str | Path | None = None) -> SavedGraph:
    """Opens the graph that a text names; for a run, its worst known graph, which is reported on stderr. Raises
    UsageError for an empty run."""
    target = resolve(text, cwd)
    if isinstance(target, SavedGraph):
        return target
    from .output import say
    from .worst import worst_known  # late: hardly ever needed

    saved, why = worst_known(target)
    if why:
        say(f"taking {saved.id}: {why}")
    return saved


def load_graph(path: str | Path) -> SavedGraph:
    """Opens a graph by `RUN/ID`, by its folder inside a run, or a case folder; see `resolve` for the rules. Raises
    UsageError where there is none.

    >>> load_graph("myrun/0_0/forward").record.stage
    'forward'
    """
    target = resolve(str(path))
    if isinstance(target, Run):
        fix = f"name one: {path}/ID; list them with graphdbg ls {path}"
        raise WrongKindError(f"{path} is a run", "the command needs one graph", fix)
    return target


def _inside(run: Run, rest: Path) -> SavedGraph:
    parts = rest.parts
    if len(parts) == 4 and parts[1] == GRAPHS_FOLDER:  # the graph's own folder: <process>/graphs/<compile>/<stage>
        return run.graph(f"{parts[0]}:{parts[2]}/{parts[3]}")
    return run.graph("/".join(parts))


def _hint(cwd: Path) -> str:
    try:
        runs = index.runs(cwd)
    except UsageError:
        runs = []
    names = ", ".join(run.name for run in runs[:8])
    return f"the runs here are {names}" if names else "there are no runs here: record one with graphdbg dump"
