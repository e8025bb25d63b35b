"""Text out of the workbench: to the terminal's clipboard, which may refuse without a word, so always to a file, too.

OSC 52 reaches the user's own machine through ssh; inside tmux it needs tmux's help. It never says "copied": nobody can
know.

>>> copied = keep("graphdbg ls", "command")
>>> to_tmux("graphdbg ls")
False
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from ..dumps.atomic import free_path
from ..dumps.errors import CannotWriteError, EnvironmentLackError
from .settings import state_folder, writable

TMUX_LIMIT_S = 2.0


def keep(text: str, name: str) -> Path:
    """Writes the text to the user's folder of copies, over the last one of that name; raises EnvironmentLackError."""
    try:
        path = writable(state_folder() / "copies") / file_name(name)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise cannot(error) from error
    return path


def export(text: str, name: str, folder: Path) -> Path:
    """Writes the text to a new file in a folder, else in the folder of copies; raises EnvironmentLackError."""
    if not os.access(folder, os.W_OK):
        return keep(text, name)
    given = folder / file_name(name)
    path = free_path(str(given.with_suffix("")), given.suffix, first=2)
    try:
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise cannot(error) from error
    return path


def to_tmux(text: str) -> bool:
    """Hands the text to the tmux around us, which hands it to its own terminal; returns whether there was one that took
    it."""
    if not os.environ.get("TMUX") or shutil.which("tmux") is None:
        return False
    try:
        words = ["tmux", "load-buffer", "-w", "-"]
        subprocess.run(words, input=text.encode(), check=True, capture_output=True, timeout=TMUX_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def file_name(name: str) -> str:
    """A name that is safe in any folder, with .txt where it has no ending.

    >>> file_name("myrun/0_0/forward")
    'myrun-0_0-forward.txt'
    """
    safe = re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "text"
    return safe if re.search(r"\.\w{1,5}$", safe) else f"{safe}.txt"


def cannot(error: OSError) -> EnvironmentLackError:
    """The error for a file that cannot be written."""
    why = f"{error.filename}: {error.strerror}"
    return CannotWriteError("no file was written", why, "make room, or choose another folder")
