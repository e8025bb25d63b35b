# pyright: basic
"""The user's own Triton kernels in repros and in the search."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch

from graphdbg.dumps import live, trust
from graphdbg.dumps.program.case import ReproFacts as ReportedCase
from graphdbg.dumps.schema import GraphRecord
from graphdbg.minifier.passes import pass_of
from graphdbg.minifier.report.trying import candidates
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.verdicts.signature import Signature

from ...dumps import triton_models as models
from ...dumps.test_triton_kernels import captured


@pytest.fixture(scope="module")
def record() -> GraphRecord:
    return live.encode(captured(models.Tuned(), torch.randn(5, 9)), id="0_0/dynamo", stage="dynamo")


def program(record: GraphRecord) -> str:
    failure = Signature("crash", "compile", "NameError", "name <x> is not defined", raw="name 'inf' is not defined")
    return next(candidates(ReportedCase(record, None, None, failure, "triton_interpret"))).text


def test_a_repro_carries_the_kernels_as_code(record: GraphRecord) -> None:
    text = program(record)
    compile(text, "repro.py", "exec")
    first, last = text.index("import triton\n"), text.index("def graph(")
    assert text.index("import torch\n") < text.index('"TRITON_INTERPRET"') < first < text.index("def relu(x)") < last
    assert "@triton.autotune(" in text
    assert 'tuned[lambda meta: (3, 1, 1) if meta["BLOCK"] == 16 else (2, 1, 1)](x=' in text[last:]
    assert "DTYPE=tl.float32)" in text[last:]
    assert "graphdbg.toolkit" not in text


def test_it_carries_only_those_that_are_used(record: GraphRecord) -> None:
    with trust.granted():
        gm = live.module(record, None)
        first = next(node for node in gm.graph.nodes if "triton_kernel_wrapper" in str(node.target))
        gm.graph.erase_node(first)
        gm.recompile()
        less = live.encode(gm, id="0_0/dynamo", stage="dynamo")
    assert [kernel.name for kernel in less.kernels] == ["add"]
    text = program(less)
    assert "def add(" in text
    assert "def tuned(" not in text
    assert "def scaled(" not in text


def test_sizes_and_strides_stay_as_long_as_a_kernel_is_called(record: GraphRecord) -> None:
    with trust.granted():
        gm = live.fake_module(record, None)[0]
        held = Live(gm, [torch.randn(9, 5).t()])
        assert [pass_of(name).propose(held) for name in ("dims", "ranks", "strides")] == [[], [], []]
        plain = torch.fx.symbolic_trace(torch.nn.ReLU())
        assert pass_of("strides").propose(Live(plain, [torch.randn(9, 5).t()]))


def test_minify_without_trust_says_where_to_read_it(tmp_path: Path, record: GraphRecord) -> None:
    from graphdbg.dumps.errors import RefusedError
    from graphdbg.dumps.graph_folder import write_graph_folder
    from graphdbg.dumps.store import load_graph
    from graphdbg.minifier.report.bundle import emit_report

    write_graph_folder(tmp_path / "case", record)
    failure = Signature("crash", "compile", "NameError", "name <x> is not defined", raw="x")
    with pytest.raises(RefusedError, match=r"Read it: graphdbg show .*case --kernel tuned; then add --trust"):
        emit_report(load_graph(tmp_path / "case"), tmp_path / "out", signature=failure)
