"""What the workbench remembers from one session to the next: the theme, a split. A missing or damaged file counts as
none.

>>> Settings(theme="light").save()
"""

from __future__ import annotations

import locale
import os
from dataclasses import replace
from pathlib import Path

import msgspec
from platformdirs import user_config_path
from rich.terminal_theme import TerminalTheme
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from ..dumps.errors import CannotWriteError


def settings_file() -> Path:
    """The file with what is remembered from one session to the next."""
    return user_config_path("graphdbg") / "tui.json"


THEMES = {"dark": "graphdbg-dark", "light": "graphdbg-light", "ansi": "ansi-dark"}
"""Our name of a theme -> textual's; ansi takes the terminal's own colours."""

OURS = (
    replace(BUILTIN_THEMES["textual-dark"], name="graphdbg-dark", variables={"block-cursor-background": "#005A9E"}),
    replace(
        BUILTIN_THEMES["textual-light"],
        name="graphdbg-light",
        background="#F4F4F4",
        surface="#EEEEEE",
        panel="#E4E4E4",
        warning="#8A5A00",
        accent="#8A5A00",
        variables={"footer-key-foreground": "#005A9E", "text-warning": "#704800"},
    ),
)
"""Textual's themes, with changes where a colour could not be read on their background."""

_NORMAL = "000000 A01E1E 1E620A 844E00 1E46AA 6E2D91 005C80 555555"
_BRIGHT = "555555 BE1414 287300 965500 0055AA A01EA0 006982 282828"
_GREYS = "BEBEBE " * 8
_DARK = "969696 FF5F73 78C850 F0AF46 6EAAFF CD96FF 5ACDE1 D7D7D7"


def named_colours(dark: bool) -> TerminalTheme:
    """The colours by name, black, red, and so on to white, each of which can be read on the theme's greys: also as the
    greys that NO_COLOR makes of them, where marks stand for colours."""
    rgb = lambda text: [Color.parse(f"#{colour}").rgb for colour in text.split()]  # noqa: E731
    if not dark:
        return TerminalTheme((238, 238, 238), (0, 0, 0), rgb(_NORMAL), rgb(_BRIGHT))
    return TerminalTheme((18, 18, 18), (224, 224, 224), rgb(_GREYS if os.environ.get("NO_COLOR") else _DARK))


class Settings(msgspec.Struct):
    """The remembered settings, as tui.json holds them."""

    theme: str = "dark"
    split: int = 60
    """Per cent of the screen that the node table has beside its tabs."""

    @classmethod
    def load(cls, theme: str = "dark") -> Settings:
        """The remembered settings, else those with the given theme."""
        try:
            settings = msgspec.json.decode(settings_file().read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            return cls(theme)
        return settings if settings.theme in THEMES and 0 < settings.split < 100 else cls(theme)

    def save(self) -> None:
        """Remembers the settings; raises EnvironmentLackError where that is not possible."""
        path = settings_file()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(self) + b"\n")
        except OSError as error:
            why, fix = f"{path}: {error.strerror}", "set XDG_CONFIG_HOME to a folder that you can write to"
            raise CannotWriteError("theme and split are not remembered", why, fix) from error

    def next_theme(self) -> str:
        """The theme after this one."""
        names = list(THEMES)
        return names[(names.index(self.theme) + 1) % len(names)]


def mark(name: str) -> str:
    """The glyph of bad, ok or runs."""
    return {"bad": "✗x", "ok": "✓+", "runs": "▶>"}[name][ascii_only()]


def ascii_only() -> bool:
    """Whether the terminal is set to take only ASCII."""
    return "utf" not in locale.getpreferredencoding(False).lower()
