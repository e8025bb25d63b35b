"""Writes a run: one RunWriter per run folder, one ProcessWriter per recorded process; several processes can share a
run.

Overwrites nobody else's files, imports no torch, and keeps every finished graph complete whenever the process dies. All
methods may be called from several threads.

For example:

    run = RunWriter.create(Path("myrun"), RunRecord(format=FORMAT, command=["train.py"]))
    process = run.process(rank=0)
    record.id = process.unique_id("0/0", "forward")
    process.save_graph(record, process.tensors)  # -> PosixPath('myrun/rank0_pid123/graphs/0_0/forward')
    process.journal.event("compiling", graph=record.id)
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from . import ids, kernels, process, sidecar, trust
from .atomic import BLOCK_BYTES, Syncing, cannot_write, in_blocks, new_folder, temporary_beside, write_file
from .errors import BadValueError, CannotWriteError, ExistsAlreadyError, GraphdbgError, NoSuchRunError, UnreadableError
from .graph_folder import (
    CODE_FOLDER,
    GRAPH_FILE,
    GRAPHS_FOLDER,
    INPUTS_FILE,
    JOURNAL_FILE,
    LIST_FILE,
    PROGRAM_FILE,
    RUN_FILE,
    TENSORS_FOLDER,
    GraphText,
    copy_storages,
    encode,
    folder_bytes,
    stored_names,
    write_programs,
)
from .journal import Journal
from .lines import Tail, append
from .reading import LARGE_BYTES, Packer, packed, read_record, stored
from .schema import GraphRecord, InputsRecord, RunRecord
from .sources import SourceWriter
from .tensors import TensorSink, TensorStore, hash_bytes

_JOIN_S = 3.0


class LeftOutError(Exception):
    """There was no room for a part of this graph; the gate has already counted that."""


class Gate(Protocol):
    """Decides whether there is room for a graph. `gone`: the graphs that were removed again."""

    gone: set[str]

    def admit(self, local: str, size_bytes: int) -> bool:
        """Whether a graph of that size may be written."""
        ...

    def admit_more(self, size_bytes: int, local: str) -> bool:
        """Whether inputs or code of that size may be added to a graph."""
        ...

    def spare(self, size_bytes: int) -> bool:
        """Whether so many bytes are free for files that can be derived at any time; no graph is removed for them."""
        ...


class RunWriter:
    """A run folder that this process may add to."""

    def __init__(self, path: Path, record: RunRecord) -> None:
        self.path = path
        self.record = record
        self.tensors = TensorStore(path / TENSORS_FOLDER)

    @classmethod
    def create(cls, path: str | Path, record: RunRecord, *, join: bool = False, ours: bool = False) -> RunWriter:
        """Creates the run folder with run.json. With `join` another process may have created the run, whose record is
        then kept. `ours`: the recorded program is run by this user (see `trust.bind`).

        Raises UsageError when `path` is taken, EnvironmentLackError when it cannot be written.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            taken = any(not entry.name.startswith(".") for entry in os.scandir(path))
        except FileExistsError as error:
            raise ExistsAlreadyError(f"cannot record into {path}", "it is a file", "choose another name") from error
        except OSError as error:
            raise CannotWriteError(f"cannot record into {path}", error.strerror or str(error)) from error
        if taken and not (path / RUN_FILE).exists():
            fix = "choose another name or delete it"
            raise ExistsAlreadyError(f"cannot record into {path}", "the folder is not empty", fix)
        if not taken and write_file(path / RUN_FILE, encode(record), exclusive=True):
            if ours:
                trust.bind(path)
            return cls(path, record)
        if not join:
            why = "a run is recorded there already, and runs are never overwritten"
            raise ExistsAlreadyError(f"cannot record into {path}", why, "choose another name or delete it")
        return cls(path, joined_record(path))

    def process(self, name: str | None = None, rank: int | None = None, restart: int = 0) -> ProcessWriter:
        """Creates a folder for the calling process. A name that is taken (by a reused pid) gets the suffix `_2`, `_3`,
        ..."""
        wanted = ids.check_file_name(name or ids.process_name(os.getpid(), rank, restart), "process name")
        if wanted == TENSORS_FOLDER:
            raise BadValueError(f"{wanted!r} cannot be a process name", "that folder holds the tensors")
        for count in itertools.count(1):
            chosen = wanted if count == 1 else f"{wanted}_{count}"
            try:
                (self.path / chosen).mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise CannotWriteError(f"cannot write {self.path / chosen}", error.strerror or str(error)) from error
            try:
                return ProcessWriter(self, chosen, rank, restart)
            except GraphdbgError:
                shutil.rmtree(self.path / chosen, ignore_errors=True)  # a full disk leaves no incomplete folder
                raise
        raise AssertionError("unreachable")

    def unite(self, *, programs: bool = True) -> None:
        """Links equal files of all processes, including those that died before they could. `programs`: also writes
        graph.py where it is missing."""
        for entry in sorted(self.path.iterdir()) if self.path.is_dir() else ():
            if (entry / process.FILE).exists():
                shared = SharedFiles(self.path, entry.name)
                if programs:
                    write_programs(entry, shared.replace)
                shared.unite()


def joined_record(path: Path) -> RunRecord:
    """Reads the run.json that another process wrote, or is still writing where the file system has no hard links.

    Raises UnreadableError when it is still not whole after a few seconds.
    """
    deadline = time.monotonic() + _JOIN_S
    while True:
        try:
            return read_record(path / RUN_FILE, RunRecord)
        except UnreadableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _tables(record: GraphRecord) -> list[tuple[str, bytes]]:
    return [(sidecar.TABLE, sidecar.encode(record))] if len(record.graph.nodes) >= sidecar.MANY_NODES else []


class ProcessWriter:
    """The folder of one process: its journal and its graphs. `tensors` is the run's store, shared by all processes."""

    def __init__(self, run: RunWriter, name: str, rank: int | None = None, restart: int = 0) -> None:
        self.run = run
        self.name = name
        self.rank = rank
        self.path = run.path / name
        self.tensors = run.tensors
        self.shared = SharedFiles(run.path, name)
        self.syncing = Syncing(self._not_on_disk)
        self.tensors.later = self.syncing.add
        self.sources = SourceWriter(self.path)
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._fresh = itertools.count()
        self._folders = 0
        self._compiles: set[str] = set()
        self._refusals: set[str] = set()
        self.gate: Gate | None = None
        write_file(self.path / process.FILE, encode(process.describe(name, rank, restart)))
        self.journal = Journal(self.path / JOURNAL_FILE)
        self.journal.event("begin", pid=self.pid)

    @property
    def owned(self) -> bool:
        """False in a forked child, which must open a process folder of its own."""
        return os.getpid() == self.pid

    def fresh_compile(self) -> str:
        """A compile name for graphs that have no compile id: x0_0, x1_0, ...; give it to `unique_id` for each of their
        stages."""
        with self._lock:
            return f"x{next(self._fresh)}_0"

    def unique_id(self, compile_id: str | None, stage: str, *, like: str = "") -> str:
        """Reserves the local id of a graph: with suffix `.1`, `.2`, ... from the second graph of one stage and compile
        id on.

        `like` is the id of the related graph, whose number is used if free: backward.2 is the backward of forward.2.
        """
        name = ids.compile_name(compile_id) if compile_id else self.fresh_compile()
        wanted = [ids.number_of(like)] if like else []
        with self._lock:
            for count in itertools.chain(wanted, itertools.count()):
                local = ids.check_id(f"{name}/{stage}" if count == 0 else f"{name}/{stage}.{count}")
                if local not in self._taken:
                    self._taken.add(local)
                    return local
        raise AssertionError("unreachable")

    def graph_path(self, local: str) -> Path:
        """The folder of a graph, whether it exists or not."""
        return self.path / GRAPHS_FOLDER / ids.check_id(local)

    def save_graph(self, record: GraphRecord, tensors: TensorSink | None = None, text: GraphText | None = None) -> Path:
        """Writes the graph's folder, complete but without graph.py, and journals it as `captured`; returns the folder.

        Storages that the record names are copied from `tensors` unless the run has them. `text` is for a record that is
        to be amended. Raises UsageError when the id is taken.
        """
        path = self.graph_path(record.id)
        text = text or GraphText(record)
        graph = packed(GRAPH_FILE, text.encode(record), compress=text.compress)
        contents = dict([*(packed(*table) for table in _tables(record)), graph])
        if self.gate is not None and not self.gate.admit(record.id, folder_bytes(contents)):
            raise LeftOutError(record.id)
        if tensors is not None:
            copy_storages(stored_names(record), tensors, self.tensors)
        self._write_folder(path, contents)
        with self._lock:
            self._taken.add(record.id)
            self._compiles.add(path.parent.name)
        self.journal.event("captured", graph=record.id, nodes=len(record.graph.nodes), stage=record.stage)
        return path

    def amend(self, record: GraphRecord, text: GraphText | None = None) -> Path:
        """Replaces a saved graph by a fuller record, file by file, each as a whole; graph.json last, so that it is
        never newer than the files derived from it. `text`: the GraphText that the graph was saved with; then only the
        additions are encoded."""
        path = self._existing(record.id)
        for name, data in _tables(record) if text is None else ():
            self._replace(path / name, data)
        text = text or GraphText(record)
        self._replace(path / GRAPH_FILE, text.encode(record), text.compress)
        self.shared.remove(path / PROGRAM_FILE)
        return path

    def write_programs(self) -> None:
        """Writes graph.py of all graphs, where there is room for it; to be called after the last compile, before
        `close`."""
        room = self.gate.spare if self.gate is not None else None
        write_programs(self.path, self.shared.replace, room, self._note)

    def save_inputs(
        self, local: str, inputs: InputsRecord, tensors: TensorSink | None = None, *, number: int = 0
    ) -> Path:
        """Writes inputs.json (or inputs.<number>.json) beside the graph; a later call replaces it."""
        if tensors is not None:
            copy_storages(stored_names(None, inputs), tensors, self.tensors)
        path = self._existing(local) / (f"inputs.{number}.json" if number else INPUTS_FILE)
        data = encode(inputs)
        self._ask(local, len(data))
        return self._replace(path, data)

    def save_code(self, local: str, files: Mapping[str, str]) -> list[Path]:
        """Writes generated code into code/, one file per name; returns their paths.

        Much code is compressed, and kernels that can be split off the whole code on reading are not written twice.
        """
        folder = self._existing(local) / CODE_FOLDER
        texts = {ids.check_file_name(name): text.encode("utf-8", "backslashreplace") for name, text in files.items()}
        size = sum(map(len, texts.values()))
        if size >= LARGE_BYTES and kernels.WHOLE in files and len(files) > 1:
            kernel_texts = kernels.split(files[kernels.WHOLE])
            kept = [name for name in texts if name == kernels.WHOLE or files[name] != kernel_texts.get(name)]
            texts = {name: texts[name] for name in kept}
        contents = dict(packed(name, data, size) for name, data in texts.items())
        if self.gate is not None:
            self._ask(local, folder_bytes(contents))
        if folder.exists():
            for name, data in contents.items():
                self._write(folder / name, data)
        else:
            self._write_folder(folder, contents)
        return [folder / name for name in contents]

    def remove_graph(self, local: str) -> None:
        """Deletes a graph's folder, and the bytes that no other graph shares; the caller says why in the journal."""
        path = self.graph_path(local)
        away = temporary_beside(path)
        path.rename(away)
        for parent, _, names in os.walk(away):
            for name in names:
                self.shared.remove(Path(parent) / name)
        self._folders -= 1 + (away / CODE_FOLDER).is_dir()
        shutil.rmtree(away, ignore_errors=True)
        with contextlib.suppress(OSError):  # other stages are still there
            path.parent.rmdir()
            self._compiles.discard(path.parent.name)

    def disk_bytes(self) -> int:
        """The bytes that this process added to the disk, in blocks."""
        logs = in_blocks(self.journal.written_bytes) + in_blocks(self.shared.list_bytes)
        graphs = self.shared.disk_bytes + BLOCK_BYTES * (self._folders + len(self._compiles) + 8)
        return logs + graphs + in_blocks(self.tensors.written_bytes) + self.sources.disk_bytes

    def _ask(self, local: str, size_bytes: int) -> None:
        if self.gate is not None and not self.gate.admit_more(size_bytes, local):
            raise LeftOutError(local)

    def _write_folder(self, path: Path, contents: Mapping[str, bytes]) -> None:
        """Writes a new folder with these files; it appears whole or not at all."""
        with new_folder(path, synced=False) as folder:
            names = {name: self.shared.place(folder / name, data) for name, data in contents.items()}
        self._folders += 1
        for name, shared in names.items():
            self.shared.publish(path / name, shared)
        self.syncing.add(*(path / name for name in contents))

    def _replace(self, path: Path, data: bytes, compress: Packer | None = None) -> Path:
        """Replaces a text in the form that it has, plain or compressed, so that only one file of it exists."""
        present = stored(path)
        size = None if present is None else 0 if present == path else LARGE_BYTES
        name, content = packed(path.name, data, size, compress)
        return self._write(path.with_name(name), content)

    def _write(self, path: Path, data: bytes) -> Path:
        try:
            self.shared.replace(path, data)
        except OSError as error:
            raise cannot_write(path, error) from error
        self.syncing.add(path)
        return path

    def close(self) -> None:
        """Records in the journal that this process ended by itself; does nothing in a forked child."""
        if self.owned:
            self.shared.unite()
            self.syncing.finish()
            self.journal.event("end")
            self.journal.close()

    def _existing(self, local: str) -> Path:
        path = self.graph_path(local)
        if self.gate is not None and local in self.gate.gone:
            raise LeftOutError(local)
        if not path.is_dir():
            raise NoSuchRunError(f"{path} does not exist", "save the graph first")
        return path

    def _not_on_disk(self, path: Path, error: OSError) -> None:
        """Reports a file that the disk refuses, once per kind of error; the file can still be read from the system's
        cache."""
        why = error.strerror or str(error)
        if why not in self._refusals:
            self._refusals.add(why)
            self.journal.event("note", message=f"{path.name} and maybe others are not on the disk: {why}", error=True)

    def _note(self, local: str, error: Exception) -> None:
        what = "" if isinstance(error, GraphdbgError) else f"{type(error).__name__}: "
        self.journal.event("note", graph=local, message=f"no {PROGRAM_FILE}: {what}{error}")


SMALL_BYTES = 512
"""Smaller files are not shared."""


class SharedFiles:
    """Writes the files of one process; safe with several threads, and with the run's other processes and hosts. Files
    with equal bytes are kept only once: ranks that compile the same graph, and recompiles that change nothing, share
    them.

    Equal files are hard links to each other. Each process lists the files it wrote in `<process>/files.txt` (hash and
    path), where the others look; a listed file is compared byte by byte before it is linked, so a list may be out of
    date. Where the file system has no hard links, every file is a copy. The bytes of an existing file are never
    changed.

    `disk_bytes` is what this object added to the disk, in blocks, less what it removed.
    """

    def __init__(self, run: Path, process: str) -> None:
        self.run = run
        self.process = process
        self.disk_bytes = 0
        self.list_bytes = 0
        self._known: dict[str, Path] = {}
        self._read: dict[str, Tail] = {}
        self._lock = threading.Lock()

    def place(self, path: Path, data: bytes) -> str:
        """Creates `path`, which must not exist: as a link where the run already has these bytes, else as a file, not
        synced.

        Returns the name to `publish` the file under; empty when there is nothing to publish. Raises OSError when the
        disk refuses.
        """
        name = hash_bytes(data) if len(data) >= SMALL_BYTES else ""
        if name and self._linked(name, path, data):
            return ""
        with path.open("xb") as file:
            file.write(data)
        self._count(in_blocks(len(data)))
        return name

    def publish(self, path: Path, name: str) -> None:
        """Lists a file, so that other processes can link to it."""
        if not name:
            return
        with self._lock:
            self._known[name] = path
        line = f"{name} {path.relative_to(self.run)}".encode()
        self.list_bytes += len(line) + 1
        append(self.run / self.process / LIST_FILE, line)

    def replace(self, path: Path, data: bytes) -> None:
        """Writes a file that may exist; a reader sees either the old bytes or the new ones, whole. The file is not
        synced."""
        temporary = temporary_beside(path)
        try:
            name = self.place(temporary, data)
            self._count(-_own_bytes(path))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)  # renaming one link to a file over another leaves both
        self.publish(path, name)

    def remove(self, path: Path) -> None:
        """Deletes a file; its bytes are freed unless another path links to them."""
        freed = _own_bytes(path)
        path.unlink(missing_ok=True)
        self._count(-freed)

    def unite(self) -> None:
        """Links equal files that this process and one with a smaller name wrote at the same moment; called when the
        process ends."""
        self._look(below=self.process)
        for name, below in _listed(Tail(self.run / self.process / LIST_FILE)):
            path = self.run / below
            other = self._known.get(name)
            try:
                if other is None or other == path or path.samefile(other) or path.read_bytes() != other.read_bytes():
                    continue
                size, temporary = _own_bytes(path), temporary_beside(path)
                os.link(other, temporary)
                temporary.replace(path)
                self._count(-size)
            except OSError:  # one of the two is gone, or there are no hard links here
                continue

    def _linked(self, name: str, path: Path, data: bytes) -> bool:
        if name not in self._known:
            self._look()
        known = self._known.get(name)
        try:
            if known is None:
                return False
            os.link(known, path)
            if path.read_bytes() == data:
                return True
            path.unlink()
        except OSError:  # it was deleted, or there are no hard links here
            path.unlink(missing_ok=True)
        return False

    def _look(self, below: str = "") -> None:
        """Reads what the other processes listed since the last look."""
        with os.scandir(self.run) as entries:
            others = sorted(entry.name for entry in entries if entry.name != self.process and entry.is_dir())
        with self._lock:
            for other in others:
                if below and other > below:
                    continue
                new = Tail(self.run / other / LIST_FILE)
                for name, path in _listed(new if below else self._read.setdefault(other, new)):
                    if below:
                        self._known[name] = self.run / path
                    else:
                        self._known.setdefault(name, self.run / path)

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self.disk_bytes += size_bytes


def _listed(tail: Tail) -> list[tuple[str, str]]:
    """The (name, path) pairs that were added to a list since the last read."""
    try:
        lines = tail.read()
    except OSError:
        return []
    pairs = (line.decode("ascii", "replace").partition(" ") for line in lines)
    return [(name, path) for name, _, path in pairs if path and ".." not in path and not path.startswith("/")]


def _own_bytes(path: Path) -> int:
    """The bytes that deleting this file frees: none when another path links to them."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return in_blocks(status.st_size) if status.st_nlink == 1 else 0
