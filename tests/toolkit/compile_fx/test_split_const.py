"""The constant part of a graph, split off by torch: what may not be folded stays in the rest, with all that follows
from it."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit import torch_private as t
from graphdbg.toolkit.compile_fx.code import following

aten = torch.ops.aten
X = torch.linspace(-1, 1, 16).reshape(4, 4)
W, V = torch.linspace(0, 2, 16).reshape(4, 4), torch.linspace(3, 1, 16).reshape(4, 4)


def test_what_follows_from_a_skipped_node_stays_too() -> None:
    gm = make_fx(lambda x: [(W @ V).relu().sin() + x])(X)
    wanted = gm(X)[0]
    left = following(gm, lambda node: node.target is aten.relu.default)
    assert {"relu", "sin"} <= {node.name for node in left} and "mm" not in {node.name for node in left}
    constants, places = t.split_const_gm(gm, skip_folding_node_fn=left.__contains__)
    assert list(places) == ["_FOLDED_CONST_mm"]
    assert torch.equal(gm(X)[0], wanted)
    assert torch.equal(constants()[0], W @ V)
