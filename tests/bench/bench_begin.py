"""How long `minify` takes until its search begins, beside one compile of the failing graph.

    python -m tests.bench.bench_begin ["python prog.py" "python other.py"] [--graphdbg PATH,PATH] [--max-time 60]

Records each program (where none is given: five nodes with a planted fault) and minifies its run twice: with nothing
judged before, and after a `triage` of the run. Prints seconds until the first query of the search over the seconds of
one compile and first run of the failing graph (`replay`), measured between the two. `--graphdbg` names the commands of
several trees, for before and after. Exits with 1 where a run has no failing graph.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.house.five_nodes import PROGRAM

HERE = str(Path(sys.executable).with_name("graphdbg"))
OUTSIDE = ("sanity", "measuring")
"""Purposes of queries before the search."""


def begins(graphdbg: str, run: str, out: str, environment: dict[str, str], max_time_s: float) -> tuple[float, str]:
    """Seconds until the search's first query, and the failure; the minification is ended there."""
    command = [graphdbg, "minify", run, "-o", out, "--json", "--full", "--max-time", str(max_time_s)]
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as asked:
        assert asked.stdout is not None
        failure = ""
        for line in asked.stdout:
            event = json.loads(line)
            if event["event"] == "query" and event.get("purpose") == "sanity":
                failure = failure or event.get("signature", "")
            if event["event"] == "asking" and event.get("purpose") not in OUTSIDE:
                seconds = time.monotonic() - began
                asked.terminate()
                return seconds, failure
    return float("nan"), failure


def compile_s(graphdbg: str, graph: str, environment: dict[str, str]) -> float:
    """One judgement's compile and first run."""
    ran = subprocess.run(
        [graphdbg, "replay", graph, "--json"], capture_output=True, text=True, env=environment, check=False
    )
    return float(json.loads(ran.stdout)["seconds"])


def main() -> None:
    """Measures each program under each tree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=[shlex.join([sys.executable, "-c", PROGRAM])])
    parser.add_argument("--graphdbg", default=HERE, help="commands with commas; default: the one beside this Python")
    parser.add_argument("--max-time", type=float, default=120.0)
    arguments = parser.parse_args()
    failed = False
    for program in arguments.programs:
        for graphdbg in arguments.graphdbg.split(","):
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
                run = f"{folder}/run"
                dump = [graphdbg, "dump", "--inputs", "first", "-o", run, "--", *shlex.split(program)]
                subprocess.run(dump, capture_output=True, env=environment, check=False)
                subprocess.run(
                    [graphdbg, "replay", run, "--rung", "nop"], capture_output=True, env=environment, check=False
                )
                alone, failure = begins(graphdbg, run, f"{folder}/a", environment, arguments.max_time)
                asked = json.loads(
                    subprocess.run(
                        [graphdbg, "triage", run, "--json", "--full"],
                        capture_output=True,
                        text=True,
                        env=environment,
                        check=False,
                    ).stdout
                )
                graph = (asked.get("where") or {}).get("graph") or asked["graphs"][0]["address"]
                after, _ = begins(graphdbg, run, f"{folder}/b", environment, arguments.max_time)
                once = compile_s(graphdbg, graph, environment)
            failed = failed or alone != alone or after != after
            print(
                f"{Path(shlex.split(program)[-2 if program.endswith('inductor') else -1]).stem[:34]:<34} "
                f"compile {once:6.1f} s"
                f"  search begins after {alone / once:5.2f} of it, after a triage {after / once:5.2f}  {failure[:60]}"
                f"  ({graphdbg})",
                flush=True,
            )
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
