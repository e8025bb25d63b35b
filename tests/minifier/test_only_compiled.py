"""Minifying what eager cannot run here, with real processes: an operator without a kernel, a device that is not
there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg.dumps.errors import RanksMissingError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import load_graph
from graphdbg.minifier import only_compiled
from graphdbg.minifier.minify import minify_saved
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.report.bundle import emit_report
from graphdbg.minifier.search.problem import Answer, Ruling
from graphdbg.toolkit.verdicts.signature import Signature

MODULE = """
import torch
from torch._inductor.lowering import register_lowering

lib = torch.library.Library("kernelless", "FRAGMENT")
lib.define("scale(Tensor x) -> Tensor")
lib.define("gate(Tensor x, int n) -> Tensor")


@torch.library.register_fake("kernelless::scale")
def _(x):
    return torch.empty_like(x)


@torch.library.register_fake("kernelless::gate")
def _(x, n):
    return torch.empty_like(x)


@register_lowering(torch.ops.kernelless.gate.default, type_promotion_kind=None)
def _(x, n):
    raise AssertionError("gate: no layout for this tensor")
"""
LAYERS = 24


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module whose operators have no kernels, where Python finds it."""
    home = tmp_path_factory.mktemp("operators")
    (home / "kernelless_operators.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(home))
        __import__("kernelless_operators")
        yield home


def chain(device: str) -> tuple[fx.GraphModule, list[Any]]:
    """About a hundred nodes: scale every few of them, gate once."""
    ops, graph = torch.ops.aten, fx.Graph()
    x = given = graph.placeholder("x")
    for layer in range(LAYERS):
        for op in (ops.sin.default, ops.tanh.default, ops.neg.default):
            x = graph.call_function(op, (x,))
        if device == "cpu" and layer % 4 == 1:
            x = graph.call_function(torch.ops.kernelless.scale.default, (x,))
        if device == "cpu" and layer == LAYERS // 2:
            x = graph.call_function(torch.ops.kernelless.gate.default, (x, 3))
        x = graph.call_function(ops.add.Tensor, (x, given))
    graph.output((x,))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return fx.GraphModule({}, graph), [torch.empty(6, 8, device=device)]


@pytest.mark.slow
def test_a_crash_is_reduced_and_shown_where_no_operator_can_run(operators: Path, tmp_path: Path) -> None:
    case = save_graph(*chain("cpu"), tmp_path / "case")
    options = MinifyOptions(imports=("kernelless_operators",), check="crash", verify=1)
    result = minify_saved(load_graph(case), out=tmp_path / "out", options=options)
    nodes = [node.target for node in load_graph(tmp_path / "out").record.graph.nodes if node.op == "call_function"]
    assert nodes == ["kernelless.gate.default"]
    assert (result.nodes, result.input_bytes, result.verified) == (3, 4, (1, 1))
    [reported] = [note for note in result.notes if note.startswith("eager cannot run this graph here (")]
    assert "kernelless::scale" in reported
    assert reported.endswith("only crashes of the compiler are judged, on synthesised values")


@pytest.mark.slow
def test_the_repro_compiles_and_runs_nothing(operators: Path, tmp_path: Path) -> None:
    graph, inputs = chain("cpu")
    case, options = (
        save_graph(graph, inputs, tmp_path / "case"),
        MinifyOptions(imports=("kernelless_operators",), verify=1),
    )
    result = minify_saved(load_graph(case), out=tmp_path / "out", options=options)
    assert result.signature is not None
    report = emit_report(
        load_graph(tmp_path / "out"), tmp_path / "out", signature=result.signature, imports=options.imports
    )
    assert (report.rate, report.entry) == ("3 of 3 fresh processes", "torch.compile")
    program = (tmp_path / "out" / "repro.py").read_text()
    assert "Only compiles: where it was found, eager cannot run this graph." in program
    assert "run(" not in program.replace("not run", "")


def test_a_compile_that_lacks_the_other_ranks_is_no_failure_of_the_case() -> None:
    lacks = Signature("crash", "compile", raw="RuntimeError: Could not resolve the process group registered under 0")
    oracle: Any = SimpleNamespace(judge=lambda *_, **__: (Answer(Ruling.OTHER), lacks))
    with pytest.raises(RanksMissingError, match="they do not run here"):
        only_compiled.judged(oracle, "the graph communicates with 1 other rank: they do not run here", None)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_a_graph_of_a_missing_device_whose_failure_is_not_reached_is_refused_with_the_reason(tmp_path: Path) -> None:
    case = save_graph(*chain("cuda"), tmp_path / "case")
    words = [sys.executable, "-m", "graphdbg", "minify", str(case), "-o", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "cannot minify this graph here" in done.stderr
    assert (
        "compiled on synthesised values, it " in done.stderr
        or "without the device the compile ends before" in done.stderr
    )
    assert not (tmp_path / "out").exists()
