"""What all screens have: the line of the rooms, keys from the registry, a panel for errors, threads for whatever takes
time.

A screen is a subclass with a `ROOM` name, `do_<action>` methods and `equivalent()`. It imports no torch, never waits in
a key's handler, and leaves decisions to the other rooms.

>>> class HomeRoom(Room):
...     ROOM = "home"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches

from ..dumps.errors import JobFailedError, WrongKindError
from ..dumps.index import is_run
from ..dumps.store import SavedGraph, resolve
from ._textual import is_leaving
from .base_screen import BaseScreen
from .here import Here, is_out
from .jobs import Job, ending
from .key_line import KeyLine
from .registry import BY_ID, of_room, room_of
from .widgets.crumbs import Crumbs
from .widgets.rows import Rows
from .widgets.trouble import ErrorPanel
from .widgets.virtual_list import VirtualList

KEPT_TAKEN = 20


class Room(BaseScreen[None]):
    """One screen of the workbench."""

    ROOM: ClassVar[str] = ""

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
        self.taken: list[tuple[str, Callable[[], object]]] = []
        """What keys removed here, and what restores it."""
        self.parts: tuple[object, ...] = ()
        """Other objects with `do_<action>` methods for this screen."""

    # -- what a subclass says

    def content(self) -> ComposeResult:
        """The widgets between breadcrumbs and footer."""
        raise NotImplementedError

    def equivalent(self) -> list[str]:
        """The words after `graphdbg` that print what is shown here; `@` shows them."""
        raise NotImplementedError

    def crumbs(self) -> list[str]:
        """Where the user is, from the outside in."""
        return [part for part in (self.here.graph or self.here.run, self.here.out) if part]

    def state(self) -> str:
        """The state of this room on the first line, in a word: a mark (see `settings.mark`), how far it is."""
        return ""

    def can(self, action: str) -> bool:
        """Whether an action makes sense now; an action that does not is left out of the footer, and says why where it
        is performed. After a change call `refresh_bindings()`."""
        return True

    def arrive(self, here: Here) -> None:
        """The screen is shown again for the same graph (or run, or minification), perhaps for another node of it."""
        self.here = here

    def undoable(self, what: str, back: Callable[[], object]) -> None:
        """Notes that a key removed something, which `back` restores."""
        self.taken.append((what, back))
        del self.taken[:-KEPT_TAKEN]

    def to_graph(self) -> bool:
        """Shows the graph that the screen is about, where `here` names another one; returns whether it did."""
        return False

    def looked_at(self) -> Here:
        """The graph that is looked at, and the node under the cursor."""
        return self.here

    @property
    def moving(self) -> VirtualList:
        """The list that the keys move in."""
        return self.query_one(VirtualList)

    # -- what is common

    def compose(self) -> ComposeResult:
        """The line of the rooms, the screen's own widgets, the panel of errors, the footer."""
        yield Crumbs()
        yield from self.content()
        yield ErrorPanel()
        yield KeyLine(lambda: of_room(self.ROOM), self.can, id="keys")

    def on_mount(self) -> None:
        """Writes the breadcrumbs."""
        self.tell_where()

    def on_screen_resume(self) -> None:
        """Writes the breadcrumbs: what runs and what failed may have changed behind."""
        self.tell_where()

    def tell_where(self) -> None:
        """Writes the breadcrumbs again."""
        for line in self.query(Crumbs):
            line.rooms, line.seen = self.workbench.strip(), self.ROOM
            line.parts, line.badges = self.crumbs(), self.workbench.badges()

    def do_move(self, where: str) -> None:
        """Moves in the list, as a key says: down, up, page_down, page_up, top, end; a screen without a list stays."""
        with suppress(NoMatches):
            self.moving.go(where)

    def home(self, function: Callable[[], object], *, doing: str) -> None:
        """Calls a function where the screen lives; from any thread."""
        self.call_later(lambda: None if is_leaving(self) else self.guarded(function, doing=doing))

    def add_job(self, job: Job) -> Job:
        """Adds a job that was started here."""
        self.workbench.jobs.add(job)
        if job.note:
            self.notify(job.note, markup=False)
        self.tell_where()
        return job

    def run_job(
        self,
        words: Sequence[str],
        then: Callable[[Job, int], object],
        *,
        doing: str,
        passing: bool = False,
        **heard: Any,
    ) -> Job:
        """Starts a command as a job; `then` gets its exit code when it ends. `heard`: more callbacks of `Job`."""

        def ended(code: int) -> None:
            if passing:
                self.workbench.jobs.discard(job)
            then(job, code)

        words = self.workbench.as_trusted(words)
        job = Job(words, passing=passing, on_end=lambda code: self.home(lambda: ended(code), doing=doing), **heard)
        return self.add_job(job)

    def job_failed(self, job: Job, code: int, fix: str, *, doing: str) -> None:
        """Shows how a job failed, and its last words."""
        said = job.last_said()
        untrusted = "--trust" in said and "--trust" not in job.words
        fix = f"U adds --trust to what is started here; {fix}" if untrusted else fix
        self.trouble(JobFailedError(f"{job.line}: {ending(code)}", said, fix), doing=doing, said=job.said)

    async def perform(self, action: str) -> None:
        """Does what a key, the palette or a click asks for: the method of an action, here, in a part of the screen or
        in the app; an error goes to the panel."""
        known = BY_ID[action]
        try:
            does = next(filter(None, (getattr(part, known.method, None) for part in (self, *self.parts, self.app))))
            result = does(*known.call[1:])
            if inspect.isawaitable(result):
                await result
            self.workbench.did(action)
        except Exception as error:  # noqa: BLE001 - shown in the panel, the workbench goes on
            self.trouble(error, doing=known.label)

    action_act = perform


class ListRoom(Room):
    """A screen with one list that has the keys."""

    rows = getters.query_one("#rows", Rows)
    """The list."""

    def on_screen_resume(self) -> None:
        """Gives the keys to the list when the screen comes back."""
        super().on_screen_resume()
        if not self.typing:
            self.rows.focus()


class ViewsRoom(Room):
    """A screen of several views, one of which is seen; a click on its name, or a key, goes to another."""

    views: ClassVar[Sequence[str]] = ()
    view = 0

    def show(self, *, keep: bool = True) -> None:
        """Shows the view. `keep`: at its last scroll position."""
        raise NotImplementedError

    def to_view(self, number: int) -> None:
        """Shows another view; after the last comes the first."""
        self.view = number % len(self.views)
        self.show(keep=False)

    action_view = to_view
    """A click on the name of a view."""

    def do_view(self, step: int) -> None:
        """Shows the next view, or the one before."""
        self.to_view(self.view + step)

    def names(self, shown: Sequence[str]) -> Text:
        """The names of the views as they are shown, with the open one marked."""
        text = Text(no_wrap=True, overflow="ellipsis")
        for number, name in enumerate(shown):
            chosen = number == self.view
            style = Style(bold=chosen, reverse=chosen, meta={"@click": f"screen.view({number})"})
            text.append(f"[{name.strip()}]" if chosen else name, style)
        return text


def first_room(target: str | None, *, follow: bool = False) -> Room:
    """Home of this folder, of a run or a packed one; a graph (RUN/ID, a case folder); or a minification's folder.

    With `follow` a run that may not be there yet. Raises UsageError where `target` names nothing.
    """
    if target is None:
        return room_of("home", Here())
    target = target.rstrip("/") or target
    path = Path(target)
    if follow:
        _check_followed(target, path)
        return room_of("home", Here(run=target), follow=True)
    if is_out(path):
        return room_of("minify", Here(out=target))
    if is_run(path):
        return room_of("home", Here(run=target))
    graph = resolve(target)
    if not isinstance(graph, SavedGraph):
        return room_of("home", Here(run=target))
    of_run = graph.run is not None and target.endswith("/" + graph.id)
    run = target.removesuffix(graph.id).rstrip("/") if of_run else None
    return room_of("graph", Here(run=run, graph=target), saved=graph)


def _check_followed(target: str, path: Path) -> None:
    if path.is_file() or is_out(path):
        always = "it is the folder of a minification, which is always followed"
        why = "a packed run does not grow" if path.is_file() else always
        raise WrongKindError(f"cannot follow {target}", why, f"graphdbg tui {target}")
    if any(is_run(parent) for parent in path.parents):
        raise WrongKindError(f"cannot follow {target}", "--follow takes a whole run, not a part of it", "name the run")
