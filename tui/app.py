"""The app: which room is seen, and what every room can ask for. No logic of a screen, none of a run.

Also: the theme of the terminal's own colours, of which it uses those that can be read on the terminal's background.

Also: keys in sequence: the next one is taken when the one before has done its work.

Rooms stay as they were left (cursor, filter, folds, results) while another one is seen; `escape` goes back the way we
came.

"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shlex
import signal
import time
import traceback
from collections import deque
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.color import Color as RichColor
from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.dom import DOMNode
from textual.filter import LineFilter

from ..dumps.wording import counted
from ..toolkit.verdicts.verdict import takes_trust
from . import _terminal, outside, responsive
from ._terminal import Colours
from ._textual import Sturdy, mouse_reports
from .base_screen import BaseScreen, in_thread
from .here import Here
from .job_files import state_folder, writable
from .jobs import Job
from .outs import running_search
from .registry import ROOMS, SCREENS, room_of
from .room import Room
from .settings import OURS, THEMES, Settings, named_colours
from .sheet import Choose
from .widgets.trouble import ShownError, described

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.filter import LineFilter
    from textual.message_pump import MessagePump

    from ..toolkit.node_values.seen import ValuesSeen
    from .screens.tour import Tour

LEAST = 4.5
"""The contrast that WCAG 2 asks of text, of 21."""
DIMMED = 0.5
"""The least part of a dim text that is its colour, in known terminals."""


class OwnColours(LineFilter):
    """A filter that makes the styles of text readable in a terminal of these colours."""

    def __init__(self, known: Colours) -> None:
        super().__init__()
        self.known = {
            name: Color(round(255 * red), round(255 * green), round(255 * blue))
            for name, (red, green, blue) in known.items()
        }
        self.style = cache(self._style)

    def stands_out(self, name: str, part: float = 1.0) -> bool:
        """Whether a colour of the terminal can be read on its background."""
        front, back = self.known.get(name), self.known.get("11")
        return front is not None and back is not None and contrast(back.blend(front, part), back) >= LEAST

    def _style(self, style: Style) -> Style:
        color, back = style.color, style.bgcolor
        plain = Style(color="default", bgcolor="default" if back is not None else None)
        if style.dim and not self.stands_out("10", DIMMED):
            style += Style(dim=False)
        if back is not None and not back.is_default:
            return style + plain + Style(reverse=True)
        if color is None or color.is_default:
            return style
        number = (color.number or 0) % 8 if color.type is ColorType.STANDARD else 0
        for colour in (number, number + 8) if 0 < number < 7 and not style.dim else ():
            if self.stands_out(f"4;{colour}"):
                return style + Style(color=RichColor.from_ansi(colour))
        return style + plain + Style(bold=True)

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The text in styles that can be read."""
        return [
            Segment(text, self.style(style), control) if style else Segment(text, style, control)
            for text, style, control in segments
        ]


def contrast(first: Color, other: Color) -> float:
    """The contrast of two colours as WCAG 2 defines it, 1 to 21."""

    def light(color: Color) -> float:
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    low, high = sorted((light(first), light(other)))
    return (high + 0.05) / (low + 0.05)


LOOK_AGAIN_S = 0.5
"""Seconds between two checks that the widget of the key under way is still there."""
PATIENCE_S = 10.0
"""How long a key whose widget takes its time can hold up the next ones."""


class InTurn(App[None]):
    """An app that hands on one key at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[events.Key] = deque()
        self._turn = 0
        self._under_way = False
        self._at: MessagePump = self
        """The object in whose queue the key under way is."""

    async def on_event(self, event: events.Event) -> None:
        """Holds a key back while an earlier one is under way."""
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
        elif self._under_way:
            self._typed.append(event)
        else:
            await self._hand_on(event)

    async def _hand_on(self, event: events.Key) -> None:
        self._under_way, self._turn = True, self._turn + 1
        await super().on_event(event)
        first = self.focused or self.screen
        self._follow(first, self._turn, (first,))
        self._watch(self._turn, time.monotonic() + PATIENCE_S)

    def _follow(self, node: DOMNode | None, turn: int, again: Sequence[DOMNode] = ()) -> None:
        """Follows the key from queue to queue: from the widget up to the app, which looks for its action; then what the
        action made the widget post (a field: that it was entered)."""
        self._at = node or self
        if node is None or node is self:
            self.call_later(self._through, turn, again)
        elif not node.call_later(self._follow, node.parent, turn, again):
            self._follow(None, turn, again)

    def _through(self, turn: int, again: Sequence[DOMNode]) -> None:
        """Called when the app has handled the key, too."""
        if again:
            self._follow(again[0], turn)
        else:  # what was asked for "later", as the focus, comes before the next key
            self.call_later(self.call_later, self._next, turn)

    def _watch(self, turn: int, until: float) -> None:
        """Lets the next key pass where the widget of the one under way went away with it, or after PATIENCE_S. Not
        sooner: on a busy machine keys would be led elsewhere than where they were typed."""

        async def look() -> None:
            if self._at.is_running and time.monotonic() < until:
                self._watch(turn, until)
            else:
                await self._next(turn)

        if turn == self._turn and self._under_way:
            self.set_timer(LOOK_AGAIN_S, look)

    async def _next(self, turn: int) -> None:
        if turn == self._turn and self._under_way:
            self._under_way = False
            if self._typed:
                await self._hand_on(self._typed.popleft())


KEPT_ROOMS = 12
"""So many rooms stay as they were left; the one seen longest ago goes first."""
KEPT_TROUBLES = 50
LEAVING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end the workbench; the terminal is given back first."""
LOOK_S = 1.0
"""How often the first line is written again for jobs that ended; nothing is painted where it says the same."""


class Workbench(InTurn, Sturdy):
    """The terminal workbench."""

    TITLE = "graphdbg"
    ENABLE_COMMAND_PALETTE = False
    CSS = "Input > .input--placeholder { color: $text-muted; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "quit", show=False, priority=True)]

    def __init__(self, first: Room, colours: _terminal.Colours | None = None) -> None:
        super().__init__()
        self.first = first
        self.collector = responsive.Collector()
        self.jobs: set[Job] = set()
        """The jobs that were started here or attached to."""
        self.troubles: list[ShownError] = []
        """Errors that were shown, the oldest first."""
        self.visits: list[Room] = []
        """Rooms that are open, the one seen last at the end."""
        self.trail: list[Room] = []
        """How we came here, for `escape`."""
        self.values: dict[str, ValuesSeen] = {}
        """The values of nodes that were read last, by graph, for the columns of Graph."""
        self.drafts: dict[str, tuple[Path, int]] = {}
        """Graph -> the file of an edited text that is to become a variant of it and is no case yet, and the line to
        look at."""
        self.settings = Settings.load("light" if colours is not None and _terminal.is_light(colours) else "dark")
        self.trusted: set[str] = set()
        """The runs, or cases, whose own source may be run by commands started here."""
        self.own_colours = OwnColours(colours or {})
        self.tour: Tour | None = None
        self.remembers = True
        self.animation_level = "none"
        self.mouse = True

    def get_driver_class(self) -> type[Driver]:
        """Our driver, in a terminal."""
        return _terminal.driver(super().get_driver_class())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Adds the filter for readable colours where the theme is the terminal's own colours."""
        filters = super().get_line_filters()
        return [self.own_colours, *filters] if self.theme == THEMES["ansi"] else filters

    def on_mount(self) -> None:
        """Shows the first screen."""
        gc.disable()  # from now on only the collector collects
        self.ansi_theme_dark, self.ansi_theme_light = named_colours(dark=True), named_colours(dark=False)
        for theme in OURS:
            self.register_theme(theme)
        self.theme = THEMES[self.settings.theme]
        self.install_screen(self.first, str(id(self.first)))
        self.visits.append(self.first)
        self.trail.append(self.first)
        self.push_screen(self.first)
        self.set_interval(LOOK_S, self.tell_where)
        self.set_interval(responsive.LOOK_S, self.collector.tick)
        for number in LEAVING:
            with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):  # only the main thread can
                asyncio.get_running_loop().add_signal_handler(number, self._leave_for, number)

    def on_unmount(self) -> None:
        """Turns Python's garbage collection on again."""
        gc.enable()

    async def on_event(self, event: events.Event) -> None:
        """Notes that a user is here."""
        if isinstance(event, events.InputEvent):
            self.collector.touched()
            if gc.get_count()[0] > responsive.MANY:
                self.set_timer(responsive.AFTER_KEY_S, partial(gc.collect, 0))
        await super().on_event(event)

    @property
    def room(self) -> Room | None:
        """The room that is shown, also behind a sheet."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, Room)), None)

    @property
    def here(self) -> Here:
        """What the room in front is about."""
        return self.room.here if self.room else self.first.here

    # -- rooms

    def go(self, name: str, here: Here) -> None:
        """Shows a room by its name: the one that is open for the same thing, as it was left, else a new one."""
        for room in self.visits:
            if name == room.ROOM and room.here.at(node=None) == here.at(node=None):
                self._show(room)
                room.arrive(here)
                room.tell_where()
                return
        self._show(self._new(name, here))

    def _new(self, name: str, here: Here) -> Room:
        room = room_of(name, here)
        self.install_screen(room, str(id(room)))
        return room

    def _show(self, room: Room) -> None:
        while self.screen is not self.room and len(self.screen_stack) > 2:
            self.pop_screen()
        for order in (self.visits, self.trail):
            if room in order:
                order.remove(room)
            order.append(room)
        if room is not self.screen:
            self.switch_screen(room)
        for old in self.visits[:-KEPT_ROOMS]:
            self._drop(old)

    def _drop(self, room: Room) -> None:
        self.visits.remove(room)
        if room in self.trail:
            self.trail.remove(room)
        self.uninstall_screen(room)
        room.remove()

    def do_app_back(self) -> None:
        """Closes the panel of errors, else leaves a text, else goes to the room before."""
        front = self.screen
        if isinstance(front, BaseScreen) and front.panel is not None and front.panel.hide():
            return
        if isinstance(front, BaseScreen) and front.typing:
            front.set_focus(None)
        elif len(self.screen_stack) > 2:
            self.pop_screen()
        elif self.tour is not None:
            self.leave_tour()
        elif len(self.trail) > 1:
            self.trail.pop()
            self._show(self.trail[-1])

    def do_app_home(self) -> None:
        """Shows Home: the runs and graphs."""
        open_one = self._home_but(None)
        if open_one is not None:
            self._show(open_one)
        else:
            self.go("home", Here(run=self.here.run))

    def _home_but(self, room: Room | None) -> Room | None:
        """The Home that was seen last, besides a room."""
        return next((other for other in reversed(self.visits) if other.ROOM == "home" and other is not room), None)

    def do_app_show(self, name: str) -> None:
        """Shows a screen about the graph that is looked at, or (minify, report) the minification."""
        here = self.here
        if name == "graph" and self.room is not None and self.room.ROOM != "graph" and self.room.to_graph():
            return
        self._to_room(name, here)

    async def do_app_minify(self) -> None:
        """Shows the search that is looked at, else one that runs here, of this graph first; else the form for one."""
        here = self.here
        search = partial(running_search, here.graph)
        out = here.out or await asyncio.wrap_future(in_thread(search, "looking for a search"))
        self._to_room("minify", here.at(out=out))

    def _to_room(self, name: str, here: Here) -> None:
        of = SCREENS[name].of
        if of != "nothing" and not (here.out and of == "search"):
            here.needed("this screen is about one graph")
        self.go(name, Here(run=here.run, graph=here.graph, node=here.node) if of == "graph" else here)

    # -- errors

    def take(self, error: BaseException, doing: str = "") -> None:
        """Shows an exception that nothing else caught, in the panel of the screen in front."""
        front = self.screen
        if not isinstance(front, BaseScreen) or front.panel is None:
            front = self.room
        if front is None or front.panel is None:
            raise error
        shown, is_new = self.note(ShownError(error, doing))
        if is_new or (
            front.panel.shown and front.panel.shown_error is shown
        ):  # a timer that fails each time: only counted
            front.show_error(shown)

    def note(self, shown: ShownError) -> tuple[ShownError, bool]:
        """Keeps an error for E. Returns the kept one, and whether it is new: an error that comes again is only
        counted."""
        for old in self.troubles:
            if (type(old.error), str(old.error), old.doing) == (type(shown.error), str(shown.error), shown.doing):
                old.times += 1
                old.retry = shown.retry
                self.tell_where()
                return old, False
        self.troubles.append(shown)
        del self.troubles[:-KEPT_TROUBLES]
        self.tell_where()
        return shown, True

    def strip(self) -> list[tuple[str, str]]:
        """The rooms in the order of their keys, with the state of those that were visited for what is looked at."""
        graph = self.here.graph
        of_it = [room for room in self.visits if room.ROOM in ("home", "minify") or room.here.graph in (graph, None)]
        states = {room.ROOM: room.state() for room in of_it}
        return [(name, states.get(name, "")) for name in ROOMS]

    def badges(self) -> list[str]:
        """The right end of the first line: jobs that run, trust, errors."""
        running = len(self.running())
        failed = sum(texts.times for texts in self.troubles)
        texts = [f"{running} running"] * bool(running)
        texts += ["trusted: U"] * self.trusts(self.here.graph or self.here.run or "")
        return texts + [f"{counted(failed, 'error')}: E"] * bool(failed)

    def trusts(self, target: str) -> bool:
        """Whether the user trusts what a run, a graph of one, or a case brings."""
        return any(f"{target}/".startswith(f"{name}/") for name in self.trusted)

    def as_trusted(self, words: Sequence[str]) -> list[str]:
        """A command as it is started here: with `--trust` where it takes that and is about what the user trusts."""
        mine = len(words) > 1 and self.trusts(words[1]) and takes_trust(words[0])
        return [*words, *["--trust"] * (mine and "--trust" not in words)]

    def running(self) -> list[Job]:
        """The jobs of ours that have not ended, without those that a screen alone wants."""
        return [job for job in self.jobs if job.running and not job.passing]

    def tell_where(self) -> None:
        """Writes the first line of the room again."""
        if self.room is not None:
            self.room.tell_where()

    def do_app_undo(self) -> None:
        """Brings back what a key took away last in this room."""
        if self.room is None or not self.room.taken:
            self.notify("Nothing to undo here.", timeout=3)
            return
        what, back = self.room.taken.pop()
        back()
        self.notify(f"{what} is back", markup=False, timeout=3)

    def do_app_errors(self) -> None:
        """The errors, the newest first; again: the one before."""
        front = self.room
        if front is None or front.panel is None or not self.troubles:
            self.notify("No error so far.", timeout=3)
            return
        shown = front.panel.shown_error if front.panel.shown else None
        at = self.troubles.index(shown) if shown in self.troubles else len(self.troubles)
        front.show_error(self.troubles[at - 1])

    def replace_unpaintable(self, error: BaseException) -> None:
        """Shows the text of an error in place of a room that cannot be painted; the room is closed."""
        from .screens.broken import Broken

        room = self.room
        leave = partial(self.close_room, room) if room is not None else self.do_app_quit
        self.note(ShownError(error, "painting"))
        self.push_screen(Broken(described(error), str(self._crash_file(error)), leave))

    def close_room(self, room: Room) -> None:
        """Closes a room for good and shows Home, a new one where Home itself is closed."""
        if room in self.trail:
            self.trail.remove(room)
        self._show(self._home_but(room) or self._new("home", Here(run=room.here.run)))
        if room in self.visits:
            self._drop(room)

    def last_words(self, error: BaseException) -> str:
        """The text that is printed after an end that nobody asked for."""
        running = "".join(f"\nstill running: {job.line}" for job in self.running())
        return f"{described(error)}\n\nalso in {self._crash_file(error)}{running}"

    def _crash_file(self, error: BaseException) -> Path | str:
        try:
            text = "".join(traceback.format_exception(error))
            return outside.export(text, "crash", writable(state_folder() / "crashes"))
        except Exception as unwritten:  # noqa: BLE001 - said in place of the file's name
            return f"no file: {unwritten}"

    # -- what all screens can ask for

    def do_app_help(self) -> None:
        """Shows what can be done here."""
        from .screens.help import Help

        if self.room is not None and self.screen is self.room:
            self.push_screen(Help(self.room.ROOM))

    def do_app_palette(self) -> None:
        """Shows every action by its name."""
        from .screens.palette import Actions, Palette

        if self.screen is self.room:
            self.push_screen(Palette(providers=[Actions], placeholder="what to do…"))

    async def perform_in(self, name: str, action: str) -> None:
        """Goes to a room and does something there."""
        if name == "home":
            self.do_app_home()
        elif name == "minify":
            await self.do_app_minify()
        else:
            self._to_room(name, self.here)
        if self.room is not None and name == self.room.ROOM:
            self.call_after_refresh(self.room.perform, action)

    def do_app_command(self) -> None:
        """Shows the command line of what is seen, and those of the jobs."""
        from .screens.picking import CommandLine

        if self.room is not None and self.screen is self.room:
            lines = [shlex.join(["graphdbg", *self.as_trusted(self.room.equivalent())])]
            jobs = sorted((job for job in self.jobs if not job.passing), key=lambda job: not job.running)
            self.push_screen(CommandLine([*lines, *(job.line for job in jobs if job.line not in lines)]))

    def do_app_theme(self) -> None:
        """Switches to the next of dark, light and the terminal's own colours; remembered."""
        self.settings.theme = self.settings.next_theme()
        self.theme = THEMES[self.settings.theme]
        if self.remembers:
            self.remembers = False  # until it worked: said once is enough
            self.settings.save()
            self.remembers = True

    def do_app_trust(self) -> None:
        """Trusts the source that the run, or the case, holds which is looked at; again: no more."""
        here = self.room.looked_at() if self.room is not None else self.here
        about = here.run or here.needed("what is trusted is a run or a case")
        self.trusted ^= {about}
        runs = "runs the source of its program, too" if about in self.trusted else "runs none of its program's source"
        self.notify(f"What is started here of {about} {runs}.", markup=False, timeout=6)
        self.tell_where()

    def do_app_mouse(self) -> None:
        """Gives the mouse to the terminal, so that it can mark text, and back."""
        self.mouse = not self.mouse
        mouse_reports(self, self.mouse)
        given = "The terminal has the mouse: it marks text. M takes it back."
        self.notify("The mouse works here again." if self.mouse else given, timeout=4)

    def do_app_tour(self) -> None:
        """Starts the tour of the workbench; again: leaves the tour and the rooms that it opened."""
        from .screens.tour import start

        if self.tour is None:
            self.tour = start(self)
        else:
            self.leave_tour()

    def leave_tour(self) -> None:
        """Ends the tour; its run, which is a temporary folder, goes with the rooms about it."""
        if self.tour is None:
            return
        folder, tour, self.tour = str(self.tour.folder), self.tour, None
        mine = [room for room in self.visits if folder in f"{room.here.run} {room.here.graph} {room.here.out}"]
        others = [room for room in self.trail if room not in mine]
        if others:
            self._show(others[-1])
            for room in mine:
                self._drop(room)
        tour.leave()

    def did(self, action: str) -> None:
        """Called when an action was done without an error; the tour waits for some."""
        if self.tour is not None:  # it goes on after the screen has changed to what the action shows
            self.call_after_refresh(lambda: self.tour and self.tour.did(action))

    def copy(self, text: str, name: str = "text") -> None:
        """Copies a text to the terminal's clipboard and to a file of that name; says both."""
        self.copy_to_clipboard(text)
        if isinstance(self.screen, BaseScreen):
            self.screen.work(lambda: outside.to_tmux(text), lambda _: None, doing="copy")
        path = outside.keep(text, name)
        self.notify(f"Copied. Also saved to {path}", markup=False, timeout=6)

    def export(self, text: str, name: str = "text") -> Path:
        """Writes a text to a new file in the current folder; says where and returns the path."""
        path = outside.export(text, name, Path.cwd())
        self.notify(f"written: {path}", markup=False, timeout=6)
        return path

    def edit(self, path: Path, line: int = 1) -> None:
        """Opens a file in the user's editor."""
        outside.edit(self, path, line)

    def do_variant_edit(self) -> None:
        """Opens the graph.py of the graph that is looked at in the editor; the changed text is judged, and shown beside
        it."""
        from . import variant

        if self.room is not None:
            variant.edit(self.room, self.room.looked_at())

    def do_app_quit(self) -> None:
        """Leaves; where jobs run it asks what becomes of them, and leaves as well once they have ended meanwhile."""
        running = self.running()
        if not running:
            self._leave()
            return
        if isinstance(self.screen, Choose):
            return
        question = "\n".join([f"{len(running)} running:", *(job.line for job in running)])
        answers = {"b": "leave them running; `graphdbg tui` finds them again", "s": "stop them"}
        self.push_screen(Choose(question, answers, lambda: not self.running()), self._answered)

    def _answered(self, answer: str | None) -> None:
        if answer == "s":
            for job in self.running():
                job.stop()
        if answer is not None:
            self._leave()

    def _leave_for(self, number: signal.Signals) -> None:
        """A kill, or the terminal went away: leaves as `q` does, jobs go on; the same signal again ends it at once."""
        asyncio.get_running_loop().remove_signal_handler(number)
        self._leave(128 + number)

    def terminal_gone(self) -> None:
        """Leaves: nobody types or reads any more."""
        self._leave(128 + signal.SIGHUP)

    def _leave(self, code: int = 0) -> None:
        if self.tour is not None:
            self.tour.leave()
        for job in self.jobs:
            if job.passing and job.running:
                job.kill()
        self.exit(return_code=code)

    async def action_quit(self) -> None:
        """ctrl+q: as q, from anywhere."""
        self.do_app_quit()

    def action_help_quit(self) -> None:
        """ctrl+c: asks where jobs run, else says how to leave; nothing is lost by it."""
        if self.running():
            self.do_app_quit()
        else:
            self.notify("Press q to quit.", timeout=3)
