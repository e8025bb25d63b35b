"""Healthy programs, given to `graphdbg triage -- python prog.py`: what it says, and whether they compute what they do alone.

    python tests/bench/healthy_calls.py [--only 'gan|vae'] [--rows FILE] [--backend inductor] [--jobs N] [--table]

Each program (healthy_programs.py) runs alone and then beside its calls; its output ends with a digest of its weights. A row per
program is appended; resumable. The cost of a call is what all its rungs took, copying and comparing included, divided by what its
forward and backward take uncompiled, for the calls in which nothing was compiled. --table runs nothing and prints the page
docs/healthy-programs.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from healthy_programs import PRELUDE, PROGRAMS

HEAD = """# Healthy programs beside their calls

{count} training and inference programs in which nothing departs, given to `graphdbg triage -- python prog.py` with the compiler
`{backend}`, on {cores} cores. Made by `python tests/bench/healthy_calls.py --table`.

* prints: whether the program's own output, the digest of its final weights included, is that of the program alone, byte for byte;
* cost: what a call's rungs took, copying and comparing included, divided by what its forward and backward take uncompiled: the
  median of the calls after each function's first, in which nothing is compiled anew, and how many these are.
"""


def ran(words: list[str], folder: Path, backend: str, port: int, limit_s: float = 900) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    environment = os.environ | {
        "HEALTHY_BACKEND": backend, "HEALTHY_PORT": str(port), "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"
    }  # fmt: skip
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment, timeout=limit_s, check=False)
    return done.returncode, done.stdout, done.stderr


def costs(folder: Path) -> list[float]:
    """Of each call in which nothing was compiled: all that its rungs took, divided by eager's forward and backward."""
    last: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.rglob("calls.jsonl")):
        for line in file.read_text().splitlines():
            if (event := json.loads(line))["event"] == "call":
                last[f"{file}{event['key']}"] = event
    ratios: list[float] = []
    for call in last.values():
        eager = {row["part"]: row["seconds"] for row in call["rows"] if row["rung"] == "eager"}
        alone = eager.get("backward") or eager.get("", 0.0)
        steady = all(row["seconds"] < 0.25 + 10 * eager.get(row["part"], 0.0) for row in call["rows"])
        if call["number"] and alone and steady:
            ratios.append(sum(call["seconds"].values()) / alone)
    return ratios


def judged(name: str, backend: str, port: int) -> dict[str, Any]:
    """The row of one program."""
    with tempfile.TemporaryDirectory(prefix="graphdbg-healthy-") as base:
        folder = Path(base)
        (folder / "prog.py").write_text(PRELUDE + PROGRAMS[name])
        program = [sys.executable, "prog.py"]
        alone, printed, wrong = ran(program, folder, backend, port)
        row: dict[str, Any] = {"program": name, "backend": backend, "alone": alone}
        if alone:
            return row | {"says": wrong[-300:]}
        began = time.monotonic()
        words = [sys.executable, "-m", "graphdbg", "triage", "-o", "found", "--", *program]
        code, told, wrong = ran(words, folder, backend, port + 1)
        kept = told.startswith(printed)
        said = told[len(printed) :].strip().splitlines() if kept else told.splitlines()
        ratios = costs(folder / "found")
        return row | {
            "code": code, "same": kept, "says": said[0] if said else wrong[-300:], "seconds": round(time.monotonic() - began, 1),
            "cost": round(median(ratios), 1) if ratios else None, "calls": len(ratios)
        }  # fmt: skip


VERDICTS = {0: "ok", 1: "fails", 4: "cannot_tell"}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The page: a line per program, and the sums."""
    lines = ["| program | verdict | prints | cost | reason |", "|---|---|---|---|---|"]
    for row in rows:
        cost = f"{row['cost']} ({row['calls']})" if row.get("cost") else ""
        verdict = VERDICTS.get(row.get("code", -1), f"code {row.get('code')}")
        reason = row["says"] if row.get("code") else ""
        lines.append(f"| {row['program']} | {verdict} | {'the same' if row.get('same') else 'DIFFERS'} | {cost} | {reason} |")
    counts = {word: sum(row.get("code") == code for row in rows) for code, word in VERDICTS.items()}
    same, known = sum(bool(row.get("same")) for row in rows), [row["cost"] for row in rows if row.get("cost")]
    sums = ", ".join(f"{count} `{word}`" for word, count in counts.items())
    lines += ["", f"{len(rows)} programs: {sums}; {same} print what they print alone."]
    if known:
        lines.append(f"Cost: median {median(known):.1f}, at most {max(known):.1f}.")
    return lines


def main() -> int:
    """Runs what the rows do not have."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="")
    options.add_argument("--rows", type=Path, default=Path(".cache/healthy_calls.jsonl"))
    options.add_argument("--backend", default="inductor")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--table", action="store_true")
    chosen = options.parse_args()
    chosen.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in chosen.rows.read_text().splitlines()] if chosen.rows.exists() else []
    rows = [row for row in rows if row["backend"] == chosen.backend]
    if chosen.table:
        known = {row["program"]: row for row in rows}
        print(HEAD.format(count=len(known), backend=chosen.backend, cores=os.cpu_count()))
        print("\n".join(table([known[name] for name in PROGRAMS if name in known])))
        return 0
    there = {row["program"] for row in rows}
    names = [name for name in PROGRAMS if re.search(chosen.only, name) and name not in there]
    with ThreadPoolExecutor(chosen.jobs) as pool, chosen.rows.open("a") as file:
        for row in pool.map(lambda pair: judged(pair[1], chosen.backend, 29600 + 2 * pair[0]), enumerate(names)):
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
