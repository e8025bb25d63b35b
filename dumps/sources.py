"""Copies of the user's source files that stack traces of a process name: each text is written once, by content, and
found by the path of its file.

`<process>/sources/<sha1>.py` are the texts, `<process>/sources.jsonl` lists their files. Size and number are bounded;
the list also names what was left out. No file that a dump names is ever opened: the recorder passes in the text, and
readers get the copy.

>>> Path("pid1").mkdir()
>>> SourceWriter(Path("pid1")).keep("/home/ann/train.py", "import torch")
True
>>> Sources(Path("pid1")).text("/home/ann/train.py")
'import torch'
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import msgspec

from .atomic import in_blocks, write_file
from .errors import DamagedError
from .lines import append
from .opening import read
from .reading import packed, read_bytes, stored

FOLDER = "sources"
LIST = "sources.jsonl"

MOST_FILE_BYTES = 1 << 20
MOST_BYTES = 1 << 23
MOST_FILES = 300
"""The most files of one process: files that people write are small, generated ones need not be kept."""


class SourceRecord(msgspec.Struct, omit_defaults=True):
    """One line of the list: a file, and the name of its copy; or why there is none."""

    file: str
    sha: str = ""
    left_out: str = ""


class SourceWriter:
    """Writes the copies of one process into its folder, where no other process writes."""

    def __init__(self, process: Path) -> None:
        self.process = process
        self.known: set[str] = set()
        """Files that were already kept, or left out."""
        self.disk_bytes = 0
        self._bytes = 0
        self._texts: set[str] = set()

    def keep(self, file: str, text: str) -> bool:
        """Keeps a copy of a file; False for one that is known already or left out. Raises EnvironmentLackError,
        OSError."""
        if file in self.known:
            return False
        self.known.add(file)
        data = text.encode("utf-8", "backslashreplace")
        why = self._refusal(len(data))
        record = SourceRecord(file, "" if why else hashlib.sha1(data, usedforsecurity=False).hexdigest(), why)
        if record.sha and record.sha not in self._texts:
            name, content = packed(f"{record.sha}.py", data)
            folder = self.process / FOLDER
            folder.mkdir(exist_ok=True)
            write_file(folder / name, content)
            self._texts.add(record.sha)
            self._bytes += len(data)
            self.disk_bytes += in_blocks(len(content))
        line = msgspec.json.encode(record)
        append(self.process / LIST, line)
        self.disk_bytes += in_blocks(len(line) + 1) if len(self.known) == 1 else 0
        return bool(record.sha)

    def _refusal(self, size_bytes: int) -> str:
        if len(self._texts) >= MOST_FILES:
            return f"{MOST_FILES} files are kept already"
        if size_bytes > MOST_FILE_BYTES:
            return f"it has {size_bytes} bytes"
        return f"{MOST_BYTES} bytes are kept already" if self._bytes + size_bytes > MOST_BYTES else ""


class Sources:
    """The copies that one process kept; empty for a run from before copies were kept."""

    def __init__(self, process: Path) -> None:
        self.process = process

    @cached_property
    def records(self) -> dict[str, SourceRecord]:
        """The records by file. A torn line at the end is skipped."""
        try:
            lines = read(self.process / LIST).splitlines()
        except OSError:
            return {}
        by_file: dict[str, SourceRecord] = {}
        for line in lines:
            try:
                record = msgspec.json.decode(line, type=SourceRecord)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            by_file.setdefault(record.file, record)
        return by_file

    def text(self, file: str) -> str | None:
        """The text of the copy of a file; None where none was kept. Raises UnreadableError for one that is damaged."""
        path = self.path(file)
        if path is None:
            return None
        data = read_bytes(path) if path.stat().st_size else b""
        if hashlib.sha1(data, usedforsecurity=False).hexdigest() != self.records[file].sha:
            raise DamagedError(f"cannot read {path}", "its content changed since the recording")
        return data.decode("utf-8", "backslashreplace")

    def path(self, file: str) -> Path | None:
        """The file that holds the copy, maybe compressed; None where none was kept."""
        record = self.records.get(file)
        if record is None or len(record.sha) != 40 or not record.sha.isalnum():
            return None
        return stored(self.process / FOLDER / f"{record.sha}.py")

    def why_not(self, file: str) -> str:
        """Why there is no copy of a file."""
        record = self.records.get(file)
        return record.left_out if record is not None and record.left_out else "the run kept no copy of it"
