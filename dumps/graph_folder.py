"""One graph's folder: the names of its files, their contents, and how each is stored in a run.

Must not know of processes, journals or limits. A case folder has the same files, plain.

>>> write_graph_folder(Path("case"), record, inputs, tensors)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from . import sidecar
from .atomic import new_folder
from .compressed import packed
from .errors import UsageError
from .output import say
from .schema import GraphRecord, InputsRecord
from .shared import BLOCK_BYTES, in_blocks
from .tensors import TensorSink, TensorStore

RUN_FILE = "run.json"
GRAPH_FILE = "graph.json"
PROGRAM_FILE = "graph.py"
INPUTS_FILE = "inputs.json"
JOURNAL_FILE = "journal.jsonl"
GRAPHS_FOLDER = "graphs"
CODE_FOLDER = "code"
TENSORS_FOLDER = "tensors"


def encode(record: object) -> bytes:
    """The bytes of a JSON file of the saved form: the record, and a newline. Raises UsageError for text without UTF-8 form."""
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError as error:
        raise UsageError("cannot save a record", f"a text in it has no UTF-8 form ({error.object[:60]!r})") from error


def stored_names(record: GraphRecord | None, inputs: InputsRecord | None = None) -> Iterator[str]:
    """The names of all storages that records refer to."""
    for item in [*(record.inputs if record else ()), *(inputs.inputs if inputs else ())]:
        if item.stored is not None:
            yield item.stored.storage
    bodies = [record.graph] if record else []
    while bodies:
        body = bodies.pop()
        bodies.extend(body.subgraphs.values())
        for state in (body.attrs, *(module.state for module in body.modules.values())):
            yield from (stored.storage for stored in state.values())


def copy_storages(names: Iterator[str], source: TensorSink | None, target: TensorStore) -> None:
    if source is not None and source is not target:
        for name in sorted(set(names)):
            if name and not target.has(name):
                target.put(source.get(name))


def graph_texts(
    record: GraphRecord, on_failure: Callable[[Exception], None], *, table: bool = True
) -> Iterator[tuple[str, bytes]]:
    """The files of a graph's folder; graph.json last, so that an amended graph is never newer than what is derived from it."""
    if table:
        yield sidecar.TABLE, sidecar.encode(record)
    from .emit import program  # late: only writers need it

    try:
        text = program(record)
    except Exception as error:  # noqa: BLE001 - a graph must not be lost because its program cannot be written; it is told
        on_failure(error)
    else:
        yield PROGRAM_FILE, text.encode("utf-8", "backslashreplace")
    yield GRAPH_FILE, encode(record)


def folder_bytes(contents: Mapping[str, bytes]) -> int:
    """What files take on disk with their folder."""
    return 2 * BLOCK_BYTES + sum(in_blocks(len(data)) for data in contents.values())


def stored_form(name: str, data: bytes, group_bytes: int | None = None) -> tuple[str, bytes]:
    """A text of a run as it is stored: its file name and its bytes. graph.py is there to be read and run, so it stays plain."""
    if name == PROGRAM_FILE:
        return name, data
    content, suffix = packed(data, group_bytes=group_bytes)
    return name + suffix, content


def _say_no_program(error: Exception) -> None:
    say(f"graphdbg: no {PROGRAM_FILE} was written: {error}")


def write_graph_folder(
    path: Path, record: GraphRecord, inputs: InputsRecord | None = None, tensors: TensorSink | None = None,
    *, on_failure: Callable[[Exception], None] = _say_no_program,
) -> None:  # fmt: skip
    """Writes a folder that `load_graph` reads; it appears whole or not at all. Raises UsageError when `path` exists.

    Storages that the records name are copied from `tensors` into the folder's own tensors/. `on_failure` is told when the graph
    has no runnable program (an argument without a saved form); the rest is written.
    """
    with new_folder(path) as folder:
        if tensors is not None:
            copy_storages(stored_names(record, inputs), tensors, TensorStore(folder / TENSORS_FOLDER))
        for name, data in graph_texts(record, on_failure):
            (folder / name).write_bytes(data)
        if inputs is not None:
            (folder / INPUTS_FILE).write_bytes(encode(inputs))
