"""THE registry: every screen and every action of it. It feeds key bindings, footer, help, palette and the tests.

A screen is a module of `screens`, or a folder there with `keys` and `room`. It is known by its `SCREEN`, read from the
source: a class that is not shown is not imported.

>>> [action.id for action in of_room("graph")][0], BY_ID["graph.search"].method
('graph.filter', 'do_graph_search')
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..dumps.registered import described, made
from .actions import ALWAYS, EVERYWHERE, SHARED, Action, Screen

if TYPE_CHECKING:
    from .here import Here
    from .room import Room

_FOLDER = Path(__file__).parent / "screens"
_FILES = {path.stem: path for path in _FOLDER.glob("[a-z]*.py")}


def _screens() -> dict[str, Screen]:
    every = _FILES | {path.parent.name: path for path in _FOLDER.glob("*/keys.py")}
    rows = {name: described(path, "SCREEN", {"Action": Action}) for name, path in every.items()}
    screens = {name: made(Screen, row, every[name], "SCREEN") for name, row in rows.items() if row}
    return dict(sorted(screens.items(), key=lambda item: item[1].digit))


SCREENS = _screens()
"""The screens by name, in the order of their digits."""
ROOMS = tuple(SCREENS)

REGISTRY: tuple[Action, ...] = (
    *(action for screen in SCREENS.values() for action in screen.actions),
    *SHARED,
    *(screen.opening(name) for name, screen in SCREENS.items()),
    *ALWAYS,
)
"""All actions in the order in which help lists them: what a screen is for first."""

BY_ID = {action.id: action for action in REGISTRY}


def of_room(room: str) -> list[Action]:
    """What can be done on a screen: its own actions, then those that all have."""
    return [action for action in REGISTRY if room in action.rooms or EVERYWHERE in action.rooms]


def room_of(name: str, here: Here, **more: object) -> Room:
    """A new screen by its `ROOM`. Its module is read now: the first paint waits for none that is not shown."""
    home = f"{__package__}.screens.{name}"
    kind: type[Room] = getattr(import_module(home if name in _FILES else f"{home}.room"), f"{name.capitalize()}Room")
    return kind(here, **more)
