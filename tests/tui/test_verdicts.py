"""What the jobs of this folder found of graphs stands in Home; those of other folders are not listed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from graphdbg.toolkit.verdict import OK, fails
from graphdbg.tui import job_files
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.outs import running_search
from graphdbg.tui.screens.home.overview import Overview
from graphdbg.tui.screens.home.room import HomeRoom
from graphdbg.tui.verdicts import Verdicts

from .stories import play, shown, until


def job(words: list[str], *lines: dict[str, Any], code: int = 0) -> Path:
    folder, _ = job_files.new_folder(words, passing=False)
    (folder / job_files.OUT_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / job_files.EXIT_FILE).write_text(str(code))
    return folder


def test_a_triage_of_the_run_marks_its_graphs_and_the_newest_word_holds(work: Any) -> None:
    wrong = fails("wrong_numbers", "inductor", "result: relative error 2")
    first = {"event": "graph", "id": "0_0/joint", "address": "myrun/0_0/joint", **wrong.flat(row=True)}
    job(["triage", "myrun", "--json-lines"], first, code=1)
    verdicts = Verdicts()
    assert verdicts.look(job_files.recent()) and not verdicts.look(job_files.recent())
    found = verdicts.of("myrun/0_0/joint")
    assert found is not None and found[:3] == ("wrong numbers", "result: relative error 2", True)
    written = Path("myrun/run.json").stat()
    os.utime("myrun/run.json", (written.st_atime, found.started + 60))  # recorded anew under the same name
    assert verdicts.of("myrun/0_0/joint") is None
    os.utime("myrun/run.json", (written.st_atime, written.st_mtime))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "✗ wrong numbers" in shown(app) and "[1 Home ✗1]" in shown(app), "the verdict")
        job(["triage", "myrun/0_0/joint", "--json-lines"], {"event": "end", "graph": "0_0/joint", **OK.flat()})
        await until(app, lambda: "✓ ok" in shown(app) and "[1 Home ✗1]" in shown(app), "the newer one")

    play(story, HomeRoom(Here(run="myrun")), size=(120, 34))


def test_verdicts_of_rungs_are_joined_where_they_were_asked_alike(work: Any) -> None:
    graph = "myrun/0_0/joint"
    for rung, more in (("eager", ["--seed", "1"]), ("nop", []), ("decomposed", []), ("inductor", [])):
        job(["triage", graph, "--rungs", rung, "--all", *more, "--json-lines"], {"event": "rung", "rung": rung, **OK.flat()})
        time.sleep(0.01)
    assert [line["rung"] for line in job_files.rungs_so_far(graph)] == ["nop", "decomposed"]


def test_jobs_of_other_folders_are_not_listed(work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(["triage", "myrun", "--json-lines"])
    overview = Overview(None)
    overview.look()
    assert [line.name for line in overview.lines if line.kind == "job"] == ["graphdbg triage myrun --json-lines"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    overview = Overview(None)
    overview.look()
    assert [line for line in overview.lines if line.kind == "job"] == [] and running_search(None) is None
