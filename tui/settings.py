"""What the workbench remembers from one session to the next: the theme. A file that is not there or damaged is as none.

>>> Settings(theme="light").save()
"""

from __future__ import annotations

import msgspec

from ..dumps.errors import EnvironmentLackError
from .places import settings_file

THEMES = {"dark": "textual-dark", "light": "textual-light", "ansi": "ansi-dark"}
"""Our words and textual's; ansi takes the colours that the terminal itself is set to."""


class Settings(msgspec.Struct):
    """tui.json."""

    theme: str = "dark"

    @classmethod
    def load(cls) -> Settings:
        """What was remembered, else the defaults."""
        try:
            found = msgspec.json.decode(settings_file().read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            return cls()
        return found if found.theme in THEMES else cls()

    def save(self) -> None:
        """Remembers; raises EnvironmentLackError where that cannot be."""
        path = settings_file()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(self) + b"\n")
        except OSError as error:
            why = f"{path}: {error.strerror}"
            raise EnvironmentLackError("the theme is not remembered", why, "set XDG_CONFIG_HOME to a folder of yours") from error

    def next_theme(self) -> str:
        """The theme after this one."""
        names = list(THEMES)
        return names[(names.index(self.theme) + 1) % len(names)]
