"""debug_nop beside torch's DebugInterpreter and fx.Interpreter on one graph, as ratios to the plain module; alarms on
healthy programs.

    python -m tests.bench.bench_debug_nop [--layers 12] [--runs 60] [--skip-healthy]

The graph is the forward of a transformer with dynamic shapes and small sizes, where what is not arithmetic counts most.
The ways are run in turn, in CPU time of this thread, so that a busy machine shifts all of them. An alarm on a healthy
program is confirmed when the op's fake function, alone and on the same arguments, says something else than the op does.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.compilers import DebugInterpreter

from graphdbg.toolkit.compilers.debug_nop import collecting
from graphdbg.toolkit.debug_nop.checking import Checked, checked
from graphdbg.toolkit.verdicts.mismatches import sentence
from tests.models.healthy_models import PROGRAMS, Block


def forward(layers: int) -> tuple[fx.GraphModule, list[Any]]:
    """The inference graph of a transformer, and its inputs."""
    model = nn.Sequential(*[Block(16) for _ in range(layers)], nn.LayerNorm(16)).eval()
    results: list[tuple[fx.GraphModule, list[Any]]] = []

    def keep(gm: fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        def run(args: list[Any]) -> Any:
            results.append((gm, list(args)))
            return gm(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    with torch.no_grad():
        torch.compile(model, backend=aot_autograd(fw_compiler=keep, inference_compiler=keep), dynamic=True)(
            torch.randn(2, 6, 16)
        )
    return results[0]


def ratios(layers: int, runs: int) -> None:
    gm, inputs = forward(layers)
    values = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    gm.shape_env = next(
        value.fake_mode.shape_env for value in values if isinstance(value, torch.Tensor)
    )  # stock asks for it
    ours = checked(gm, inputs)
    began = time.perf_counter()
    ours(list(inputs))
    first = time.perf_counter() - began
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "plain module": (lambda: gm(*inputs), 1),
        "debug_nop (ours)": (lambda: ours(list(inputs)), 1),
        "fx.Interpreter": (lambda: fx.Interpreter(gm).run(*inputs), 4),
        "DebugInterpreter (torch)": (lambda: DebugInterpreter(gm).run(*inputs), 8),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(runs):
        for name, (run, every) in ways.items():
            if turn % every == 0:
                began = time.thread_time()
                run()
                taken[name].append(time.thread_time() - began)
    plain = statistics.median(taken["plain module"])
    print(
        f"{len(gm.graph.nodes)} nodes, dynamic shapes, torch {torch.__version__}; first run, all checks: "
        f"{first * 1e3:.0f} ms"
    )
    for name, times in taken.items():
        median, least = statistics.median(times), min(times) / min(taken["plain module"])
        print(f"  {name:<26} {median * 1e3:8.2f} ms   {median / plain:6.2f} x   (least {least:.2f} x)")
    print(f"  {ours.graph.values()} values checked, {len(ours.findings)} mismatches")


def healthy() -> None:
    built: list[Checked] = []
    begin = Checked.__init__

    def noted(self: Checked, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        built.append(self)

    Checked.__init__ = noted  # type: ignore[method-assign]
    unconfirmed = total = 0
    for name, make in PROGRAMS.items():
        torch._dynamo.reset()
        torch.manual_seed(0)
        built.clear()
        function, calls, train = make()
        program = torch.compile(function, backend="graphdbg_debug_nop")
        with collecting() as result, torch.set_grad_enabled(train):
            for call in calls * 2:
                out = program(*call)
                if train:
                    sum(item.sum() for item in (out if isinstance(out, tuple) else (out,))).backward()
        alarms = [finding for finding in result if finding.origin]
        values = sum(item.graph.values() for item in built)
        print(f"  {name:<16} {len(built)} graphs, {values:4d} values, {len(alarms)} alarms")
        for finding in alarms:
            confirmed = all(mismatch.cause in ("fake", "symbolic", "schema") for mismatch in finding.own)
            unconfirmed += not confirmed
            print(f"    {'confirmed' if confirmed else 'NOT CONFIRMED'}: {sentence(finding)} {finding.own[0].why}")
        total += len(alarms)
    print(f"  {len(PROGRAMS)} programs, {total} alarms, {unconfirmed} not confirmed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--skip-healthy", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with torch.no_grad():
        ratios(options.layers, options.runs)
    if not options.skip_healthy:
        healthy()


if __name__ == "__main__":
    main()
