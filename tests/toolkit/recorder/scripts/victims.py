"""Forks processes that record themselves while they compile 30 graphs, and kills each at a random moment, two at a
time.

Run: victims.py RUN KILLS SEED BACKEND. torch is imported once; each victim starts its recording as an import of torch
would. The first one lives to the end. Prints a JSON line per victim: what it had told of its progress when it died.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo
import torch._inductor.compile_fx

from graphdbg.toolkit.recorder.starting import start_from_environment

run, kills, seed, backend = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
GRAPHS = 30
"""Of each function two: what Dynamo gives and what the compiler gets."""


def functions():
    for number in range(GRAPHS // 2):
        text = (
            f"def f(x): return (x.sin() + {number}).cos() * x"  # a code object of its own each, in a file of the user's
        )
        exec(compile(text, __file__, "exec"), results := {})
        yield results["f"]


def work(progress):
    start_from_environment(run)
    for number, function in enumerate(list(functions())):
        progress(f"begin {number}")
        torch.compile(function, backend=backend)(torch.ones(3 + number))
        progress(f"end {number}")
    progress("all")


def victim(file):
    """A child that works; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.environ["GRAPHDBG"] = run
        options = {"stages": ["dynamo", "inference"]}
        os.environ["GRAPHDBG_OPTIONS"] = json.dumps(options)
        work(lambda text: os.write(descriptor, f"{text}\n".encode()))
        code = 0
    finally:
        os._exit(code)


class Victim:
    """A child to be killed `delay_s` after it began with its function `number`."""

    def __init__(self, count, step_s):
        self.file = Path(f"{run}-progress-{count}")
        self.pid = victim(self.file)
        self.number, self.delay_s, self.moment = random.randrange(GRAPHS // 2), random.uniform(0, step_s), None

    def begun(self):
        return self.file.exists() and f"begin {self.number}\n" in self.file.read_text()

    def is_due(self):
        if self.moment is None and self.begun():
            self.moment = time.perf_counter() + self.delay_s
        return self.moment is not None and time.perf_counter() >= self.moment


def main():
    random.seed(seed)
    start = time.perf_counter()
    survivor = Victim(0, 0.0)
    os.waitpid(survivor.pid, 0)
    step_s = (time.perf_counter() - start) / (GRAPHS // 2)
    everybody, at_work, killed = [survivor], [], 0
    while killed < kills:
        while len(at_work) < min(2, kills - killed):
            at_work.append(Victim(len(everybody), step_s))
            everybody.append(at_work[-1])
        for item in list(at_work):
            pid, status = os.waitpid(item.pid, os.WNOHANG)
            if pid and status:
                raise SystemExit(f"a victim ended by itself with status {status}")
            if not pid and item.is_due():
                os.kill(item.pid, signal.SIGKILL)
                pid, status = os.waitpid(item.pid, 0)
                killed += os.WIFSIGNALED(status)  # it may have come to its end first
            if pid:
                at_work.remove(item)
        time.sleep(0.002)
    for item in everybody:
        print(json.dumps(item.file.read_text().split("\n")[:-1]))
    print(json.dumps({"killed": killed}))


if __name__ == "__main__":
    main()
