"""Reading JSON records so that whatever is wrong with a file becomes one sentence that names the file and the place in it.

Must not execute, import or guess anything. The format version is checked first, so a newer file is refused as newer.

>>> record = read_record(Path("run/run.json"), RunRecord)
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from . import compressed
from .errors import UnreadableError
from .schema import FORMAT

T = TypeVar("T")


class _Versioned(msgspec.Struct):
    format: int


def read_bytes(path: Path) -> bytes:
    """The bytes of a text that must be there, plain or compressed, and not be empty; raises UnreadableError."""
    try:
        data = compressed.read(path)
    except FileNotFoundError as error:
        raise UnreadableError(f"cannot read {path}", "there is no such file") from error
    except OSError as error:
        raise UnreadableError(f"cannot read {path}", error.strerror or str(error)) from error
    if not data.strip():
        raise UnreadableError(f"cannot read {path}", "the file is empty", "record the run again")
    return data


def read_record(path: Path, record: type[T]) -> T:
    """Decodes and type-checks a JSON record that carries `format`; raises UnreadableError naming file and place."""
    return decode_record(read_bytes(path), record, str(path))


def decode_record(data: bytes, record: type[T], where: str) -> T:
    """The same for bytes in memory; `where` names their file."""
    try:
        decoded = _decode(data, record, where)
    except msgspec.ValidationError as error:
        _check_format(data, where)
        reason, _, place = str(error).partition(" - at ")
        place = place.strip("`")
        raise UnreadableError(f"cannot read {where}" + (f", at {place}" if place else ""), reason) from error
    refuse_format(getattr(decoded, "format", FORMAT), where)
    return decoded


def _decode(data: bytes, record: type[T], where: str) -> T:
    """Decodes bytes; msgspec's ValidationError passes, whatever else is wrong with them becomes UnreadableError."""
    try:
        return msgspec.json.decode(data, type=record)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = "the file is cut off" if "truncated" in str(error) else f"it is not JSON ({error})"
        raise UnreadableError(f"cannot read {where}", why, "record the run again") from error
    except RecursionError as error:
        raise UnreadableError(f"cannot read {where}", "its values are nested too deeply") from error


def _check_format(data: bytes, where: str) -> None:
    try:
        version = _decode(data, _Versioned, where).format
    except msgspec.ValidationError as error:
        why = 'it has no whole number "format", so graphdbg did not write it'
        raise UnreadableError(f"cannot read {where}", why) from error
    refuse_format(version, where)


def refuse_format(version: int, where: str) -> None:
    """Raises UnreadableError when a file's format version is not one that this graphdbg reads."""
    if version > FORMAT:
        why = f"it has format {version}, and this graphdbg reads up to {FORMAT}"
        raise UnreadableError(f"cannot read {where}", why, "upgrade graphdbg")
    if version < 1:
        raise UnreadableError(f"cannot read {where}", f"format {version} does not exist")
