"""A custom operator that does otherwise than its fake function or its schema says is at fault, and not the compiler
that relied on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.isolation import ForkServer
from graphdbg.toolkit.isolation.imports import TRUST
from graphdbg.toolkit.program.operators import Watching
from graphdbg.toolkit.triage.ladder import triage
from graphdbg.toolkit.verdicts.mismatches import sentence
from graphdbg.toolkit.verdicts.verdict_words import first_line

SCRIPT = """
import torch
@torch.library.custom_op("faulty::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()
@turned.register_fake
def _(x):
    return torch.empty_like(x)
@torch.compile(backend="aot_eager")
def step(x):
    return turned(x.sin()) + 1
with torch.no_grad(): step(torch.randn(4, 8))
"""


def test_a_wrong_fake_function_is_the_operator_s_fault(
    recorded_script: Callable[..., Path], server: ForkServer
) -> None:
    run = recorded_script(SCRIPT, inputs="first")
    result = triage(load_graph(run / "0_0/dynamo"), imports=[TRUST], rungs=["eager", "debug_nop"], server=server)
    assert (result.verdict.fault, result.verdict.layer) == ("custom_op", None)
    assert first_line(result.verdict) == "FAILS: metadata at turned_default, train.py:11 (custom op)"
    assert "The fault is in an operator of the run's own: `turned_default` (train.py:11): stride" in result.summary
    assert "the fake function of faulty::turned is wrong" in result.summary
    assert result.verdict.next == [f"graphdbg check {result.graph} --trust"]


def halve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.mul_(0.5)
    return x * y


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda x, y: x * y, ""),
        (halve, "`y` left as it is, got `y` changed in place; the schema of faulty::op does not say"),
        (lambda x, y: (x * y).double(), "dtype expected torch.float32, got torch.float64; the fake function of"),
        (lambda x, y: (x * y)[:, :2].clone(), "size expected (4, 8), got (4, 2)"),
        (lambda x, y: (x * y).t().contiguous().t(), "stride expected (8, 1), got (1, 4)"),
        (lambda x, y: x.view(4, 8), "alias expected memory of its own"),
    ],
)
def test_an_operator_is_held_against_what_it_says(does: Callable[..., torch.Tensor], said: str) -> None:
    with torch.library._scoped_library("faulty", "FRAGMENT") as library:
        library.define("op(Tensor x, Tensor y) -> Tensor")
        library.impl("op", does, "CompositeExplicitAutograd")
        torch.library.register_fake("faulty::op", lambda x, y: torch.empty_like(x), lib=library)
        watching = Watching()
        with watching:
            torch.ops.faulty.op(torch.ones(4, 8).sin(), torch.ones(4, 8))
    assert (watching.found is not None) == bool(said)
    if watching.found is not None:
        assert said in sentence(watching.found)
        assert watching.found.line.startswith("test_own_operators.py:")
