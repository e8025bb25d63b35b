"""Higher-order operators: one atom each as they are; inlined, the graph computes the same and can be cut inside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.utils.checkpoint import checkpoint

from graphdbg.toolkit.cutting.atoms import Atoms
from graphdbg.toolkit.cutting.eager_values import record_values
from graphdbg.toolkit.cutting.subgraph import build
from graphdbg.toolkit.live.eager import clone_inputs
from graphdbg.toolkit.live.inlining import inlinable, inlined

Made = tuple[fx.GraphModule, list[Any]]


@pytest.fixture(scope="module")
def traced() -> Made:
    """The graph that Dynamo makes of a checkpointed region and a `cond`, and its inputs."""
    seen: list[Made] = []

    def backend(gm: fx.GraphModule, _: Any) -> Any:
        def run(*args: Any) -> Any:
            seen.append((gm, [value.detach() for value in args]))
            return gm(*args)

        return run

    scale = torch.tensor([0.5, 2.0, 1.0, 1.0])

    def f(x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(lambda a: torch.relu(a * 2).sin() * scale, x, use_reentrant=False)
        low, high = torch.cond(y.sum() > 100, lambda a: (a.cos(), a + 1), lambda a: (a.sin(), a - 1), (y,))
        return low * y + high

    torch._dynamo.reset()
    torch.compile(f, backend=backend)(torch.randn(3, 4, requires_grad=True))
    return seen[0]


def test_operator_and_items_are_one_atom_that_runs_by_itself(traced: Made) -> None:
    gm, inputs = traced
    values = record_values(gm, inputs)
    atoms = Atoms.of(gm, values)
    assert any(len(nodes) == 3 and nodes[0] == "cond" for nodes in atoms.nodes)
    for atom in range(len(atoms)):
        module, given = build(gm, atoms, values, {atom})
        results = module(*clone_inputs(given))
        outputs = [node for node in next(iter(reversed(module.graph.nodes))).args[0] if node.name in atoms.of_node]
        assert outputs
        for node, value in zip(outputs, results, strict=True):
            assert torch.equal(value, values.tree(node.name).load())


def test_inlined_graph_computes_the_same_and_has_no_operator_left(traced: Made) -> None:
    gm, inputs = traced
    assert sorted(inlinable(gm)) == ["cond", "tag_activation_checkpoint"]
    flat = inlined(gm, inputs)
    assert inlinable(flat) == []
    assert inlinable(gm) != []
    assert torch.equal(flat(*inputs)[0], gm(*inputs)[0])
    targets = [str(node.target) for node in flat.graph.nodes]
    assert "sin" in targets, "the branch that was taken"
    assert "cos" not in targets
    values = record_values(flat, inputs)
    assert any(nodes[0].startswith("relu") for nodes in Atoms.of(flat, values).nodes)
