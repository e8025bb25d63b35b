"""Packs `artifacts.zip`: repro, issue text, the case, generated code and the journal lines of the graph, all texts
redacted.

The same contents give the same bytes (fixed order, dates and permissions). Tensors over the size limit are left out and
named.

>>> write_zip(Path("artifacts.zip"), {"repro.py": b"..."})
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from ...dumps import opening
from ...dumps.atomic import write_file
from ...dumps.errors import ExistsAlreadyError, RefusedError
from ...dumps.graph_folder import GRAPH_FILE, INPUTS_FILE, PROGRAM_FILE, encode, stored_names
from ...dumps.pack import records
from ...dumps.pack.making import texts_of
from ...dumps.pack.redact import Redactor
from ...dumps.pack.texts import Texts
from ...dumps.program.module import program
from ...dumps.reading import read_bytes, stored
from ...dumps.secrets import Secrets
from ...dumps.store import SavedGraph
from ...dumps.wording import size_text
from ..casefile import NAME

MAX_TENSOR_BYTES = 64 << 20
_DATE = (1980, 1, 1, 0, 0, 0)


def gather(saved: SavedGraph, files: Mapping[str, bytes], secrets: Secrets) -> tuple[dict[str, bytes], list[str]]:
    """All members by name, and a sentence for each thing left out. `files` are the written reports, which are redacted
    once more: the program of a case that a command decides on holds the command as it was given."""
    redactor = Redactor(secrets=secrets)
    members = {
        name: redactor.text(data.decode()).encode() if name.endswith((".py", ".md")) else data
        for name, data in files.items()
    }
    notes: list[str] = []
    texts = texts_of(saved, secrets)
    record = records.graph(saved.record, texts, keep=lambda _: True)
    members[f"case/{GRAPH_FILE}"] = encode(record)
    with suppress(RefusedError):
        members[f"case/{PROGRAM_FILE}"] = program(record).encode()
    if saved.own_inputs_record is not None:
        members[f"case/{INPUTS_FILE}"] = encode(records.inputs(saved.own_inputs_record, texts, keep=lambda _: True))
    if stored(saved.path / NAME) is not None:
        members[f"case/{NAME}"] = _redacted(read_bytes(saved.path / NAME), texts)
    room = MAX_TENSOR_BYTES
    for name in sorted({name for name in stored_names(saved.record, saved.inputs_record) if name}):
        size = saved.tensors.size_bytes(name)
        if not size:
            notes.append(f"tensor {name} is missing from {saved.tensors_dir.name}/")
        elif size > room:
            notes.append(f"tensor {name} ({size_text(size)}) was left out of artifacts.zip for its size")
        else:
            room -= size
            members[f"case/tensors/{name}"] = opening.read(saved.tensors_dir / name)
    for path in saved.code_files():
        if (redacted := texts.generated(path.read_bytes().decode(errors="replace"))) is not None:
            members[f"code/{path.name}"] = redacted.encode()
    excerpt = journal_excerpt(saved)
    if excerpt:
        members["journal.jsonl"] = b"".join(_redacted(line.encode(), texts) + b"\n" for line in excerpt.splitlines())
    return members, notes


def journal_excerpt(saved: SavedGraph) -> str:
    """The lines about this graph from its process's journal; for a minified case the journal beside it."""
    if saved.run is None or saved.process is None:
        beside = saved.path.parent / "journal.jsonl"
        return opening.read_text(beside) if beside.is_file() else ""
    path = saved.run.path / saved.process / "journal.jsonl"
    if not path.is_file():
        return ""
    return "".join(
        f"{line}\n" for line in opening.read_text(path).splitlines() if _graph_of(line) in (saved.local_id, None)
    )


def write_zip(path: Path, members: Mapping[str, bytes]) -> None:
    """Writes the archive whole or not at all; raises UsageError when `path` exists, else as `write_file`."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            item = zipfile.ZipInfo(name, _DATE)
            item.external_attr = 0o644 << 16
            item.create_system = 3
            archive.writestr(item, members[name], zipfile.ZIP_DEFLATED)
    if not write_file(path, data.getvalue(), exclusive=True):
        raise ExistsAlreadyError(f"cannot write {path}", "it exists already", "choose another folder with -o")


def _graph_of(line: str) -> str | None:
    """The graph that a journal line is about; None: the process; empty: not a line."""
    try:
        return msgspec.json.decode(line.encode(), type=_Line).graph
    except msgspec.MsgspecError:
        return ""


class _Line(msgspec.Struct):
    graph: str | None = None


def _redacted(data: bytes, texts: Texts) -> bytes:
    """JSON with all its texts redacted; anything else is redacted as a text."""
    try:
        return msgspec.json.encode(records.tree(msgspec.json.decode(data), texts))
    except (msgspec.MsgspecError, RecursionError):
        return texts.text(data.decode(errors="replace")).encode()
