"""The report screen: its keys. What is shown is in `report_reading`; `graphdbg report` writes and verifies, as a job.

Writes nothing itself, overwrites nothing and sends nothing.

>>> ReportRoom(Here(out="small"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...dumps.errors import UsageError
from ...dumps.wording import counted
from ...minifier.report.preview import ISSUE, Preview, free_folder
from ..here import Here
from ..jobs import Job, ending
from ..sheet import Ask, Choose
from ..widgets.lines import Lines
from .report_reading import FILES, ReadingRoom


class ReportRoom(ReadingRoom):
    """One report: as it is, or as it could be written."""

    ROOM = "report"

    # -- writing and verifying

    def do_report_write(self) -> None:
        """Asks for the folder, then writes as a job; what is there is never overwritten."""
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
                self.guarded(lambda: self._run(words, lambda job, code: self._written(job, code, folder)), doing="write")

        there = f"; {self.shown.folder} keeps its own" if self.shown is not None and self.shown.is_there else ""
        title = f"write the report of {Path(subject).name} into a new folder{there}"
        self.workbench.push_screen(Ask(title, value=free_folder(Path.cwd()), check=check), answered)

    def _written(self, job: Job, code: int, folder: Path) -> None:
        if code in (0, 1) and folder.is_dir():
            self._standing = "" if code == 0 else f"written into {folder}, but the repro does not show the failure every time"
            self.view = 0
            self._look(folder)
        else:
            self._failed(job, code)

    def do_report_verify(self) -> None:
        """Runs the repro three times, as a job."""
        self._refuse_two()
        self._run(["report", str(self._there().folder), "--verify", "--json"], self._verified)

    def _verified(self, job: Job, code: int) -> None:
        rates = [data for data in self._data if "shown" in data and "times" in data]
        if not rates:
            self._failed(job, code)
            return
        told: dict[str, Any] = rates[-1]
        self.said += str(told.get("output") or "").splitlines()
        self._standing = f"verified now: the repro failed in {told['shown']} of {counted(told['times'], 'fresh process')}"
        self.show()

    def _run(self, words: Sequence[str], then: Callable[[Job, int], None]) -> None:
        self._data: list[dict[str, Any]] = []
        self.said, self._standing = [], ""

        def ended(job: Job, code: int) -> None:
            self.refresh_bindings()
            self.tell_where()
            if job is self.job:
                then(job, code)

        hear = lambda text: self.home(lambda: self._hear(text), doing="report")  # noqa: E731
        self.job = self.run_job(words, ended, doing="report", on_data=self._data.append, on_said=hear)
        self.refresh_bindings()
        self.show()

    def _hear(self, text: str) -> None:
        self.said.append(text)
        if self.views[self.view] == "Words":
            self.show()

    def _failed(self, job: Job, code: int) -> None:
        self.show()
        fix = "the view Words has all that it said; w or v tries again"
        error = UsageError(f"{job.line}: {ending(code)}", job.last_said(), fix)
        self.trouble(error, doing="report", said=job.said[-20:])

    def _refuse_two(self) -> None:
        if self.job is not None and self.job.running:
            raise UsageError(f"{self.job.line} runs", "one at a time", "c stops it")

    def do_report_stop(self) -> None:
        """Asks, then stops the job."""
        job = self.job
        if job is None or not job.running:
            raise UsageError("nothing runs here", "", "w writes a report, v verifies one")
        self.workbench.push_screen(
            Choose(f"Stop it?\n{job.line}", {"c": "stop it"}), lambda answer: self.guarded(job.stop) if answer == "c" else None
        )

    def _there(self) -> Preview:
        if self.shown is None or not self.shown.is_there:
            raise UsageError("there is no report yet", "", "w writes one")
        return self.shown

    # -- taking along

    def _file(self) -> Path:
        name = FILES.get(self.views[self.view])
        path = self._there().folder / (name or ISSUE)
        if not path.is_file():
            raise UsageError(f"there is no {path.name} here", "", "choose another view with ]")
        return path

    def do_report_copy(self) -> None:
        """The text of the view as it is in the file."""
        found, view = self._there(), self.views[self.view]
        if view == "Repro":
            self.workbench.copy(found.repro, "repro")
        elif view in ("Issue", "Shared"):
            self.workbench.copy(found.issue, "issue")
        else:
            self.workbench.copy("\n".join(line.plain for line in self.query_one(Lines).texts), f"report-{view.lower()}")

    def do_report_copy_path(self) -> None:
        """Where the file lies."""
        self.workbench.copy(str(self._file().resolve()), "path")

    def do_report_edit(self) -> None:
        """The file in the editor."""
        self.workbench.edit(self._file())

    def do_report_graph(self) -> None:
        """The case as a graph."""
        self.workbench.go("graph", Here(graph=self.subject))
