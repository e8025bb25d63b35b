"""The zoo: healthy programs through dump, triage of the run, replay of its widest graph, check. None may be said to
fail.

    make zoo                                        # all; what is done is not done again: one file each in
    .cache/zoo/TORCH
    make zoo ARGS="--only 'lstm|gru' --anew"        # some of them, whatever was found before
    python -m tests.zoo.zoo --jobs 14 --max-time 480 --out OUT      # starts none after 480 s; call it again for the
    rest
    python -m tests.zoo.zoo --list | --page

The page at the end counts verdicts and lists every program with one that is not `ok`. Exit code: 0 it holds (no
`fails`, no error, at most 2 % `rounding`, at most 2 % `cannot_tell`), 1 it does not, 4 some were not run yet.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import queue
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.zoo.catalog import Program, programs
from tests.zoo.page import holds, page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_S = 540.0
"""What one program may take in all, with the start of its worker."""


class Worker:
    """A process that judges one program after another (worker.py), started when it is asked first and after it died."""

    def __init__(self, out: Path, words: Sequence[str]) -> None:
        self.out, self.words = out, words
        self.process: subprocess.Popen[str] | None = None

    def judge(self, program: Program) -> None:
        """Leaves the program's result file; one that says why where the worker died or took too long."""
        process = self._started()
        ended = threading.Timer(LIMIT_S, process.kill)
        ended.start()
        began = time.monotonic()
        try:
            assert process.stdin and process.stdout
            process.stdin.write(f"{program.name}\n")
            process.stdin.flush()
            if process.stdout.readline().strip() == program.name:
                return
        except BrokenPipeError:
            pass
        finally:
            ended.cancel()
        taken = time.monotonic() - began
        how = f"took more than {LIMIT_S:.0f} s" if taken >= LIMIT_S else f"ended with code {process.wait()}"
        self.process = None
        row = {
            "program": program.name,
            "error": f"the worker {how} ({self.out / 'logs'})",
            "verdicts": [],
            "seconds": taken,
        }
        (self.out / f"{program.name}.json").write_text(json.dumps(row))

    def close(self) -> None:
        """Lets it end."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            logs = self.out / "logs"
            logs.mkdir(exist_ok=True)
            with (logs / f"worker-{threading.get_ident()}.log").open("a") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "tests.zoo.worker", str(self.out), *self.words],
                    cwd=ROOT,
                    text=True,
                    stderr=log,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment(),
                )
        return self.process


def environment() -> dict[str, str]:
    """What a worker sees: the warm cache of the tests, one thread, this checkout."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHDBG") and name != "CI"}
    cache = ROOT / ".cache" / f"inductor-{importlib.metadata.version('torch')}"
    cache.mkdir(parents=True, exist_ok=True)
    return {
        "OMP_NUM_THREADS": "1",
        **clean,
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def run(chosen: Sequence[Program], out: Path, jobs: int, words: Sequence[str], max_time_s: float) -> None:
    """Judges the programs that have no result yet, `jobs` at a time, and starts none when the time is over."""
    waiting: queue.SimpleQueue[Program] = queue.SimpleQueue()
    todo = [item for item in chosen if not (out / f"{item.name}.json").exists()]
    for program in todo:
        waiting.put(program)
    until = time.monotonic() + max_time_s
    done = iter(range(1, len(todo) + 1))

    def work() -> None:
        worker = Worker(out, words)
        try:
            while time.monotonic() < until:
                program = waiting.get_nowait()
                worker.judge(program)
                row = read(out, program)
                print(f"{next(done)}/{len(todo)} {program.name}: {brief(row)}", file=sys.stderr, flush=True)
        except queue.Empty:
            pass
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(min(jobs, len(todo)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read(out: Path, program: Program) -> dict[str, Any]:
    """The result of a program that was judged."""
    return json.loads((out / f"{program.name}.json").read_text())


def brief(row: dict[str, Any]) -> str:
    """A result in a line."""
    words = [verdict["verdict"] for verdict in row["verdicts"]]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    left_out = f"left out, {row['left_out']}" if row.get("left_out") else ""
    return f"{left_out or row.get('error') or counts} in {row['seconds']:.0f} s"


def found(out: Path, chosen: Sequence[Program]) -> Iterator[dict[str, Any]]:
    """The results that there are."""
    return (read(out, item) for item in chosen if (out / f"{item.name}.json").exists())


def sample(every: Sequence[Program], count: int, seed: int) -> list[Program]:
    """That many programs, always the same for one seed."""
    return random.Random(seed).sample(list(every), count)


def main() -> None:
    torch = importlib.metadata.version("torch")
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="REGEX", default="", help="programs whose name has it")
    options.add_argument("--sample", type=int, metavar="N", help="N of them, drawn by --seed")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--list", action="store_true", help="one line for each program")
    options.add_argument("--page", action="store_true", help="the page of what was found so far; runs nothing")
    options.add_argument("--jobs", "-j", type=int, default=1, help="programs at a time")
    options.add_argument("--max-time", type=float, default=float("inf"), metavar="S", help="start none after that")
    options.add_argument("--out", type=Path, default=ROOT / ".cache" / "zoo" / torch, help="folder of the results")
    options.add_argument("--anew", action="store_true", help="forget what was found of the chosen ones")
    options.add_argument("--inputs", default="index", help="what dump keeps of the inputs (its own default)")
    options.add_argument("--keep", action="store_true", help="keep the runs, in OUT/runs")
    given = options.parse_args()
    chosen = [program for program in programs() if re.search(given.only, program.name)]
    if given.sample:
        chosen = sample(chosen, given.sample, given.seed)
    if given.list:
        for item in chosen:
            print(f"{item.name:44} {item.script.name} {' '.join(item.words)}")
        return
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if given.anew:
        for item in chosen:
            (out / f"{item.name}.json").unlink(missing_ok=True)
    if not given.page:
        run(chosen, out, given.jobs, [f"--inputs={given.inputs}", *(["--keep"] if given.keep else [])], given.max_time)
    rows = list(found(out, chosen))
    print("\n".join(page(rows, len(chosen), torch)))
    raise SystemExit(1 if not holds(rows) else 4 if len(rows) < len(chosen) else 0)


if __name__ == "__main__":
    main()
