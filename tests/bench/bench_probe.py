"""The stock probe: a 183-node graph with Inductor's own planted relu bug, reduced by us and by torch's minifier, side
by side.

    python -m tests.bench.bench_probe [--variants accuracy,compile_error] [--graphs every,one] [--caches warm,cold]
    [--jobs 1]

Ours is the whole command `graphdbg minify` as a user types it: start of Python, fork server, sanity, search in isolated
children, verification, repro.py with its fresh processes. Torch's is one process that imports torch, makes the graph
and runs functorch.compile.minifier in process, without isolation, with the predicates of torch's own repro scripts.
Wall and CPU seconds are those of the whole process tree. For ours two wall times are told: until the case is verified
three times, which is what is held against torch's, and until repro.py was written and run three times, too, which
torch's never does.

Caches: "cold" gives each run an empty TORCHINDUCTOR_CACHE_DIR, TMPDIR and XDG_CACHE_HOME of its own (the last holds our
seed of toolchain probes); "warm" gives each a copy of one set in which a small function was compiled once by torch and
by us. Exits 1 where a bar is missed: at most 20 queries to 3 nodes, no more input bytes than torch's, less wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BUG = "cpp.inject_relu_bug_TESTING_ONLY"
MOST_QUERIES = 20
NODES = 3
LAYERS = 30
RELU_AFTER = 7
WARM_UP = """
import torch
def f(x, w): return torch.relu(x @ w).softmax(-1).sum()
torch.compile(f)(torch.randn(8, 8), torch.randn(8, 8))
"""
WARM_UP_OURS = "from graphdbg.toolkit.isolation import ForkServer\nwith ForkServer() as server: server.wait_ready()"


class Run(NamedTuple):
    """What one whole process did."""

    queries: int
    nodes: int
    input_bytes: int
    verified: float
    wall: float
    cpu: float


def graph(kind: str) -> tuple[Any, list[Any]]:
    """183 nodes of linear layers: a relu in each ("every"), or tanh in each and one relu ("one")."""
    import torch
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    torch.manual_seed(0)

    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for number, weight in enumerate(weights):
            y = x @ weight.t()
            x = (torch.relu(y) if kind == "every" else torch.tanh(y)) * 0.5 + x
            x = torch.relu(x) if kind == "one" and number == RELU_AFTER else x
        return (x.neg() if kind == "every" else x,)

    inputs = [torch.randn(4, 8), *(torch.randn(8, 8) / 3 for _ in range(LAYERS))]
    gm = make_fx(f, select_decomp_table())(*inputs)
    assert len(gm.graph.nodes) == 183
    return gm, inputs


def stock(variant: str, kind: str) -> None:
    """Runs torch's minifier here and prints what it found. Nothing of ours is imported."""
    import torch._inductor.config as inductor_config
    from functorch.compile import minifier
    from torch._dynamo.repro.after_aot import ACCURACY_FAILS

    predicate = ACCURACY_FAILS["accuracy" if variant == "accuracy" else ""]
    check: dict[str, Any] = {} if variant == "accuracy" else {"check_str": "CppCompileError"}
    queries = 0

    def fails(gm: Any, inputs: Any) -> bool:
        nonlocal queries
        queries += 1
        return predicate(gm, inputs, **check)

    gm, inputs = graph(kind)
    with inductor_config.patch({BUG: variant}):
        small, left = minifier(gm, inputs, fails, dump_state=lambda *_: None)
    size = sum(item.numel() * item.element_size() for item in left)
    tell({"queries": queries, "nodes": len(small.graph.nodes), "input_bytes": size})


def save(variant: str, kind: str, folder: str) -> None:
    """Writes the graph as a case, with the setting that plants the bug."""
    import torch._inductor.config as inductor_config

    from graphdbg.dumps.live import save_graph
    from graphdbg.minifier.minify import _with_settings

    gm, inputs = graph(kind)
    with inductor_config.patch({BUG: variant}):
        _with_settings(save_graph(gm, inputs, Path(folder)))


def tell(entry: dict[str, Any]) -> None:
    """One line of JSON, the last on stdout."""
    sys.stdout.write(json.dumps(entry) + "\n")


def timed(command: list[str], state: Path, read: Callable[[dict[str, Any]], tuple[int, int, int]]) -> Run:
    """Runs a command with the caches of `state`; wall and CPU time of it and all its descendants."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "GRAPHDBG"))}
    for name, folder in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TMPDIR", "tmp"), ("XDG_CACHE_HOME", "xdg")):
        (state / folder).mkdir(parents=True, exist_ok=True)
        environment[name] = str(state / folder)
    log = state / "log"
    began = time.monotonic()
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env=environment, cwd=state, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        lines: list[bytes] = []
        verified = 0.0
        for line in process.stdout:
            lines.append(line)
            if b'"purpose"' in line and b'"verification"' in line:
                verified = time.monotonic() - began
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    document = json.loads(lines[-1]) if lines else {}
    return Run(*read(document), verified or wall, wall, usage.ru_utime + usage.ru_stime)


def sizes(entry: dict[str, Any]) -> tuple[int, int, int]:
    """Queries, nodes, input bytes."""
    return entry["queries"], entry["nodes"], entry["input_bytes"]


def ours_of(entry: dict[str, Any]) -> tuple[int, int, int]:
    """The same; the case must have been verified and have a repro that works."""
    assert entry["verified"] == [3, 3], entry
    assert entry["report_rate"].startswith("3 of 3"), entry
    return sizes(entry)


class Bench:
    """All runs, in a temporary folder."""

    def __init__(self, root: Path, jobs: int, rounds: int) -> None:
        self.root, self.jobs, self.rounds = root, jobs, rounds
        self.count = 0
        self.missed: list[str] = []

    def state(self, caches: str) -> Path:
        """A folder of caches for one run."""
        self.count += 1
        folder = self.root / f"state-{self.count}"
        warmed = self.root / "warmed"
        if caches == "cold":
            folder.mkdir()
            return folder
        if not warmed.exists():
            for code in (WARM_UP, WARM_UP_OURS):
                timed([sys.executable, "-c", code], warmed, lambda _: (0, 0, 0))
        shutil.copytree(warmed, folder, copy_function=os.link)
        return folder

    def one(self, command: list[str], caches: str, read: Callable[[dict[str, Any]], tuple[int, int, int]]) -> Run:
        """One run in a state of its own, which is removed."""
        state = self.state(caches)
        try:
            return timed(command, state, read)
        finally:
            shutil.rmtree(state, ignore_errors=True)

    def compare(self, variant: str, kind: str, caches: str) -> None:
        """Both, in turn; prints medians and ratios, and notes the bars that are missed."""
        case = self.root / f"{variant}-{kind}"
        this = [sys.executable, __file__]
        if not case.exists():
            subprocess.run([*this, "--save", str(case), "--variants", variant, "--graphs", kind], check=True)
        mine: list[Run] = []
        theirs: list[Run] = []
        options = f"minify {case} -o out --json -j {self.jobs}".split()
        for _ in range(self.rounds):
            mine.append(self.one([sys.executable, "-m", "graphdbg", *options], caches, ours_of))
            theirs.append(self.one([*this, "--stock", "--variants", variant, "--graphs", kind], caches, sizes))
        a, b = (Run(*map(statistics.median, zip(*runs, strict=True))) for runs in (mine, theirs))
        print(
            f"{variant:13} {kind:5} {caches:4} {a.queries:7g} {b.queries:5g} {a.nodes:7g} {b.nodes:5g} "
            f"{a.input_bytes:7g} "
            f"{b.input_bytes:5g} {a.verified:9.1f} {a.wall:6.1f} {b.wall:6.1f} {a.verified / b.wall:5.2f} "
            f"{a.wall / b.wall:5.2f} "
            f"{a.cpu:9.1f} {b.cpu:6.1f} {a.cpu / b.cpu:5.2f}",
            flush=True,
        )
        where = f"{variant}, {kind}, {caches}"
        if max(run.queries for run in mine) > MOST_QUERIES or a.nodes > NODES:
            self.missed.append(f"{where}: {a.queries:g} queries to {a.nodes:g} nodes, not {MOST_QUERIES} to {NODES}")
        if a.input_bytes > b.input_bytes:
            self.missed.append(f"{where}: {a.input_bytes:g} input bytes against {b.input_bytes:g}")
        if a.verified >= b.wall:
            self.missed.append(f"{where}: verified after {a.verified:.1f} s against {b.wall:.1f} s")


def main() -> None:
    """Reads the options and runs the table, or one of the children."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--variants", default="accuracy,compile_error")
    parser.add_argument("--graphs", default="every,one")
    parser.add_argument("--caches", default="warm,cold")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--stock", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--save", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stock:
        stock(options.variants, options.graphs)
        return
    if options.save:
        save(options.variants, options.graphs, options.save)
        return
    print(
        "bug           graph state queries       nodes         bytes         wall seconds                    "
        "      CPU seconds"
    )
    print(" " * 25 + "ours torch    ours torch    ours torch  verified repro torch ratio ratio    ours  torch ratio")
    with tempfile.TemporaryDirectory(prefix="bench-probe-") as folder:
        bench = Bench(Path(folder), options.jobs, options.rounds)
        for caches in options.caches.split(","):
            for variant in options.variants.split(","):
                for kind in options.graphs.split(","):
                    bench.compare(variant, kind, caches)
    for line in bench.missed:
        print(f"MISSED: {line}")
    raise SystemExit(1 if bench.missed else 0)


if __name__ == "__main__":
    main()
