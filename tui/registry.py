"""THE registry: every action of every screen. It feeds key bindings, footer, help, palette and the tests.

A screen is a folder of `screens` with `keys.ACTIONS` and, in `room`, its class; its key among the actions of every
screen is what makes it known.

>>> [action.id for action in of_room("graph")][0], BY_ID["graph.search"].method
('graph.filter', 'do_graph_search')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .actions import ALWAYS, EVERYWHERE, SHARED, Action

if TYPE_CHECKING:
    from .here import Here
    from .room import Room

ROOMS = tuple(action.id.removeprefix("app.") for action in ALWAYS if action.group == "rooms")
"""The screens, in the order of their digits."""


def _own(name: str) -> tuple[Action, ...]:
    return import_module(f"{__package__}.screens.{name}.keys").ACTIONS


REGISTRY: tuple[Action, ...] = (*(action for name in ROOMS for action in _own(name)), *SHARED, *ALWAYS)
"""In the order in which help tells them: what a screen is for first."""

BY_ID = {action.id: action for action in REGISTRY}


def of_room(room: str) -> list[Action]:
    """What can be done on a screen: its own actions, then those that all have."""
    return [action for action in REGISTRY if room in action.rooms or EVERYWHERE in action.rooms]


def room_of(name: str, here: Here, **more: object) -> Room:
    """A new screen by its `ROOM`. Its module is read now: the first paint waits for none that is not shown."""
    kind: type[Room] = getattr(import_module(f"{__package__}.screens.{name}.room"), f"{name.capitalize()}Room")
    return kind(here, **more)
