"""How keys are written for people. Knows no textual, so that a test and a page of help need none either.

>>> shown("question_mark"), shown("ctrl+p"), shown("escape")
('?', 'ctrl+p', 'esc')
"""

from __future__ import annotations

import unicodedata

OWN = {
    "escape": "esc", "at": "@", "slash": "/", "minus": "-", "plus": "+", "full_stop": ".", "underscore": "_",
    "dollar_sign": "$",
    "less_than_sign": "<", "greater_than_sign": ">", "colon": ":", "comma": ",", "semicolon": ";",
    "pageup": "page up", "pagedown": "page down", "down": "↓", "up": "↑", "left": "←", "right": "→",
}  # fmt: skip


def shown(key: str) -> str:
    """The key as it is printed on a keyboard."""
    *held, last = key.split("+") if key != "+" else [key]
    name = OWN.get(last)
    if name is None and "_" in last:
        try:
            name = unicodedata.lookup(last.replace("_", " ").upper())
        except KeyError:
            name = last.replace("_", " ")
    return "+".join([*held, name or last])
