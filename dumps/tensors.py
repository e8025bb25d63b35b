"""Tensor storages by content: each file is named by the hash of its bytes and written once, by the first process that
has them.

A file is a valid safetensors file with one uint8 tensor called `data`; dtype, shape and stride are in the records that
refer to it. Imports neither torch nor numpy; reading maps the file and checks its hash.

>>> store = TensorStore(Path("run/tensors"))
>>> name = store.put(b"\\x00" * 16)
>>> bytes(store.get(name)) == b"\\x00" * 16
True
"""

from __future__ import annotations

import hashlib
import mmap
import re
import threading
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import msgspec

from .atomic import write_file
from .errors import DamagedError, NameRefusedError, NotStoredError, UnreadableError
from .opening import opened

Bytes = bytes | bytearray | memoryview

HASH = re.compile(r"[0-9a-f]{40}", re.ASCII)
_MAX_HEADER_BYTES = 1 << 16
_HOLES_BYTES = 1 << 30
"""A sparse file is read up to this size, as a copy may leave out zeros."""


class TensorSink(Protocol):
    """Interface with which encoders store tensor storages and decoders read them."""

    def accepts(self, size_bytes: int) -> bool:
        """Whether a storage of that size may be stored; if not, only its metadata is recorded."""
        ...

    def put(self, data: Bytes) -> str:
        """Keeps the bytes and returns their name."""
        ...

    def get(self, name: str) -> Bytes:
        """The bytes of that name; raises RefusedError or UnreadableError."""
        ...


def hash_bytes(data: Bytes) -> str:
    """The name of a storage: blake2b with 160 bits, as 40 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def check_hash(name: str, place: str = "") -> str:
    """Returns a storage name that is 40 hexadecimal digits, hence safe as a path; raises RefusedError for anything
    else."""
    if not HASH.fullmatch(name):
        what = f"{name!r} is not a tensor name" + (f" ({place})" if place else "")
        raise NameRefusedError(what, "names are 40 hexadecimal digits")
    return name


class TensorStore:
    """Storages in a folder, shared by every process of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written_bytes = 0
        self.room: Callable[[int], bool] | None = None
        self.later: Callable[[Path], object] | None = None
        self._lock = threading.Lock()
        self._open: dict[str, memoryview] = {}

    def accepts(self, size_bytes: int) -> bool:
        """Whether there is room for a storage of that size."""
        return self.room is None or self.room(size_bytes)

    def put(self, data: Bytes) -> str:
        """Writes the bytes under their hash unless they are there already; returns the hash."""
        flat = memoryview(data).cast("B")
        name = hash_bytes(flat)
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(path, (file_header({"data": len(flat)}), flat), later=self.later)
            self.written_bytes += len(flat)
        return name

    def get(self, name: str) -> memoryview:
        """A read-only view of the mapped bytes, after their hash was checked (once per store).

        Raises RefusedError for a name that is no hash, UnreadableError for a file that is missing, cut off or altered.
        """
        path = self.folder / check_hash(name, str(self.folder))
        with self._lock:
            if name not in self._open:
                self._open[name] = _verified(path, name)
            return self._open[name]

    def lend(self, data: Bytes) -> str:
        """Makes the bytes readable through this object without writing them; returns their name."""
        flat = memoryview(data).cast("B").toreadonly()
        name = hash_bytes(flat)
        with self._lock:
            self._open.setdefault(name, flat)
        return name

    def has(self, name: str) -> bool:
        """Whether a file of that name exists (its bytes are not checked)."""
        return bool(HASH.fullmatch(name)) and (self.folder / name).is_file()

    def size_bytes(self, name: str) -> int:
        """The file's size with its header, or 0 when it is missing."""
        return (self.folder / check_hash(name)).stat().st_size if self.has(name) else 0


class _TensorEntry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def file_header(sizes: Mapping[str, int]) -> bytes:
    """The header of a safetensors file of uint8 tensors: their names and sizes, in order."""
    ends = list(accumulate(sizes.values(), initial=0))
    places = zip(sizes.items(), ends, ends[1:], strict=False)
    text = msgspec.json.encode({name: _TensorEntry("U8", [size], (start, end)) for (name, size), start, end in places})
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _verified(path: Path, name: str) -> memoryview:
    what = f"cannot read tensor {path}"
    try:
        with opened(path, freely=_HOLES_BYTES) as file:
            size = file.seek(0, 2)
            if size == 0:
                raise DamagedError(what, "the file is empty", "record the run again")
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError as error:
        fix = "record the run again, or copy tensors/ along with the graph"
        raise NotStoredError(what, "the file is missing", fix) from error
    except (OSError, ValueError) as error:
        raise UnreadableError(what, getattr(error, "strerror", None) or str(error)) from error
    data = mapped[data_start(mapped, what) :]
    if hash_bytes(data) != name:
        why = "the file is damaged: its content does not match the hash in its name"
        raise DamagedError(what, why, "record the run again")
    return data


def data_start(mapped: memoryview, what: str) -> int:
    """The offset of the bytes in a safetensors file with the single tensor `data`; raises UnreadableError for any other
    file."""
    length = int.from_bytes(mapped[:8], "little")
    if len(mapped) < 8 or length > _MAX_HEADER_BYTES or 8 + length > len(mapped):
        raise DamagedError(what, "the file is cut off or its header is damaged", "record the run again")
    try:
        header = msgspec.json.decode(bytes(mapped[8 : 8 + length]), type=dict[str, _TensorEntry])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(what, f"its header is damaged ({error})", "record the run again") from error
    body = len(mapped) - 8 - length
    entry = header.get("data")
    if entry is None or len(header) != 1 or entry.dtype != "U8":
        raise DamagedError(what, "it does not hold one uint8 tensor called 'data'", "record the run again")
    if entry.data_offsets != (0, body) or entry.shape != [body]:
        said = f"the header says shape {entry.shape} at {entry.data_offsets}, but {body} bytes follow"
        raise DamagedError(what, said, "record the run again")
    return 8 + length
