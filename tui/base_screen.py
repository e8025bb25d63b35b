"""What every screen has, rooms and sheets alike: the panel of errors and its keys, and threads for whatever takes time.

Never decides what an error means, and never waits in a key's handler.

For example: `self.work(lambda: read_table(folder), self.show_table, group="table", doing="reading")`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Input

from ._textual import is_leaving
from .widgets.trouble import ErrorPanel, ShownError

if TYPE_CHECKING:
    from .app import Workbench

T = TypeVar("T")
R = TypeVar("R")


def in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Calls a function in a thread that never keeps the workbench from ending; returns a future of its result."""
    settled: Future[T] = Future()
    settled.set_running_or_notify_cancel()  # from now on it takes a result that nobody waits for any more

    def run() -> None:
        try:
            settled.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            passed = not isinstance(error, StopIteration)
            settled.set_exception(error if passed else RuntimeError("StopIteration in a thread"))

    Thread(target=contextvars.copy_context().run, args=(run,), name=name, daemon=True).start()
    return settled


class BaseScreen(Screen[R]):
    """A screen that shows errors in a panel of its own."""

    PANEL_KEYS: ClassVar[tuple[Binding, ...]] = (
        Binding("r", "panel('again')", "again", show=False, priority=True),
        Binding("y", "panel('copy')", "copy", show=False, priority=True),
        Binding("Y", "panel('file')", "to file", show=False, priority=True),
    )
    """Keys that come before all others, only while the panel is shown and no text is being typed."""

    @property
    def workbench(self) -> Workbench:
        """The app, by its own type."""
        return cast("Workbench", self.app)

    @property
    def typing(self) -> bool:
        """Whether keys go into a text field."""
        return isinstance(self.focused, Input)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key belongs to the panel: while it is closed, its keys mean something else."""
        if action != "panel":
            return super().check_action(action, parameters)
        panel = self.panel
        return panel is not None and panel.shown and not self.typing and (parameters != ("again",) or panel.can_retry)

    @property
    def panel(self) -> ErrorPanel | None:
        """The panel, once it is there."""
        panels = self.query(ErrorPanel)
        return panels.first() if panels else None

    def action_panel(self, what: str) -> None:
        """Does with the error what a key of the panel asks for."""
        shown_error = self.panel.shown_error if self.panel else None
        if shown_error is None or self.panel is None:
            return
        if what == "again" and shown_error.retry is not None:
            self.panel.hide()
            shown_error.retry()
        elif what == "copy":
            self.workbench.copy(shown_error.text, "error")
        elif what == "file":
            self.workbench.export(shown_error.text, "error")

    def guarded(self, function: Callable[[], object], *, doing: str = "") -> None:
        """Calls `function`; an error goes to the panel."""
        try:
            function()
        except Exception as error:  # noqa: BLE001 - shown in the panel
            self.trouble(error, doing=doing)

    def trouble(
        self,
        error: BaseException,
        *,
        doing: str = "",
        said: Sequence[str] = (),
        retry: Callable[[], object] | None = None,
        quiet: bool = False,
    ) -> None:
        """Shows an error: what failed, why, what to do.

        `said` is the narration of a job that failed, `retry` what `r` does. `quiet`: it came from the background (a
        job, a timer), is only counted in the first line, and E shows it.
        """
        if is_leaving(self):
            return  # its parts may be gone before it, which is no error
        shown_error, _ = self.workbench.note(ShownError(error, doing, said, retry))
        if not quiet:
            self.show_error(shown_error)

    def show_error(self, shown_error: ShownError) -> None:
        """Opens the panel with one of the errors."""
        if self.panel is None:
            return
        known = self.workbench.troubles
        several = len(known) > 1 and shown_error in known
        self.panel.show(shown_error, f"{known.index(shown_error) + 1}/{len(known)}" if several else "")

    def work(
        self,
        function: Callable[[], T],
        then: Callable[[T], object],
        *,
        group: str = "",
        doing: str = "",
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        """Runs `function` in a thread and `then` with its result on the screen; an error goes to the panel, or to
        `on_error`.

        A later call with the same `group` discards the result of an earlier one. The thread never keeps the workbench
        from ending: a read that hangs (a network drive) is left behind.
        """
        settled = in_thread(function, doing or "work")

        async def wait() -> None:
            try:
                result = await asyncio.wrap_future(settled)
            except Exception as error:  # noqa: BLE001 - shown in the panel
                again: Any = lambda: self.work(function, then, group=group, doing=doing)  # noqa: E731
                if self.is_attached:
                    on_error(error) if on_error else self.trouble(error, doing=doing, retry=again)
            else:
                if self.is_attached and not is_leaving(self):
                    self.guarded(lambda: then(result), doing=doing)

        self.run_worker(wait, exclusive=bool(group), group=group or "work", exit_on_error=False)
