"""The drop-in beside functorch.compile.minifier: real FX graphs, same predicate, same process. Prints calls and ratios.

    python tests/bench/bench_minifier.py [--graphs mlp,forward,backward,joint] [--seeds 5] [--width 16]

A planted bug is a set of nodes: one op, a dependence chain of three, two far ops, five scattered ones, or any relu. A
candidate fails while it computes all of them, joined as in the original. "compiled relu" compiles each candidate with
Inductor's own planted fault and compares numbers (minutes on a large graph).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.config as inductor_config
from functorch.compile import minifier as stock
from torch import fx, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.minifier import minifier as ours

Predicate = Callable[[fx.GraphModule, Sequence[Any]], bool]


def mlp() -> tuple[fx.GraphModule, list[Any]]:
    """About 183 nodes: a chain of linear layers, relu, scale and shift."""
    weights = [torch.randn(8, 8) / 3 for _ in range(30)]

    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for weight in weights:
            x = torch.relu(x @ weight) * 0.5 + x
        return (x,)

    inputs = [torch.randn(4, 8), *weights]
    return make_fx(f)(*inputs), inputs


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (part.view(b, t, 2, c // 2).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(c, dim=2))
        weights = torch.softmax(q @ k.transpose(-2, -1) / (c // 2) ** 0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


def transformer(layers: int, width: int) -> dict[str, tuple[fx.GraphModule, list[Any]]]:
    """Forward and backward graphs of one training step, with the real inputs."""
    model = nn.Sequential(*[Block(width) for _ in range(layers)], nn.LayerNorm(width))
    found: dict[str, tuple[fx.GraphModule, list[Any]]] = {}

    def keep(name: str) -> Callable[..., Any]:
        def compiler(gm: fx.GraphModule, _inputs: Any) -> Any:
            def run(*args: Any) -> Any:
                found.setdefault(name, (gm, [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]))
                return gm(*args)

            return run

        return compiler

    def backend(gm: fx.GraphModule, inputs: Any) -> Any:
        return aot_module_simplified(
            gm, inputs, fw_compiler=keep("forward"), bw_compiler=keep("backward"), decompositions=select_decomp_table()
        )

    torch.compile(model, backend=backend)(torch.randn(2, 8, width)).square().mean().backward()
    return found


def compute(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op == "call_function"]


def holds(wanted: Sequence[str], edges: Sequence[tuple[str, str]]) -> Predicate:
    """The candidate computes all of these nodes and joins them as given; stock keeps names, and so do we."""

    def predicate(gm: fx.GraphModule, _inputs: Sequence[Any]) -> bool:
        there = {node.name: node for node in compute(gm)}
        return all(name in there for name in wanted) and all(
            there[before] in there[after].all_input_nodes for before, after in edges
        )

    return predicate


def miscompiles(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Inductor's planted relu bug, really compiled: its numbers differ from eager's."""
    given = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
    wanted = gm(*given)
    with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        got = compile_fx_inner(copy.deepcopy(gm), given)(list(given))
    return not all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True)
        for a, b in zip(wanted, got, strict=True)
        if isinstance(a, torch.Tensor)
    )


def bug(gm: fx.GraphModule, kind: str, seed: int) -> Predicate:
    if kind == "compiled relu":
        return miscompiles
    rng = random.Random(seed)
    nodes = [n for n in compute(gm) if "getitem" not in n.name and not isinstance(n.meta.get("val"), (list, tuple))]
    if kind == "first relu":
        return lambda gm, inputs: any("relu" in str(node.target) or "threshold" in str(node.target) for node in compute(gm))
    if kind == "chain of 3":
        while True:
            chain = [rng.choice(nodes)]
            while len(chain) < 3 and (before := [n for n in chain[-1].all_input_nodes if n in nodes]):
                chain.append(rng.choice(before))
            if len(chain) == 3:
                names = [node.name for node in chain]
                return holds(names, [(names[1], names[0]), (names[2], names[1])])
    count = {"1 op": 1, "2 far ops": 2, "5 scattered": 5}[kind]
    return holds([node.name for node in rng.sample(nodes, count)], [])


def measure(run: Callable[..., Any], gm: fx.GraphModule, inputs: list[Any], predicate: Predicate) -> tuple[int, int, int, float]:
    """Calls of the predicate, final nodes, final inputs, seconds."""
    calls = 0

    def counted(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        nonlocal calls
        calls += 1
        return predicate(gm, inputs)

    began = time.perf_counter()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        module, left = run(gm, list(inputs), counted, dump_state=lambda *_: None)
    assert predicate(module, left)
    return calls, len(module.graph.nodes), len(left), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--graphs", default="mlp,forward,backward")
    parser.add_argument("--kinds", default="1 op,chain of 3,first relu,2 far ops,5 scattered")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(0)
    graphs = {"mlp": mlp(), **transformer(options.layers, 16)}
    print("graph     nodes  bug           calls: ours  stock  ratio   nodes: ours  stock   seconds: ours  stock")
    for name in options.graphs.split(","):
        gm, inputs = graphs[name]
        for kind in options.kinds.split(","):
            rows = []
            for seed in range(1 if "relu" in kind else options.seeds):
                predicate = bug(gm, kind, seed)
                if not predicate(gm, inputs):
                    continue
                mine, theirs = (measure(run, gm, inputs, predicate) for run in (ours, stock))
                if mine[1] > theirs[1]:
                    print(f"  MORE NODES: {name}, {kind}, seed {seed}: {mine} against {theirs}")
                rows.append((mine[0], theirs[0], mine[0] / theirs[0], mine[1], theirs[1], mine[3], theirs[3]))
            if rows:
                m = [statistics.median(column) for column in zip(*rows, strict=True)]
                print(
                    f"{name:9} {len(gm.graph.nodes):5}  {kind:12} {m[0]:12g} {m[1]:6g} {m[2]:6.2f} {m[3]:13g} {m[4]:6g} "
                    f"{m[5]:15.1f} {m[6]:6.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
