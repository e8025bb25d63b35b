"""What the workbench remembers from one session to the next: the theme, a split. A file that is not there or damaged is as none.

>>> Settings(theme="light").save()
"""

from __future__ import annotations

import locale

import msgspec
from rich.terminal_theme import TerminalTheme

from ..dumps.errors import EnvironmentLackError
from .places import settings_file

THEMES = {"dark": "textual-dark", "light": "textual-light", "ansi": "ansi-dark"}
"""Our words and textual's; ansi takes the colours that the terminal itself is set to."""

_NORMAL = [(0, 0, 0), (160, 30, 30), (30, 98, 10), (132, 78, 0), (30, 70, 170), (110, 45, 145), (0, 92, 128), (85, 85, 85)]
_BRIGHT = [(85, 85, 85), (190, 20, 20), (40, 115, 0), (150, 85, 0), (0, 85, 170), (160, 30, 160), (0, 105, 130), (40, 40, 40)]

READABLE = TerminalTheme((216, 216, 216), (0, 0, 0), _NORMAL, _BRIGHT)
"""The colours by name in the light theme, each dark enough to be read on its greys: black, red, and so on to white."""


class Settings(msgspec.Struct):
    """tui.json."""

    theme: str = "dark"
    split: int = 60
    """Per cent of the screen that the node table has beside its tabs."""

    @classmethod
    def load(cls) -> Settings:
        """What was remembered, else the defaults."""
        try:
            found = msgspec.json.decode(settings_file().read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            return cls()
        return found if found.theme in THEMES and 0 < found.split < 100 else cls()

    def save(self) -> None:
        """Remembers; raises EnvironmentLackError where that cannot be."""
        path = settings_file()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(self) + b"\n")
        except OSError as error:
            why, fix = f"{path}: {error.strerror}", "set XDG_CONFIG_HOME to a folder of yours"
            raise EnvironmentLackError("theme and split are not remembered", why, fix) from error

    def next_theme(self) -> str:
        """The theme after this one."""
        names = list(THEMES)
        return names[(names.index(self.theme) + 1) % len(names)]


def mark(name: str) -> str:
    """The glyph of bad, ok or runs."""
    return {"bad": "✗x", "ok": "✓+", "runs": "▶>"}[name][ascii_only()]


def ascii_only() -> bool:
    """Whether the terminal is told to take ASCII alone."""
    return "utf" not in locale.getpreferredencoding(False).lower()
