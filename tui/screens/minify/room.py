"""Minify: the form that begins a search, or what a running or finished one does, wherever it runs.

Follows OUT by reading it three times a second. The search never depends on this screen: it goes on when the workbench
is left, and `graphdbg tui OUT` comes back to it. What steers it is in `steering`. Decides nothing about a minification.

"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import events, getters
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.widgets import Static

from ....dumps.errors import GraphdbgError, NotReadyError
from ....dumps.tables import plain
from ....minifier.events import QueryAnswered
from ....minifier.progress import telling
from ....minifier.progress.candidates import atoms_of
from ....minifier.progress.plot import Picture, drawn, picture
from ....minifier.progress.watched import Bite, State, Watched, watched
from ....minifier.starting import Start, proposed
from ...here import Here
from ...jobs import Job
from ...room import ViewsRoom
from ...settings import ascii_only, mark
from ...verdicts import of_graph
from ...widgets.texts import Lines, wrapped
from .form import MinifyForm
from .steering import MinifySteering
from .views import VIEWS, ListView, Looked, candidate, output

LOOK_S = 0.3
"""Seconds between two looks at OUT."""
PLOT_S = 5.0
"""Seconds between two plots of a search that runs."""
WIDE = 120
"""Columns from which plot and lists stand side by side."""
MANY = 2000
"""Parts of a graph from which a candidate is compared in a thread."""
ACROSS = 20
"""Columns that { and } move."""
OVER: tuple[State, ...] = ("ended", "dead", "unknown", "gone")


class Plot(Lines):
    """The plot at its present size; `draw` gives it new numbers."""

    DEFAULT_CSS = "Plot { height: 1fr; width: 1fr; background: $background; }"

    def __init__(self, ascii_only: bool) -> None:
        super().__init__()
        self.picture = Picture()
        self.ascii_only = ascii_only

    def draw(self, picture: Picture) -> None:
        """Draws these numbers from now on."""
        self.picture = picture
        size = self.content_size
        if not picture.series or not size.width or not size.height:
            self.show([Text("drawn from the first answer on", "dim")])
            return
        self.show(drawn(picture.series, size.width, size.height, picture.marks, ascii_only=self.ascii_only))

    def on_resize(self) -> None:
        """Draws again at the new size."""
        self.draw(self.picture)


class MinifyRoom(ViewsRoom):
    """One minification, or the form for one."""

    ROOM = "minify"
    AUTO_FOCUS = ""
    lines = getters.query_one("#minify-lines", Lines)
    form = getters.query_one(MinifyForm)
    live = getters.query_one("#minify-live")
    views = [view.name for view in VIEWS]
    DEFAULT_CSS: ClassVar[str] = """
    MinifyRoom #minify-live { height: 1fr; }
    MinifyRoom #minify-top { height: 50%; }
    MinifyRoom .wide #minify-top { layout: horizontal; height: 40%; }
    MinifyRoom #minify-below { height: 1fr; layout: horizontal; }
    MinifyRoom #minify-lists { width: 3fr; height: 1fr; }
    MinifyRoom .alone #minify-top, MinifyRoom .alone #minify-output { display: none; }
    MinifyRoom #minify-facts { height: 5; padding: 0 1; background: $background; }
    MinifyRoom .wide #minify-facts { height: 1fr; width: 2fr; }
    MinifyRoom .wide Plot { width: 3fr; }
    MinifyRoom #minify-output { display: none; width: 2fr; padding: 0 1; border-left: vkey $panel; }
    MinifyRoom .wide.runs #minify-output { display: block; }
    MinifyRoom #minify-tabs { height: 1; background: $panel; link-style: none; link-style-hover: bold; }
    """

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.watched: Watched | None = None
        self.looked = Looked()
        self.job: Job | None = None
        self._looking = False
        self._named = ""
        self.steering = MinifySteering(self)
        self.parts = (self.steering,)
        self._tabs_shown = Text()
        self._drawn: tuple[int, State] = (-1, "starting")
        self._drawn_at = 0.0
        self._last_state: State = "starting"

    def content(self) -> ComposeResult:
        """The form; or numbers and plot, and below them the lists and the output of the query that runs."""
        yield MinifyForm()
        with Container(id="minify-live"):
            with Vertical(id="minify-top"):
                yield Lines(id="minify-facts")
                yield Plot(ascii_only())
            with Vertical(id="minify-below"):
                with Vertical(id="minify-lists"):
                    yield Static(id="minify-tabs", markup=False)
                    yield Lines(id="minify-lines")
                yield Lines(id="minify-output")

    @property
    def moving(self) -> Lines:
        """The list of the view."""
        return self.lines

    def equivalent(self) -> list[str]:
        """The command that would start the search, or that shows how it stands."""
        if self.watched is not None:
            return ["steer", str(self.watched.out)]
        try:
            return self.form.start().words()
        except (GraphdbgError, AssertionError):
            return ["minify", self.here.graph or "RUN/ID"]

    def state(self) -> str:
        """How far the search is, or how it ended."""
        watched = self.watched
        if watched is None:
            return ""
        best = watched.story.best
        if watched.state in ("starting", "running"):
            return mark("runs") + (f" {best[0]}/{watched.story.original[0]}" if best else "")
        return mark("bad" if watched.state in ("dead", "gone") else "ok")

    def on_mount(self) -> None:
        """Follows OUT, or shows the form."""
        super().on_mount()
        self.set_interval(LOOK_S, self.tick)
        self._fit(self.app.size.width)
        if self.here.out is not None:
            out = self.here.out
            self.guarded(lambda: self.follow(watched(out)), doing="open")
            if self.watched is None:
                self.form.display = False
        else:
            self.show_form()

    def on_resize(self, event: events.Resize) -> None:
        """Places plot and lists side by side where there is room, and wraps lines for the new size."""
        self._fit(event.size.width)
        self.call_after_refresh(lambda: self.show())

    def _fit(self, width: int) -> None:
        for live in self.query("#minify-live"):
            live.set_class(width >= WIDE, "wide")

    def can(self, action: str) -> bool:
        """Whether an action makes sense: steering needs a running search, resuming one that does not run."""
        state = self.watched.state if self.watched else None
        name = action.removeprefix("minify.")
        if name in ("skip", "disable", "raise", "pause", "stop", "restart"):
            return state == "running"
        if name == "resume":
            return state in ("dead", "unknown", "ended")
        return name != "minify" or self.here.graph is not None or self.watched is not None

    # -- beginning

    def show_form(self) -> None:
        self.live.display = False
        self.form.display = True
        graph = self.here.graph
        if graph is None:
            raise NotReadyError(
                "no graph is chosen", "a minification needs a graph", "press 1 for Home, enter on a graph"
            )
        show = partial(setattr, self.form, "base")

        def propose() -> Start:
            judged = of_graph(graph)
            if judged is None or judged.words[0] != "triage":
                return proposed(graph)
            return proposed(graph, verdict=judged.record, rung=judged.rung, imports=judged.imports)

        self.work(propose, show, group="form", doing="propose")

    def _start(self) -> None:
        start = self.form.start()
        self.set_focus(None)
        self.run(start.words(), Path(start.out))

    def run(self, words: Sequence[str], out: Path) -> None:
        """Starts a minification as a job, and follows it."""
        self.job = self.run_job(words, self._job_ended, doing="minify")
        self.follow(Watched(out))
        self.here = self.here.at(out=str(out))
        self.tell_where()

    def _job_ended(self, job: Job, code: int) -> None:
        self.tell_where()
        if code in (0, 130) or job is not self.job:
            return
        fix = "m: the form again" + (f", with another -o; or R: resume {self.here.out}" if code == 2 else "")
        self.job_failed(job, code, fix, doing="minify")

    # -- following

    def follow(self, watched: Watched) -> None:
        self.watched, self.looked = watched, Looked(ascii_only=ascii_only())
        self._named, self._last_state = "", "starting"
        self._drawn = -1, watched.state
        self.view = len(VIEWS) - 1 if watched.state == "ended" else self.views.index("Candidate")
        self.form.display = False
        self.live.display = True
        self.tick()
        self.show(keep=False)

    def tick(self) -> None:
        """Looks at OUT in a thread, unless a look is under way."""
        watched = self.watched
        if watched is None or self._looking or not self.is_current:
            return
        self._looking = True

        def look() -> Bite:
            self.looked.output = watched.output()
            return watched.look()

        def failed(error: BaseException) -> None:
            self._looking = False
            self.trouble(error, doing="follow")

        self.work(look, lambda bite: self._take(watched, bite), doing="follow", on_error=failed)

    def _take(self, watched: Watched, bite: Bite) -> None:
        self._looking = False
        if watched is not self.watched:
            return
        changed = watched.take(bite)
        if watched.state != self._last_state:
            self._turned(watched)
        self._learn_names(watched)
        if changed:
            self.show()
        elif watched.state == "running":
            self._show_facts(watched)
        if bite.more:
            self.tick()

    def _turned(self, watched: Watched) -> None:
        """Reports once that the search began, ended or died; with the bell where it was seen running."""
        before, self._last_state = self._last_state, watched.state
        self.steering.asked = ""
        self.refresh_bindings()
        if watched.state in OVER:
            self.work(lambda: self.looked.look_at_disk(watched), lambda _: self.show(), group="disk", doing="read")
            if before == "running":
                self.app.bell()
                self.notify(f"{watched.out.name}: {telling.standing(watched, time.time())}", markup=False, timeout=10)
                self.to_view(len(VIEWS) - 1 if watched.state == "ended" else self.view)

    def _learn_names(self, watched: Watched) -> None:
        """Reads the names of the nodes once the search has reported them, and again when it has ended."""
        key = f"{watched.story.graph} {watched.state in OVER}"
        if not watched.story.graph or key == self._named or not watched.story.history:
            return
        self._named = key
        graph, out = watched.story.graph, watched.out

        def named(result: tuple[object, str]) -> None:
            atoms, doubt = result
            if not self.looked.atoms.lines:  # what the running search knew is better than what comes later
                self.looked.atoms, self.looked.doubt = atoms, doubt  # type: ignore[assignment]
            self._named = key if self.looked.atoms.nodes or watched.state in OVER else ""
            self.show()

        self.work(lambda: atoms_of(graph, out), named, group="names", doing="read the graph")

    # -- showing

    def show(self, *, keep: bool = True) -> None:
        """Shows the plot, what is known, and the lines of the view."""
        watched = self.watched
        if watched is None or not self.is_mounted:
            return
        self._show_facts(watched, at_once=not keep)
        tabs = self._tabs(watched)
        if tabs != self._tabs_shown:
            self._tabs_shown = tabs
            self.query_one("#minify-tabs", Static).update(tabs, layout=False)
        view = VIEWS[self.view]
        if view.name == "Candidate":
            self._show_candidate(watched, view, keep)
        else:
            texts = view.lines(watched, self.looked)
            if not view.chooses:
                texts = wrapped(texts, self.lines.scrollable_content_region.width)
            newest = view.follows and (not keep or self.lines.cursor >= len(self.lines.texts) - 1)
            self.lines.show(texts, cursor=view.chooses, first=view.first, keep=keep)
            if newest:
                self.lines.move_to(len(texts) - 1)

    def _show_facts(self, watched: Watched, *, at_once: bool = False) -> None:
        """Shows the numbers, which also change with time. The plot, which is most of what is painted, is drawn again
        less often."""
        drawn: tuple[int, State] = (len(watched.story.points), watched.state)
        now = time.monotonic()
        if drawn != self._drawn and (
            at_once or watched.state != "running" or self._drawn[0] <= 0 or now - self._drawn_at > PLOT_S
        ):
            self._drawn, self._drawn_at = drawn, now
            self.query_one(Plot).draw(picture(watched.story, ascii_only=ascii_only()))
        wide = self.live.has_class("wide")
        at = time.time()
        facts = telling.figures(watched, at) if wide else [(fact, "") for fact in telling.facts(watched, at)]
        stage, printed = self.looked.output
        if stage and not wide:
            facts.insert(2, (f"{stage}: {printed[-1] if printed else 'it has printed nothing so far'}", "dim"))
        if self.steering.asked:
            facts.insert(1, (self.steering.asked, "yellow"))
        for wish in list(watched.wishes.values())[-1:]:
            facts.insert(1, (f"{wish}: after this query …", "yellow"))
        widget = self.query_one("#minify-facts", Lines)
        texts = [Text(plain(fact), style if place else "bold") for place, (fact, style) in enumerate(facts)]
        widget.show(wrapped(texts, widget.scrollable_content_region.width) if wide else texts)
        height = None if wide else len(facts)
        if widget.styles.inline.height != height:
            widget.styles.height = height
        self.live.set_class(watched.state == "running", "runs")
        below = self.query_one("#minify-output", Lines)
        texts = wrapped(output(watched, self.looked), below.scrollable_content_region.width)
        below.show([*texts[:1], *texts[1:][1 - below.size.height :]])

    def _show_candidate(self, watched: Watched, view: ListView, keep: bool) -> None:
        if len(self.looked.atoms.nodes) < MANY:
            self.lines.show(view.lines(watched, self.looked), keep=keep)
            return
        looked, story, at = self.looked, watched.story, self.view

        def shown(texts: list[Text]) -> None:
            if self.view == at:
                self.lines.show(texts, keep=keep)

        self.work(lambda: candidate(story, looked), shown, group="candidate", doing="compare")

    def _tabs(self, watched: Watched) -> Text:
        names = [(view.name, view.count(watched, self.looked)) for view in VIEWS]
        full = [f" {name} {count} " if count else f" {name} " for name, count in names]
        for form in (" {} ", "{} "):
            if sum(map(len, full)) > self.lines.size.width:
                full = [form.format(name) for name, _ in names]
        return self.names(full)

    # -- opening

    def do_minify_open(self) -> None:
        """Starts what the form says, or opens what the cursor is on."""
        if self.watched is None:
            self._start()
            return
        story, at = self.watched.story, self.lines.cursor
        match self.views[self.view]:
            case "History" if 0 <= at < len(story.history):
                item = story.history[at]
                self._look_at(item.case, f"state {at}, after query {item.queries}", number=item.number)
            case "Queries" if 0 <= at < len(story.queries):
                query = story.queries[at]
                self._look_at(query.case, f"query {query.queries}", against=self._best_before(query))
            case "Candidate":
                self.looked.shown = None
                self.show(keep=False)
            case "Other failures":
                self._to_graph(self.steering.case())
            case "Result":
                self.to_graph()
            case _:
                pass

    def on_input_submitted(self) -> None:
        """Starts the search on Enter in a field."""
        self.guarded(self._start, doing="start")

    def on_virtual_list_opened(self) -> None:
        """Opens a line on a second click, as enter does."""
        self.guarded(self.do_minify_open, doing="open")

    def _look_at(self, case: str, title: str, against: str = "", number: int | None = None) -> None:
        self.looked.shown, self.looked.title, self.looked.against, self.looked.number = case, title, against, number
        self.to_view(self.views.index("Candidate"))

    def _best_before(self, query: QueryAnswered) -> str:
        story = self.steering.following().story
        earlier = [item.case for item in story.history if item.queries < query.queries]
        return earlier[-1] if earlier else "original"

    def _to_graph(self, path: str) -> None:
        self.workbench.go("graph", Here(graph=path))

    def to_graph(self) -> bool:
        """Shows the best case as a graph; while the search runs, the graph that it began with."""
        if (watched := self.watched) is None:
            return False
        if (watched.out / "case").is_dir():
            self._to_graph(str(watched.out / "case"))
        elif watched.story.graph:
            self.notify("the case is written at the end; this is the graph it began with", timeout=4)
            self._to_graph(watched.story.graph)
        else:
            raise NotReadyError("there is no graph yet", "the search has not begun", "wait a moment")
        return True

    # -- moving about

    def do_view(self, step: int) -> None:
        """Shows the next view, or the one before; in the form, goes to a field."""
        if self.form.display:
            self._to_field(step)
        else:
            self.looked.shown = None
            super().do_view(step)

    def _to_field(self, step: int) -> None:
        self.focus_next() if step > 0 else self.focus_previous()

    def do_minify_copy(self) -> None:
        """Copies the lines of this view; of the result the repro."""
        watched = self.steering.following()
        whole = self.looked.repro if self.views[self.view] == "Result" else ""
        text = whole or "\n".join(line.plain for line in self.lines.texts)
        self.workbench.copy(text, f"{Path(watched.out).name}-{self.views[self.view].lower()}")

    def do_minify_zoom(self) -> None:
        """Shows the list alone, or with the plot."""
        self.live.toggle_class("alone")

    def do_move(self, where: str) -> None:
        """Moves to another line; in the form to another field."""
        if self.watched is None and where in ("down", "up"):
            self._to_field(1 if where == "down" else -1)
        super().do_move(where)

    def do_minify_across(self, step: int) -> None:
        """Scrolls sideways to more of long lines, or back."""
        self.lines.scroll_to(x=max(0, self.lines.scroll_offset.x + step * ACROSS), animate=False)
