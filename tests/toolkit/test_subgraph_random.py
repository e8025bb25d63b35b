"""Random small graphs with views, writes in place, modes and random ops: any subset computes bit for bit what was
recorded."""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg.toolkit.cutting.atoms import Atoms
from graphdbg.toolkit.cutting.eager_values import record_values
from graphdbg.toolkit.cutting.subgraph import build
from graphdbg.toolkit.live.eager import clone_inputs

SEEDS = 30
SUBSETS = 12


def random_graph(rng: random.Random, *, draws: bool) -> fx.GraphModule:
    """A graph of some 20 nodes over two aliased inputs and a buffer; every value is a 4 x 4 matrix or a view of one."""
    graph = fx.Graph()
    square = [graph.placeholder("x"), graph.placeholder("y"), graph.get_attr("state")]
    rows: list[fx.Node] = []
    for _ in range(rng.randint(8, 24)):
        kind = rng.choice(
            ["new", "new", "view", "row", "write", "write", "list", "mode", "copy", *(["draw"] if draws else [])]
        )
        item, other = rng.choice(square), rng.choice(square)
        if kind == "new":
            square.append(graph.call_function(rng.choice([torch.sin, torch.cos, torch.tanh]), (item,)))
            square.append(graph.call_function(torch.add, (square[-1], other)))
        elif kind == "view":
            square.append(graph.call_method("t", (item,)))
        elif kind == "row":
            rows.append(graph.call_method("select", (item, rng.randint(0, 1), rng.randint(0, 3))))
            square.append(graph.call_function(torch.add, (other, rows[-1])))
        elif kind == "write":
            target = rng.choice(square + rows)
            square.append(graph.call_function(torch.mul, (item, 0.5)))
            node = (
                graph.call_method("mul_", (target, 0.75))
                if rng.random() < 0.5
                else graph.call_method("add_", (target, 0.5))
            )
            (rows if target in rows else square).append(node)
        elif kind == "copy":
            graph.call_function(torch.ops.aten.copy_.default, (item, other))
        elif kind == "list":
            parts = graph.call_function(torch.chunk, (item, 2))
            halves = [graph.call_function(operator.getitem, (parts, index)) for index in range(2)]
            square.append(graph.call_function(torch.cat, (halves,)))
        elif kind == "mode":
            graph.call_function(torch._C._set_grad_enabled, (rng.random() < 0.5,))
        else:
            square.append(graph.call_function(torch.rand_like, (item,)))
    graph.output(tuple(rng.sample(square, 2)))
    return fx.GraphModule({"state": torch.randn(4, 4)}, graph)


class Compare(fx.Interpreter):
    """Every value as it is made, and every argument as it is read, against the record."""

    def __init__(self, gm: fx.GraphModule, values: Any, kept: set[str]) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.values, self.kept, self.compared = values, kept, 0

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        tree = self.values.trees.get((n.name, self.values.produced.get(n.name, -1)))
        if n.name in self.kept and isinstance(value, torch.Tensor) and tree is not None:
            self.compared += 1
            assert torch.equal(value, tree.load()), n.name
            assert value.stride() == tree.stride
        return value


@pytest.mark.long
@pytest.mark.parametrize("draws", [False, True])
def test_any_subset_is_bit_equal_to_the_record(draws: bool) -> None:
    compared = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        gm = random_graph(rng, draws=draws)
        x = torch.randn(5, 4)
        inputs = [x[:4], x[1:]]
        state = torch.get_rng_state()
        with torch.inference_mode(rng.random() < 0.3):
            try:
                values = record_values(gm, inputs)
            except RuntimeError:  # eager refuses a copy between overlapping views
                continue
            atoms = Atoms.of(gm, values)
            for _ in range(SUBSETS):
                keep = {atom for atom in range(len(atoms)) if rng.random() < rng.choice([0.2, 0.5, 0.9])}
                keep = keep - set(atoms.random) if rng.random() < 0.5 else keep | set(atoms.random)
                if not keep:
                    continue
                module, given = build(gm, atoms, values, keep)
                torch.set_rng_state(state)
                runner = Compare(module, values, {name for atom in keep for name in atoms.nodes[atom]})
                grad = torch.is_grad_enabled()
                try:
                    runner.run(*clone_inputs(given), enable_io_processing=False)
                except AssertionError as error:
                    raise AssertionError(
                        f"graph {seed}, {error}, kept {sorted(keep)}:\n{gm.code}\n{module.code}"
                    ) from error
                finally:
                    torch.set_grad_enabled(grad)
                compared += runner.compared
    assert compared > 1000
