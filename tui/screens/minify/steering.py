"""What Minify asks of a search: an order runs `graphdbg steer` as a short job; resuming and another search are
commands, too.

An order counts as asked until the search says what became of it. Decides nothing about a minification.

For example:

    room.steering.do_minify_pause()     # `graphdbg steer OUT pause`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ....dumps.errors import CannotResumeError, CannotSkipError, InUseError, JobFailedError, NotReadyError
from ....dumps.wording import counted
from ....minifier.options import MinifyOptions
from ....minifier.progress import telling
from ....minifier.progress.watched import Watched
from ....minifier.starting import resumed
from ....minifier.story import StepCount
from ...here import Here
from ...jobs import Job
from ...sheet import Choose
from .views import VIEWS, others

if TYPE_CHECKING:
    from .room import MinifyRoom

T = TypeVar("T")

ASKED = {
    "pause": "pausing after this query …",
    "cancel": "ending after this query …",
    "skip": "skipping after this query …",
}


class MinifySteering:
    """The part of Minify that gives orders."""

    def __init__(self, room: MinifyRoom) -> None:
        self.room = room
        self.asked = ""
        """An order in words that was given and is not done yet."""

    def following(self) -> Watched:
        """The search that is shown. Raises UsageError where there is none."""
        if self.room.watched is None:
            raise NotReadyError(
                "no minification runs here yet", "this is the form for a new one", "press enter to start it"
            )
        return self.room.watched

    def _chosen(self, view: str, listed: Sequence[T], what: str) -> T:
        """The item under the cursor; raises UsageError in another view, or where there is nothing."""
        at = self.room.lines.cursor - VIEWS[self.room.view].first
        if not self._in_front(view) or not 0 <= at < len(listed):
            raise NotReadyError(f"no {what} is chosen", "", f"go to the view {view} and put the cursor on one")
        return listed[at]

    def case(self) -> str:
        """The case of the other failure that is chosen."""
        if path := self._chosen("Other failures", others(self.following(), self.room.looked), "other failure").path:
            return str(path)
        why = "cases are written when the search ends" if self.following().state == "running" else "it was not written"
        fix = "wait for the end, or press x, which stops and keeps the result so far"
        raise NotReadyError("there is no case of this failure yet", why, fix)

    def do_minify_minify(self) -> None:
        """Shows the form again, for the other failure under the cursor or for the same graph; what runs goes on, and 1
        lists it."""
        if self.room.watched is not None and self.room.views[self.room.view] == "Other failures":
            self.room.workbench.go("minify", Here(graph=self.case()))
            return
        if (watched := self.room.watched) is not None:
            self.room.undoable("the form", lambda: self._back_to(watched))
        graph = self.room.here.graph or (self.room.watched.story.graph if self.room.watched else None) or None
        self.room.watched = None
        self.room.here = self.room.here.at(out=None, graph=graph)
        self.room.show_form()
        self.room.tell_where()

    def _back_to(self, watched: Watched) -> None:
        self.room.here = self.room.here.at(out=str(watched.out))
        self.room.follow(watched)
        self.room.tell_where()

    def do_minify_resume(self) -> None:
        """Resumes the search where it ended; the journal answers what was asked before. Raises UsageError for a command
        or modules, which have to be typed again in a terminal."""
        watched = self.following()
        if watched.state == "running":
            raise InUseError("the search runs already", "", "press space to pause it, or x to stop it")
        if watched.state == "elsewhere":
            raise CannotResumeError(
                "the search cannot be resumed from here", "it runs, or ran, on another host", "resume it there"
            )
        resumed(watched.out, MinifyOptions(), ())
        self.room.run(["minify", "--resume", "-o", str(watched.out), "--json"], watched.out)

    # -- steering

    def do_minify_disable(self) -> None:
        """Leaves out the step under the cursor, or takes it in again; where the steps are not in front, the step that
        runs."""
        watched = self.following()
        running = next((step for step in telling.steps(watched) if step.name == watched.story.step), None)
        step = self._step() if self._in_front("Steps") or running is None else self._known(running)
        order = "enable" if step.mark == "disabled" else "disable"
        self.do_minify_steer(order, step.name)
        if order == "disable":
            self.room.undoable(f"the step {step.name}", lambda: self.do_minify_steer("enable", step.name))
        if step is running and not self._in_front("Steps"):
            self.room.notify(f"{order} {step.name}, the step that runs. Z takes that back.", markup=False, timeout=5)

    def do_minify_raise(self) -> None:
        """Makes the step under the cursor the next one; where the steps are not in front, shows them first."""
        if self._in_front("Steps"):
            self.do_minify_steer("raise", self._step().name)
            return
        steps = telling.steps(self._steerable())
        self.room.to_view(self.room.views.index("Steps"))
        next_one = next((at for at, step in enumerate(steps) if not step.begun), 0)
        self.room.lines.move_to(VIEWS[self.room.view].first + next_one)
        self.room.notify("P again: the step under the cursor is the next one.", timeout=5)

    def do_minify_pause(self) -> None:
        """Pauses, or goes on."""
        self.do_minify_steer("resume" if self.following().story.paused else "pause")

    def do_minify_stop(self) -> None:
        """Asks, then ends the search; the best case is kept."""
        watched = self._steerable()
        story = watched.story
        best = story.best or story.original
        kept = f"The best case so far has {best[0]} of {counted(story.original[0], 'node')}"
        where = f"it is checked, kept in {watched.out / 'case'} and reported"
        question = f"End the search in {watched.out}?\n{kept}; {where}."

        def answered(answer: str | None) -> None:
            if answer == "x":
                self.room.guarded(lambda: self.do_minify_steer("cancel"), doing="stop")

        self.room.workbench.push_screen(Choose(question, {"x": "end the search"}), answered)

    def do_minify_restart(self) -> None:
        """Searches again from the state under the cursor; where the history is not in front, from the one that is seen,
        else the newest."""
        history, looked = self._steerable().story.history, self.room.looked
        if self._in_front("History") or not history:
            number = self._chosen("History", history, "state").number
        else:
            number = history[-1].number if looked.shown is None or looked.number is None else looked.number
        self.do_minify_steer("restart", str(number))
        nodes = next(counted(item.nodes, "node") for item in history if item.number == number)
        self.room.notify(f"Searching again from state {number}, {nodes}; what was found stays.", timeout=5)

    def _in_front(self, view: str) -> bool:
        return self.room.views[self.room.view] == view

    def _step(self) -> StepCount:
        return self._known(self._chosen("Steps", telling.steps(self.following()), "step"))

    def _known(self, step: StepCount) -> StepCount:
        if not telling.steerable(step):
            raise CannotSkipError(
                f"{step.name} cannot be steered", "every minification needs it", "choose another step"
            )
        return step

    def _steerable(self) -> Watched:
        watched = self.following()
        match watched.state:
            case "running":
                return watched
            case "elsewhere":
                what, why = "the search cannot be steered from here", "it runs on another host"
                raise CannotResumeError(what, why, f"there: graphdbg tui {watched.out}")
            case "starting":
                raise NotReadyError("the search has not begun", "its first query is still to come", "wait a moment")
            case _:
                raise CannotResumeError("the search has ended", "", "press R to resume it, or m for a new search")

    def do_minify_steer(self, *order: str) -> None:
        """Gives the search an order, as `graphdbg steer` does."""
        watched = self._steerable()
        words = ["steer", str(watched.out), *order]
        self.room.run_job(words, lambda job, code: self._steered(job, order, code), doing="minify", passing=True)
        self.asked = ASKED.get(order[0], f"asked: {' '.join(order)} …")
        self.room.show()

    def _steered(self, job: Job, order: tuple[str, ...], code: int) -> None:
        self.asked = ""
        self.room.tick()
        if code:
            raise JobFailedError(
                f"{' '.join(order)} was refused", job.last_said(), "see the view Log for the whole output"
            )
