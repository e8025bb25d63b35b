"""Real FX graphs of a given size, and bugs planted in them as sets of nodes. Used by bench_minifier.

>>> gm, inputs = graphs(500)["forward"]
>>> bug(gm, "far pair", seed=0)(gm, inputs)
True
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import fx, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

Predicate = Callable[[fx.GraphModule, Sequence[Any]], bool]
Graphs = dict[str, tuple[fx.GraphModule, list[Any]]]

KINDS = ("1 op", "chain of 3", "chain of 5", "first relu", "far pair", "5 scattered", "long path", "dense")
WIDTH = 16


def graphs(size: int) -> Graphs:
    """Graphs of about `size` nodes: layers of a multi-layer perceptron, a transformer's forward and backward, random
    ops."""
    torch.manual_seed(0)
    if size > 1000:
        model = nn.Sequential(*[Block(WIDTH) for _ in range(size // 86)])
        inputs = [torch.randn(2, 8, WIDTH)]
        return {"transformer": (make_fx(model, decomposition_table=select_decomp_table())(*inputs), inputs)}
    forward, backward = transformer(round(size / 86)), transformer(round(size / 130))
    return {
        "mlp": mlp(size // 6),
        "forward": forward["forward"],
        "backward": backward["backward"],
        "random": random_ops(size),
    }


def mlp(layers: int) -> tuple[fx.GraphModule, list[Any]]:
    """A chain of linear layers, relu, scale and shift: about 6 nodes a layer, inputs counted."""
    weights = [torch.randn(8, 8) / 3 for _ in range(layers)]

    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for weight in weights:
            x = torch.relu(x @ weight) * 0.5 + x
        return (x,)

    inputs = [torch.randn(4, 8), *weights]
    return make_fx(f)(*inputs), inputs


def random_ops(size: int) -> tuple[fx.GraphModule, list[Any]]:
    """Every op reads one or two of the thirty before it."""
    rng = random.Random(size)
    unary = [torch.sin, torch.tanh, torch.relu, torch.neg, torch.sigmoid]
    binary = [torch.add, torch.mul, torch.maximum, torch.sub]

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        values = [x, y]
        while len(values) < size - 1:
            near = values[-30:]
            if rng.random() < 0.5:
                values.append(rng.choice(unary)(rng.choice(near)))
            else:
                values.append(rng.choice(binary)(rng.choice(near), rng.choice(near)))
        return tuple(values[-3:])  # type: ignore[return-value]

    inputs = [torch.randn(4, 8), torch.randn(4, 8)]
    return make_fx(f)(*inputs), inputs


class Block(nn.Module):
    """One transformer layer with relu."""

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


def transformer(layers: int) -> Graphs:
    """Forward and backward graphs of one training step, with the real inputs."""
    model = nn.Sequential(*[Block(WIDTH) for _ in range(max(1, layers))], nn.LayerNorm(WIDTH))
    results: Graphs = {}

    def keep(name: str) -> Callable[..., Any]:
        def compiler(gm: fx.GraphModule, _inputs: Any) -> Any:
            def run(*args: Any) -> Any:
                results.setdefault(name, (gm, [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]))
                return gm(*args)

            return run

        return compiler

    def backend(gm: fx.GraphModule, inputs: Any) -> Any:
        return aot_module_simplified(
            gm, inputs, fw_compiler=keep("forward"), bw_compiler=keep("backward"), decompositions=select_decomp_table()
        )

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(torch.randn(2, 8, WIDTH)).square().mean().backward()
    return results


def compute(gm: fx.GraphModule) -> list[fx.Node]:
    """The nodes that compute something."""
    return [node for node in gm.graph.nodes if node.op == "call_function"]


def holds(wanted: Sequence[str], edges: Sequence[tuple[str, str]] = ()) -> Predicate:
    """The candidate computes all of these nodes and joins them as given; the peer keeps names, and so do we."""

    def predicate(gm: fx.GraphModule, _inputs: Sequence[Any]) -> bool:
        there = {node.name: node for node in compute(gm)}
        return all(name in there for name in wanted) and all(
            there[before] in there[after].all_input_nodes for before, after in edges
        )

    return predicate


def leads(start: str, end: str) -> Predicate:
    """The candidate computes both, and `end` depends on `start`."""

    def predicate(gm: fx.GraphModule, _inputs: Sequence[Any]) -> bool:
        reached: set[fx.Node] = set()
        for node in compute(gm):
            if node.name == start or any(argument in reached for argument in node.all_input_nodes):
                reached.add(node)
        return any(node.name == end for node in reached) and any(node.name == start for node in reached)

    return predicate


def has_relu(gm: fx.GraphModule, _inputs: Sequence[Any]) -> bool:
    """Any relu, or its backward."""
    return any("relu" in str(node.target) or "threshold" in str(node.target) for node in compute(gm))


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


def bug(gm: fx.GraphModule, kind: str, seed: int) -> Predicate | None:
    """A planted bug that the whole graph shows, or None where it has no place in this graph."""
    rng = random.Random(seed)
    nodes = [n for n in compute(gm) if "getitem" not in n.name and not isinstance(n.meta.get("val"), (list, tuple))]
    if kind == "compiled relu":
        return miscompiles
    if kind == "first relu":
        return has_relu if has_relu(gm, []) else None
    if kind.startswith("chain"):
        links = _chain(nodes, int(kind.split()[-1]), rng)
        return holds([n.name for n in links], [(b.name, a.name) for a, b in pairwise(links)]) if links else None
    if kind == "long path":
        links = _chain(nodes, min(60, len(nodes) // 5), rng)
        return leads(links[-1].name, links[0].name) if links else None
    count = {"1 op": 1, "far pair": 2, "5 scattered": 5, "dense": len(nodes) // 3}[kind]
    return holds([node.name for node in rng.sample(nodes, count)])


def _chain(nodes: list[fx.Node], length: int, rng: random.Random) -> list[fx.Node] | None:
    inside = set(nodes)
    for _ in range(1000):
        links = [rng.choice(nodes)]
        while len(links) < length and (before := [n for n in links[-1].all_input_nodes if n in inside]):
            links.append(rng.choice(before))
        if len(links) == length:
            return links
    return None
