"""Where the workbench keeps things of its own, by the rules of the system (on Linux XDG's). Reads and writes nothing
itself.

>>> settings_file().name
'tui.json'
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from platformdirs import user_config_path, user_state_path

NAME = "graphdbg"


def settings_file() -> Path:
    """The file with what is remembered from one session to the next."""
    return user_config_path(NAME) / "tui.json"


def state_folder() -> Path:
    """The folder of copies, crash texts and the like."""
    return user_state_path(NAME)


def writable(folder: Path) -> Path:
    """The folder, created; where it cannot be written, one for this user in the temporary folder. Raises OSError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass  # the other place is named wherever a file in it is named
    other = Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}" / folder.name
    other.mkdir(mode=0o700, parents=True, exist_ok=True)
    return other
