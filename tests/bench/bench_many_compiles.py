"""What recording costs a program of many tiny graphs: two processes compile in turn, one recorded, in one run; ratios.

    python -m tests.bench.bench_many_compiles [--graphs 60] [--backends inductor,aot_eager] [--cold]

Each compiles the same functions of three operators, a new one each time, forward and backward, with torch's caches of
graphs off in both. Kernels are warm (the first process fills the cache), or with --cold each has an empty cache.
Seconds of the processor (children included), which a busy machine leaves nearly as they are, and of the clock, where
waiting for the disk shows; the end of the recording is counted too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
PLAIN, RECORDED = "not recorded", "recorded"

CHILD = """
import contextlib, gc, os, sys, time
import torch
torch.set_num_threads(1)
folder, backend = sys.argv[1:]
OPERATORS = ("relu", "sin", "cos", "tanh", "sigmoid", "exp", "abs", "square", "neg", "erf")
x, w = torch.randn(4, 8), torch.randn(8, 4, requires_grad=True)
def made(number):
    first, second = OPERATORS[number % 10], OPERATORS[number // 10 % 10]
    text = f"def f(x, w): return torch.{first}(torch.{second}(x @ w)).sum()"
    space = {"torch": torch}
    exec(compile(text, f"<tiny {number}>", "exec"), space)
    return space["f"]
def used():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
def once(number):
    function = made(number)
    w.grad = None
    began = used(), time.process_time(), time.perf_counter()
    torch.compile(function, backend=backend)(x, w).backward()
    return max(time.process_time() - began[1], used() - began[0]), time.perf_counter() - began[2]
block = contextlib.nullcontext()
if folder != "-":
    import graphdbg
    block = graphdbg.record(folder)
block.__enter__()
once(99)
print("ready", flush=True)
for line in sys.stdin:
    if line == "end\\n":
        break
    print(*once(int(line)), flush=True)
began = time.process_time(), time.perf_counter()
block.__exit__(None, None, None)
print(time.process_time() - began[0], time.perf_counter() - began[1], flush=True)
"""


class Child:
    """A process that compiles when it is asked to."""

    def __init__(self, folder: str, backend: str, cache: Path) -> None:
        cache.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, folder, backend],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._line() != "ready":
            raise SystemExit("a process that should compile died")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, what: str) -> tuple[float, float]:
        """Seconds of a compile, or of the end of the recording: of the processor, and of the clock."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        work, clock = map(float, self._line().split())
        return work, clock


def measured(backend: str, graphs: int, work: Path, *, cold: bool) -> list[tuple[float, float, float]]:
    """Of the processor, and of the clock: seconds of all compiles not recorded, and recorded with the end; the median
    of the ratios of pairs."""
    work.mkdir()
    if not cold:
        child = Child("-", backend, work / "cache")
        for number in range(graphs):
            child.ask(str(number))
        child.process.communicate()
    children = {
        kind: Child(str(folder), backend, work / (f"cache {kind}" if cold else "cache"))
        for kind, folder in ((PLAIN, "-"), (RECORDED, work / "run"))
    }
    results: dict[str, list[tuple[float, float]]] = {kind: [] for kind in children}
    for number in range(graphs):
        for kind in list(children) if number % 2 else list(children)[::-1]:
            results[kind].append(children[kind].ask(str(number)))
    end = children[RECORDED].ask("end")
    for child in children.values():
        child.process.communicate()
    built: list[tuple[float, float, float]] = []
    for which, last in enumerate(end):
        plain, ours = ([item[which] for item in results[kind]] for kind in (PLAIN, RECORDED))
        pairs = [after / before for before, after in zip(plain, ours, strict=True)]
        built.append((sum(plain), sum(ours) + last, statistics.median(pairs)))
    return built


def main() -> int:
    """Prints a line for each backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=60)
    parser.add_argument("--backends", default="inductor,aot_eager,aot_eager_decomp_partition")
    parser.add_argument("--cold", action="store_true", help="an empty cache of kernels for each process")
    chosen = parser.parse_args()
    print(f"{'':38}{PLAIN:>14}{RECORDED:>12}{'ratio':>8}{'median of pairs':>18}")
    with tempfile.TemporaryDirectory(prefix="bench-tiny-") as folder:
        for backend in chosen.backends.split(","):
            rows = measured(backend, chosen.graphs, Path(folder) / backend, cold=chosen.cold)
            for what, (plain, ours, pairs) in zip(("processor", "clock"), rows, strict=True):
                print(
                    f"{backend + ', ' + what:38}{plain:12.2f} s{ours:10.2f} s{ours / plain:8.3f}{pairs:18.3f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
