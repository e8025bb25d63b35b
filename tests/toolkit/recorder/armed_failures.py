"""Failures of armed programs at random steps, each to a verified repro: crash, NaN, an assertion against eager, a
segfault.

    python -m tests.toolkit.recorder.armed_failures FOLDER [--first 0] [--count 100] [--jobs 2] [--max-time 120]

One line of FOLDER/results.jsonl for each: what the repro said (`repro`: shows), the verdict, and what was told of
inputs that were overwritten. Resumable: a failure that has its line is not run again. Exits with 1 when fewer than 95
of 100 have a repro.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent / "scripts"
KINDS = ("crash", "nan", "wrong", "segfault")


def tried(folder: Path, kind: str, seed: int, max_time_s: float) -> dict[str, Any]:
    """One failure: trained, found, minified."""
    work = folder / f"{kind}-{seed}"
    work.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    alone = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    environment = {**os.environ, **alone, "XDG_STATE_HOME": str(work / "state"), "PYTHONPATH": path}
    graphdbg = [sys.executable, "-m", "graphdbg"]

    def run(*command: str, limit_s: float = 500) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )

    began = time.monotonic()
    trained = run(sys.executable, str(SCRIPTS / "armed_training.py"), kind, str(seed))
    listed = run(*graphdbg, "ls")
    messages = [line for line in (trained.stderr + listed.stderr).splitlines() if line.startswith("graphdbg: ")]
    runs = sorted(work.glob("graphdbg-armed-*"))
    results: dict[str, Any] = {"kind": kind, "seed": seed, "code": trained.returncode, "told": messages[:6]}
    if runs:
        words = (
            "minify",
            runs[0].name,
            "-o",
            "small",
            "--import",
            "armed_fault",
            "--max-time",
            str(max_time_s),
            "--json",
        )
        done = run(*graphdbg, *words)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        last = json.loads(lines[-1]) if lines else {}
        results |= {key: last.get(key) for key in ("verdict", "layer", "reason", "repro", "nodes")} | {
            "failure": last.get("kind")
        }
        results |= {"minify": done.returncode, "said": "" if last.get("repro") == "shows" else done.stderr[-600:]}
    else:
        results["said"] = (trained.stderr + listed.stderr)[-400:]
    return {**results, "seconds": round(time.monotonic() - began, 1)}


def main() -> int:
    """Runs what is missing; prints the count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--max-time", type=float, default=120.0)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    results = asked.folder.resolve() / "results.jsonl"
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    wanted = [(KINDS[number % 4], number // 4) for number in range(asked.first, asked.count)]
    missing = [item for item in wanted if item not in {(row["kind"], row["seed"]) for row in done}]

    def one(what: tuple[str, int]) -> None:
        try:
            row = tried(results.parent, *what, asked.max_time)
        except subprocess.TimeoutExpired as error:
            row = {"kind": what[0], "seed": what[1], "said": f"not in time: {error}"}
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")

    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(one, missing))
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    shows = sum(row.get("repro") == "shows" for row in rows)
    print(f"{shows} verified repros of {len(rows)}")
    for row in rows:
        if row.get("repro") != "shows":
            print(json.dumps(row))
    return int(shows < 0.95 * len(rows))


if __name__ == "__main__":
    sys.exit(main())
