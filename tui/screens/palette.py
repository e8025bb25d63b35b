"""Every action of the screen behind by its name, with textual's own palette and its fuzzy matching. Knows no action itself.

>>> app.push_screen(Palette(providers=[Actions], placeholder="what to do…"))
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text
from textual import work
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Provider

from .._textual import is_leaving
from ..actions import of_room
from ..keys import shown
from ..room import Room

if TYPE_CHECKING:
    from textual.command import Hits

    from ..actions import Action

ITSELF = "app.palette"


class Actions(Provider):
    """The registry as textual's palette wants it."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for action in self._known():
            yield DiscoveryHit(named(action), self._run(action), text=action.label, help=action.help)

    async def search(self, query: str) -> Hits:
        """Those whose name or text is like the typed text."""
        matcher = self.matcher(query)
        for action in self._known():
            name = max(matcher.match(action.label), matcher.match(f"{action.label} {action.help}") * 0.8)
            if name > 0:
                yield Hit(name, Text(named(action)), self._run(action), text=action.label, help=action.help)

    def _known(self) -> list[Action]:
        room = self.screen
        return [one for one in of_room(room.ROOM) if one.id != ITSELF] if isinstance(room, Room) else []

    def _run(self, action: Action) -> partial[object]:
        assert isinstance(self.screen, Room)
        return partial(self.screen.perform, action.id)


def named(action: Action) -> str:
    """How an action is listed: its name, then its key."""
    return f"{action.label}  ({shown(action.keys[0])})"


class Palette(CommandPalette):
    """Textual's own, which fails at page up and page down where nothing is like the typed text, and in a search that begins when
    it is being closed."""

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).option_count:
            super()._action_command_list(action)

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
    async def _gather_commands(self, search_value: str) -> None:
        if not is_leaving(self):
            await inspect.unwrap(CommandPalette._gather_commands)(self, search_value)
