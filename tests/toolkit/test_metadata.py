"""Strides: what was traced is promised, and what breaks it fails; asked for metadata alone, all of eager's count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Case, Live
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs import Rung

CACHE = """
import torch

def step(cache, x):
    return torch.cat([cache, x.view(2, 7, 2, 4).transpose(1, 2)], dim=-2)  # decomposed, it keeps x's strides

torch.compile(step)(torch.empty(0), torch.randn(2, 7, 8))
"""
Record = Callable[..., Path]
X = torch.arange(8.0).reshape(1, 2, 4)


class Laid(Rung):
    """Gives the right numbers with strides of its own."""

    name = "laid"

    def __init__(self, stride: Sequence[int]) -> None:
        self.stride = stride

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Any:
        def run(inputs: list[Any]) -> list[Any]:
            value = inputs[0] * 2
            return [torch.empty_strided(value.shape, self.stride).copy_(value)]

        return run


def graph(stride: Sequence[int]) -> fx.GraphModule:
    """Doubles its input; traced with these strides."""
    result = fx.Graph()
    out = result.call_function(torch.ops.aten.mul.Tensor, (result.placeholder("x"), 2))
    out.meta["val"] = torch.empty_strided(X.shape, stride)
    result.output([out])
    return fx.GraphModule({}, result)


EAGERS, OTHER, ONE = (8, 4, 1), (8, 1, 2), (3, 4, 1)


@pytest.mark.parametrize(
    ("traced", "sequence", "check", "word", "noted"),
    [
        (EAGERS, EAGERS, "auto", "ok", False),
        (OTHER, OTHER, "auto", "ok", True),
        (OTHER, OTHER, "metadata", "fails", False),
        (EAGERS, OTHER, "auto", "fails", False),
        (EAGERS, ONE, "auto", "ok", False),
        (EAGERS, ONE, "metadata", "fails", False),
    ],
    ids=["eager's", "traced", "traced, asked for", "broken", "size 1", "size 1, asked for"],
)
def test_strides(traced: Sequence[int], sequence: Sequence[int], check: str, word: str, noted: bool) -> None:
    outcome = judge(Live(graph(traced), [X], ReplaySpec("inference")), Laid(sequence), check)
    assert (outcome.verdict.verdict, outcome.verdict.kind) == (word, "metadata" if word == "fails" else None)
    notes = [note for note in outcome.notes if "are (8, 1, 2), eager's are (8, 4, 1)" in note]
    assert bool(notes) == noted


@pytest.mark.parametrize(("check", "word"), [("auto", "ok"), ("metadata", "fails")])
def test_strides_that_aotautograd_traced_are_promised_too(check: str, word: str, recorded_script: Record) -> None:
    run = recorded_script(CACHE)
    saved = load_graph(run / "0_0" / "dynamo")
    outcome = judge(Case(saved).live(), "inductor", check)
    assert outcome.verdict.verdict == word
    assert any("are (56, 4, 8, 1), eager's are (56, 28, 4, 1)" in note for note in outcome.notes) == (word == "ok")
