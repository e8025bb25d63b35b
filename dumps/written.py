"""Which programs graphdbg has written on this machine, by the hash of their text, in the cache folder: these may be run
again.

Imports no torch, and never fails: what could not be kept or read was not written here.

>>> Path("repro.py").touch()
>>> remember(Path("repro.py"))
>>> here(Path("repro.py"))
True
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from .kept import folder

FILE = "written.txt"
"""The name of the file in the cache folder: one hash a line."""


def remember(program: Path) -> None:
    """Records that this program is ours."""
    with contextlib.suppress(OSError, RuntimeError):
        path = folder() / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        if not here(program):
            with path.open("a", encoding="ascii") as file:
                file.write(f"{_digest(program)}\n")


def here(program: Path) -> bool:
    """Whether the program was written on this machine and is unchanged."""
    with contextlib.suppress(OSError, RuntimeError):
        return _digest(program) in (folder() / FILE).read_text(encoding="ascii", errors="replace").split()
    return False


def _digest(program: Path) -> str:
    return hashlib.blake2b(program.read_bytes(), digest_size=20).hexdigest()
