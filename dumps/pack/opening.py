"""An archive in the place of a run's folder: unpacked into a temporary folder, which goes when this process ends.

So `graphdbg ls bug.zip` and `graphdbg replay bug.zip/0_0/forward` do what they say. Files are unpacked by names that cannot leave
the folder, and no more than a limit; nothing of the archive is run.

>>> folder_of(Path("bug.zip/0_0/forward"))
PosixPath('/tmp/graphdbg-zip-x1y2/bug/0_0/forward')
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from functools import cache
from pathlib import Path, PurePosixPath

from ..amounts import size_text
from ..errors import EnvironmentLackError, UnreadableError
from ..graph_folder import RUN_FILE

SUFFIX = ".zip"
MOST_BYTES = 64 << 30
"""What an archive may unpack to."""

_folders: list[tempfile.TemporaryDirectory[str]] = []


def folder_of(path: Path) -> Path:
    """The same place inside the unpacked archive where `path` leads into one, else `path` itself.

    Raises UnreadableError for an archive that is damaged, too large or no run, EnvironmentLackError when the disk refuses.
    """
    for archive in (path, *path.parents):
        if archive.is_file() and (archive.suffix == SUFFIX or zipfile.is_zipfile(archive)):
            return _unpacked(archive.absolute()) / path.relative_to(archive)
    return path


@cache
def _unpacked(archive: Path) -> Path:
    what = f"cannot open {archive}"
    try:
        with zipfile.ZipFile(archive) as source:
            items = [item for item in source.infolist() if not item.is_dir()]
            roots = {_plain(item.filename, what)[0] for item in items}
            root = min(roots, default="")
            if len(roots) != 1 or f"{root}/{RUN_FILE}" not in source.namelist():
                why = f"it is no single folder with a {RUN_FILE} in it"
                raise UnreadableError(what, why, "unzip it and name the folder of the run")
            if sum(item.file_size for item in items) > MOST_BYTES:
                raise UnreadableError(what, f"it unpacks to more than {size_text(MOST_BYTES)}")
            folder = tempfile.TemporaryDirectory(prefix="graphdbg-zip-")
            _folders.append(folder)
            for item in items:
                target = Path(folder.name).joinpath(*_plain(item.filename, what))
                target.parent.mkdir(parents=True, exist_ok=True)
                with source.open(item) as data, target.open("xb") as file:
                    shutil.copyfileobj(data, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UnreadableError(what, str(error)) from error
    except OSError as error:
        raise EnvironmentLackError(what, error.strerror or str(error)) from error
    return Path(folder.name) / root


def _plain(name: str, what: str) -> tuple[str, ...]:
    """The parts of a member's name, at least a folder and a file; refuses what could lead out of the folder."""
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or any(part in ("..", "/", "") or "\\" in part or "\0" in part for part in parts):
        raise UnreadableError(what, f"{name[:80]!r} does not lie in the one folder of a run", "unzip it by hand")
    return parts
