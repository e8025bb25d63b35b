"""Keys in sequence: the next one is taken when the one before has done its work.

Textual hands a key to the widget that has the focus at that moment. Keys that arrive together (a paste, a slow line)
would all go there, though the first of them opens a line for the others. Knows no key and no screen.

"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from textual import events
from textual.app import App
from textual.dom import DOMNode

PATIENCE_S = 0.5
"""How long a key whose widget went away, or takes its time, can hold up the next ones."""


class InTurn(App[None]):
    """An app that hands on one key at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[events.Key] = deque()
        self._turn = 0
        self._under_way = False

    async def on_event(self, event: events.Event) -> None:
        """Holds a key back while an earlier one is under way."""
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
        elif self._under_way:
            self._typed.append(event)
            self.set_timer(PATIENCE_S, partial(self._next, self._turn))
        else:
            await self._hand_on(event)

    async def _hand_on(self, event: events.Key) -> None:
        self._under_way, self._turn = True, self._turn + 1
        await super().on_event(event)
        first = self.focused or self.screen
        self._follow(first, self._turn, (first,))

    def _follow(self, node: DOMNode | None, turn: int, again: Sequence[DOMNode] = ()) -> None:
        """Follows the key from queue to queue: from the widget up to the app, which looks for its action; then what the
        action made the widget post (a field: that it was entered)."""
        if node is None or node is self:
            if again:
                self._follow(again[0], turn)
            else:  # what was asked for "later", as the focus, comes before the next key
                self.call_later(self.call_later, self._next, turn)
        elif not node.call_later(self._follow, node.parent, turn, again):
            self._follow(None, turn, again)

    async def _next(self, turn: int) -> None:
        if turn == self._turn and self._under_way:
            self._under_way = False
            if self._typed:
                await self._hand_on(self._typed.popleft())
