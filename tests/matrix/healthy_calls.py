"""Healthy programs, given to `graphdbg triage -- python prog.py`: what it says, and whether they compute what they do
alone.

    python -m tests.matrix.healthy_calls [--only 'gan|vae'] [--rows FILE] [--backend inductor] [--jobs N] [--table]

Each program (healthy_programs.py) runs alone and then beside its calls; its output ends with a digest of its weights. A
row per program is appended; resumable. The cost of a call is what all its rungs took, copying and comparing included,
divided by what its forward and backward take uncompiled, for the calls in which nothing was compiled. --table runs
nothing and prints the page docs/healthy-programs.md. HEALTHY_DEVICE=cuda in the environment: the programs make their
tensors there.
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

from tests.models.healthy_programs import PRELUDE, PROGRAMS

HEAD = """# Healthy programs beside their calls

{count} training and inference programs in which nothing departs, given to `graphdbg triage -- python prog.py` with the
compiler
`{backend}`, on {cores} cores. Made by `python -m tests.matrix.healthy_calls --table`.

* prints: whether the program's own output, the digest of its final weights included, is that of the program alone, byte
  for byte;
* cost: what a call's rungs took, copying and comparing included, divided by what its forward and backward take
  uncompiled: the
  median of the calls after each function's first, in which nothing is recompiled, and how many these are. What is
  done once
  a call, whatever its size, counts most where eager takes a few milliseconds.
"""


def ran(words: list[str], folder: Path, backend: str, port: int, limit_s: float = 900) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    environment = os.environ | {
        "HEALTHY_BACKEND": backend,
        "HEALTHY_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, env=environment, timeout=limit_s, check=False
    )
    return done.returncode, done.stdout, done.stderr


def costs(folder: Path) -> list[dict[str, Any]]:
    """Of each call in which nothing was compiled: eager's forward and backward in seconds, all that its rungs took
    divided by that, and each rung's share."""
    last: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.rglob("calls.jsonl")):
        for line in file.read_text().splitlines():
            if (event := json.loads(line))["event"] == "call":
                last[f"{file}{event['key']}"] = event
    results: list[dict[str, Any]] = []
    for call in last.values():
        eager = {row["part"]: row["seconds"] for row in call["rows"] if row["rung"] == "eager"}
        alone = eager.get("backward") or eager.get("", 0.0)
        steady = all(row["seconds"] < 0.25 + 10 * eager.get(row["part"], 0.0) for row in call["rows"])
        if call["number"] and alone and steady:
            shares = {
                f"{row['rung']} {row['part'] or 'call'}": round(row["seconds"] / alone, 2) for row in call["rows"]
            }
            results.append({"eager_s": alone, "cost": sum(call["seconds"].values()) / alone, "shares": shares})
    return results


def judged(name: str, backend: str, port: int) -> dict[str, Any]:
    """The row of one program."""
    with tempfile.TemporaryDirectory(prefix="graphdbg-healthy-") as base:
        folder = Path(base)
        device = os.environ.get("HEALTHY_DEVICE", "cpu")
        (folder / "prog.py").write_text(PRELUDE + PROGRAMS[name].replace('autocast("cpu"', f'autocast("{device}"'))
        program = [sys.executable, "prog.py"]
        alone, printed, wrong = ran(program, folder, backend, port)
        row: dict[str, Any] = {"program": name, "backend": backend, "device": device, "alone": alone}
        if alone:
            return row | {"says": wrong[-300:]}
        began = time.monotonic()
        words = [sys.executable, "-m", "graphdbg", "triage", "-o", "found", "--", *program]
        code, reported, wrong = ran(words, folder, backend, port + 1)
        kept = reported.startswith(printed)
        if not kept:
            row["repeats"] = ran(program, folder, backend, port)[1] == printed
        said = reported[len(printed) :] if kept else reported[reported.find("\nweights ") + 1 :].partition("\n")[2]
        said = said.strip().splitlines()
        calls = costs(folder / "found")
        return row | {
            "code": code,
            "same": kept,
            "says": said[0] if said else wrong[-300:],
            "seconds": round(time.monotonic() - began, 1),
            "cost": round(median(call["cost"] for call in calls), 1) if calls else None,
            "calls": len(calls),
            "eager_ms": round(1000 * median(call["eager_s"] for call in calls), 2) if calls else None,
            "shares": calls[-1]["shares"] if calls else {},
        }


LARGE_MS = 20
VERDICTS = {0: "ok", 1: "fails", 4: "cannot_tell"}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The page: a line per program, and the sums."""
    lines = ["| program | verdict | prints | eager, ms | cost | reason |", "|---|---|---|---|---|---|"]
    for row in rows:
        cost = f"{row['cost']} ({row['calls']})" if row.get("cost") else ""
        verdict = VERDICTS.get(row.get("code", -1), f"code {row.get('code')}")
        reason = row["says"] if row.get("code") else ""
        same = "the same" if row.get("same") else "DIFFERS" if row.get("repeats") else "differs alone, too"
        lines.append(f"| {row['program']} | {verdict} | {same} | {row.get('eager_ms') or ''} | {cost} | {reason} |")
    counts = {word: sum(row.get("code") == code for row in rows) for code, word in VERDICTS.items()}
    same = sum(bool(row.get("same")) for row in rows)
    large = [row for row in rows if (row.get("eager_ms") or 0) >= LARGE_MS]
    sums = ", ".join(f"{count} `{word}`" for word, count in counts.items())
    lines += ["", f"{len(rows)} programs: {sums}; {same} print what they print alone."]
    if large:
        known = [row["cost"] for row in large]
        lines += [
            f"Cost of calls that take {LARGE_MS} ms or more: {min(known):.1f} to {max(known):.1f}.",
            "",
            "Where the time of one such call goes, as multiples of eager's forward and backward; the rest is copying,",
            "putting back, comparing and, where a value is beyond its tolerance, rounding at random:",
            "",
        ]
        names = list(dict.fromkeys(name for row in large for name in row["shares"]))
        lines += [f"| program | {' | '.join(names)} | rest |", "|---" * (len(names) + 2) + "|"]
        for row in large:
            cells = " | ".join(f"{row['shares'].get(name, '')}" for name in names)
            lines.append(f"| {row['program']} | {cells} | {row['cost'] - sum(row['shares'].values()):.1f} |")
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
