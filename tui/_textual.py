"""The private names of textual that the workbench needs: what keeps it alive when code of a screen raises.

Textual ends the program at any exception, and a widget whose handler raised answers no message any more. `Sturdy`
catches earlier: whatever raises becomes a call of `take`, and everything goes on. Holds no screen and no wording. Tried
on textual 8.2.8. Without public alternatives are:

`App._register_child`    where every widget and screen comes in; there is no hook for "a widget was made"
`App._dispatch_action`   keys, clicks and the palette all come here; `run_action` is public but is not what keys call
`MessagePump._dispatch_message`  one message to all its handlers; the loop around it ends at an exception
`App._size`  what the terminal's size was when it was laid out last
`App._handle_exception`  where timers, workers, layout and idle handlers bring what they raised; always ends the program
`LinuxDriver._enable_mouse_support`, `_disable_mouse_support`  the mouse on and off while the app runs
`MessagePump._closing`, `Widget._pruning`  whether something is being taken away
`App._close_messages_no_wait`, `App._exit_renderables`, `App._return_code`, `App._exception`  what that method itself
uses

>>> class Workbench(Sturdy): ...
"""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import textual
from rich.text import Text
from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import WorkerFailed

TEXTUAL = Path(textual.__file__).parent
DEFECT_EXIT = 70
"""The exit code that `cli.py` has for a defect of ours."""

TOO_SOON_S = 1.0
"""A second failure to paint within this time ends the program: nothing can be shown any more."""

REPEATED = 20
"""How many repetitions of the same failure within that time are ignored."""

PAINTING = frozenset(
    ("_refresh_layout", "_compositor_refresh", "_display", "reflow", "reflow_visible", "update_widgets")
)
"""Functions of textual that lay out and paint: a failure in them keeps a panel from being seen, too."""


class Sturdy(App[None]):
    """An app that outlives the exceptions of its screens, widgets, timers and workers."""

    def __init__(self) -> None:
        super().__init__()
        self._unpaintable, self._unpaintable_at, self._repeated = "", -TOO_SOON_S, 0

    # -- what a subclass says

    def take(self, error: BaseException, doing: str = "") -> None:
        """Shows an error; may raise."""
        raise NotImplementedError

    def replace_unpaintable(self, error: BaseException) -> None:
        """Shows something plain in place of a screen that cannot be painted; may raise."""
        raise NotImplementedError

    def last_words(self, error: BaseException) -> str:
        """The text for the terminal after the program had to end."""
        raise NotImplementedError

    def on_resize(self, event: events.Resize) -> None:
        """Paints everything again where the size is the same: the terminal had another size meanwhile, or was another
        program's."""
        if event.size == self._size and self.screen_stack:
            self.screen.refresh()

    # -- where exceptions come from

    def _register_child(self, parent: DOMNode, child: Widget, before: int | None, after: int | None) -> None:
        guard(child, self.caught)
        super()._register_child(parent, child, before, after)

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001 - shown, the loop goes on
            self.caught(error, "")

    async def _dispatch_action(self, namespace: Any, action_name: str, params: Any) -> bool:
        try:
            return await super()._dispatch_action(namespace, action_name, params)
        except Exception as error:  # noqa: BLE001 - shown, the workbench goes on
            self.caught(error, action_name.replace("_", " "))
            return True

    def _handle_exception(self, error: Exception) -> None:
        self.caught(error.error if isinstance(error, WorkerFailed) else error, "")

    def caught(self, error: BaseException, doing: str) -> None:
        """Shows an exception to the user: in a panel, else on a plain screen, else in the terminal after the end."""
        if not self._running or self._exit:
            self.give_up(error)
            return
        try:
            if is_painting(error):
                self._replace(error)
            else:
                self.take(error, doing)
        except Exception as worse:  # noqa: BLE001 - the panel itself failed
            worse.__context__ = error
            self._replace(worse)

    def _replace(self, error: BaseException) -> None:
        now = time.monotonic()
        if now - self._unpaintable_at < TOO_SOON_S:
            if str(error) != self._unpaintable or self._repeated >= REPEATED:
                self.give_up(error)
            self._repeated += 1  # the screen behind is still laid out until the plain one has its place
            return
        self._unpaintable, self._unpaintable_at, self._repeated = str(error), now, 0
        try:
            self.replace_unpaintable(error)
        except Exception as worse:  # noqa: BLE001 - nothing more to show it with
            worse.__context__ = error
            self.give_up(worse)

    def give_up(self, error: BaseException) -> None:
        """Ends the program; textual restores the terminal, and the last words are printed to it."""
        if self._exception is None and isinstance(error, Exception):
            self._exception = error  # so that a test with a Pilot fails, too
            self._exception_event.set()
        self._return_code = DEFECT_EXIT
        if not self._exit_renderables:
            self._exit_renderables.append(Text(self.last_words(error)))
        self._close_messages_no_wait()


def is_leaving(widget: Widget) -> bool:
    """Whether a widget is being removed, alone or with the app: that its parts may be gone first is no error."""
    app = widget.app
    return app._closing or app._exit or any(node._pruning or node._closing for node in widget.ancestors_with_self)


def is_painting(error: BaseException) -> bool:
    """Whether an exception came up through layout or painting."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.name in PAINTING and TEXTUAL in Path(frame.filename).parents for frame in frames)


def guard(widget: Widget, caught: Callable[[BaseException, str], None]) -> None:
    """Lets one widget survive what its handlers and its painting raise; a line that cannot be painted says so."""
    if "_dispatch_message" in vars(widget):
        return  # it was here before
    dispatch, render, render_line = widget._dispatch_message, widget.render, widget.render_line
    reported: set[str] = set()

    def report_once(error: BaseException) -> None:
        text = repr(error)
        if text not in reported:  # a line is painted many times a second
            reported.add(text)
            widget.app.call_later(caught, error, "painting")

    @functools.wraps(dispatch)
    async def guarded_dispatch(message: Message) -> None:
        try:
            await dispatch(message)
        except Exception as error:  # noqa: BLE001 - shown, the widget goes on
            if not is_leaving(widget):
                caught(error, "")

    def guarded(paint: Callable[..., Any], instead: Callable[[Text], Any]) -> Any:
        @functools.wraps(paint)
        def painted(*y: int) -> Any:
            try:
                return paint(*y)
            except Exception as error:  # noqa: BLE001 - shown, the widget goes on
                report_once(error)
                return instead(Text(_line_of(error), no_wrap=True))

        return painted

    def strip(text: Text) -> Strip:
        return Strip(text.render(widget.app.console)).adjust_cell_length(widget.size.width)

    widget._dispatch_message = guarded_dispatch  # type: ignore[method-assign]
    widget.render = guarded(render, lambda text: text)  # type: ignore[method-assign]
    widget.render_line = guarded(render_line, strip)  # type: ignore[method-assign]


def _line_of(error: BaseException) -> str:
    return f"cannot be shown: {type(error).__name__}: {error}".replace("\n", " ")


def mouse_reports(app: App[None], on: bool) -> None:
    """Asks the terminal to report the mouse, or not to; publicly only the start of an app can do so."""
    name = "_enable_mouse_support" if on else "_disable_mouse_support"
    switch = getattr(app._driver, name, None)
    if switch is not None:
        switch()
