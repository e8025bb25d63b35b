"""Reading the texts of a run: unpacks gzip files, and turns every error in a JSON file into one sentence that names the
file and the place in it.

Large texts of recorded runs are kept as `graph.json.gz` in place of `graph.json`, and are found by the plain name; a
case folder stays plain. Compression depends on the bytes alone (no time, no name), so that equal texts give equal
files. Nothing is executed, imported or guessed, and unpacking and decoding are bounded: a small file may claim to hold
terabytes, and a text of brackets becomes thirty times as large. The format version is checked first, so a newer file is
refused as newer.

>>> from graphdbg.dumps.schema import RunRecord
>>> read_record(Path("myrun/run.json"), RunRecord).format
1
>>> name, data = packed("graph.json", b"x" * 100_000)
>>> name, len(data) < 1000
('graph.json.gz', True)
>>> read(run.path / "run.json")[:1]
b'{'
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from . import opening
from .errors import DamagedError, OtherVersionError, TooLargeError, UnreadableError
from .schema import FORMAT
from .wording import counted, size_text

T = TypeVar("T")
SUFFIX = ".gz"

LARGE_BYTES = 1 << 15
"""Texts from this size on are compressed; a smaller one saves less than a block of the file system."""

DECODED_FREELY_BYTES = 2 << 30
"""The memory that the values of any text may take: graphs of 100,000 nodes take less than one gigabyte."""

DECODED_TIMES = 256
"""Above that, the largest ratio of the values' memory to the file's size on disk."""

_VALUE_BYTES = 128
_SURELY_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_NO_MARKS = bytes(set(range(256)) - set(b",[{"))

_LEVEL = 6


class _Versioned(msgspec.Struct):
    format: int


def read_bytes(path: Path) -> bytes:
    """The bytes of a text, plain or compressed; raises UnreadableError where it is missing or empty."""
    try:
        data = read(path)
    except FileNotFoundError as error:
        raise UnreadableError(f"cannot read {path}", "there is no such file") from error
    except OSError as error:
        raise UnreadableError(f"cannot read {path}", error.strerror or str(error)) from error
    if not data.strip():
        raise DamagedError(f"cannot read {path}", "the file is empty", "record the run again")
    return data


def read_record(path: Path, record: type[T]) -> T:
    """Decodes and type-checks a JSON record that carries `format`; raises UnreadableError naming file and place."""
    return decode_record(read_bytes(path), record, str(path))


def read_if_there(path: Path, record: type[T]) -> T | None:
    """The record as `read_record` reads it; None where there is no such file."""
    return read_record(path, record) if stored(path) is not None else None


def decode_record(data: bytes, record: type[T], where: str) -> T:
    """Decodes and type-checks a record from bytes; `where` names their file."""
    try:
        decoded = _decode(data, record, where)
    except msgspec.ValidationError as error:
        _check_format(data, where)
        reason, _, place = str(error).partition(" - at ")
        place = place.strip("`")
        raise DamagedError(f"cannot read {where}" + (f", at {place}" if place else ""), reason) from error
    refuse_format(getattr(decoded, "format", FORMAT), where)
    return decoded


def _decode(data: bytes, record: type[T], where: str) -> T:
    """Decodes bytes. ValidationError of msgspec is passed on, other errors become UnreadableError."""
    try:
        return msgspec.json.decode(data, type=record)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = "the file is cut off" if "truncated" in str(error) else f"it is not JSON ({error})"
        raise DamagedError(f"cannot read {where}", why, "record the run again") from error
    except RecursionError as error:
        raise DamagedError(f"cannot read {where}", "its values are nested too deeply") from error


def _check_format(data: bytes, where: str) -> None:
    try:
        version = _decode(data, _Versioned, where).format
    except msgspec.ValidationError as error:
        why = 'it has no whole number "format", so graphdbg did not write it'
        raise UnreadableError(f"cannot read {where}", why) from error
    refuse_format(version, where)


def refuse_format(version: int, where: str) -> None:
    """Raises UnreadableError when this graphdbg cannot read a file's format version."""
    if version > FORMAT:
        why = f"it has format {version}, and this graphdbg reads up to {FORMAT}"
        raise OtherVersionError(f"cannot read {where}", why, "upgrade graphdbg")
    if version < 1:
        raise OtherVersionError(f"cannot read {where}", f"there is no format {version}")


class Packer:
    """Compresses texts that share their first `shared_bytes` bytes, which are compressed only once."""

    def __init__(self, shared_bytes: int = 0) -> None:
        self.shared_bytes = shared_bytes
        self._begun = b""

    @cached_property  # it is large, and most texts are too small to be compressed
    def _state(self) -> Any:
        return zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

    def __call__(self, data: bytes) -> bytes:
        if not self._begun:
            self._begun = self._state.compress(data[: self.shared_bytes])
        state = self._state.copy()
        return self._begun + state.compress(data[self.shared_bytes :]) + state.flush()


def packed(
    name: str, data: bytes, group_bytes: int | None = None, compress: Callable[[bytes], bytes] | None = None
) -> tuple[str, bytes]:
    """Returns a text of a run as it is stored: file name and bytes. `group_bytes`: the size of all files that belong
    together, which decides whether they are compressed."""
    if (len(data) if group_bytes is None else group_bytes) < LARGE_BYTES:
        return name, data
    return name + SUFFIX, (compress or Packer())(data)


def stored(path: Path) -> Path | None:
    """The existing file of a text, plain or compressed; None when there is neither."""
    if path.is_file():
        return path
    beside = path.with_name(path.name + SUFFIX)
    return beside if beside.is_file() else None


def plain_name(name: str) -> str:
    """The name of a text without the mark of its compression."""
    return name.removesuffix(SUFFIX)


def read(path: Path) -> bytes:
    """The contents of a text, plain or compressed. Raises FileNotFoundError, OSError, or UnreadableError for a file
    that cannot be unpacked."""
    file = path if path.suffix == SUFFIX else stored(path)
    if file is None:
        raise FileNotFoundError(path)
    data = opening.read(file)
    text = unpacked(data, str(file)) if file.suffix == SUFFIX else data
    refuse_many(text, len(data), str(file))
    return text


def refuse_many(text: bytes, packed_bytes: int, where: str) -> None:
    """Raises UnreadableError for a text whose values would take too much memory. Their number is estimated from commas
    and brackets; for a table, whose every byte can be a value, from its length."""
    if len(text) <= _SURELY_BYTES:
        return
    values = len(text) // 2 if ".msgpack" in where else len(text.translate(None, _NO_MARKS))
    needed = values * _VALUE_BYTES + len(text) * (1 if text.isascii() else 4)
    if needed <= DECODED_FREELY_BYTES // 2:
        return
    most = max(DECODED_FREELY_BYTES // 2, opening.most_in_memory())
    most = min(most, max(DECODED_FREELY_BYTES, DECODED_TIMES * packed_bytes))
    if needed > most:
        why = (
            f"its {counted(values, 'value')} would take {size_text(needed)} of memory; graphdbg uses at most "
            f"{size_text(most)} here"
        )
        raise TooLargeError(f"cannot read {where}", why)


def unpacked(data: bytes, where: str) -> bytes:
    """The text in the bytes of a gzip file; raises UnreadableError when they are damaged, cut off or hold too much."""
    most = opening.most_out(len(data))
    said = int.from_bytes(data[-4:], "little")  # modulo 4 GiB, if undamaged
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    text, rest, size = b"", data, 0
    try:
        while rest and size <= most:
            text = reader.decompress(rest, most + 1 if said <= most else _PIECE_BYTES)
            rest, size = reader.unconsumed_tail, size + len(text)
    except zlib.error as error:
        raise DamagedError(f"cannot read {where}", f"it is damaged ({error})", "record the run again") from error
    if size > most:
        why = f"its {size_text(len(data))} unpack to more than {size_text(most)}"
        raise TooLargeError(f"cannot read {where}", why, "if you trust it, unpack it with gunzip")
    if not reader.eof or size != len(text):
        raise DamagedError(f"cannot read {where}", "the file is cut off", "record the run again")
    return text
