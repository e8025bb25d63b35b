"""The newest inputs of a graph in a file that its process overwrites before each execution and that outlives a `kill
-9`.

<process>/held/<id>: a head with the number of the execution, marked "torn" while its inputs are being copied; the bytes
of each storage; then a HeldRecord. When the process has ended, the file is converted to inputs.json and
content-addressed tensors, and removed. Imports no torch, and does not change the file of a process that may still write
to it.

For example:

    held = read(Path("myrun/pid1/held/0_0/forward"))
    held.execution, bytes(held.storages[0])[:4]  # -> (37, b'...')
"""

from __future__ import annotations

import base64
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from . import ids, index
from .atomic import write_file
from .errors import CannotWriteError, DamagedError, EnvironmentLackError, GraphdbgError, UnreadableError
from .graph_folder import GRAPHS_FOLDER, INPUTS_FILE, encode, stored_names
from .opening import opened
from .reading import SUFFIX, decode_record, read_record, stored
from .schema import FORMAT, InputRecord, InputsRecord, Record, StoredTensor
from .tensors import Bytes, TensorStore
from .validate import check_inputs

FOLDER = "held"
DATA_AT = 4096
"""Where the bytes of the first storage begin."""

_MAGIC = b"graphdbg held 1\n"
_HEAD = struct.Struct("<16sQQQQ")
"""Magic, execution, whole (0 or 1), where the record begins, its size."""


class HeldRecord(Record, kw_only=True):
    """The inputs of one execution. Their storages are named "#0", "#1", ... by index in `spans`, which has (start,
    size) of each; `generators` are the states of the random generators: (device, start, size)."""

    format: int = FORMAT
    inputs: InputsRecord
    spans: list[tuple[int, int]] = []
    generators: list[tuple[str, int, int]] = []


class HeldContents(NamedTuple):
    """The contents of a held file."""

    execution: int
    inputs: InputsRecord
    storages: list[Bytes]
    generators: list[tuple[str, Bytes]]


class HeldFile:
    """The file of one compiled callable, open for writing, with one name (hard link) for each graph that was compiled
    into it.

    `buffer` maps the whole file into memory. Its disk blocks are reserved, so that a full disk is an OSError of
    `reserve` instead of a signal later.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self.size_bytes = 0
        first, *others = self.paths
        first.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(first, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            self.reserve(DATA_AT)
        except OSError:
            self.remove()
            raise
        with suppress(OSError):  # no hard links here: should the process die, only the first graph has its inputs
            for path in others:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(first, path)

    def reserve(self, size_bytes: int) -> None:
        """Grows the file to at least `size_bytes`, and replaces `buffer`. Raises OSError when the disk is full."""
        if size_bytes <= self.size_bytes:
            return
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size_bytes)
        else:
            os.truncate(self._descriptor, size_bytes)
        self.buffer = mmap.mmap(self._descriptor, size_bytes)
        self.size_bytes = size_bytes

    def tear(self, execution: int) -> None:
        """Marks the inputs as torn, while those of `execution` are being copied."""
        _HEAD.pack_into(self.buffer, 0, _MAGIC, execution, 0, 0, 0)

    def finish(self, execution: int, start: int, size: int) -> None:
        """Marks the copy as whole; its record lies at `start`."""
        _HEAD.pack_into(self.buffer, 0, _MAGIC, execution, 0, start, size)
        _HEAD.pack_into(self.buffer, 0, _MAGIC, execution, 1, start, size)

    def remove(self) -> None:
        """Closes and deletes the file."""
        os.close(self._descriptor)
        for path in self.paths:
            _remove(path)


def read(path: Path, *, live: bool = False) -> HeldContents:
    """Reads a held file. `live`: its process may still write to it. Raises UnreadableError when the file is torn or
    damaged."""
    what = f"cannot read the last inputs in {path}"
    try:
        with opened(path) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise UnreadableError(what, getattr(error, "strerror", None) or str(error)) from error
    head = _head(mapped, what)
    execution, start, size = head
    record = decode_record(mapped[start : start + size], HeldRecord, str(path))
    view = memoryview(mapped)

    def part(at: int, length: int) -> Bytes:
        if at < DATA_AT or length < 0 or at + length > len(mapped):
            raise DamagedError(what, "an offset in it is outside the file")
        return bytes(view[at : at + length]) if live else view[at : at + length]

    storages = [part(*span) for span in record.spans]
    generators = [(name, part(*span)) for name, *span in record.generators]
    names = {"", *(f"#{index}" for index in range(len(storages)))}
    if not set(stored_names(None, record.inputs)) <= names:
        raise DamagedError(what, "an input refers to a storage that is missing")
    if _head(mapped, what) != head:
        raise UnreadableError(what, "the recorded process is overwriting them", "try again")
    return HeldContents(execution, record.inputs, storages, generators)


def _head(mapped: mmap.mmap, what: str) -> tuple[int, int, int]:
    if len(mapped) < DATA_AT:
        raise DamagedError(what, "the file is cut off")
    magic, execution, whole, start, size = _HEAD.unpack_from(mapped, 0)
    if magic != _MAGIC:
        raise DamagedError(what, "the file is damaged")
    if not whole:
        why = f"they are incomplete: the process died while it copied the inputs of execution {execution}"
        raise DamagedError(what, why)
    return execution, start, size


def settled(held: HeldContents, put: Callable[[Bytes], str]) -> InputsRecord:
    """Returns the inputs, with each storage renamed to the name that `put` returned for its bytes."""
    names = [put(data) for data in held.storages]
    inputs = [_named(item, names) for item in held.inputs.inputs]
    record = msgspec.structs.replace(held.inputs, inputs=inputs)
    if record.ambient is not None and held.generators:
        states = " ".join(f"{device}:{packed_state(data)}" for device, data in held.generators)
        record.ambient = msgspec.structs.replace(record.ambient, rng_state=states)
    return record


def _named(item: InputRecord, names: Sequence[str]) -> InputRecord:
    return item if item.stored is None else msgspec.structs.replace(item, stored=_stored(item.stored, names))


def _stored(stored: StoredTensor, names: Sequence[str]) -> StoredTensor:
    name = names[int(stored.storage[1:])] if stored.storage.startswith("#") else stored.storage
    inner = {field: _stored(part, names) for field, part in stored.inner.items()}
    return msgspec.structs.replace(stored, storage=name, inner=inner)


def packed_state(data: Bytes) -> str:
    """A generator's state as text."""
    return base64.b64encode(zlib.compress(data, 1)).decode()


def keep(held_path: Path, graph_path: Path, tensors: TensorStore) -> InputsRecord:
    """Converts the held file of an ended process to the graph's inputs.json, and removes the held file; where
    inputs.json already holds a failed step, to inputs.<execution>.json beside it.

    Raises UnreadableError when the held file is torn or damaged, EnvironmentLackError when the run cannot be written.
    """
    record = settled(read(held_path), tensors.put)
    check_inputs(record, str(held_path))
    path = graph_path / INPUTS_FILE
    there = stored(path)
    if there is not None and read_record(there, InputsRecord).reason:
        path = graph_path / f"inputs.{record.execution}.json"
    write_file(path, encode(record))
    try:
        path.with_name(path.name + SUFFIX).unlink(missing_ok=True)
        _remove(held_path)
    except OSError as error:
        raise CannotWriteError(f"cannot remove {held_path}", error.strerror or str(error)) from error
    return record


def keep_run(run: Path, tensors: TensorStore) -> list[str]:
    """Calls `keep` for every ended process of a run; returns a sentence for each graph whose last inputs could not be
    kept."""
    damage: list[str] = []
    left: dict[str, list[str]] = {}
    for process in index.processes(run):
        folder = process.path / FOLDER
        if process.liveness not in ("dead", "ended") or not folder.is_dir():
            continue
        for path in sorted(folder.glob("*/*")):
            local = f"{path.parent.name}/{path.name}"
            try:
                keep(path, process.path / GRAPHS_FOLDER / ids.check_id(local), tensors)
            except UnreadableError as error:
                damage.append(f"{local}: {error} {_INSTEAD}")
                _remove(path)
            except GraphdbgError as error:
                left.setdefault(f"{error.why}. {error.fix}", []).append(local)
    damage += [f"last inputs of {', '.join(names)} stay in {FOLDER}/: {why}" for why, names in left.items()]
    return damage


_INSTEAD = "What was seen of its first execution is there still."


def of_graph(held_path: Path, graph_path: Path, liveness: str, tensors: TensorStore) -> tuple[InputsRecord | None, str]:
    """The last inputs of a graph whose held file still exists; or None, and a sentence on why they are unusable.

    The inputs of an ended process are kept (see `keep`); those of a process that may live, or in a run that cannot be
    written, are only read.
    """
    ended = liveness in ("dead", "ended")
    try:
        with suppress(EnvironmentLackError):
            if ended:
                return keep(held_path, graph_path, tensors), ""
        return settled(read(held_path, live=not ended), tensors.lend), ""
    except UnreadableError as error:
        return None, f"{error} {_INSTEAD}"


def _remove(path: Path) -> None:
    """Deletes a held file, and its folders once they are empty."""
    path.unlink(missing_ok=True)
    with suppress(OSError):  # other files are still in them
        for folder in path.parents[:2]:
            folder.rmdir()
