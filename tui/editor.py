"""The user's own editor on one line of one file, over the workbench, which waits behind it.

No editor is guessed: where none is set, the place itself is reported.

>>> command("vim -p", Path("a.py"), 7)
['vim', '-p', '+7', 'a.py']
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from textual.app import App, SuspendNotSupported

from ..dumps.errors import ScreenError

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
        raise ScreenError(place, "neither VISUAL nor EDITOR names an editor", "set one, or open it yourself")
    if not path.is_file():
        raise ScreenError(place, "the file is gone", "record the run again")
    try:
        code = over(app, command(editor, path, line), place, "open it yourself")
    except OSError as error:
        why = f"{editor} cannot be started: {error.strerror}"
        raise ScreenError(place, why, "set EDITOR to one that can") from error
    if code:
        raise ScreenError(place, f"{editor} ended with exit code {code}", "open it yourself")


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
