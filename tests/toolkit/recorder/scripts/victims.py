"""Forks processes that record themselves while they compile 30 graphs, and kills each at a random moment, two at a time.

Run: victims.py RUN KILLS SEED BACKEND. torch is imported once; each victim starts its recording as an import of torch would. The
first one lives to the end. Prints a JSON line per victim: what it had told of its progress when it died.
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
        exec(f"def f(x): return (x.sin() + {number}).cos() * x", found := {})  # a code object of its own each
        yield found["f"]


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


def ended(pid):
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def kill_after(pid, file, number, delay_s):
    """Kills the victim `delay_s` after it began with a function."""
    while not (file.exists() and f"begin {number}\n" in file.read_text()):
        time.sleep(0.002)
    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)


def main():
    random.seed(seed)
    files = [Path(f"{run}-progress-{number}") for number in range(kills + 1)]
    start = time.perf_counter()
    killed = [ended(victim(files[0]))]
    step_s = (time.perf_counter() - start) / (GRAPHS // 2)
    for pair in zip(files[1::2], files[2::2], strict=True):
        pids = [victim(file) for file in pair]
        moments = [(random.randrange(GRAPHS // 2), random.uniform(0, step_s)) for _ in pair]
        plans = sorted((*moment, pid, file) for moment, pid, file in zip(moments, pids, pair, strict=True))
        for number, delay_s, pid, file in plans:
            kill_after(pid, file, number, delay_s)
            killed.append(ended(pid))
    for file in files:
        print(json.dumps(file.read_text().split("\n")[:-1]))
    print(json.dumps({"step_s": step_s, "killed": sum(killed)}))


if __name__ == "__main__":
    main()
