"""What all screens have: breadcrumbs, keys from the registry, a panel for errors, threads for whatever takes time.

A screen is a subclass with a `ROOM` name, `do_<action>` methods and `equivalent()`. It must not import torch, must not wait for
anything in a key's handler, and must not decide what another room knows.

>>> class HomeRoom(Room):
...     ROOM = "home"
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType

from .actions import BY_ID, of_room
from .here import Here
from .telling import Telling
from .widgets.crumbs import Crumbs
from .widgets.key_line import KeyLine
from .widgets.trouble import Trouble

if TYPE_CHECKING:
    from textual.app import ComposeResult


class Room(Telling[None]):
    """One screen of the workbench."""

    ROOM: ClassVar[str] = ""
    TITLE_WORDS: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        if cls.ROOM:
            keys: list[BindingType] = [
                Binding(key, f"act({action.id!r})", action.label, show=False)
                for action in of_room(cls.ROOM)
                for key in action.keys
            ]
            cls.BINDINGS = [*cls.PANEL_KEYS, *keys]
        super().__init_subclass__(**more)

    def __init__(self, here: Here) -> None:
        super().__init__()
        self.here = here

    # -- what a subclass says

    def content(self) -> ComposeResult:
        """The widgets between breadcrumbs and footer."""
        raise NotImplementedError

    def equivalent(self) -> list[str]:
        """The words after `graphdbg` that print what is shown here; `@` shows them."""
        raise NotImplementedError

    def crumbs(self) -> list[str]:
        """Where we are, from the outside in."""
        return [part for part in (self.here.graph or self.here.run, self.here.out) if part]

    def can(self, action: str) -> bool:
        """Whether an action makes sense now; what does not is left out of the footer and says why where it is asked for.
        After a change of it call `refresh_bindings()`."""
        return True

    def arrive(self, here: Here) -> None:
        """The screen is shown again for the same graph (or run, or minification), perhaps for another node of it."""
        self.here = here

    # -- what is common

    def compose(self) -> ComposeResult:
        """Breadcrumbs, the screen's own widgets, the panel of errors, the footer."""
        yield Crumbs(id="crumbs")
        yield from self.content()
        yield Trouble(id="trouble")
        yield KeyLine(lambda: of_room(self.ROOM), self.can, id="keys")

    def on_mount(self) -> None:
        """Writes the breadcrumbs."""
        self.tell_where()

    def on_screen_resume(self) -> None:
        """Writes the breadcrumbs: what runs and what failed may have changed behind."""
        self.tell_where()

    def tell_where(self) -> None:
        """Writes the breadcrumbs anew."""
        for line in self.query(Crumbs):
            line.show([self.TITLE_WORDS or self.ROOM, *self.crumbs()], self.workbench.badges())

    async def action_act(self, action: str) -> None:
        """Does what a key, the palette or a click asks for; an error goes to the panel."""
        await self.perform(action)

    async def perform(self, action: str) -> None:
        """Runs the method of an action, here or in the app."""
        known = BY_ID[action]
        try:
            method = getattr(self, known.method, None) or getattr(self.app, known.method)
            result = method()
            if inspect.isawaitable(result):
                await result
            self.workbench.did(action)
        except Exception as error:  # noqa: BLE001 - shown in the panel, the workbench goes on
            self.trouble(error, doing=known.label)
