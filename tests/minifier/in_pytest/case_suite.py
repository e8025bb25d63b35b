"""Real bugs as failing pytest tests: does `pytest --graphdbg` end in a verified repro, after how long, by which route.

    python -m tests.minifier.in_pytest.case_suite OUT CASES/common.py CASES/[01]*.py

`child(CASE, "inductor")` of common.py runs one case in the process that calls it. Each has a folder below OUT, with the
test and all that came of it, and a row of OUT/results.jsonl; one that has its row is not run again. `by`: run (what the
test had called when it failed), run-2 (the test run again under the recorder), program (its calls beside eager),
rounding (run-2 once more, with --check rounding). `again`: the exit code of the repro in a Python that cannot import
graphdbg. Not collected by pytest: a case takes minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LIMIT_S = 300
SUITE = """
import sys
sys.path.insert(0, {home!r})
from common import child

def test_case():
    said = child({case!r}, "inductor")
    assert said["sig"] is None, said
"""
CLEAN = """import runpy, sys
sys.modules["graphdbg"], sys.argv = None, [sys.argv[1]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ALONE = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
"""torch would import graphdbg by its entry point."""
REPRO = re.compile(r"^  python (\S+/repro\.py)  \(.*shows the failure .*3 of 3", re.MULTILINE)
ROUTES = {"with --check rounding": "rounding", "beside eager": "program", "run again": "run-2", "": "run"}
"""By what is said on the way, the last first."""


def main(out: Path, common: Path, *cases: Path) -> None:
    """Runs those that have no row yet, and tells all."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.jsonl"
    rows: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for case in cases:
        if all(row["case"] != case.stem for row in rows):
            rows.append(row := one(out / case.stem, common.resolve().parent, case.resolve()))
            with file.open("a") as rest:
                rest.write(json.dumps(row) + "\n")
            result = (
                f"{row['seconds']} s, by {row['by'] or 'nothing'}, again {row['again']}" if row["fails"] else "passes"
            )
            print(f"{case.stem:36s} {result}", flush=True)
    failing = [row for row in rows if row["fails"]]
    without = [row["case"] for row in failing if not row["by"] or row["seconds"] > LIMIT_S]
    print(
        f"{len(failing)} of {len(rows)} fail as a test; with a verified repro within {LIMIT_S} s: "
        f"{len(failing) - len(without)}; without: {' '.join(without) or 'none'}"
    )


def one(folder: Path, home: Path, case: Path) -> dict[str, Any]:
    """The row of one case; a folder that was left unfinished stays."""
    while folder.exists():
        folder = folder.with_name(folder.name + "-again")
    folder.mkdir()
    (folder / "test_case.py").write_text(SUITE.format(home=str(home), case=str(case)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--graphdbg",
        "--graphdbg-time",
        str(LIMIT_S),
    ]
    began = time.monotonic()
    done = subprocess.run([*command, "test_case.py"], cwd=folder, capture_output=True, text=True, check=False)
    seconds = round(time.monotonic() - began)
    (folder / "pytest.txt").write_text(done.stdout + done.stderr)
    said = done.stdout.partition("= graphdbg =")[2].partition("= short test summary")[0]
    row = {"case": case.stem, "fails": done.returncode == 1, "seconds": seconds, "by": "", "again": None}
    if repro := REPRO.search(said):
        path = folder / repro[1]
        row["by"] = next(route for word, route in ROUTES.items() if word in said)
        command = [sys.executable, "-c", CLEAN, str(path)]
        row["again"] = subprocess.run(command, env={**os.environ, **ALONE}, capture_output=True, check=False).returncode
    return {**row, "said": said.splitlines()[1:]}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
