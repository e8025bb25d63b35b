"""The archive itself: a zip with one folder in it, which is a run. Same contents, same bytes: fixed dates, order and permissions.

Must not follow links, must not overwrite, and shows nothing under its name before it is whole and searched.

>>> write_archive(Path("/tmp/x/bug"), Path("bug.zip"), lambda path: [])
[]
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ..atomic import cannot_write, temporary_beside
from ..errors import UsageError
from ..shared import LIST_FILE

_DATE = (1980, 1, 1, 0, 0, 0)
_COMPRESSED = (".gz",)

T = TypeVar("T")


def write_archive(folder: Path, out: Path, look: Callable[[Path], T]) -> T:
    """Zips `folder` under its own name; returns what `look` says of the finished file before it gets its name.

    The writer's lists of equal files stay out. Raises UsageError when `out` exists, EnvironmentLackError when the disk refuses.
    """
    temporary = temporary_beside(out)
    try:
        try:
            _zip(folder, temporary)
            found = look(temporary)
            _name(temporary, out)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError as error:
        raise UsageError(f"cannot write {out}", "it exists already", "choose another name with -o") from error
    except OSError as error:
        raise cannot_write(out, error) from error
    return found


def _zip(folder: Path, out: Path) -> None:
    with zipfile.ZipFile(out, "x") as archive:
        for path in _files(folder):
            item = zipfile.ZipInfo(path.relative_to(folder.parent).as_posix(), _DATE)
            item.external_attr = 0o644 << 16
            item.create_system = 3
            item.compress_type = zipfile.ZIP_STORED if path.name.endswith(_COMPRESSED) else zipfile.ZIP_DEFLATED
            with path.open("rb") as source, archive.open(item, "w", force_zip64=True) as target:
                while piece := source.read(1 << 20):
                    target.write(piece)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent) / name for name in sorted(names) if name != LIST_FILE)


def _name(temporary: Path, out: Path) -> None:
    """Gives the finished file its name unless somebody has it: FileExistsError."""
    try:
        os.link(temporary, out)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if out.exists():
            raise FileExistsError(out) from None
        temporary.rename(out)
