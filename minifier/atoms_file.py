"""OUT/atoms.jsonl: what the numbers of a candidate stand for, one line per atom, so that any reader can tell what it kept.

Line N is atom N: its nodes by name, what they call, the user's line, the atoms that it reads. Written once, before the first
candidate is asked; a journal of other atoms is refused, so that it holds for every process that goes on in OUT. No torch.

>>> write_atoms(Path("small"), subject)
>>> read_atoms(Path("small"))[41]
{'atom': 41, 'name': 'relu (aten.relu.default)', 'nodes': ['relu'], 'where': 'train.py:63', ...}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..dumps.atomic import write_file
from ..dumps.errors import UnreadableError

if TYPE_CHECKING:
    from .session import Subject

ATOMS_FILE = "atoms.jsonl"
_DECODER = msgspec.json.Decoder(dict[str, Any])


def write_atoms(out: Path, subject: Subject) -> None:
    """Writes the file, unless it is there. Raises EnvironmentLackError where the disk refuses."""
    path = out / ATOMS_FILE
    if not path.exists():
        write_file(path, _lines(subject))


def _lines(subject: Subject) -> Iterator[bytes]:
    for atom in range(subject.size):
        line = {"atom": atom, **subject.about(atom), "label": str(subject.label(atom)), "parents": list(subject.parents(atom))}
        yield msgspec.json.encode(line) + b"\n"


class AtomLines:
    """The lines of the file, each decoded when it is asked for: reading 100,000 of them at once takes no time."""

    def __init__(self, data: bytes) -> None:
        self._lines = data.split(b"\n")[:-1]

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, atom: int) -> dict[str, Any]:
        return _DECODER.decode(self._lines[atom])


def read_atoms(out: Path) -> AtomLines:
    """Raises UnreadableError where there is no such file, as in the folder of an older version."""
    path = out / ATOMS_FILE
    try:
        return AtomLines(path.read_bytes())
    except OSError as error:
        raise UnreadableError(f"cannot read {path}", error.strerror or str(error), "minify anew to have it") from error
