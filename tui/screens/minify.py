"""The minify screen: its keys. What is shown is in `minify_following`; what steers runs `graphdbg steer` as a short job.

An order counts as asked until the search says what became of it. Decides nothing about a minification.

>>> MinifyRoom(Here(out="small"))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from ...dumps.errors import UsageError
from ...dumps.wording import counted
from ...minifier.events import Asked
from ...minifier.options import Options
from ...minifier.progress import telling
from ...minifier.progress.story import StepCount
from ...minifier.progress.watched import Watched
from ...minifier.starting import resumed
from ..here import Here
from ..jobs import Job
from ..sheet import Choose
from ..widgets.minify_views import VIEWS, others
from .minify_following import FollowingRoom

T = TypeVar("T")

ASKED = {"pause": "pausing after this query …", "cancel": "ending after this query …", "skip": "skipping after this query …"}
ACROSS = 20
"""Columns that l and h move."""


class MinifyRoom(FollowingRoom):
    """One minification, or the form for one."""

    ROOM = "minify"

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
                self._look_at(item.case, f"state {at}, after query {item.queries}")
            case "Queries" if 0 <= at < len(story.queries):
                query = story.queries[at]
                self._look_at(query.case, f"query {query.queries}", against=self._best_before(query))
            case "Candidate":
                self.looked.shown = None
                self.show(keep=False)
            case "Other failures":
                self._to_graph(self._case())
            case "Result":
                self.to_graph()
            case _:
                pass

    def on_input_submitted(self) -> None:
        """Enter in a field starts it, too."""
        self.guarded(self._start, doing="start")

    def on_virtual_list_opened(self) -> None:
        """A second click opens, as enter does."""
        self.guarded(self.do_minify_open, doing="open")

    def _look_at(self, case: str, title: str, against: str = "") -> None:
        self.looked.shown, self.looked.title, self.looked.against = case, title, against
        self.to_view(self.views.index("Candidate"))

    def _best_before(self, query: Asked) -> str:
        story = self._following().story
        earlier = [item.case for item in story.history if item.queries < query.queries]
        return earlier[-1] if earlier else "original"

    def _chosen(self, view: str, listed: Sequence[T], what: str) -> T:
        """What the cursor is on; raises UsageError in another view, or where there is nothing."""
        at = self.lines.cursor - VIEWS[self.view].first
        if self.views[self.view] != view or not 0 <= at < len(listed):
            raise UsageError(f"no {what} is chosen", "", f"go to the view {view} and put the cursor on one")
        return listed[at]

    def _case(self) -> str:
        """The case of the other failure that is chosen."""
        if path := self._chosen("Other failures", others(self._following(), self.looked), "other failure").path:
            return str(path)
        why = "cases are written when the search ends" if self._following().state == "running" else "it was not written"
        raise UsageError("there is no case of this failure yet", why, "wait for the end, or x: stop keeps what there is")

    def _to_graph(self, path: str) -> None:
        self.workbench.go("graph", Here(graph=path))

    def to_graph(self) -> bool:
        """The best case as a graph; while it is searched, the graph that it began with."""
        if (found := self.watched) is None:
            return False
        if (found.out / "case").is_dir():
            self._to_graph(str(found.out / "case"))
        elif found.story.graph:
            self.notify("the case is written at the end; this is the graph it began with", timeout=4)
            self._to_graph(found.story.graph)
        else:
            raise UsageError("there is no graph yet", "the search has not begun", "wait a moment")
        return True

    def do_minify_minify(self) -> None:
        """The form again, for the other failure under the cursor or for the same graph; what runs goes on, and 1 lists it."""
        if self.watched is not None and self.views[self.view] == "Other failures":
            self.workbench.go("minify", Here(graph=self._case()))
            return
        if (found := self.watched) is not None:
            self.undoable("the form", lambda: self._back_to(found))
        graph = self.here.graph or (self.watched.story.graph if self.watched else None) or None
        self.watched = None
        self.here = self.here.at(out=None, graph=graph)
        self._show_form()
        self.tell_where()

    def _back_to(self, found: Watched) -> None:
        self.here = self.here.at(out=str(found.out))
        self._follow(found)
        self.tell_where()

    def do_minify_resume(self) -> None:
        """Goes on where it ended; the journal answers what was asked before. What it would run is said again at a terminal."""
        found = self._following()
        if found.state == "running":
            raise UsageError("it runs already", "", "space pauses it, x stops it")
        if found.state == "elsewhere":
            raise UsageError("it cannot be resumed from here", "it runs, or ran, on another host", "resume it there")
        resumed(found.out, Options(), ())
        self._run(["minify", "--resume", "-o", str(found.out), "--json"], found.out)

    # -- steering

    def do_minify_disable(self) -> None:
        """The step under the cursor is left out, or taken in again."""
        step = self._step()
        self.do_minify_steer("enable" if step.mark == "disabled" else "disable", step.name)

    def do_minify_raise(self) -> None:
        """The step under the cursor comes next."""
        self.do_minify_steer("raise", self._step().name)

    def do_minify_pause(self) -> None:
        """Pauses, or goes on."""
        self.do_minify_steer("resume" if self._following().story.paused else "pause")

    def do_minify_stop(self) -> None:
        """Asks, then ends the search; the best case is kept."""
        found = self._steerable()
        story = found.story
        best = story.best or story.original
        kept = f"The best case so far has {best[0]} of {counted(story.original[0], 'node')}"
        question = f"End the search in {found.out}?\n{kept}; it is checked, kept in {found.out / 'case'} and reported."

        def answered(answer: str | None) -> None:
            if answer == "x":
                self.guarded(lambda: self.do_minify_steer("cancel"), doing="stop")

        self.workbench.push_screen(Choose(question, {"x": "end the search"}), answered)

    def do_minify_restart(self) -> None:
        """Searches again from the state under the cursor."""
        item = self._chosen("History", self._following().story.history, "state")
        self.do_minify_steer("restart", str(item.number))

    def _step(self) -> StepCount:
        step = self._chosen("Steps", telling.steps(self._following()), "step")
        if not telling.steerable(step):
            raise UsageError(f"{step.name} cannot be steered", "every minification needs it", "choose another step")
        return step

    def _steerable(self) -> Watched:
        found = self._following()
        match found.state:
            case "running":
                return found
            case "elsewhere":
                raise UsageError("it cannot be steered from here", "it runs on another host", f"there: graphdbg tui {found.out}")
            case "starting":
                raise UsageError("the search has not begun", "its first query is still to come", "wait a moment")
            case _:
                raise UsageError("the search has ended", "", "R resumes it, m begins another")

    def do_minify_steer(self, *order: str) -> None:
        """Asks the search for something: skip is on with the next step."""
        found = self._steerable()
        words = ["steer", str(found.out), *order]
        self.run_job(words, lambda job, code: self._steered(job, order, code), doing="minify", passing=True)
        self._asked = ASKED.get(order[0], f"asked: {' '.join(order)} …")
        self.show()

    def _steered(self, job: Job, order: tuple[str, ...], code: int) -> None:
        self._asked = ""
        self._tick()
        if code:
            raise UsageError(f"{' '.join(order)} was refused", job.last_said(), "the view Log has all that was said")

    def _following(self) -> Watched:
        if self.watched is None:
            raise UsageError("nothing is minified here yet", "this is the form that begins one", "enter starts it")
        return self.watched

    # -- moving about

    def do_view(self, step: int) -> None:
        """The next list, or the one before; in the form a field."""
        if self.form.display:
            self._to_field(step)
        else:
            self.looked.shown = None
            super().do_view(step)

    def _to_field(self, step: int) -> None:
        self.focus_next() if step > 0 else self.focus_previous()

    def do_minify_copy(self) -> None:
        """The lines of this view."""
        found = self._following()
        whole = self.looked.repro if self.views[self.view] == "Result" else ""
        text = whole or "\n".join(line.plain for line in self.lines.texts)
        self.workbench.copy(text, f"{Path(found.out).name}-{self.views[self.view].lower()}")

    def do_minify_zoom(self) -> None:
        """The list alone, or with the plot."""
        self.live.toggle_class("alone")

    def do_move(self, where: str) -> None:
        """Another line; in the form another field."""
        if self.watched is None and where in ("down", "up"):
            self._to_field(1 if where == "down" else -1)
        super().do_move(where)

    def do_minify_across(self, step: int) -> None:
        """More of long lines, or back."""
        self.lines.scroll_to(x=max(0, self.lines.scroll_offset.x + step * ACROSS), animate=False)
