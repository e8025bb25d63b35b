"""A repro of a flaky failure runs itself until it shows: its exit code, what it says, and that nothing is added to a
sure one."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from graphdbg.dumps.pack.redact import Redactor
from graphdbg.dumps.program.repro import Script, flaky_sentence, until_shown
from graphdbg.dumps.store import SavedGraph
from graphdbg.minifier.casefile import FailureRate
from graphdbg.minifier.report import trying
from graphdbg.minifier.report.trying import ChosenProgram, Memo, ReportRuns, candidates, search
from graphdbg.minifier.report.verify import Verification
from graphdbg.toolkit.isolation.fresh import FreshRun

from .cases import case_of, relu_record

COUNTING = """from pathlib import Path
runs = Path(__file__).with_suffix(".runs")
runs.write_text(runs.read_text() + "." if runs.exists() else ".")
sys.exit(CODE if len(runs.read_text()) == SHOWN_AT else 0)"""


CACHES = "sys.exit(os.environ['TORCHINDUCTOR_FX_GRAPH_CACHE'] == os.environ['TORCHINDUCTOR_AUTOGRAD_CACHE'] == '0')"


def repro(rate: FailureRate | None) -> str:
    return next(candidates(replace(case_of(relu_record(versions={"torch": "2.13"})), rate=rate, off="left out"))).text


def run(folder: Path, body: str) -> tuple[int, str]:
    program = folder / "repro.py"
    program.write_text(
        "\n".join(["import os", "import subprocess", "import sys", *until_shown(FailureRate(5, 8)), body])
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("shown_at", "code", "ends", "runs", "says"),
    [
        (3, 1, 1, 3, "BUG: shown by run 3 of 11"),
        (99, 1, 0, 11, "not shown by run 11 of 11"),
        (2, 2, 2, 11, "not shown"),
    ],
)
def test_fresh_processes_until_one_shows_it(
    shown_at: int, code: int, ends: int, runs: int, says: str, tmp_path: Path
) -> None:
    body = COUNTING.replace("SHOWN_AT", str(shown_at)).replace("CODE", str(code))
    ended, out = run(tmp_path, body)
    assert ended == ends
    assert says in out
    assert len((tmp_path / "repro.runs").read_text()) == runs


@pytest.mark.parametrize(("until", "runs"), [(0.0, 1), (math.inf, 2)])
def test_other_programs_are_tried_while_there_is_time(
    until: float, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def passes(script: Script, asked: ReportRuns, known: Memo) -> ChosenProgram:
        return ChosenProgram(script, Verification([FreshRun(0, "", 0.0)]), {})

    said: list[str] = []
    case = replace(case_of(relu_record("accuracy")), off="eager")
    monkeypatch.setattr(trying, "tried", passes)
    monkeypatch.setattr(trying, "candidates", lambda case, every=trying.candidates: islice(every(case), 2))
    saved = SimpleNamespace(path=tmp_path, run=None)
    search(case, ReportRuns(cast("SavedGraph", saved), 3, Redactor(), said.append, {}, "", until))
    assert len([text for text in said if text.startswith("running a repro")]) == runs
    over = f"the time was over (--max-time) before a repro showed it: graphdbg report {tmp_path} tries other"
    assert said[-1].startswith(over) is (runs == 1)


@pytest.mark.parametrize(("until", "times"), [(0.0, 1), (math.inf, 3)])
def test_a_program_runs_once_where_the_time_is_over(until: float, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying.fresh, "run_once", lambda *_, **__: FreshRun(1, "", 0.0))
    monkeypatch.setattr(trying.verify, "probe", lambda *_, **__: {})
    script = next(iter(trying.candidates(replace(case_of(relu_record("accuracy")), off="eager"))))
    asked = ReportRuns(cast("SavedGraph", None), 3, Redactor(), print, {"bare": None}, "", until)
    assert len(trying.tried(script, asked).runs.trials) == times


def test_a_run_that_a_signal_ends_is_not_a_run_without_the_failure(tmp_path: Path) -> None:
    killed = COUNTING.replace("sys.exit(CODE if", "(os.abort if").replace("else 0)", "else int)()")
    body = killed.replace("SHOWN_AT", "2")
    assert run(tmp_path, body)[0] not in (0, 1)


def test_each_run_is_without_caches(tmp_path: Path) -> None:
    assert run(tmp_path, CACHES)[0] == 1


def test_the_head_tells_how_flaky_it_is() -> None:
    lines = repro(FailureRate(5, 8)).splitlines()
    assert lines[2:4] == [
        flaky_sentence(FailureRate(5, 8)),
        "Seen on torch 2.13. --without-fault: without what `if FAULT` guards.",
    ]
    assert "5 of 8 runs failed" in lines[2]
    assert lines[5:10] == ["", "import os", "import subprocess", "import sys", ""]
    behind = lines.index("RUNS = 11  # fresh processes that are tried")
    assert lines[behind - 2].lstrip().startswith("sys.excepthook") and not lines[behind - 1]


@pytest.mark.parametrize("rate", [None, FailureRate(3, 3)])
def test_a_sure_failure_needs_no_loop(rate: FailureRate | None) -> None:
    assert "RUNS" not in repro(rate) and repro(rate) == repro(None)
