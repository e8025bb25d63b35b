"""An edited graph.py becomes a case: what is as it was stays so, what is new is computed, what cannot be has its line
told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import graphdbg
from graphdbg import cli
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import SavedGraph
from graphdbg.toolkit.capture.edited import edited, save_edited

GIVEN = [torch.linspace(-1, 1, 12).view(3, 4), torch.ones(4)]


def branching(x: torch.Tensor, y: torch.Tensor) -> Any:
    chosen = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))
    return (
        torch.relu(chosen * y) + torch.arange(x.shape[0], device=x.device)[:, None],
        torch.full((2,), 3.0),
        x.shape[0] * 2,
    )


def traced(function: Callable[..., Any], folder: Path) -> SavedGraph:
    module = make_fx(function, tracing_mode="symbolic")(*GIVEN)
    for node in module.graph.nodes:
        node.meta["stack_trace"] = f'  File "model.py", line 7, in forward\n    {node.name}\n'
    return graphdbg.load_graph(save_graph(module, GIVEN, folder / "case", stage="inference"))


def place(saved: SavedGraph, node: Any) -> str:
    return saved.record.strings[node.stack] if node.stack >= 0 else ""


def known(saved: SavedGraph) -> list[tuple[Any, ...]]:
    """Names, targets and forms; which values share a storage is counted from anew."""
    return [
        (node.op, node.name, node.target, node.args, place(saved, node), str(node.value).partition(", storage=")[0])
        for node in saved.record.graph.nodes
        if node.op != "output"
    ]


def test_a_text_that_was_not_edited_is_the_same_graph(tmp_path: Path) -> None:
    saved = traced(branching, tmp_path)
    source = tmp_path / "text.py"
    source.write_text(saved.program())
    assert save_edited(edited(source, saved), saved, tmp_path / "again") == 2
    again = graphdbg.load_graph(tmp_path / "again")
    assert known(again) == known(saved)
    assert (again.stage, again.record.config) == (saved.stage, saved.record.config)
    assert [symbol.name for symbol in again.record.symbols] == [symbol.name for symbol in saved.record.symbols]
    item, other = (which.module()(*which.inputs()) for which in (saved, again))
    assert torch.equal(item[0], other[0]) and torch.equal(again.inputs()[0], GIVEN[0])


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        (
            "aten.relu.default(",
            "aten.rellu.default(",
            r"^line \d+, relu = aten.rellu.default\(mul.*no attribute 'rellu'",
        ),
        ("aten.relu.default(mul", "aten.relu.default(mull", r"^line \d+, relu = .* NameError: name 'mull'"),
        ("aten.relu.default(mul", "aten.mm.default(mul, mul", r"^line \d+, relu = .* RuntimeError: a and b must"),
        ("class Graph(", "class Other(", "no class Graph"),
        ("    return (", "    unused = (", "forward returns nothing"),
        (
            "def forward(self, x_1",
            "def forward(self, other, x_1",
            "forward takes other: the graph has no such input; it has x_1",
        ),
    ],
)
def test_what_cannot_be_has_its_line_told(old: str, new: str, reported: str, tmp_path: Path) -> None:
    saved = traced(branching, tmp_path)
    text = saved.program()
    assert old in text
    source = tmp_path / "text.py"
    source.write_text(new.join(text.rsplit(old, 1)))
    with pytest.raises(UsageError) as caught:
        edited(source, saved)
    assert re.search(reported, f"{caught.value.what}: {caught.value.why}"), str(caught.value)


@pytest.mark.slow
def test_the_text_beside_a_graph_is_imported_as_its_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = traced(lambda x, y: (torch.relu(x * y),), tmp_path)
    new = "aten.relu.default(aten.sin.default(aten.abs.default(mul)))"
    saved.program_path.write_text(saved.program().replace("aten.relu.default(mul)", new))
    words = ["import", str(saved.program_path), "-o", str(tmp_path / "variant")]
    assert cli.run(words) == 2 and "--trust" in capsys.readouterr().err
    assert cli.run([*words, "--trust", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "edited graph"
    variant = graphdbg.load_graph(tmp_path / "variant")
    computed = [(node.name, node.target) for node in variant.record.graph.nodes if node.op == "call_function"]
    assert "model.py" in place(variant, variant.record.graph.nodes[-2])  # the relu, whose line it was
    assert computed == [
        ("mul", "aten.mul.Tensor"),
        ("relu_1", "aten.abs.default"),
        ("relu_2", "aten.sin.default"),
        ("relu", "aten.relu.default"),
    ]
    assert torch.equal(variant.module()(*variant.inputs())[0], torch.relu((GIVEN[0] * GIVEN[1]).abs().sin()))
    assert cli.run(["diff", str(saved.path), str(variant.path)]) == 1
