"""Large texts of a run are kept as gzip files: `graph.json.gz` in place of `graph.json`, found by the plain name.

Only recorded runs are compressed; a case folder stays plain. Compression is a function of the bytes alone (no time, no name), so
that equal texts give equal files. Must not unpack without bound: a small file may claim to hold terabytes.

>>> name, data = packed("graph.json", b"x" * 100_000)
>>> name, len(data) < 1000
('graph.json.gz', True)
>>> read(Path("myrun/pid1/graphs/0_0/forward/graph.json"))[:1]      # graph.json or graph.json.gz, whichever is there
b'{'
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from .amounts import size_text
from .errors import UnreadableError

SUFFIX = ".gz"

LARGE_BYTES = 1 << 15
"""Texts from this size on are compressed; smaller ones gain less than a block of the file system."""

MOST_BYTES = 4 << 30
"""A text that unpacks to more than this is refused: graphs of 100,000 nodes have a tenth of a gigabyte."""

_LEVEL = 6


def packed(name: str, data: bytes, group_bytes: int | None = None) -> tuple[str, bytes]:
    """A text of a run as it is stored: its file name and its bytes. `group_bytes`: the size of all files that belong together."""
    if (len(data) if group_bytes is None else group_bytes) < LARGE_BYTES:
        return name, data
    return name + SUFFIX, gzip.compress(data, _LEVEL, mtime=0)


def stored(path: Path) -> Path | None:
    """The file that holds the text of that name, plain or compressed; None when there is neither."""
    if path.is_file():
        return path
    beside = path.with_name(path.name + SUFFIX)
    return beside if beside.is_file() else None


def plain_name(name: str) -> str:
    """The name of a text without the mark of its compression."""
    return name.removesuffix(SUFFIX)


def read(path: Path) -> bytes:
    """The text of that name. Raises FileNotFoundError, OSError, or UnreadableError for a file that cannot be unpacked."""
    found = path if path.suffix == SUFFIX else stored(path)
    if found is None:
        raise FileNotFoundError(path)
    data = found.read_bytes()
    return unpacked(data, str(found)) if found.suffix == SUFFIX else data


def unpacked(data: bytes, where: str) -> bytes:
    """The text in the bytes of a gzip file; raises UnreadableError when they are damaged, cut off or hold too much."""
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        text = reader.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise UnreadableError(f"cannot read {where}", f"it is damaged ({error})", "record the run again") from error
    if reader.unconsumed_tail:
        raise UnreadableError(f"cannot read {where}", f"it unpacks to more than {size_text(MOST_BYTES)}")
    if not reader.eof:
        raise UnreadableError(f"cannot read {where}", "the file is cut off", "record the run again")
    return text
