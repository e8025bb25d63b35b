"""The archive of a packed run: a zip with one folder in it, which is the run. Equal contents give equal bytes: dates,
order and permissions are fixed.

Writing follows no links, overwrites nothing, and gives the file its name only when it is complete and searched. An
archive can stand in place of a run's folder (`graphdbg ls bug.zip`): it is then unpacked into a temporary folder that
is deleted when this process ends. Members whose names could leave the folder are refused, as is an archive above the
size limit; nothing of an archive is executed.

For example:

    write_searched(Path("bug.zip"), partial(zip_folder, Path("/tmp/x/bug")), lambda path: [])  # -> []
    folder_of(Path("bug.zip/0_0/forward"))  # -> PosixPath('/tmp/graphdbg-zip-x1y2/bug/0_0/forward')
"""

from __future__ import annotations

import errno
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeVar

from . import temporary
from .atomic import cannot_write, temporary_beside
from .errors import CannotWriteError, DamagedError, ExistsAlreadyError, TooLargeError
from .graph_folder import LIST_FILE, RUN_FILE
from .opening import opened
from .wording import TYPED, UNPACKED, counted, size_text

_DATE = (1980, 1, 1, 0, 0, 0)
_COMPRESSED = (".gz",)

T = TypeVar("T")


def write_searched(out: Path, write: Callable[[Path], object], look: Callable[[Path], T]) -> T:
    """Writes a new file, and returns the result of `look`, which is called on the file before it gets its name.

    Raises UsageError when `out` exists, EnvironmentLackError when the disk refuses.
    """
    temporary = temporary_beside(out)
    try:
        try:
            write(temporary)
            leaks = look(temporary)
            _name(temporary, out)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError as error:
        raise ExistsAlreadyError(f"cannot write {out}", "it exists already", "choose another name with -o") from error
    except OSError as error:
        raise cannot_write(out, error) from error
    return leaks


def zip_folder(folder: Path, out: Path) -> None:
    """Zips a folder under its own name, without the writer's lists of equal files."""
    with zipfile.ZipFile(out, "x") as archive:
        for path in _files(folder):
            item = zipfile.ZipInfo(path.relative_to(folder.parent).as_posix(), _DATE)
            item.external_attr = 0o644 << 16
            item.create_system = 3
            item.compress_type = zipfile.ZIP_STORED if path.name.endswith(_COMPRESSED) else zipfile.ZIP_DEFLATED
            with path.open("rb") as source, archive.open(item, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent) / name for name in sorted(names) if name != LIST_FILE)


def _name(temporary: Path, out: Path) -> None:
    """Gives the finished file its name; raises FileExistsError where that name is taken."""
    try:
        os.link(temporary, out)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if out.exists():
            raise FileExistsError(out) from None
        temporary.rename(out)


SUFFIX = ".zip"
FREELY_BYTES = 256 << 20
MOST_TIMES = 128
"""An archive may unpack to this size, or to this many times its own size, and never to more than half of the free
disk."""

MOST_FILES = 500_000

_OF_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EFBIG)
"""Errors that a member's name can cause."""


def folder_of(path: Path) -> Path:
    """Returns the unpacked path where `path` leads into an archive, else `path` itself.

    Raises UnreadableError for an archive that is damaged, too large or holds no run, EnvironmentLackError when the disk
    refuses.
    """
    for archive in (path, *path.parents):
        if archive.is_file() and (archive.suffix == SUFFIX or zipfile.is_zipfile(archive)):
            return _unpacked(archive.absolute()) / path.relative_to(archive)
    return path


@cache
def _unpacked(archive: Path) -> Path:
    what = f"cannot open {archive}"
    try:
        with opened(archive, named=True) as packed, zipfile.ZipFile(packed) as source:
            items = [item for item in source.infolist() if not item.is_dir()]
            roots = {_plain(item.filename, what)[0] for item in items}
            root = min(roots, default="")
            if len(roots) != 1 or f"{root}/{RUN_FILE}" not in source.namelist():
                why = f"it does not hold one folder with a {RUN_FILE} in it"
                raise DamagedError(what, why, "unzip it and name the folder of the run")
            _refuse_large(what, items, archive.stat().st_size)
            size = sum(item.file_size for item in items)
            folder = temporary.make(UNPACKED)
            (folder / TYPED).write_bytes(os.fsencode(archive))
            room = shutil.disk_usage(folder).free // 2
            if size > room:
                why = f"it unpacks to {size_text(size)}; half of the free space in {folder.parent} is {size_text(room)}"
                raise CannotWriteError(what, why, "set TMPDIR to a folder with more space")
            for item in items:
                target = folder.joinpath(*_plain(item.filename, what))
                target.parent.mkdir(parents=True, exist_ok=True)
                with source.open(item) as data, target.open("xb") as file:
                    shutil.copyfileobj(data, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DamagedError(what, str(error)) from error
    except OSError as error:
        kind = DamagedError if error.errno in _OF_NAMES else CannotWriteError
        raise kind(what, error.strerror or str(error)) from error
    return folder / root


def _refuse_large(what: str, items: Sequence[zipfile.ZipInfo], packed_bytes: int) -> None:
    """Refuses an archive whose list of contents is too large; no member is unpacked beyond the size listed there."""
    size, files = sum(item.file_size for item in items), len(items)
    if size > (most := max(FREELY_BYTES, MOST_TIMES * packed_bytes)):
        why = (
            f"its {size_text(packed_bytes)} unpack to {size_text(size)}, and graphdbg unpacks at most {size_text(most)}"
        )
        raise TooLargeError(what, why, "if you trust it, unzip it and name the folder of the run")
    if any(item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for item in items):
        raise DamagedError(what, "it is compressed in a way that `graphdbg pack` does not use", "unzip it by hand")
    if files > MOST_FILES:
        raise TooLargeError(what, f"it holds {counted(files, 'file')}, and graphdbg unpacks at most {MOST_FILES}")


def _plain(name: str, what: str) -> tuple[str, ...]:
    """The parts of a member's name, at least a folder and a file; refuses what could lead out of the folder."""
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or any(part in ("..", "/", "") or "\\" in part or "\0" in part for part in parts):
        raise DamagedError(what, f"{name[:80]!r} is outside the folder of the run", "unzip it by hand")
    return parts
