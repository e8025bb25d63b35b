"""Every action of every room by its name, in textual's own palette: whole words first. Knows no action itself.

For example: `app.push_screen(Palette(providers=[Actions], placeholder="what to do…"))`.
"""

from __future__ import annotations

import inspect
from functools import partial

from rich.text import Text
from textual import work
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider

from .._textual import is_leaving
from ..actions import EVERYWHERE, Action
from ..key_line import shown
from ..registry import REGISTRY
from ..room import Room

ITSELF, QUIT = "app.palette", "app.quit"
OWN_ROOM = 0.5
"""What an action of the open room gains over another one that matches as well."""


class Actions(Provider):
    """The registry as textual's palette wants it: this room's actions, then those of the others."""

    async def discover(self) -> Hits:
        """The actions of this room, before anything is typed."""
        for action in self._known():
            if self._here(action):
                yield DiscoveryHit(named(action), self._run(action), text=action.label, help=action.help)

    async def search(self, query: str) -> Hits:
        """The actions whose name, other words or text have the typed words; where none has them, those that are spelt
        alike."""
        known = self._known()
        scores = [(likeness(query, action) + self._here(action) * OWN_ROOM, action) for action in known]
        hits = [(score, action) for score, action in scores if score >= 1]
        if not hits:
            matcher = self.matcher(query)
            hits = [(matcher.match(action.label), action) for action in known if action.id != QUIT]
        for score, action in hits:
            if score > 0:
                yield Hit(score, Text(named(action)), self._run(action), text=action.label, help=action.help)

    def _known(self) -> list[Action]:
        return [action for action in REGISTRY if action.id != ITSELF and (self._here(action) or action.group == "here")]

    def _here(self, action: Action) -> bool:
        return EVERYWHERE in action.rooms or (isinstance(self.screen, Room) and self.screen.ROOM in action.rooms)

    def _run(self, action: Action) -> partial[object]:
        assert isinstance(self.screen, Room)
        if self._here(action):
            return partial(self.screen.perform, action.id)
        return partial(self.screen.workbench.perform_in, action.rooms[0], action.id)


def likeness(query: str, action: Action) -> float:
    """How well the words of a text name an action: 0 where one of them does not occur, most for whole words of its
    name."""
    label, also, help_words = (text.lower().split() for text in (action.label, action.also, action.help))
    scores = []
    for word in query.lower().split():
        whole = (
            8.0 * (word in label)
            or 6.0 * (word in also)
            or 3.0 * (word in [label_word.strip(".,:;") for label_word in help_words])
        )
        begun = max(
            (
                value
                for value, words in ((5.0, label), (4.0, also), (2.0, help_words))
                for label_word in words
                if label_word.startswith(word)
            ),
            default=0.0,
        )
        scores.append(max(whole, begun))
    return sum(scores) / len(scores) if scores and all(scores) and (action.id != QUIT or scores[0] > 3) else 0.0


def named(action: Action) -> str:
    """The listing of an action: its name, its room, its key."""
    room = "" if EVERYWHERE in action.rooms else f"{action.rooms[0]}: " if len(action.rooms) == 1 else ""
    return f"{room}{action.label}  ({shown(action.keys[0])})"


class Palette(CommandPalette):
    """Textual's palette without two failures: page up and page down where nothing matches, and a search that begins
    while it closes."""

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).option_count:
            super()._action_command_list(action)

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
    async def _gather_commands(self, search_value: str) -> None:
        if not is_leaving(self):
            await inspect.unwrap(CommandPalette._gather_commands)(self, search_value)
