"""What recording a tiny graph costs, two checkouts beside each other in one run: compiles in turn, as ratios.

    python -m tests.bench.bench_tiny_graph [OLD/graphdbg] [--rounds 40]

Three processes compile the same function of three nodes again and again, with warm kernels and torch's caches of graphs
off, one compile each in turn: not recorded, recorded by this checkout, recorded by the other one (where none is given:
by this one again, which shows the noise). Cost: the median recorded compile less the median plain one, and the same
with the end of the recording (files that are written late) shared among the compiles.
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
PLAIN, THIS, OTHER = "not recorded", "this checkout", "the other one"

CHILD = """
import contextlib, sys, time
import torch
torch.set_num_threads(1)
folder = sys.argv[1]
def f(x, w): return torch.relu(x @ w).sum()
x, w = torch.randn(4, 8), torch.randn(8, 4)
def once():
    torch.compiler.reset()
    began = time.perf_counter()
    torch.compile(f)(x, w)
    return time.perf_counter() - began
block = contextlib.nullcontext()
if folder != "-":
    import graphdbg
    block = graphdbg.record(folder)
block.__enter__()
once()
print("ready", flush=True)
for line in sys.stdin:
    if line == "end\\n":
        break
    print(once(), flush=True)
began = time.perf_counter()
block.__exit__(None, None, None)
print(time.perf_counter() - began, flush=True)
"""


class Child:
    """A process that compiles when it is asked to."""

    def __init__(self, root: Path, folder: str, cache: Path) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(root.parent),
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, folder],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cache,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, what: str) -> float:
        """Seconds of a compile, or of the end of the recording."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return float(self._line())


def main() -> int:
    """Prints the costs and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", default=HERE.parents[2])
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    this, other = HERE.parents[2], arguments.other.resolve()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "cache").mkdir()
        wanted = {PLAIN: (this, "-"), THIS: (this, str(work / "this")), OTHER: (other, str(work / "other"))}
        children = {kind: Child(root, folder, work / "cache") for kind, (root, folder) in wanted.items()}
        results: dict[str, list[float]] = {kind: [] for kind in children}
        for number in range(arguments.rounds):
            for kind in list(children) if number % 2 else list(children)[::-1]:
                results[kind].append(children[kind].ask("compile"))
        ends = {kind: child.ask("end") / (arguments.rounds + 1) for kind, child in children.items()}
    middle = {kind: statistics.median(times) for kind, times in results.items()}
    print(f"{'':16}{'compile':>10}{'cost':>10}{'with end':>10}   ms, median of {arguments.rounds}")
    for kind, value in middle.items():
        cost = value - middle[PLAIN]
        print(f"{kind:16}{value * 1e3:10.1f}{cost * 1e3:10.1f}{(cost + ends[kind]) * 1e3:10.1f}")
    costs = [middle[kind] - middle[PLAIN] for kind in (THIS, OTHER)]
    whole = [cost + ends[kind] for cost, kind in zip(costs, (THIS, OTHER), strict=True)]
    print(f"this / other: {costs[0] / costs[1]:.2f} while compiling, {whole[0] / whole[1]:.2f} with the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
