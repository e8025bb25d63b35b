"""The sixteen colours by name in the light theme: each dark enough to be read on its greys. Knows no screen.

>>> app.ansi_theme_light = READABLE     # "yellow" in a Text is a brown there
"""

from __future__ import annotations

from rich.terminal_theme import TerminalTheme

_NORMAL = [(0, 0, 0), (160, 30, 30), (30, 98, 10), (132, 78, 0), (30, 70, 170), (110, 45, 145), (0, 92, 128), (85, 85, 85)]
_BRIGHT = [(85, 85, 85), (190, 20, 20), (40, 115, 0), (150, 85, 0), (0, 85, 170), (160, 30, 160), (0, 105, 130), (40, 40, 40)]

READABLE = TerminalTheme((216, 216, 216), (0, 0, 0), _NORMAL, _BRIGHT)
"""Black, red, green, yellow, blue, magenta, cyan, white."""
