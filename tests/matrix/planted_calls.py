"""Programs with one fault each, given to `graphdbg triage -- python prog.py` and nothing else. Resumable, a row a case.

    python -m tests.matrix.planted_calls [--only 'lowering|guard'] [--rows FILE] [--keep FOLDER] [--minify] [--table]
    [--jobs N]
                                        [--device cuda]

Faults in graphs have to be named to function, call, rung and op; those around them to function, line, value and layer
(called_programs.py). --minify pastes the line that triage prints next. --table runs nothing. --device: the programs
make their tensors there; faults of the C++ backend are left out elsewhere than on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.models.called_programs import AROUND, GRAPHS, Case

CASES = {**GRAPHS, **AROUND}
PLANTED = Path(__file__).resolve().parents[1] / "planted"
OWN = {
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
"""A graph that was compiled without the fault is not taken from a cache."""


def on(device: str, case: Case) -> Case:
    """The program of a case, its tensors on a device."""
    head = f"import torch\ntorch.set_default_device({device!r})\n"
    return case._replace(program=head + case.program.replace('autocast("cpu"', f'autocast("{device}"'))


def laid(case: Case, folder: Path) -> list[str]:
    """The command of a case, whose files lie in the folder."""
    fault = case.fault if "\n" in case.fault or not case.fault else (PLANTED / f"{case.fault}.py").read_text()
    (folder / "fault.py").write_text(fault)
    (folder / "prog.py").write_text(case.program)
    return [sys.executable, "prog.py"]


def asked(words: list[str], folder: Path, name: str, limit_s: float = 600) -> tuple[int, str]:
    """The exit code and standard output; both streams are kept."""
    with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
        environment = os.environ | OWN
        done = subprocess.run(words, cwd=folder, stdout=out, stderr=err, env=environment, timeout=limit_s, check=False)
    return done.returncode, (folder / f"{name}.out").read_text()


def judged(name: str, case: Case, folder: Path, minify: bool) -> dict[str, Any]:
    """The row of one case."""
    began, graphdbg = time.monotonic(), [sys.executable, "-m", "graphdbg"]
    code, reported = asked(
        [*graphdbg, "triage", "--json", "--full", "-o", "found", "--", *laid(case, folder)], folder, "triage"
    )
    row: dict[str, Any] = {
        "case": name,
        "code": code,
        "seconds": round(time.monotonic() - began, 1),
        "wrong": ["no answer"],
    }
    if code not in (0, 1, 4):
        return row
    document = json.loads(reported)
    at = next((call for call in document["calls"] if call["key"] == document["at"]), None)
    failed = next((row for row in at["rows"] if row["verdict"] == "fails"), {}) if at else {}
    names = ("verdict", "layer", "kind", "where", "next", "reason", "repro", "repro_rate", "without_fault")
    row |= {key: document.get(key) for key in names} | {"rung": failed.get("rung", "")}
    row |= {
        "function": at["function"] if at else "",
        "call": at["number"] if at else None,
        "line": at["line"] if at else 0,
    }
    row["wrong"] = wrong(name, case, row)
    if minify and row["next"]:
        line = re.sub(r"^graphdbg", shlex.join(graphdbg), row["next"][0])
        line += " --max-time 20 -o out" if " -- " not in line else ""
        row["minify"], _ = asked(shlex.split(line), folder, "minify")
    return row


def wrong(name: str, case: Case, row: dict[str, Any]) -> list[str]:
    """What the finding lacks."""
    where = row["where"] or {}
    text = f"{row['reason']} {where.get('node', '')} {where.get('line', '')} {where.get('name', '')}"
    wanted = {
        "verdict": row["verdict"] == "fails",
        f"function is {row['function']}": row["function"] == case.function,
        f"call is {row['call']}": row["call"] == case.call,
        f"rung is {row['rung']}": row["rung"] == case.rung,
        f"layer is {row['layer']}": bool(re.fullmatch(case.layers, row["layer"] or "")),
        f"nothing of {case.says}": bool(re.search(case.says, text)),
        "no line": "prog.py:" in text,
        "next": bool(row["next"]),
        "a repro": name in GRAPHS or row.get("repro", "shows") == "shows",
        "its graph": name in AROUND or "its graph" in row["reason"],
        "a graph": name in GRAPHS or not re.search(r"its graph \S+ fails", row["reason"]),
    }
    return [what for what, there in wanted.items() if not there]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A line a case, and the sums."""
    known = {row["case"]: row for row in rows}
    for name, row in known.items():  # by what is wanted now
        if "rung" in row and name in CASES:
            row["wrong"] = wrong(name, CASES[name], row)
    lines = ["| case | rung | layer | call | seconds | |", "|---|---|---|---|---|---|"]
    for name in CASES:
        if (row := known.get(name)) is None:
            lines.append(f"| {name} | not run | | | | |")
            continue
        text = ", ".join(row["wrong"]) or "named"
        text += f"; repro {row['repro']}, {row['repro_rate']}" if "repro" in row and name in AROUND else ""
        text += f"; next: exit {row['minify']}" if "minify" in row else ""
        lines.append(
            f"| {name} | {row.get('rung')} | {row.get('layer')} | {row.get('call')} | {row['seconds']} | {text} |"
        )
    shown = sum(row.get("repro") == "shows" for name, row in known.items() if name in AROUND)
    sums = [f"{sum(not known[name]['wrong'] for name in of if name in known)} of {len(of)}" for of in (GRAPHS, AROUND)]
    named = f"Named: {sums[0]} in graphs, {sums[1]} around them"
    return [*lines, "", f"{named}; of these {shown} with a repro that fails 3 of 3 times."]


def main() -> int:
    """Runs what the rows do not have."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="a pattern that the name of a case has to match")
    options.add_argument("--rows", type=Path, default=Path(".cache/planted_calls.jsonl"))
    options.add_argument("--keep", type=Path, help="leave the folders of the cases here")
    options.add_argument("--again", action="store_true", help="also the cases that the rows have")
    options.add_argument("--minify", action="store_true", help="and paste the next line")
    options.add_argument("--table", action="store_true", help="run nothing")
    options.add_argument("--jobs", type=int, default=1, help="so many cases at the same time")
    options.add_argument("--device", help="where the programs make their tensors")
    chosen = options.parse_args()
    chosen.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in chosen.rows.read_text().splitlines()] if chosen.rows.exists() else []
    there = {row["case"] for row in rows} if not chosen.again else set()

    def one(name: str) -> None:
        case = on(chosen.device, CASES[name]) if chosen.device else CASES[name]
        with tempfile.TemporaryDirectory(prefix="graphdbg-planted-") as temporary:
            folder = (chosen.keep or Path(temporary)).resolve() / re.sub(r"\W+", "-", name)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            row = judged(name, case, folder, chosen.minify)
        rows.append(row)
        with chosen.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{name}: {', '.join(row['wrong']) or 'named'} ({row['seconds']} s)\n  {row.get('reason', '')}", flush=True
        )

    wanted = [name for name in CASES if name not in there and re.search(chosen.only, name)]
    if chosen.device:
        wanted = [name for name in wanted if not re.search(r"codegen|fusion", CASES[name].fault)]
    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(one, [] if chosen.table else wanted))
    print("\n".join(table(rows)))
    return int(any(row["wrong"] for row in {row["case"]: row for row in rows}.values()))


if __name__ == "__main__":
    sys.exit(main())
