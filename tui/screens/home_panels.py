"""What opens in front of Home's list: the filter's field, why a graph exists, what a job says. Knows how to close them again.

>>> class HomeRoom(HomePanels): ...
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from textual.widgets import Input

from ...dumps.browse.listing import Line
from ...dumps.errors import UsageError
from ..here import Here
from ..job_files import look
from ..jobs import Job, ending
from ..room import ListRoom
from ..widgets.note_panel import NotePanel


class HomePanels(ListRoom):
    """Home, as far as it is more than a list."""

    words = ""
    """Of the filter."""

    @property
    def line(self) -> Line | None:
        """The line under the cursor."""
        raise NotImplementedError

    def show_lines(self) -> None:
        """Lists anew."""
        raise NotImplementedError

    def do_home_filter(self) -> None:
        """Opens the field of the filter."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filters as you type."""
        if event.input.id == "filter":
            self.words = event.value
            self.show_lines()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the list; the filter stays."""
        if event.input.id == "filter":
            self.rows.focus()
            if not event.value:
                event.input.remove_class("shown")

    def close_front(self) -> bool:
        """Closes what is open in front of the list: the panel, the filter's field, the filter; whether there was anything."""
        if self.query_one(NotePanel).hide():
            return True
        field = self.query_one("#filter", Input)
        if field.has_class("shown"):
            field.value = ""
            field.remove_class("shown")
            self.rows.focus()
            return True
        return False

    def do_app_back(self) -> None:
        """Closes what is open in front, else as everywhere."""
        shown = self.panel is not None and self.panel.shown
        if shown or not self.close_front():
            self.workbench.do_app_back()

    def do_home_why(self) -> None:
        """Why the graphs of the run, or this graph's compile, exist."""
        line = self.line
        if line is None or not line.run:
            raise UsageError("why of what?", "this line is no run and no graph", "move to one")
        target = line.target if line.kind == "graph" and line.saved else line.run
        panel = self.query_one(NotePanel)
        panel.show(f"why {target}", "reading ...")
        width = max(40, self.size.width - 6)
        self.work(lambda: why_text(target, width), lambda text: panel.show(f"why {target}", text), group="why", doing="why")

    def open_job(self, line: Line) -> None:
        """The screen that shows jobs of its kind; of others what they say, as long as the panel is open."""
        assert line.path is not None
        if self._open_its_room(line.path):
            return
        job, panel = Job.attach(line.path), self.query_one(NotePanel)
        panel.show(line.name, "reading ...")
        told = ""

        def tell() -> None:
            nonlocal told
            end = "" if job.code is None else f"\n{ending(job.code)}"
            text = ("\n".join(job.said) or "it has said nothing so far") + end
            if not panel.has_class("shown") or panel.title_text != line.name:
                timer.stop()
            elif text != told:
                told = text
                panel.tell(text)

        timer = self.set_interval(0.2, tell)

    def _open_its_room(self, folder: Path) -> bool:
        """Replay and Minify attach by themselves to what runs about their graph, where its names mean the same here."""
        record = look(folder).record
        command, *words = record.words or [""]
        if Path(record.cwd) != Path.cwd() or not words or words[0].startswith("-"):
            return False
        if command in ("triage", "replay", "localize", "bisect"):
            self.workbench.go("replay", Here(run=self.here.run, graph=words[0]))
            return True
        out = next((after for word, after in pairwise(words) if word in ("-o", "--output")), "")
        if command == "minify" and out and Path(out).is_dir():
            self.workbench.go("minify", Here(out=out))
            return True
        return False

    def do_home_stop(self) -> None:
        """Stops a job."""
        line = self.line
        if line is None or line.kind != "job" or line.path is None:
            raise UsageError("nothing to stop", "this line is no job", "move to one that runs")
        if line.status != "running":
            raise UsageError(f"cannot stop {line.name}", f"it is not running: {line.status}")
        Job.attach(line.path).stop()


def why_text(target: str, width: int) -> str:
    """What `ls TARGET --why` prints."""
    from ...dumps.why.show import text_of

    return text_of(target, width)
