"""`graphdbg show RUN/ID --nodes A..B --save CASE`: nodes of a graph as a case of their own, true to the whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.cli import run as cli
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import load_graph
from graphdbg.minifier.asking import cut
from graphdbg.toolkit.cutting.atoms import Atoms
from graphdbg.toolkit.cutting.eager_values import record_values
from graphdbg.toolkit.live.case import Case
from graphdbg.toolkit.replaying.replay import replay

from ..toolkit.test_subgraph import Made, autocast, dynamic, dynamo_graph, in_place, run, written_in_the_middle
from .test_only_compiled import chain


def case_of(result: Made, folder: Path) -> Path:
    return save_graph(*result, folder / "whole")


def computing(path: Path) -> list[str]:
    return [row.name for row in load_graph(path).table.rows() if row.op.startswith("call")]


def views_of_an_input() -> Made:
    """Two inputs of one storage, one of them written."""

    def f(x: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        z = row.sin()
        row.add_(1.0)
        w = x + y
        return w, z, w.cos()

    x = torch.randn(3, 4)
    return make_fx(f)(x, x[1]), [x, x[1]]


def without_grad() -> Made:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        with torch.no_grad():
            z = y * 2
            w = z.cos()
        return y * w

    return dynamo_graph(f, torch.randn(4, requires_grad=True))


@pytest.mark.parametrize(
    "make",
    [written_in_the_middle, in_place, dynamic, autocast, views_of_an_input, without_grad],
    ids=lambda make: make.__name__,
)
def test_a_stretch_computes_what_it_did_in_the_whole(make: Callable[[], Made], tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = case_of(make(), tmp_path)
    whole = Case.at(path).live()
    values = record_values(whole.gm, whole.inputs)
    atoms = Atoms.of(whole.gm, values)
    names = computing(path)
    stretch = names[len(names) // 3 : -1]
    result = cut(load_graph(path), stretch, tmp_path / "part")
    part = Case.at(result.case).live()
    done = run(part.gm, part.inputs)
    compared = 0
    for name in {*stretch, *result.came} & done.keys() & values.produced.keys():
        torch.testing.assert_close(done[name], values.tree(name).load().detach(), rtol=0, atol=0, msg=name)
        compared += 1
    assert compared
    assert {*computing(result.case)} >= {name for name in stretch if name in atoms.of_node}
    assert part.spec.dynamic == whole.spec.dynamic
    symbols = {
        str(size) for node in part.gm.graph.nodes for size in getattr(node.meta.get("example_value"), "shape", ())
    }
    assert (make is not dynamic) or "s77" in symbols


def test_what_others_read_is_returned_and_what_it_read_comes_in(tmp_path: Path) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a = x.sin()
        b = a @ w
        c = b.relu()
        return c.cos() + b

    path = case_of((make_fx(f)(torch.randn(3, 4), torch.randn(4, 4)), [torch.randn(3, 4), torch.randn(4, 4)]), tmp_path)
    result = cut(load_graph(path), ["mm", "relu"], tmp_path / "part")
    assert result.inputs == [("w_1", "graph"), ("sin", "node")]
    assert result.outputs == ["mm", "relu"], "the first is read by both"
    assert replay(load_graph(result.case), rung="eager", outputs=False).ok


def test_the_command_shows_saves_and_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(3, 4)
    whole = str(case_of((make_fx(lambda x: x.sin().cos().tan().exp())(x), [x]), tmp_path))
    part, other = tmp_path / "part", tmp_path / "other"
    assert cli(["show", whole, "--nodes", "cos..tan", "--json"]) == 0
    assert [node["name"] for node in json.loads(capsys.readouterr().out)["nodes"]] == ["cos", "tan"]
    assert cli(["show", whole, "--nodes", "sin,tan..exp", "--columns", "name"]) == 0
    assert capsys.readouterr().out.split() == ["name", "sin", "tan", "exp"]
    assert cli(["show", whole, "--nodes", "cos..tan", "--save", str(part)]) == 0
    printed = capsys.readouterr().out
    assert f"{part}: 2 nodes of case/inference, 48 B of inputs" in printed
    assert "inputs   sin (computed by eager)" in printed
    assert printed.endswith(f"next     graphdbg triage {part}\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in part.rglob("*"))
    assert cli(["show", whole, "--nodes", "cos", "--save", str(part)]) == 2
    assert str(part) in capsys.readouterr().err
    assert before == sorted((path, path.stat().st_mtime_ns) for path in part.rglob("*"))
    assert cli(["show", whole, "--filter", "op:cos", "--save", str(tmp_path / "cosine"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == ["cos"]
    for words, sentence in (
        (["--nodes", "tan..cos"], "--nodes cos..tan"),
        (["--nodes", "cosine"], "has no node 'cosine'"),
        (["--nodes", "x_1"], "nothing to cut out"),
        ([], "needs to know which nodes"),
        (["--nodes", "cos.."], "A..B"),
    ):
        assert cli(["show", whole, *words, "--save", str(other)]) == 2
        assert sentence in capsys.readouterr().err
    assert not other.exists()


def test_where_eager_raises_what_lies_before_can_be_cut(tmp_path: Path) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.ops.aten.sin.default, (x,))
    b = graph.call_function(torch.ops.aten.view.default, (a, [5]))
    graph.output((graph.call_function(torch.ops.aten.cos.default, (b,)),))
    path = save_graph(fx.GraphModule({}, graph), [torch.randn(4)], tmp_path / "whole")
    assert cut(load_graph(path), ["sin_default"], tmp_path / "part").outputs == ["sin_default"]
    with pytest.raises(UsageError, match="eager itself raises at view"):
        cut(load_graph(path), ["cos_default"], tmp_path / "other")


def test_random_numbers_are_told(tmp_path: Path) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    drawn = graph.call_function(torch.ops.aten.rand_like.default, (x,))
    graph.output((graph.call_function(torch.ops.aten.mul.Tensor, (drawn, x)),))
    path = save_graph(fx.GraphModule({}, graph), [torch.randn(4)], tmp_path / "whole")
    assert any("drawn again" in note for note in cut(load_graph(path), ["rand_like_default"], tmp_path / "part").notes)
    kept = cut(load_graph(path), ["mul_tensor"], tmp_path / "after")
    assert not kept.notes
    assert ("rand_like_default", "node") in kept.inputs


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_without_the_device_the_forms_of_values_are_kept(tmp_path: Path) -> None:
    path = save_graph(*chain("cuda"), tmp_path / "whole")
    result = cut(load_graph(path), ["tanh_default_3", "neg_default_3"], tmp_path / "part")
    assert result.inputs == [("sin_default_3", "node")]
    assert any("eager cannot run this graph here" in note for note in result.notes)
    value = load_graph(result.case).record.graph.nodes[0].value
    assert (getattr(value, "shape", None), getattr(value, "device", None)) == ([6, 8], "cuda:0")
