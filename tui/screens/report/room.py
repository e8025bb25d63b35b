"""The report screen: what would be published about a graph or a minification, and how sure it is; `graphdbg report`
writes and verifies, as a job.

Reads the report that is there. Writes nothing itself, overwrites nothing and sends nothing.

"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import events, getters
from textual.app import ComposeResult
from textual.widgets import Static

from ....dumps.errors import InUseError, NotReadyError
from ....dumps.tables import plain
from ....dumps.wording import counted, size_text
from ....minifier.report.issue import ARTIFACTS, ISSUE, PRIVACY, REPRO, Preview, free_folder, reports
from ...here import Here
from ...jobs import Job
from ...room import ViewsRoom
from ...settings import mark
from ...sheet import Ask, Choose
from ...widgets.texts import Lines, markdown, python, wrapped

VIEWS = ("Privacy", "Issue", "Repro", "Artifacts", "Log")
FILES = {"Privacy": ISSUE, "Issue": ISSUE, "Repro": REPRO, "Artifacts": ARTIFACTS}


class ReportRoom(ViewsRoom):
    """One report: as it is written, or as it could be."""

    ROOM = "report"
    AUTO_FOCUS = ""
    views = VIEWS
    lines = getters.query_one(Lines)
    DEFAULT_CSS: ClassVar[str] = """
    ReportRoom #report-state { height: auto; max-height: 4; padding: 0 1; }
    ReportRoom #report-tabs { height: 1; background: $panel; link-style: none; link-style-hover: bold; }
    """

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.shown: Preview | None = None
        self.job: Job | None = None
        self.said: list[str] = []
        self._data: list[dict[str, Any]] = []
        self._standing = ""
        self._ahead: list[str] = []

    def content(self) -> ComposeResult:
        """The state, the views, the text."""
        yield Static(id="report-state", markup=False)
        yield Static(id="report-tabs", markup=False)
        yield Lines(id="report-lines")

    @property
    def subject(self) -> str:
        """The subject of the report, as the command names it."""
        return self.here.out or self.here.needed("a report needs a graph")

    def equivalent(self) -> list[str]:
        """The command that shows this, or would write it."""
        if self.shown is not None and self.shown.is_there:
            return ["report", str(self.shown.folder), "--preview"]
        return ["report", self.here.out or self.here.graph or "RUN/ID"]

    def state(self) -> str:
        """Whether a report is there, or being written."""
        return mark("runs") if self.running else mark("ok") if self.shown is not None and self.shown.is_there else ""

    def can(self, action: str) -> bool:
        """Whether an action makes sense: a written report can be verified, copied and edited, a running job stopped."""
        there = self.shown is not None and self.shown.is_there
        running = self.running is not None
        known = {"stop": running, "write": not running, "verify": there and not running}
        name = action.removeprefix("report.")
        return known.get(name, there or name not in ("copy", "copy_path", "edit"))

    @property
    def running(self) -> Job | None:
        """The job that writes or verifies now."""
        return self.job if self.job is not None and self.job.running else None

    def on_mount(self) -> None:
        """Looks for a written report."""
        super().on_mount()
        self._look()

    def on_screen_resume(self) -> None:
        """Looks again when the screen comes back: a minification may have written its report."""
        super().on_screen_resume()
        if self.shown is not None and not self.shown.is_there:
            self._look()

    def on_resize(self, event: events.Resize) -> None:
        """Wraps the lines for the new size."""
        self.call_after_refresh(self.show)

    def _look(self, folder: Path | None = None) -> None:
        out, subject = self.here.out, self.subject

        def read() -> Preview:
            places = [folder] if folder else [Path(out)] if out else reports(subject, Path.cwd())
            previews = [Preview.of(place) for place in places]
            return next((preview for preview in previews if preview.is_there), Preview(Path(out or subject)))

        self.work(read, self._take, group="report", doing="read")

    def _take(self, preview: Preview) -> None:
        self.shown = preview
        if not preview.is_there and not self._ahead:
            self._look_ahead()
        self.refresh_bindings()
        self.show(keep=False)

    def _look_ahead(self) -> None:
        """Shows what a report would share, from the command, since a large graph takes a while to read."""
        self._ahead = ["reading the graph ..."]

        def ended(job: Job, code: int) -> None:
            self._ahead = documents[-1]["says"] if documents else [job.last_said("")]
            self.show()

        documents: list[dict[str, Any]] = []
        words = ["report", self.subject, "--preview", "--json"]
        self.run_job(words, ended, doing="report", passing=True, on_batch=documents.extend)

    # -- showing

    def show(self, *, keep: bool = True) -> None:
        """Shows the state, the names of the views, the text."""
        if not self.is_mounted or self.shown is None:
            return
        self.query_one("#report-state", Static).update(self._state(self.shown))
        self.query_one("#report-tabs", Static).update(self.names([f" {name} " for name in VIEWS]), layout=False)
        texts = self._texts(self.shown, VIEWS[self.view])
        if VIEWS[self.view] != "Repro":
            texts = wrapped(texts, self.lines.scrollable_content_region.width)
        self.lines.show(texts, keep=keep)

    def _state(self, preview: Preview) -> Text:
        if self.running:
            first = f"{self.running.line} runs; x stops it"
        elif self._standing:
            first = self._standing
        elif preview.is_there:
            rate = f": repro.py reproduces the bug ({preview.shown} of {preview.times})" if preview.times else ""
            first = f"Report {preview.folder}{rate}"
        else:
            first = "no report is there yet: o writes one into a new folder; nothing is overwritten, nothing is sent"
        return Text(plain(first), "bold")

    def _texts(self, preview: Preview, view: str) -> list[Text]:
        dark, head = self.app.current_theme.dark, [Text(PRIVACY, "yellow"), Text()]
        if view == "Log":
            none = "nothing was said yet: r runs the repro, o writes a report"
            return [Text(plain(line)) for line in self.said or [none]]
        if not preview.is_there:
            holds = "What a report holds: issue.md (the issue text), repro.py (needs torch alone), artifacts.zip."
            return [*head, Text(holds), Text(), *(Text(plain(line)) for line in self._ahead)]
        if view == "Privacy":
            lines = [Text(plain(line), "red bold" if line.startswith("STILL") else "") for line in preview.sentences()]
            return [*head, *lines, Text(), *(Text(plain(line), "dim") for line in preview.source_lines)]
        if view == "Issue":
            return markdown(preview.issue, dark=dark) if preview.issue else [Text(f"there is no {ISSUE}", "dim")]
        if view == "Repro":
            none = [Text(f"there is no {REPRO}: the issue text says why", "dim")]
            return python(preview.repro, dark=dark) if preview.repro else none
        return self._artifacts(preview)

    def _artifacts(self, preview: Preview) -> list[Text]:
        if not preview.members:
            why = f"there is no {ARTIFACTS} here: minify writes none; o writes a report with one into a new folder"
            return [Text(plain(preview.damage or why), "dim")]
        return [Text(f"{size_text(size):>10}  {plain(name)}") for name, size in preview.members]

    # -- writing and verifying

    def do_report_write(self) -> None:
        """Asks for the folder, then writes as a job; an existing report is never overwritten."""
        self._refuse_two()
        subject = self.subject

        def check(text: str) -> str:
            path = Path(text.strip())
            if not text.strip():
                return "type a folder"
            return f"{path} exists already: nothing is overwritten; type another" if path.exists() else ""

        def answered(answer: str | None) -> None:
            if answer:
                folder = Path(answer.strip())
                words = ["report", subject, "-o", str(folder), "--json"]
                self.guarded(lambda: self._run(words, partial(self._written, folder)), doing="write")

        there = f"; {self.shown.folder} keeps its own" if self.shown is not None and self.shown.is_there else ""
        title = f"write the report of {Path(subject).name} into a new folder{there}"
        self.workbench.push_screen(Ask(title, value=free_folder(Path.cwd()), check=check), answered)

    def _written(self, folder: Path, job: Job, code: int) -> None:
        if code in (0, 1) and folder.is_dir():
            seldom = f"written into {folder}, but the repro does not show the failure every time"
            self._standing = seldom if code else ""
            self.view = 0
            self._look(folder)
        else:
            self._failed(job, code)

    def do_report_verify(self) -> None:
        """Runs the repro three times, as a job."""
        self._refuse_two()
        self._run(["verify", str(self._there().folder), "--json"], self._verified)

    def _verified(self, job: Job, code: int) -> None:
        rates = [data for data in self._data if "shown" in data and "times" in data]
        if not rates:
            self._failed(job, code)
            return
        rate = rates[-1]
        self.said += str(rate.get("output") or "").splitlines()
        often = f"{rate['shown']} of {counted(rate['times'], 'fresh process')}"
        self._standing = f"verified now: the repro failed in {often}"
        self.show()

    def _run(self, words: Sequence[str], then: Callable[[Job, int], None]) -> None:
        """Runs a command; `then` hears of its end, unless another was started here since."""
        self._data, self.said, self._standing = [], [], ""

        def ended(job: Job, code: int) -> None:
            self.refresh_bindings()
            self.tell_where()
            if job is self.job:
                then(job, code)

        hear = lambda text: self.home(lambda: self._hear(text), doing="report")  # noqa: E731
        self.job = self.run_job(words, ended, doing="report", on_batch=self._data.extend, on_said=hear)
        self.refresh_bindings()
        self.show()

    def _hear(self, text: str) -> None:
        self.said.append(text)
        if VIEWS[self.view] == "Log":
            self.show()

    def _failed(self, job: Job, code: int) -> None:
        self.show()
        self.job_failed(job, code, "the view Log has all that it said; o or r tries again", doing="report")

    def _refuse_two(self) -> None:
        if self.running:
            raise InUseError(f"{self.running.line} runs", "one at a time", "press x to stop it")

    def do_report_stop(self) -> None:
        """Asks, then stops the job."""
        job = self.running
        if job is None:
            raise NotReadyError("nothing runs here", "", "press o to write a report, or r to run its repro")
        stop = lambda answer: self.guarded(job.stop) if answer == "x" else None  # noqa: E731
        self.workbench.push_screen(Choose(f"Stop it?\n{job.line}", {"x": "stop it"}), stop)

    def _there(self) -> Preview:
        if self.shown is None or not self.shown.is_there:
            raise NotReadyError("there is no report yet", "", "press o to write one")
        return self.shown

    # -- taking along

    def _file(self) -> Path:
        name = FILES.get(VIEWS[self.view])
        path = self._there().folder / (name or ISSUE)
        if not path.is_file():
            raise NotReadyError(f"there is no {path.name} here", "", "press ] for another view")
        return path

    def do_report_copy(self) -> None:
        """Copies the text of the view as it is in the file."""
        preview, view = self._there(), VIEWS[self.view]
        if view == "Repro":
            self.workbench.copy(preview.repro, "repro")
        elif view in ("Issue", "Privacy"):
            self.workbench.copy(preview.issue, "issue")
        else:
            self.workbench.copy("\n".join(line.plain for line in self.lines.texts), f"report-{view.lower()}")

    def do_report_copy_path(self) -> None:
        """Copies the path of the file."""
        self.workbench.copy(str(self._file().resolve()), "path")

    def do_report_edit(self) -> None:
        """Opens the file in the editor."""
        self.workbench.edit(self._file())

    def to_graph(self) -> bool:
        """Shows the case as a graph."""
        self.workbench.go("graph", Here(graph=self.subject))
        return True
