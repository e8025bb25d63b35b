"""The last line of a screen: its five most useful keys, then where all of them are. Decides nothing about actions."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.widget import Widget

from .actions import Action

OWN = {
    "escape": "esc", "at": "@", "slash": "/", "minus": "-", "plus": "+", "full_stop": ".", "underscore": "_",
    "dollar_sign": "$",
    "less_than_sign": "<", "greater_than_sign": ">", "colon": ":", "comma": ",", "semicolon": ";",
    "pageup": "page up", "pagedown": "page down", "down": "↓", "up": "↑", "left": "←", "right": "→",
}  # fmt: skip


def shown(key: str) -> str:
    """The key as it is printed on a keyboard."""
    *held, last = key.split("+") if key != "+" else [key]
    name = OWN.get(last, last.replace("_", " "))
    if last not in OWN and "_" in last:
        with contextlib.suppress(KeyError):
            name = unicodedata.lookup(name.upper())
    return "+".join([*held, name])


ALL = "app.help"
MOST = 5


class KeyLine(Widget):
    """One line: "j down  / search  ? all"; a click does what the key does."""

    can_focus = False

    DEFAULT_CSS = (
        "KeyLine { dock: bottom; height: 1; background: $panel; color: $text; link-style: none; link-color: $text; }"
    )

    def __init__(
        self, actions: Callable[[], Sequence[Action]], can: Callable[[str], bool], *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._actions, self._can = actions, can

    def on_mount(self) -> None:
        """Subscribes to changes of what can be done, which the screen announces with `refresh_bindings`."""
        self.screen.bindings_updated_signal.subscribe(self, lambda screen: self.refresh())

    def render(self) -> Text:
        """The line for the width there is."""
        line, used = Text(no_wrap=True, end=""), 0
        end = self._entry("?", "all", ALL)
        room = self.size.width - end.cell_len - 1
        useful = [action for action in self._actions() if action.footer and self._can(action.id)]
        for action in useful[:MOST]:
            entry = self._entry(shown(action.keys[0]), action.label, action.id)
            if used + entry.cell_len > room:
                break
            line.append_text(entry)
            used += entry.cell_len
        line.append_text(end)
        return line

    def _entry(self, key: str, label: str, action: str) -> Text:
        click = Style(meta={"@click": f"screen.act({action!r})"})
        entry = Text(no_wrap=True, end="")
        entry.append(f" {key}", Style(bold=True) + click)
        entry.append(f" {label} ", Style(dim=cell_len(label) > 0) + click)
        return entry
