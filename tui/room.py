"""What all screens have: breadcrumbs, keys from the registry, a panel for errors, threads for whatever takes time.

A screen is a subclass with a `ROOM` name, `do_<action>` methods and `equivalent()`. It must not import torch, must not wait for
anything in a key's handler, and must not decide what another room knows.

>>> class HomeRoom(Room):
...     ROOM = "home"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Static

from .actions import BY_ID, of_room
from .here import Here
from .widgets.trouble import Trouble

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from .app import Workbench

T = TypeVar("T")


class Room(Screen[None]):
    """One screen of the workbench."""

    ROOM: ClassVar[str] = ""
    TITLE_WORDS: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        if cls.ROOM:
            keys: list[BindingType] = [
                Binding(key, f"act({action.id!r})", action.label, show=action.footer and key == action.keys[0])
                for action in of_room(cls.ROOM)
                for key in action.keys
            ]
            cls.BINDINGS = keys
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
        return [part for part in (self.here.run, self.here.graph, self.here.out) if part]

    def can(self, action: str) -> bool:
        """Whether an action makes sense now; what does not is left out of the footer and says why where it is asked for."""
        return True

    # -- what is common

    def compose(self) -> ComposeResult:
        """Breadcrumbs, the screen's own widgets, the panel of errors, the footer."""
        yield Static(id="crumbs", markup=False)
        yield from self.content()
        yield Trouble(id="trouble")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Writes the breadcrumbs."""
        self.tell_where()

    def tell_where(self) -> None:
        """Writes the breadcrumbs anew."""
        self.query_one("#crumbs", Static).update(" › ".join([self.TITLE_WORDS or self.ROOM, *self.crumbs()]))

    @property
    def workbench(self) -> Workbench:
        """The app, by its own type."""
        from .app import Workbench

        assert isinstance(self.app, Workbench)
        return self.app

    async def action_act(self, action: str) -> None:
        """Does what a key, the palette or a click asks for; an error goes to the panel."""
        await self.perform(action)

    async def perform(self, action: str) -> None:
        """Runs the method of an action, here or in the app."""
        known = BY_ID[action]
        method = getattr(self, known.method, None) or getattr(self.app, known.method)
        try:
            result = method()
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - shown in the panel, the workbench goes on
            self.trouble(error, doing=known.label)

    def work(self, function: Callable[[], T], then: Callable[[T], None], *, group: str = "", doing: str = "") -> None:
        """Runs `function` in a thread and `then` with its result on the screen; an error goes to the panel.

        A later call with the same `group` makes an earlier one's result be thrown away.
        """

        def run() -> None:
            try:
                result = function()
            except Exception as error:  # noqa: BLE001 - shown in the panel
                self._back(worker, lambda error=error: self.trouble(error, doing=doing))
            else:
                self._back(worker, lambda: self.guarded(lambda: then(result), doing=doing))

        worker = self.run_worker(run, thread=True, exclusive=bool(group), group=group or "work", exit_on_error=False)

    def _back(self, worker: Any, function: Callable[[], None]) -> None:
        def call() -> None:
            if self.is_attached and not worker.is_cancelled:
                function()

        self.app.call_from_thread(call)

    def guarded(self, function: Callable[[], None], *, doing: str = "") -> None:
        """Calls `function`; an error goes to the panel."""
        try:
            function()
        except Exception as error:  # noqa: BLE001 - shown in the panel
            self.trouble(error, doing=doing)

    def trouble(self, error: BaseException, *, doing: str = "") -> None:
        """Shows an error: what failed, why, what to do."""
        self.query_one(Trouble).show(error, doing)
