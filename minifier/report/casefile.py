"""case.json beside a minimised case: how it fails, under which rung, and what it was reduced from.

Written by whoever minimised it, read by `report`, so that a report needs no second hunt for the failure. A case folder without it
is judged anew.

>>> read(Path("small/case")).rung
'inductor'
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...dumps.atomic import write_file
from ...dumps.reading import decode_record, read_bytes
from ...toolkit.signature import Signature

NAME = "case.json"
FORMAT = 1


class CaseFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The failure of a case. `original_nodes` counts all nodes of the graph that it was reduced from; None: not reduced."""

    format: int = FORMAT
    signature: Signature | None = None
    rung: str = "inductor"
    original: str = ""
    original_nodes: int | None = None
    check: str = "auto"
    seed: int = 0


def read(folder: Path) -> CaseFile | None:
    """The file of a case folder; None when there is none. Raises UnreadableError for a damaged one."""
    path = folder / NAME
    return decode_record(read_bytes(path), CaseFile, str(path)) if path.is_file() else None


def write(folder: Path, case: CaseFile) -> None:
    """Writes the file whole."""
    write_file(folder / NAME, msgspec.json.encode(case) + b"\n")
