"""The user's own editor on one line of one file, over the workbench, which waits behind it.

Also: text out of the workbench: to the terminal's clipboard, which may refuse without a word, so always to a file,
too.

No editor is guessed: where none is set, the place itself is reported.

>>> command("vim -p", Path("a.py"), 7)
['vim', '-p', '+7', 'a.py']
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from textual.app import App, SuspendNotSupported

from ..dumps.atomic import free_path
from ..dumps.errors import CannotWriteError, EnvironmentLackError, ScreenError
from .job_files import state_folder, writable

COLON = frozenset(("code", "codium", "cursor", "hx", "helix", "subl", "zed"))
"""Editors that take FILE:LINE; all others take +LINE."""
GOTO = frozenset(("code", "codium", "cursor"))


def command(editor: str, path: Path, line: int) -> list[str]:
    """The command line for an editor as $EDITOR names it."""
    words = shlex.split(editor)
    name = Path(words[0]).name if words else ""
    if name in GOTO:
        return [*words, "--wait", "--goto", f"{path}:{line}"]
    if name in COLON:
        return [*words, f"{path}:{line}"]
    return [*words, f"+{line}", str(path)]


def edit(app: App[None], path: Path, line: int = 1) -> None:
    """Opens the editor and returns when it ends; raises EnvironmentLackError where there is none, or no screen for
    it."""
    place = f"{path}:{line}"
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor or not shlex.split(editor):
        raise ScreenError(place, "neither VISUAL nor EDITOR names an editor", "set EDITOR, or open the file yourself")
    if not path.is_file():
        raise ScreenError(place, "the file is gone", "record the run again")
    try:
        code = over(app, command(editor, path, line), place, "open the file yourself")
    except OSError as error:
        why = f"{editor} cannot be started: {error.strerror}"
        raise ScreenError(place, why, "set EDITOR to an editor that starts") from error
    if code:
        raise ScreenError(place, f"{editor} ended with exit code {code}", "open the file yourself")


def over(app: App[None], words: Sequence[str], what: str, fix: str) -> int:
    """Runs a program in the terminal and returns its exit code when it ends; raises EnvironmentLackError, with what to
    do instead (`fix`), where the screen cannot be lent, OSError where it cannot be started. The keys that end a program
    end that one alone."""
    kept = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        with app.suspend():
            return subprocess.run(words, check=False).returncode
    except SuspendNotSupported as error:
        raise ScreenError(what, "it cannot be shown over this screen", fix) from error
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


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
