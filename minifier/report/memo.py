"""What earlier fresh processes said of a program, kept in the case folder: `report` after `minify` need not ask again.

The note holds only for the very same program on the very same machine set-up: its key is a hash of both. Anything else, a
damaged note included, is as if there were none; `report` still runs the program once more itself.

>>> Memo.read(folder, key_of(script.text, script.sidecar, versions))
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from ...dumps.atomic import write_file

NAME = "repro.json"


class Memo(msgspec.Struct, kw_only=True):
    """Exit codes of the processes, and what each stock backend gave."""

    key: str
    codes: list[int | None]
    layers: dict[str, int] = {}

    @classmethod
    def read(cls, folder: Path, key: str) -> Memo | None:
        """The note of that key; None when there is none."""
        try:
            memo = msgspec.json.decode((folder / NAME).read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return memo if memo.key == key else None

    def write(self, folder: Path) -> None:
        """Keeps the note beside the case."""
        write_file(folder / NAME, msgspec.json.encode(self) + b"\n")


def key_of(program: str, sidecar: bytes | None, versions: str) -> str:
    """A hash of the program, the file beside it, and what it ran on."""
    digest = hashlib.blake2b(digest_size=20)
    for part in (program.encode(), sidecar or b"", versions.encode()):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
