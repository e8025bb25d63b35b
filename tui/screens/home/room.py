"""Home: runs, their processes and graphs; minifications and jobs; with --follow the graphs of a training run as they
come.

Everything is read in a thread and painted from `Overview`; the screen keeps the cursor, folds and filter, and decides
nothing.

"""

from __future__ import annotations

import time
from pathlib import Path

from rich.text import Text
from textual import getters
from textual.app import ComposeResult
from textual.widgets import Input, Static

from ....dumps.browse import listing
from ....dumps.browse.listing import GRAPHS, ListingLine, first_bad, suggestion, visible
from ....dumps.errors import InUseError, NotReadyError
from ....dumps.tables import plain
from ....dumps.wording import counted
from ...here import Here
from ...job_files import NORMAL, look, option
from ...jobs import Job, ending
from ...room import ListRoom
from ...settings import mark
from ...widgets.rows import Parts, Rows
from ...widgets.texts import Lines, wrapped
from ...widgets.trouble import NotePanel
from ...widgets.virtual_list import VirtualList
from .line import HomeColumns
from .preview import Overview, preview

LOOK_S = 1.0
"""Seconds between two looks at the folder, without --follow."""
RESTS_S = 0.08
"""How long the cursor rests on a line before more is read of it."""
LEAST_ROWS = 18
"""Rows of the terminal below which the list takes all of them."""


class HomeRoom(ListRoom):
    """The runs of this folder, or one run."""

    ROOM = "home"
    hint = getters.query_one("#hint", Static)
    field = getters.query_one("#filter", Input)
    note = getters.query_one(NotePanel)
    below = getters.query_one("#preview", Lines)

    DEFAULT_CSS = """
    HomeRoom #heads { height: 1; color: $text-muted; text-style: bold; }
    HomeRoom #hint { height: 1; background: $boost; color: $text; }
    HomeRoom #preview { height: 33%; padding: 0 1; background: $surface; }
    HomeRoom #preview.large { height: 80%; }
    HomeRoom #preview.none { display: none; }
    HomeRoom #filter { display: none; height: 1; border: none; padding: 0 1; }
    """

    def __init__(self, here: Here, *, follow: bool = False) -> None:
        super().__init__(here)
        self.follow = follow
        self.overview = Overview(here.run)
        self.words = ""
        """The text of the filter."""
        self.lines: list[ListingLine] = []
        """The lines that are listed: folded and filtered."""
        self.folded: set[str] = set()
        self.pinned = False
        self.looking = False
        self.looked = False
        self._rests_until = 0.0
        self._placed = False
        """Whether the cursor was put on a failure; after that only keys move it."""
        self._seen: set[str] = set()
        self._layout = HomeColumns.of([], 80)
        self._kernels: dict[Path, int | None] = {}
        self._hinted = ""
        self._previewed: tuple[object, ...] = ()
        self._below_of = ""
        self._zoom = ""

    def content(self) -> ComposeResult:
        """Titles, the list, one line of advice, what is known of the line under the cursor, the filter."""
        yield Static(id="heads", markup=False)
        yield Rows(self._paint, id="rows")
        yield NotePanel()
        yield Static(id="hint", markup=False)
        yield Lines(id="preview")
        yield Input(placeholder="words to show, -word to hide", id="filter", compact=True)

    def on_mount(self) -> None:
        """Reads for the first time."""
        super().on_mount()
        self._hint("reading ...")
        self.rows.focus()
        self.do_home_again()
        self.set_interval(listing.POLL_S if self.follow else LOOK_S, self.do_home_again)

    @property
    def line(self) -> ListingLine | None:
        """The line under the cursor."""
        return self.lines[self.rows.cursor] if self.lines else None

    # -- reading

    def do_home_again(self) -> None:
        """Looks at once."""
        if self.looking or not self.is_current or time.monotonic() < self._rests_until:
            return
        self.looking = True
        self.work(self._look_in_thread, self._looked_at, group="look", doing="reading runs")

    def _look_in_thread(self) -> bool:
        began = time.monotonic()
        try:
            return self.overview.look(lambda: self.call_later(self.show_lines))
        finally:  # what takes long is done less often, so that keys have the processor
            self._rests_until = time.monotonic() + 2 * (time.monotonic() - began)
            self.looking = False

    def _looked_at(self, changed: bool) -> None:
        first, self.looked = not self.looked, True
        if changed or first:
            self.show_lines()
        elif any(line.since for line in self.lines):
            self.rows.repaint_changed()  # seconds in flight
        if self.follow:
            self._advise()

    def show_lines(self) -> None:
        """Takes the lines that were read; the cursor stays on its line."""
        if not self.query("#heads"):  # the screen is being taken down
            return
        at = self.line.key if self.line else None
        lines = self.overview.lines
        self._fold(lines)
        if not self._placed and self.looked:  # the compile that failed begins open
            inside = visible(lines, {line.key for line in lines if line.kind == "run"} & self.folded)
            bad = first_bad(inside)
            opened = None if bad is None else inside[bad].compiled
            self.folded -= {line.key for line in inside if line.kind == "compile" and line.compiled is opened}
        shown = listing.filtered(lines, self.words, self.folded) if self.words else visible(lines, self.folded)
        self.lines = shown
        place = next((place for place, line in enumerate(shown) if line.key == at), None)
        if self.pinned:
            place = next((place for place in range(len(shown) - 1, -1, -1) if shown[place].kind == "compile"), place)
        elif not self._placed and self.looked:
            self._placed = True
            bad = first_bad(shown)
            graph = next((place for place, line in enumerate(shown) if line.kind == "compile"), None)
            place = bad if bad is not None else graph if place in (None, 0) else place
        self._lay_out()
        self.rows.show(len(shown), cursor=place)
        self._stand_on()
        self.tell_where()

    def _fold(self, lines: list[ListingLine]) -> None:
        """Folds, at first, all of several runs but one, and compiles and ended jobs."""
        inner = {line.key for line in lines if line.folds and line.kind in ("compile", "section")}
        self.folded |= inner - self._seen
        self._seen |= inner
        runs = [line for line in lines if line.kind == "run" and line.folds]
        if len(runs) > 1 and self._placed:
            self.folded |= {line.key for line in runs} - self._seen
        elif len(runs) > 1:
            newest = max(runs, key=lambda line: (line.bad, self._started(line)))
            self.folded = inner | {line.key for line in runs if line is not newest}
        self._seen |= {line.key for line in runs}

    def _started(self, line: ListingLine) -> float:
        run = self.overview.runs.get(line.target)
        return run.record.started if run is not None and run.record is not None else 0.0

    # -- painting

    def _paint(self, index: int, width: int) -> Parts:
        line = self.lines[index]
        kernels = self._kernels_of(line) if self._layout.kernels else None
        return self._layout.parts(line, folded=not self._opened(index), kernels=kernels)

    def _opened(self, index: int) -> bool:
        """Whether the lines below a line are shown."""
        return index + 1 < len(self.lines) and self.lines[index + 1].depth > self.lines[index].depth

    def _kernels_of(self, line: ListingLine) -> int | None:
        if line.kind not in GRAPHS or line.path is None or not line.saved or line.since:
            return None
        if line.path not in self._kernels:
            path = line.path
            self._kernels[path] = None

            def known(count: int | None) -> None:
                self._kernels[path] = count
                self.rows.refresh()

            self.work(lambda: listing.kernels_of(path), known, doing="counting kernels")
        return self._kernels[line.path]

    def on_resize(self) -> None:
        """Lays the columns out for the new size."""
        if not self.query("#heads"):  # the screen is not there yet, or being taken down
            return
        self._lay_out()
        self.call_after_refresh(self._preview)

    def _lay_out(self) -> None:
        # with room, what is folded takes its place, too
        lines = self.lines if self.size.width < 100 else self.overview.lines
        self._layout = HomeColumns.of(lines, self.size.width)
        head = self._layout.head() if any(line.kind in GRAPHS for line in self.lines) else ""
        self.query_one("#heads", Static).update(head)

    def _stand_on(self) -> None:
        """Makes the graph under the cursor the one that the other screens are about."""
        line = self.line
        graph = line.target if line is not None and line.kind in GRAPHS and line.saved else None
        out = line.target if line is not None and line.kind == "out" else None
        self.here = Here(run=self.overview.run or (line.run if line else None) or None, graph=graph, out=out)
        self._advise()

    def _advise(self) -> None:
        self._hint(plain(self._advice()))
        self._preview()

    def _hint(self, text: str) -> None:
        if text != self._hinted:
            self._hinted = text
            self.hint.update(f" {text}", layout=False)

    def _preview(self) -> None:
        """Shows what is known of the line under the cursor, once it rests there for a moment."""
        if not self.query("#preview"):  # the screen is being taken down
            return
        line, (width, rows) = self.line, self.below.scrollable_content_region.size
        hidden = self._zoom == "none" or line is None or self.size.height < LEAST_ROWS
        self.below.set_class(hidden, "none")
        if hidden or not width:
            if not hidden:  # it has its place only once it was laid out
                self.set_timer(RESTS_S, self._preview)
            return
        judged = self.overview.verdicts.of(line.target) if line is not None and line.kind in GRAPHS else None
        trusted = line is not None and self.workbench.trusts(line.target)
        shown = (line, judged, width, rows, trusted)
        if shown == self._previewed:
            return
        fresh, self._previewed = line is None or line.key == self._below_of or not self._below_of, shown
        if line is None or line.kind == "section":
            self.below.show([])
            return
        key = line.key

        def show(texts: list[Text]) -> None:
            if self._previewed is shown and self.query("#preview"):
                self.below.show(texts, keep=key == self._below_of)
                self._below_of = key

        def read() -> None:
            if self._previewed is shown and self.query("#preview"):
                look = lambda: wrapped(preview(line, self.overview, width, rows, trusted=trusted), width)  # noqa: E731
                self.work(look, show, group="preview", doing="reading what is known of it")

        self.set_timer(0.001 if fresh else RESTS_S, read)

    def _advice(self) -> str:
        if not self.lines:
            return self._nothing()
        line = self.line
        if self.follow and line is not None:
            return self._following(line)
        if line is None or line.kind == "section":
            return ""
        if line.kind == "run" and not line.bad:
            return f"{line.name}: enter shows or hides its graphs" if line.folds else f"{line.name}: {line.text}"
        if self.words:
            listed, compiles = (
                sum(line.kind == "compile" for line in lines) for lines in (self.lines, self.overview.lines)
            )
            of = f"{listed:,} of {counted(compiles, 'compile', form=',')}"
            return f"{of} · {suggestion(line) or line.error or line.name}"
        opens = "enter shows its graphs · 2 its nodes" if line.folds else "enter shows its nodes"
        below = self._zoom != "none" and self.size.height >= LEAST_ROWS
        if line.error and line.saved and below:  # it stands there in full
            return suggestion(line) or f"{line.name}: enter shows its nodes · 4 replays it · 5 minifies it"
        return suggestion(line) or line.error or line.text or f"{line.name}: {opens}"

    def _nothing(self) -> str:
        if not self.looked:
            return "reading ..."
        if self.words:
            return f"nothing has all of these words: {self.words}; esc shows everything"
        return f"No runs in {Path.cwd()}. graphdbg dump -o myrun train.py · F1 tour"

    def tell_where(self) -> None:
        """Writes the first line again, and what is known of the line under the cursor where that has changed."""
        super().tell_where()
        self._preview()

    def _following(self, line: ListingLine) -> str:
        run = next(iter(self.overview.runs.values()), None)
        pin = "pinned to the newest: F lets go" if self.pinned else "F pins the newest"
        return "" if run is None else f"{listing.following_text(run)} · {suggestion(line) or pin}"

    # -- what commands say the same

    def equivalent(self) -> list[str]:
        """The words that `@` shows."""
        words = ["ls"] + ([self.here.run] if self.here.run else [])
        if self.follow:
            return [*words, "--follow"]
        return [*words, "--filter", self.words] if self.words and self.here.run else words

    def crumbs(self) -> list[str]:
        """The run, or this folder; not the graph under the cursor, which the list shows."""
        return [self.overview.run or str(Path.cwd()), *(["following"] if self.follow else [])]

    # -- actions

    def on_virtual_list_moved(self, message: VirtualList.Moved) -> None:
        """Handles a move of the cursor."""
        self._stand_on()

    async def on_virtual_list_opened(self, message: VirtualList.Opened) -> None:
        """Handles a double click."""
        await self.perform("home.open")

    def do_home_open(self) -> None:
        """Opens the line under the cursor."""
        line = self.line
        if line is None:
            raise NotReadyError("nothing is listed", self._advice(), "record a run: graphdbg dump -o myrun train.py")
        if line.kind in GRAPHS and not line.folds and not line.saved:
            raise NotReadyError(f"{line.name} was not saved", line.error, "press w to see why it was compiled")
        if line.kind in GRAPHS and not line.folds:
            self.workbench.do_app_show("graph")
        elif line.kind == "out":
            self.workbench.do_app_show("minify")
        elif line.kind == "job":
            self._open_job(line)
        elif line.key.startswith("packed "):
            self._seen.add(f"run {line.name}")  # it begins unfolded
            self.work(lambda: self.overview.open_packed(line.name), lambda _: self.do_home_again(), doing="unpacking")
        elif line.folds:
            self.do_home_fold()
            self._to_graph_of(line)
        elif line.bad:
            raise NotReadyError(f"{line.name} cannot be opened", line.text or line.name, "other lines can be opened")

    def _to_graph_of(self, line: ListingLine) -> None:
        """Moves from an opened compile to the graph to look at."""
        below = range(self.rows.cursor + 1, len(self.lines))
        graph_rows = [place for place in below if self.lines[place].target == line.target]
        if line.kind == "compile" and line.key not in self.folded and graph_rows:
            self.rows.move_to(graph_rows[0])

    def do_home_fold(self, fold: bool | None = None) -> None:
        """Folds, unfolds, or switches between both."""
        line = self.line
        if line is None or (line.folds and fold is (line.key in self.folded)):
            return
        if line.folds:
            self.folded ^= {line.key}
            self.show_lines()
        elif fold is not False:
            above = [place for place in range(self.rows.cursor) if self.lines[place].depth < line.depth]
            self.rows.move_to(above[-1] if above else self.rows.cursor)

    def do_home_failed(self, step: int) -> None:
        """Goes to the next failed graph, or the one before."""
        count = len(self.lines)
        order = [(self.rows.cursor + step * far) % count for far in range(1, count + 1)] if count else []
        for place in order:
            if self.lines[place].kind in GRAPHS and self.lines[place].bad and not self._opened(place):
                self.rows.move_to(place)
                return
        self._hint("no graph failed among those listed")

    def do_home_pin(self) -> None:
        """Pins the cursor to the newest graph, or lets go."""
        self.pinned = not self.pinned
        self.show_lines()

    def do_move(self, where: str) -> None:
        """Releases the pin to the newest graph and moves: from now on only keys move the cursor."""
        self.pinned, self._placed = False, True
        super().do_move(where)

    # -- what opens in front of the list

    def do_home_filter(self) -> None:
        """Opens the filter's field."""
        self.field.display = True
        self.field.focus()

    def _filter_again(self, words: str) -> None:
        self.field.value, self.field.display = words, True

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filters as you type."""
        self.words = event.value
        self.show_lines()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Goes back to the list; the filter stays."""
        self.rows.focus()
        self.field.display = bool(event.value)

    def do_app_back(self) -> None:
        """Closes what is open in front: the panel, or the filter's field with the filter; else as everywhere."""
        shown = self.panel is not None and self.panel.shown
        if not shown and self.note.hide():
            self.rows.focus()
        elif not shown and self.field.display:
            words, self.field.value, self.field.display = self.words, "", False
            if words:
                self.undoable("the filter", lambda: self._filter_again(words))
            self.rows.focus()
        else:
            self.workbench.do_app_back()

    def do_home_why(self) -> None:
        """Shows why the graphs of the run, or this graph's compile, exist: what `ls TARGET --why` prints."""
        from ....dumps.why.show import text_of

        line = self.line
        if line is None or not line.run:
            raise NotReadyError(
                "nothing to explain", "this line is neither a run nor a graph", "move to one, then press w"
            )
        target = line.target if line.kind in GRAPHS and line.saved else line.run
        title, width = f"why {target}", max(40, self.size.width - 6)
        self.note.show(title, "reading ...")
        self.work(lambda: text_of(target, width), lambda text: self.note.show(title, text), group="why", doing="why")

    def do_home_zoom(self) -> None:
        """Shows more of what is known of the line; then the list alone; then both."""
        sizes = ("", "large", "none")
        self._zoom = sizes[(sizes.index(self._zoom) + 1) % len(sizes)]
        self.below.set_class(self._zoom == "large", "large")
        self._preview()

    def do_home_scroll(self, by: int) -> None:
        """Scrolls what is known of the line."""
        self.below.move(by)

    # -- jobs

    def state(self) -> str:
        """How many graphs are bad."""
        bad = sum(line.kind == "compile" and line.bad for line in self.overview.lines)
        return f"{mark('bad')}{bad}" if bad else ""

    async def do_home_triage(self) -> None:
        """Judges the graph under the cursor, in Replay; of a run, all of its graphs."""
        line = self.line
        if line is None or not line.run:
            raise NotReadyError(
                "nothing to triage", "this line is neither a run nor a graph", "move to one, then press t"
            )
        if line.kind in GRAPHS and line.saved:
            await self.workbench.perform_in("replay", "replay.run")
            return
        run, job_line = line.run, f"triage of {line.run}"
        if any(job.running and job.words[:2] == ["triage", run] for job in self.workbench.jobs):
            raise InUseError(f"{job_line} runs already", "one at a time", "to stop it, press x on its line")
        self.run_job(["triage", run, "--json-lines"], self._triaged, doing="triage")
        self.notify(f"{job_line}: each verdict comes into the list", markup=False, timeout=4)

    def _triaged(self, job: Job, code: int) -> None:
        self.do_home_again()
        if code not in NORMAL:
            self.job_failed(job, code, "t tries again", doing="triage")

    def _open_job(self, line: ListingLine) -> None:
        """Opens the screen that shows jobs of its kind; for others shows their messages, as long as the panel is
        open."""
        assert line.path is not None
        there = self._room_of(line.path)
        if there is not None:
            self.workbench.go(*there)
            return
        job, panel = Job.attach(line.path), self.note
        panel.show(line.name, "reading ...")
        shown_text = ""

        def tell() -> None:
            nonlocal shown_text
            end = "" if job.code is None else f"\n{ending(job.code)}"
            text = ("\n".join(job.said) or "it has said nothing so far") + end
            if not panel.shown or panel.title_text != line.name:
                timer.stop()
            elif text != shown_text:
                shown_text = text
                panel.put(line.name, text)

        timer = self.set_interval(0.2, tell)

    def _room_of(self, folder: Path) -> tuple[str, Here] | None:
        """The screen for a job: Replay and Minify attach by themselves to the jobs of their graph, where its names mean
        the same here."""
        record = look(folder).record
        command, *words = record.words or [""]
        if not words or words[0].startswith("-"):
            return None
        if command in ("triage", "replay", "bisect"):
            return "replay", Here(run=self.here.run, graph=words[0])
        out = option(words, "-o", "--output")
        return ("minify", Here(out=out)) if command == "minify" and out and Path(out).is_dir() else None

    def do_home_stop(self) -> None:
        """Stops a job."""
        line = self.line
        if line is None or line.kind != "job" or line.path is None:
            raise NotReadyError("nothing to stop", "this line is no job", "move to one that runs")
        if line.status != "running":
            raise NotReadyError(f"cannot stop {line.name}", f"it is not running: {line.status}")
        Job.attach(line.path).stop()
