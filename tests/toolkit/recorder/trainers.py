"""Lightning, transformers' Trainer and Accelerate, unmodified: the same losses and graphs alone, dumped and armed; a
planted fault of an armed training to its repro.

    python -m tests.toolkit.recorder.trainers OUT [--max-time 240] NAME...

The Python that runs it has the libraries. A row for each NAME on stdout; 1 when one falls short. `graphs`: those that
the imported trace of the training alone and its recording have both; `equal`: of these, those with the same nodes;
`judged`: what `triage` says of the recording.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent / "scripts" / "trainers.py"


def row(work: Path, name: str, max_time: int) -> dict[str, Any]:
    """All of one trainer."""
    work.mkdir(parents=True)
    base = {**os.environ, "XDG_STATE_HOME": str(work / "state"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    program = [sys.executable, str(SCRIPT), name]

    def run(label: str, *command: str, **more: str) -> str:
        with (work / f"{label}.log").open("w") as log:
            environment = {**base, "LOSSES": str(work / f"{label}.json"), **more}
            subprocess.run(command, cwd=work, env=environment, stdout=log, stderr=log, check=False)
        return (work / f"{label}.log").read_text()

    def graphdbg(label: str, *words: str) -> str:
        return run(label, sys.executable, "-m", "graphdbg", *words)

    def losses(label: str) -> list[float]:
        return json.loads((work / f"{label}.json").read_text())

    run("alone", *program, TORCH_TRACE=str(work / "trace"), TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    graphdbg("dump", "dump", "-o", "run", "--inputs", "first", "--", *program)
    run("armed", *program, GRAPHDBG_ARM="1")
    graphdbg("import", "import", "--trust", "trace", "-o", "imported")
    compared = graphdbg("diff", "diff", "imported", "run")
    judged = graphdbg("triage", "triage", "run", "--max-time", str(max_time))
    done = run("fault", *program, "--fault", GRAPHDBG_ARM="1")
    wrong = sorted(work.glob("graphdbg-armed-*"))
    results: dict[str, Any] = {"trainer": name, "same losses": losses("alone") == losses("dump") == losses("armed")}
    rows = re.findall(r"^(\S+/\w+) +(\d+) / (\d+) +\w+ +(?:\d+ +(\d+) +(\d+))?", compared, re.MULTILINE)
    results |= {"graphs": len(rows), "equal": sum(a == b and {x, y} <= {"", "0"} for _, a, b, x, y in rows)}
    results |= {"judged": judged.strip().splitlines()[-1]}
    if wrong:
        words = ("minify", wrong[0].name, "-o", "small", "--max-time", str(max_time), "--json")
        lines = [line for line in graphdbg("minify", *words).splitlines() if line.startswith("{")]
        last = json.loads(lines[-1]) if lines else {}
        results |= {key: last.get(key) for key in ("verdict", "layer", "repro", "original_nodes", "nodes")}
        results["relu"] = "relu" in "".join(path.read_text() for path in (work / "small").glob("repro.py"))
    return {**results, "told": re.findall(r"^graphdbg: .*", done, re.MULTILINE)[:3]}


def main() -> int:
    """Runs those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--max-time", type=int, default=240)
    asked = parser.parse_args()
    rows = [row(asked.out.resolve() / name, name, asked.max_time) for name in asked.names]
    for item in rows:
        print(json.dumps(item))
    right = [
        item["same losses"] and item["graphs"] == item["equal"] and item.get("repro") == "shows" and item["relu"]
        for item in rows
    ]
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main())
