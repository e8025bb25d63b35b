"""The half of the report screen that shows: what would be published of a graph or a minification, and how sure it is.

Reads the report that is there; its keys are in `report`. Writes nothing and sends nothing.

>>> class ReportRoom(ReadingRoom): ROOM = "report"
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.widgets import Static

from ...dumps.amounts import size_text
from ...dumps.errors import UsageError
from ...dumps.tables import plain
from ...dumps.wording import counted
from ...minifier.report.preview import ARTIFACTS, ISSUE, REPRO, Preview, reports, warning
from ..here import Here
from ..jobs import Job
from ..room import ViewsRoom
from ..widgets.lines import Lines, wrapped
from ..widgets.texts import markdown, python

VIEWS = ("Shared", "Issue", "Repro", "Artifacts", "Words")
FILES = {"Shared": ISSUE, "Issue": ISSUE, "Repro": REPRO, "Artifacts": ARTIFACTS}


class ReadingRoom(ViewsRoom):
    """One report: as it is, or as it could be written."""

    AUTO_FOCUS = ""
    views = VIEWS
    DEFAULT_CSS: ClassVar[str] = """
    ReadingRoom #report-state { height: auto; max-height: 4; padding: 0 1; }
    ReadingRoom #report-tabs { height: 1; background: $panel; link-style: none; link-style-hover: bold; }
    """

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.shown: Preview | None = None
        self.job: Job | None = None
        self.said: list[str] = []
        self._standing = ""
        self._ahead: list[str] = []

    def content(self) -> ComposeResult:
        """How it stands, the views, the text."""
        yield Static(id="report-state", markup=False)
        yield Static(id="report-tabs", markup=False)
        yield Lines(id="report-lines")

    @property
    def subject(self) -> str:
        """What the report is about, as the command names it."""
        found = self.here.out or self.here.graph
        if found is None:
            raise UsageError("no graph is chosen", "a report is about one", "press 1 for Home; enter on a graph picks it")
        return found

    def equivalent(self) -> list[str]:
        """What shows this, or would write it."""
        if self.shown is not None and self.shown.is_there:
            return ["report", str(self.shown.folder), "--preview"]
        return ["report", self.here.out or self.here.graph or "RUN/ID"]

    def can(self, action: str) -> bool:
        """A report that is there can be verified, copied and edited; what runs can be stopped."""
        there = self.shown is not None and self.shown.is_there
        running = self.job is not None and self.job.running
        match action.removeprefix("report."):
            case "stop":
                return running
            case "write":
                return not running
            case "verify":
                return there and not running
            case "copy" | "copy_path" | "edit":
                return there
            case _:
                return True

    def on_mount(self) -> None:
        """Looks for a report that is there."""
        super().on_mount()
        self._look()

    def on_screen_resume(self) -> None:
        """A minification may have written its report meanwhile."""
        super().on_screen_resume()
        if self.shown is not None and not self.shown.is_there:
            self._look()

    def on_resize(self, event: events.Resize) -> None:
        """Lines break elsewhere."""
        self.call_after_refresh(self.show)

    def _look(self, folder: Path | None = None) -> None:
        out, subject = self.here.out, self.subject

        def read() -> Preview:
            places = [folder] if folder else [Path(out)] if out else reports(subject, Path.cwd())
            found = [Preview.of(place) for place in places]
            return next((preview for preview in found if preview.is_there), Preview(Path(out or subject)))

        self.work(read, self._take, group="report", doing="read")

    def _take(self, found: Preview) -> None:
        self.shown = found
        if not found.is_there and not self._ahead:
            self._look_ahead()
        self.refresh_bindings()
        self.show(keep=False)

    def _look_ahead(self) -> None:
        """What a report would share: told by the command, since a large graph takes a while to read."""
        self._ahead = ["reading the graph ..."]

        def ended(job: Job, code: int) -> None:
            said = [line.removeprefix("graphdbg: ") for line in job.said if line.strip()]
            self._tell_ahead(told[-1]["says"] if told else said[-1:])

        told: list[dict[str, Any]] = []
        words = ["report", self.subject, "--preview", "--json"]
        self.run_job(words, ended, doing="report", passing=True, on_data=told.append)

    def _tell_ahead(self, lines: list[str]) -> None:
        self._ahead = lines
        self.show()

    # -- showing

    def show(self, *, keep: bool = True) -> None:
        """How it stands, the names of the views, the text."""
        if not self.is_mounted or self.shown is None:
            return
        self.query_one("#report-state", Static).update(self._state(self.shown))
        self.query_one("#report-tabs", Static).update(self.names([f" {name} " for name in VIEWS]), layout=False)
        texts = self._texts(self.shown, self.views[self.view])
        lines = self.query_one(Lines)
        if self.views[self.view] != "Repro":
            texts = wrapped(texts, lines.scrollable_content_region.width)
        lines.show(texts, keep=keep)

    def _state(self, found: Preview) -> Text:
        if self.job is not None and self.job.running:
            first = f"{self.job.line} runs; c stops it"
        elif self._standing:
            first = self._standing
        elif found.is_there:
            rate = f"; its repro failed in {found.shown} of {counted(found.times, 'fresh process')}" if found.times else ""
            first = f"a report is there: {found.folder}{rate}"
        else:
            first = "no report is there yet: w writes one into a new folder; nothing is overwritten, nothing is sent"
        return Text(plain(first), "bold")

    def _texts(self, found: Preview, view: str) -> list[Text]:
        dark = self.app.current_theme.dark
        if view == "Words":
            said = self.said or ["nothing was said yet: v verifies, w writes"]
            return [Text(plain(line)) for line in said]
        if not found.is_there:
            holds = "What a report holds: issue.md (the issue text), repro.py (needs torch alone), artifacts.zip."
            return [Text(warning(), "yellow"), Text(), Text(holds), Text(), *(Text(plain(line)) for line in self._ahead)]
        if view == "Shared":
            lines = [Text(plain(line), "red bold" if line.startswith("STILL") else "") for line in found.sentences()]
            return [Text(warning(), "yellow"), Text(), *lines, Text(), *(Text(plain(line), "dim") for line in found.source_lines)]
        if view == "Issue":
            return markdown(found.issue, dark=dark) if found.issue else [Text(f"there is no {ISSUE}", "dim")]
        if view == "Repro":
            none = [Text(f"there is no {REPRO}: the issue text says why", "dim")]
            return python(found.repro, dark=dark) if found.repro else none
        return self._artifacts(found)

    def _artifacts(self, found: Preview) -> list[Text]:
        if not found.members:
            why = f"there is no {ARTIFACTS} here: minify writes none; w writes a report with one into a new folder"
            return [Text(plain(found.damage or why), "dim")]
        return [Text(f"{size_text(size):>10}  {plain(name)}") for name, size in found.members]
