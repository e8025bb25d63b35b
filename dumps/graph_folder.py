"""One graph's folder: the names of its files, their contents, and how each is stored in a run.

Knows nothing of processes, journals or limits. A case folder has the same files, plain.

>>> len(next(stored_names(record, saved.inputs_record)))          # a stored tensor is named by a digest
40
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from . import sidecar
from .atomic import BLOCK_BYTES, in_blocks, new_folder
from .errors import GraphdbgError, NoGraphError, said
from .output import say
from .reading import Packer, read_record, stored
from .schema import GraphRecord, InputsRecord, StoredTensor
from .tensors import TensorSink, TensorStore
from .walk import tensors

RUN_FILE = "run.json"
GRAPH_FILE = "graph.json"
PROGRAM_FILE = "graph.py"
INPUTS_FILE = "inputs.json"
JOURNAL_FILE = "journal.jsonl"
GRAPHS_FOLDER = "graphs"
CODE_FOLDER = "code"
TENSORS_FOLDER = "tensors"


LIST_FILE = "files.txt"


def encode(record: object) -> bytes:
    """The bytes of a JSON file of the saved form: the record, and a newline. Raises UsageError for text without UTF-8
    form."""
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError as error:
        why = f"a text in it is not valid UTF-8 ({error.object[:60]!r})"
        raise NoGraphError("cannot save a record", why) from error


def stored_names(record: GraphRecord | None, inputs: InputsRecord | None = None) -> Iterator[str]:
    """The names of all storages that records refer to."""
    for item in [*(record.inputs if record else ()), *(inputs.inputs if inputs else ())]:
        if item.stored is not None:
            yield from _storages(item.stored)
    if record is not None:
        for _, stored in tensors(record.graph):
            yield from _storages(stored)


def _storages(stored: StoredTensor) -> Iterator[str]:
    yield stored.storage
    for part in stored.inner.values():
        yield from _storages(part)


def copy_storages(names: Iterator[str], source: TensorSink, target: TensorStore) -> None:
    if source is not target:
        for name in sorted(set(names)):
            if name and not target.has(name):
                target.put(source.get(name))


class GraphText:
    """Encodes graph.json of a record whose last node still changes: all earlier nodes are encoded, and compressed, only
    once.

    The earlier nodes, and the fields before them in the record, must not change.
    """

    def __init__(self, record: GraphRecord) -> None:
        self._nodes = encode(record.graph.nodes[:-1])[1:-2]
        self.compress = Packer(len(self._nodes))

    def encode(self, record: GraphRecord) -> bytes:
        """Returns the same bytes as the function `encode` for the current record."""
        nodes = [*([msgspec.Raw(self._nodes)] if self._nodes else ()), *record.graph.nodes[-1:]]
        return encode(replace(record, graph=replace(record.graph, nodes=nodes)))


def program_bytes(record: GraphRecord, on_failure: Callable[[Exception], object]) -> bytes:
    """The bytes of graph.py; empty when the graph has no runnable program (an argument without a saved form), which is
    reported."""
    from .program.module import program  # imported late: a recording process needs it only when it ends

    try:
        return program(record).encode("utf-8", "backslashreplace")
    except Exception as error:  # noqa: BLE001 - a graph must not be lost because its program cannot be written
        on_failure(error)
        return b""


def write_programs(
    process: Path,
    write: Callable[[Path, bytes], None],
    room: Callable[[int], bool] | None = None,
    on_failure: Callable[[str, Exception], object] = lambda _local, _error: None,
) -> None:
    """Writes graph.py beside each graph.json of a process where it is missing. graph.py is derived, so nothing waits
    for it or is left out for it. `room(bytes)`: whether so many bytes may be written; `on_failure`: called for a graph
    without a program."""
    for path in sorted((process / GRAPHS_FOLDER).glob("*/*")):
        if (path / PROGRAM_FILE).exists() or stored(path / GRAPH_FILE) is None:
            continue
        with suppress(GraphdbgError, OSError):  # damaged, or removed meanwhile
            record = read_record(path / GRAPH_FILE, GraphRecord)
            data = program_bytes(record, partial(on_failure, f"{path.parent.name}/{path.name}"))
            if data and (room is None or room(len(data))):
                write(path / PROGRAM_FILE, data)


def folder_bytes(contents: Mapping[str, bytes]) -> int:
    """The bytes that the files and their folder take on disk."""
    return 2 * BLOCK_BYTES + sum(in_blocks(len(data)) for data in contents.values())


def _say_no_program(error: Exception) -> None:
    say(f"graphdbg: no {PROGRAM_FILE} was written: {said(error)}")


def write_graph_folder(
    path: Path, record: GraphRecord, inputs: InputsRecord | None = None, tensors: TensorSink | None = None
) -> None:
    """Writes a folder that `load_graph` reads; it appears whole or not at all. Raises UsageError when `path` exists.

    Storages that the records name are copied from `tensors` into the folder's own tensors/. Where the graph has no
    runnable program, a message says so, and the other files are written.
    """
    with new_folder(path) as folder:
        if tensors is not None:
            copy_storages(stored_names(record, inputs), tensors, TensorStore(folder / TENSORS_FOLDER))
        (folder / sidecar.TABLE).write_bytes(sidecar.encode(record))
        (folder / GRAPH_FILE).write_bytes(encode(record))
        if program := program_bytes(record, _say_no_program):
            (folder / PROGRAM_FILE).write_bytes(program)
        if inputs is not None:
            (folder / INPUTS_FILE).write_bytes(encode(inputs))
