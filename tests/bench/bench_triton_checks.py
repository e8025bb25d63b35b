"""What checking costs: the kernels of some models by the plain interpreter, checked, and by Triton's own, in one run.

    python -m tests.bench.bench_triton_checks [MODEL...] [--size 4]

Each graph is compiled once; runs alternate and the fastest of each kind counts. "Triton's own" is the interpreter of
TRITON_INTERPRET=1 in a process of its own, on the same arguments, run once, of the kernels that it can run in 20 s: it
has no library functions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from graphdbg.toolkit.kernel_checks.run import CheckedRung
from graphdbg.toolkit.live.eager import clone_inputs, copy_graph
from graphdbg.toolkit.live.entries import shared_fakes
from graphdbg.toolkit.live.spec import ReplaySpec, in_force, no_caches, settings
from graphdbg.toolkit.triton.interpreting.session import Interpretation, InterpretedLaunch, LaunchObserver
from tests.models.triton_graphs import Graph, graphs_of

MODELS = ("gpt_block", "vision_transformer", "convnet", "gru", "mixture_of_experts", "cross_entropy_head")
TURNS = 3
LIMIT_S = 20


class _Arguments(LaunchObserver):
    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []

    def before(self, launch: InterpretedLaunch) -> None:
        source = Path(launch.function.__code__.co_filename).read_text(encoding="utf-8")
        given = {
            name: item.clone() if isinstance(item, torch.Tensor) else item for name, item in launch.arguments.items()
        }
        self.kept.append({"kernel": launch.kernel, "source": source, "grid": launch.grid, "arguments": given})


@contextmanager
def _by_kernel(seconds: dict[str, float]) -> Iterator[None]:
    usual = Interpretation.launch

    def launch(self: Interpretation, interpreted_launch: InterpretedLaunch) -> None:
        began = time.perf_counter()
        usual(self, interpreted_launch)
        seconds[interpreted_launch.kernel] = seconds.get(interpreted_launch.kernel, 0.0) + time.perf_counter() - began

    Interpretation.launch = launch
    try:
        yield
    finally:
        Interpretation.launch = usual


def measured(graph: Graph) -> dict[str, Any]:
    """Seconds: plain, checked, and by kernel plain and of Triton's own."""
    spec = ReplaySpec(graph.stage, compile_kwargs=graph.kwargs, dynamic=graph.dynamic)
    rung = CheckedRung(None, None, plain=False)
    gm = copy_graph(graph.gm)
    with settings(spec.config), no_caches(), in_force(spec), rung.around(gm, spec), torch.no_grad():
        compiled = super(CheckedRung, rung).build(gm, shared_fakes(gm, graph.inputs, spec.dynamic)[0], spec)
        checking = rung.checking
        assert checking is not None and rung.known is not None
        rung.timed(compiled, graph.inputs, checking)
        plain, checked, of_kernel = [], [], {}
        for _ in range(TURNS):
            by_kernel: dict[str, float] = {}
            with _by_kernel(by_kernel):
                plain.append(rung.timed(compiled, graph.inputs, checking))
            of_kernel = {name: min(item, of_kernel.get(name, item)) for name, item in by_kernel.items()}
            given, began = clone_inputs(graph.inputs), time.perf_counter()
            compiled(given)
            checked.append(time.perf_counter() - began)
        kept = _Arguments()
        before, rung.known.observers, checking.active = rung.known.observers, (kept,), False
        compiled(clone_inputs(graph.inputs))
        rung.known.observers = before
    return {"plain": min(plain), "checked": min(checked), "kernels": of_kernel, "own": _of_triton(kept.kept)}


def _of_triton(launches: list[dict[str, Any]]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "launches.pt"
        torch.save(launches, file)
        command = [sys.executable, "-m", "tests.bench.bench_triton_checks", "--own", str(file)]
        ran = subprocess.run(
            command,
            env={**os.environ, "TRITON_INTERPRET": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith("own ")]
    return {name: float(seconds) for _, name, seconds in rows}


def _own(file: str) -> None:
    """In the process of Triton's own interpreter: prints the seconds of each kernel that it can run."""
    import signal

    import triton
    import triton.language as tl
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.runtime.triton_helpers import libdevice
    from torch._inductor.runtime.triton_helpers import math as tl_math

    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for item in torch.load(file, weights_only=False):
        name = item["kernel"]
        if name in failed:
            continue
        code = Path(file).with_name(f"{name}.py")
        code.write_text("@triton.jit" + item["source"].partition("@triton.jit")[2], encoding="utf-8")
        space = {
            "triton": triton,
            "tl": tl,
            "triton_helpers": triton_helpers,
            "libdevice": libdevice,
            "tl_math": tl_math,
        }
        exec(compile(code.read_text(encoding="utf-8"), code, "exec"), space)
        signal.alarm(LIMIT_S)
        began = time.perf_counter()
        try:
            space[name][item["grid"]](**item["arguments"])
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began
        except Exception as error:  # noqa: BLE001  it cannot run this one
            failed.add(name)
            print("not", name, type(error).__name__, str(error)[:100])
        finally:
            signal.alarm(0)
    for name, spent in seconds.items():
        if name not in failed:
            print("own", name, spent)


def main() -> None:
    """Prints a row for each graph, and the ratios of all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--size", type=int)
    parser.add_argument("--own", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.own:
        _own(asked.own)
        return
    plain = checked = own = ours = 0.0
    for name in asked.models:
        for graph in graphs_of(name, asked.size):
            if graph.stage not in ("forward", "backward"):
                continue
            row = measured(graph)
            same = [kernel for kernel in row["own"] if kernel in row["kernels"]]
            theirs, here = sum(row["own"][item] for item in same), sum(row["kernels"][item] for item in same)
            plain, checked, own, ours = plain + row["plain"], checked + row["checked"], own + theirs, ours + here
            beside = f"{theirs / here:6.1f} x on {len(same)} of {len(row['kernels'])} kernels" if same else "runs none"
            print(
                f"{name:24} {graph.stage:9} plain {row['plain']:7.3f} s  checked {row['checked']:7.3f} s "
                f"{row['checked'] / row['plain']:5.2f} x  Triton's own {beside}",
                flush=True,
            )
    theirs = f"; Triton's own {own / ours:.1f} x it, on the kernels that it can run" if ours else ""
    print(f"all: checked {checked / plain:.2f} x the plain interpreter{theirs}")


if __name__ == "__main__":
    main()
