"""One worker against several on a real graph of about 1,000 nodes: wall time, queries, whether the result is the same.

    python -m tests.bench.bench_workers [--size 1000] [--workers 8] [--graph forward] [--kinds "relu,far pair,5
    scattered"]
        [--executor ray] [--seed 0] [--keep FOLDER]

Every run is `graphdbg minify` as a user types it, with a fresh cache of compiled code, one after the other: -j 1, -j N,
and with
--executor ray N workers of Ray, whose result must be that of N local ones to the last query. "relu" is Inductor's own
planted
fault (wrong numbers, in every layer alike); the others plant a crash that needs 1, 2 or 5 operators far from each
other.
"search" leaves out what no worker can shorten: warm-up before the first query, and the report. The number to look at is
the
whole. Exits 1 where the sizes of two results differ, or Ray's result is another than that of as many local workers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import fx

from graphdbg.dumps.live import save_graph
from graphdbg.minifier.minify import _with_settings
from tests.planted import planted_marks
from tests.planted.planted_graphs import graphs

PLANTED = Path(__file__).parents[1] / "planted"

MARKS = {"1 op": 1, "far pair": 2, "5 scattered": 5}
RELU = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}
SAME = ("nodes", "input_bytes", "signature")


@dataclass
class Run:
    """One minification: seconds in all and of search and verification, and the last line that it printed."""

    seconds: float
    search: float
    last: dict[str, Any]


def planted(gm: fx.GraphModule, count: int, seed: int) -> None:
    """Puts marks behind `count` nodes of the graph that give float tensors, so that all that read these read the
    mark."""
    places = [
        node
        for node in gm.graph.nodes
        if node.op == "call_function"
        and isinstance(value := node.meta.get("val"), torch.Tensor)
        and value.is_floating_point()
        and "getitem" not in node.name
    ]
    for number, node in enumerate(random.Random(seed).sample(places, count)):
        with gm.graph.inserting_after(node):
            mark = gm.graph.call_function(torch.ops.planted_marks.mark.default, (node, number))
        mark.meta = dict(node.meta)
        node.replace_all_uses_with(mark, delete_user_cb=lambda user, mark=mark: user is not mark)
    gm.graph.lint()
    gm.recompile()


def case_of(kind: str, options: argparse.Namespace, folder: Path) -> Path:
    """The graph with its fault, as a case."""
    gm, inputs = graphs(options.size)[options.graph]
    if kind in MARKS:
        planted(gm, MARKS[kind], options.seed)
        return save_graph(gm, inputs, folder)
    with inductor_config.patch(RELU):
        return _with_settings(save_graph(gm, inputs, folder))


def measure(case: Path, out: Path, kind: str, jobs: int, *more: str) -> Run:
    """One run of the command."""
    words = [sys.executable, "-m", "graphdbg", "minify", str(case), "-o", str(out), f"-j{jobs}", "--json", "--full"]
    words += more
    path = os.pathsep.join([str(PLANTED), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    if kind in MARKS:
        words += ["--import", "planted_marks"]
        environment[planted_marks.MARKS] = str(MARKS[kind])
    began = time.perf_counter()
    first, end, last = 0.0, 0.0, {}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        last = json.loads(line)
        if last["event"] == "query":
            end = time.perf_counter()
            first = first or end
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} exited with {process.returncode}:\n{errors}")
    return Run(time.perf_counter() - began, end - first, last)


def compare(kind: str, options: argparse.Namespace, folder: Path) -> list[str]:
    """The rows of one kind; returns what is wrong."""
    case = case_of(kind, options, folder / "case")
    runs = {"-j 1": measure(case, folder / "one", kind, 1)}
    runs[f"-j {options.workers}"] = measure(case, folder / "many", kind, options.workers)
    if options.executor == "ray":
        runs[f"-j {options.workers} ray"] = measure(case, folder / "ray", kind, options.workers, "--executor", "ray")
    item, many, *ray = runs.values()
    wrong: list[str] = []
    for name, run in runs.items():
        same = all(run.last[key] == item.last[key] for key in SAME)
        last = run.last
        print(
            f"{kind:12} {name:10} {run.seconds:8.1f} {run.seconds / item.seconds:6.2f}"
            f" {run.search:8.1f} {run.search / item.search:6.2f} {last['queries']:8} {last['nodes']:6} "
            f"{last['input_bytes']:8}"
            f"  {'same' if same else 'OTHER'}",
            flush=True,
        )
        wrong += [] if same else [f"{kind}, {name}: another result than with one worker"]
    if ray and any(ray[0].last[key] != many.last[key] for key in (*SAME, "queries", "verified")):
        wrong.append(f"{kind}: Ray's workers found something else than as many local ones")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--graph", default="forward", choices=["forward", "backward", "mlp", "random"])
    parser.add_argument("--kinds", default="relu,far pair,5 scattered")
    parser.add_argument("--executor", default="local", choices=["local", "ray"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a new folder for what the runs left; default: none is kept")
    options = parser.parse_args()
    wrong: list[str] = []
    print("kind         workers     seconds  ratio   search  ratio  queries  nodes    bytes  result", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for kind in options.kinds.split(","):
            folder = (options.keep or Path(temporary)) / kind.replace(" ", "-")
            folder.mkdir(parents=True)
            wrong += compare(kind, options, folder)
    for text in wrong:
        print(f"WRONG: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
