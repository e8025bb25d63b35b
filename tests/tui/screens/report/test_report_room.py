"""The report screen: what is shared, the texts as they are, writing and verifying as jobs, and what is not there."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from graphdbg.dumps import written
from graphdbg.minifier.report.issue import PRIVACY
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.screens.report.room import VIEWS, ReportRoom
from graphdbg.tui.sheet import Ask
from graphdbg.tui.widgets.texts import Lines, markdown, python

from ...stories import key, play, shown, until

REPRO = '''"""Shows it."""
import sys

import torch  # noqa


def graph(x):
    return torch.ops.aten.relu.default(x)


print("BUG: as before")
sys.exit(1)
'''
ISSUE = f"""<!-- {PRIVACY} -->

### Describe the bug

- Expected: **numbers**.
- The program below shows it in 3 of 3 fresh processes, each with its own compile cache.

`repro.py` (exit code 1):

```python
{REPRO.rstrip()}
```

The operations come from these lines:

```
.../train.py:63 in forward: return relu(x)
```
"""


@pytest.fixture
def out(work: Path) -> Path:
    """A folder with a report as minify leaves it."""
    folder = Path("small")
    folder.mkdir()
    (folder / "repro.py").write_text(REPRO)
    (folder / "issue.md").write_text(ISSUE)
    return folder


def texts(app: Workbench) -> list[str]:
    assert app.room is not None
    return [text.plain for text in app.room.query_one(Lines).texts]


async def to_view(app: Workbench, name: str) -> None:
    room = app.room
    assert isinstance(room, ReportRoom)
    while VIEWS[room.view] != name:
        before = room.view
        await key(app, "right_square_bracket", lambda before=before: room.view != before)


def test_what_is_there_is_shown_with_the_warning_and_copied_as_it_is(out: Path) -> None:
    with zipfile.ZipFile(out / "artifacts.zip", "w") as archive:
        archive.writestr("case/graph.json", "x" * 2000)
    room = ReportRoom(Here(out="small"))
    copied: list[tuple[str, str]] = []
    edited: list[Path] = []

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        app.copy = lambda text, name="": copied.append((text, name))  # type: ignore[method-assign]
        app.edit = lambda path, line=1: edited.append(path)  # type: ignore[method-assign]
        await until(app, lambda: "repro.py reproduces the bug (3 of 3)" in shown(app), "the report")
        reported = " ".join(" ".join(texts(app)).split())
        assert PRIVACY in reported
        assert "what will be shared: 1 source line of 1 file (.../train.py), 1 operation (aten.relu)" in reported
        assert (
            "1 path or name replaced: 1 folder" in reported and "no known credential and no absolute path" in reported
        )
        await to_view(app, "Issue")
        assert "Describe the bug" in texts(app) and "• Expected: numbers." in texts(app)
        assert "  import torch  # noqa" in texts(app) and "```" not in "\n".join(texts(app))
        await pilot.press("y")
        assert copied[-1] == (ISSUE, "issue")
        await to_view(app, "Repro")
        assert texts(app) == REPRO.split("\n")
        await pilot.press("y", "ctrl+y", "e")
        assert copied[1:] == [(REPRO, "repro"), (str((out / "repro.py").resolve()), "path")]
        assert edited == [out / "repro.py"]
        await to_view(app, "Artifacts")
        assert texts(app) == ["   2.0 KiB  case/graph.json"]
        assert room.equivalent() == ["report", "small", "--preview"]

    play(story, room)


def test_verifying_runs_the_program_and_says_how_often_it_failed(out: Path) -> None:
    room = ReportRoom(Here(out="small"))
    (out / "repro.py").write_text(REPRO.replace("import torch  # noqa\n", ""))
    written.remember(out / "repro.py")

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "Report small" in shown(app), "the report")
        await pilot.press("r")
        await until(app, lambda: "graphdbg verify small --json runs; x stops it" in shown(app), "that it runs")
        assert not room.can("report.verify") and not room.can("report.write") and room.can("report.stop")
        await until(
            app, lambda: "verified now: the repro failed in 3 of 3 fresh processes" in shown(app), "the rate", 60
        )
        await to_view(app, "Log")
        assert "BUG: as before" in texts(app)

    play(story, room)


def test_writing_asks_for_a_new_folder_and_a_failed_job_is_told_with_its_words(work: Path) -> None:
    room = ReportRoom(Here(graph="myrun/0_0/nothing"))
    Path("taken").mkdir()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "no report is there yet: o writes one" in shown(app), "that there is none")
        await pilot.press("r")
        await until(app, lambda: "there is no report yet" in shown(app), "why not")
        await pilot.press("escape", "o")
        assert isinstance(app.screen, Ask) and app.screen.query_one(Input).value == "graphdbg-report-1"
        app.screen.query_one(Input).value = "taken"
        await pilot.press("enter")
        await until(app, lambda: "nothing is overwritten; type another" in shown(app), "the refusal")
        app.screen.query_one(Input).value = "fresh"
        await pilot.press("enter")
        await until(app, lambda: "report failed" in shown(app), "the panel", 60)
        text = " ".join(shown(app).replace("│", " ").split())
        assert "graphdbg report myrun/0_0/nothing -o fresh --json: it ended with exit code 2" in text
        assert "0_0/nothing" in text and not Path("fresh").exists()

    play(story, room)


def test_before_there_is_a_report_it_says_what_one_would_share(work: Path) -> None:
    room = ReportRoom(Here(graph="myrun/0_0/forward"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(
            app, lambda: "what would be shared: 1 source line of 1 file (.../model.py), 1 operation" in shown(app), "it"
        )
        assert "1 path or name replaced: 1 folder" in shown(app) and "0 inputs with recorded values" in shown(app)
        assert ".../model.py:12 in act: return h.sin()" in shown(app)

    play(story, room, size=(160, 40))


def test_a_leak_is_said_in_words(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere/ann")
    (out / "issue.md").write_text(ISSUE + "\nsee /somewhere/ann/x.py\n")
    room = ReportRoom(Here(out="small"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "STILL THERE, look at it: /somewhere/ann" in shown(app), "the leak")

    play(story, room)


def test_it_fits_any_size(out: Path) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        for size in [(60, 20), (160, 50), (60, 20)]:
            await pilot.resize_terminal(*size)
            await until(app, lambda: "Report small" in shown(app), "the report")
            await until(app, lambda size=size: all(len(text) <= size[0] for text in texts(app)), f"lines of {size}")
            assert all(view in shown(app) for view in VIEWS) and "o export" in shown(app)

    play(story, ReportRoom(Here(out="small")))


def test_texts_keep_every_character_and_nothing_that_moves_the_cursor() -> None:
    assert [line.plain for line in python(REPRO)] == REPRO.split("\n")
    assert [line.plain for line in markdown("a\x1b[2Jb\n```\n\x1b[31mx")] == ["a\\x1b[2Jb", "\\x1b[31mx"]
    fences: Any = markdown("````python\nx = '```'\n````\nafter")
    assert [line.plain for line in fences] == ["  x = '```'", "after"]
