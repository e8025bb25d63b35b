"""draw_graph_compile in functorch's three ways of use: results stay, pictures appear, nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from functorch.compile import aot_function, aot_module

from graphdbg.dumps.errors import EnvironmentLackError, UsageError
from graphdbg.toolkit.compilers import draw_graph_compile
from graphdbg.toolkit.drawing import picture


def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w).sum()


@pytest.fixture
def operands() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)


def test_forward_and_backward_are_drawn_and_the_result_is_eagers(
    operands: tuple[torch.Tensor, torch.Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forward, backward = (
        draw_graph_compile(tmp_path / "fw"),
        draw_graph_compile(tmp_path / "sub" / "bw.png", clear_meta=False),
    )
    wrapped = aot_function(function, fw_compiler=forward, bw_compiler=backward)
    torch.testing.assert_close(wrapped(*operands), function(*operands))
    wrapped(*operands).backward()
    want = torch.autograd.grad(function(*operands), operands[1])[0]
    torch.testing.assert_close(operands[1].grad, want)
    svg = (tmp_path / "fw.svg").read_text()
    assert "aten.mm" in svg
    assert (tmp_path / "sub" / "bw.png").read_bytes().startswith(b"\x89PNG")
    assert [drawn.view for drawn in (*forward.drawn, *backward.drawn)] == ["nodes", "nodes"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "fw.svg" in printed.err


def test_a_module_is_drawn_through_aot_module(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    forward, backward = draw_graph_compile(tmp_path / "fw.svg"), draw_graph_compile(tmp_path / "bw.pdf")
    x = torch.randn(2, 4)
    wrapped = aot_module(model, fw_compiler=forward, bw_compiler=backward)
    torch.testing.assert_close(wrapped(x), model(x))
    wrapped(x).sum().backward()
    assert "aten.relu" in (tmp_path / "fw.svg").read_text()
    assert (tmp_path / "bw.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("clear_meta", [True, False])
def test_clear_meta_leaves_values_and_lines_out(
    operands: tuple[torch.Tensor, torch.Tensor], tmp_path: Path, clear_meta: bool
) -> None:
    compiler = draw_graph_compile(tmp_path / "fw.dot", clear_meta=clear_meta)
    aot_function(function, fw_compiler=compiler)(*operands)
    text = (tmp_path / "fw.dot").read_text()
    assert ("f32[4, 8]" in text) is not clear_meta
    assert "aten.mm" in text


def test_meta_is_left_on_the_graph_and_the_callable_is_boxed(tmp_path: Path) -> None:
    gm = torch.fx.symbolic_trace(lambda x: x.sin())
    for node in gm.graph.nodes:
        node.meta["mine"] = node.name
    call = draw_graph_compile(tmp_path / "fw.dot")(gm, [torch.ones(2)])
    assert call([torch.ones(2)]).equal(torch.ones(2).sin())
    assert call._boxed_call
    assert [node.meta["mine"] for node in gm.graph.nodes] == [node.name for node in gm.graph.nodes]


def test_a_second_graph_gets_a_number_and_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "fw.dot").write_text("mine")
    compiler = draw_graph_compile(tmp_path / "fw.dot")
    for _ in range(2):
        compiler(torch.fx.symbolic_trace(lambda x: x.sin()), [torch.ones(2)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fw.1.dot", "fw.2.dot", "fw.dot"]
    assert (tmp_path / "fw.dot").read_text() == "mine"


def test_the_backend_draws_dynamic_graphs_under_autocast(tmp_path: Path) -> None:
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    compiled = torch.compile(model, backend="graphdbg_draw", dynamic=True, options={"name": tmp_path / "net.svg"})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for size in (3, 5):
            x = torch.randn(size, 8)
            torch.testing.assert_close(compiled(x), model(x))
            compiled(x).sum().backward()
    with torch.no_grad():
        compiled(torch.randn(6, 8))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["net-0_0-backward.svg", "net-0_0-forward.svg", "net-0_1-inference.svg"]
    text = (tmp_path / names[1]).read_text()
    assert "bf16[s" in text
    assert "0: Linear" in text


def test_a_graph_too_large_is_drawn_by_module_even_without_meta(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for _ in range(400):
        value = graph.call_function(torch.ops.aten.sin.default, (value,))
    graph.output((value,))
    compiler = draw_graph_compile(tmp_path / "fw.svg")
    compiler(torch.fx.GraphModule(torch.nn.Module(), graph), [torch.ones(2)])
    assert (compiler.drawn[0].view, compiler.drawn[0].nodes) == ("by-module", 402)


def test_what_cannot_be_drawn_is_refused_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"its suffix is '\.bmp'"):
        draw_graph_compile(tmp_path / "fw.bmp")
    monkeypatch.setattr(picture, "renderers", list)
    with pytest.raises(EnvironmentLackError, match="pip install pygraphviz"):
        draw_graph_compile(tmp_path / "fw.svg")


def test_a_picture_that_fails_does_not_stop_the_program(
    operands: tuple[torch.Tensor, torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "dot").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(picture.importlib.util, "find_spec", lambda name: None)
    compiler = draw_graph_compile(tmp_path / "fw.svg")
    torch.testing.assert_close(aot_function(function, fw_compiler=compiler)(*operands), function(*operands))
    assert "is not drawn" in capsys.readouterr().err
    assert compiler.drawn == []
