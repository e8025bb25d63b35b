"""bisect by node on small graphs with faults planted in Inductor: the node is named with its line, and compiles are
bounded."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps import trust
from graphdbg.dumps.live import encode, save_graph
from graphdbg.dumps.schema import Ambient
from graphdbg.dumps.store import SavedGraph, load_graph, open_run
from graphdbg.toolkit.blame.bisect import bisect
from graphdbg.toolkit.blame.partners import ByNode
from graphdbg.toolkit.commands.bisect import bisect as command
from graphdbg.toolkit.isolation import JUDGING, ForkServer
from graphdbg.toolkit.judging.departures import departures

from ...one_server import Lender

SCRIPT = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4), torch.nn.LayerNorm(16)
    def forward(self, x):
        h = torch.tanh(self.one(x))
        return self.two(self.norm(h))
torch.compile(Net())(torch.randn(6, 8)).square().mean().backward()
"""

Plant = Callable[..., str]


def by_node(graph: SavedGraph, **options: Any) -> ByNode:
    bisected = bisect(graph, by="node", **options)
    assert bisected.by_node is not None
    return bisected.by_node


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("by_node")


@pytest.fixture(scope="module")
def server(warm_inductor_cache: Path) -> Iterator[ForkServer]:
    with ForkServer(warm_inductor_cache, threads=1, preload=JUDGING) as server:
        server.wait_ready()
        yield server


@pytest.fixture
def plant(one_server: Lender) -> Plant:
    """Writes a module that plants a fault with settings of its own; returns what to import."""

    def make(name: str, **settings: object) -> str:
        lines = [
            "import os",
            *(f"os.environ['PLANTED_{key}'] = '{value}'" for key, value in settings.items()),
            f"import {name}",
        ]
        module = f"plants_{len(list(one_server.modules.glob('plants_*.py')))}"
        (one_server.modules / f"{module}.py").write_text("\n".join(lines) + "\n")
        return module

    return make


@pytest.fixture(scope="module")
def recorded(recorded_script: Callable[..., Path]) -> Path:
    return recorded_script(SCRIPT, inputs="first")


def saved(path: Path, function: Callable[..., Any], *inputs: torch.Tensor, **inductor: Any) -> SavedGraph:
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    for number, node in enumerate(gm.graph.nodes):
        node.meta["stack_trace"] = f'  File "model.py", line {number}, in forward\n    line()\n'
    like = encode(gm, id="0_0/inference", stage="inference", ambient=Ambient(grad=False), config={"inductor": inductor})
    trust.bind(save_graph(gm, list(inputs), path, like=like))  # what is planted is found by a server that has no wall
    return load_graph(path)


def net(x: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
    for weight in weights:
        h = x @ weight
        x = x + (h * torch.sigmoid(h)).relu() * 0.5
    return [x]


def given(layers: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(4, 8, generator=generator),
        *(torch.randn(8, 8, generator=generator) / 3 for _ in range(layers)),
    ]


@pytest.mark.slow
def test_a_wrong_lowering_in_a_backward_is_named_with_its_forward_node(
    recorded: Path, server: ForkServer, plant: Plant
) -> None:
    run = open_run(recorded)
    backward = run.graph("0_0/backward")
    node = [node for node in backward.record.graph.nodes if node.target == "aten.sub.Tensor"][-1]
    messages: list[str] = []
    search = by_node(
        run.graph("0_0/dynamo"), imports=[plant("planted_node", NODE=node.name)], server=server, narrate=messages.append
    )
    assert search.status == "found"
    assert search.node is not None
    assert (search.id, search.node.name, search.alone) == ("0_0/backward", node.name, True)
    assert search.error == pytest.approx(0.05, rel=0.5)
    assert search.forward is not None
    assert search.forward.line.startswith("train.py:")
    assert "make_fallback(torch.ops.aten.sub.Tensor" in search.work_around
    assert search.compiles <= search.budget == math.floor(2 * math.log2(search.nodes) + 4)
    assert (
        sum(line.startswith("compile ") for line in messages) == search.compiles
    )  # one for the forward, which is right
    assert f"`{node.name}`" in search.sentence


@pytest.mark.long
def test_a_wrong_lowering_is_named_and_a_verified_work_around_given(
    folder: Path, server: ForkServer, plant: Plant
) -> None:
    graph = saved(folder / "node", net, *given(12))
    search = by_node(graph, imports=[plant("planted_node", NODE="mul_7")], server=server)
    assert search.node is not None
    assert (search.status, search.node.name, search.alone, search.compiles) == ("found", "mul_7", True, 4)
    assert search.node.line.startswith("model.py:")
    assert "make_fallback(torch.ops.aten.mul.Tensor" in search.work_around
    assert search.sentence.startswith("First wrong node: `mul_7` (model.py:")


@pytest.mark.slow
def test_a_wrong_node_whose_error_is_damped_to_rounding_is_found_all_the_same(
    folder: Path, server: ForkServer, plant: Plant
) -> None:
    graph = saved(folder / "damped", lambda x: [x + 1e-7 * torch.tanh(x)], torch.linspace(-1, 1, 32).reshape(4, 8))
    search = by_node(graph, imports=[plant("planted_node", NODE="tanh", FACTOR=1.3)], server=server)
    assert search.text == "ok"  # of the results
    assert search.node is not None
    assert (search.status, search.node.name, search.alone, search.verdict.exit_code) == ("found", "tanh", True, 1)
    assert any("damps" in note for note in search.notes)
    assert by_node(graph, server=server).status == "nothing"


@pytest.mark.slow
def test_a_wrong_node_is_found_in_a_graph_whose_results_rounding_may_move_as_far(
    folder: Path, server: ForkServer, plant: Plant
) -> None:
    def cancels(x: torch.Tensor) -> list[torch.Tensor]:
        return [(torch.tanh(x) + 3e6) - 3e6]

    graph = saved(folder / "cancels", cancels, torch.linspace(-1, 1, 32).reshape(4, 8))
    wrong = [plant("planted_node", NODE="tanh", FACTOR=1.3)]
    for check in ("auto", "rounding"):
        search = by_node(graph, imports=wrong, server=server, check=check)
        assert search.text.startswith("differs by rounding")
        assert search.node is not None
        assert (search.status, search.node.name, search.verdict.exit_code) == ("found", "tanh", 1)
    halves = saved(folder / "halves", cancels, torch.linspace(-1, 1, 32).reshape(4, 8).half() * 3e-6)
    assert by_node(halves, server=server).status == "nothing"


@pytest.mark.slow
def test_a_pass_that_is_right_as_soon_as_values_are_returned_is_cut_out(
    folder: Path, server: ForkServer, plant: Plant
) -> None:
    graph = saved(folder / "pairs", net, *given(4))
    search = by_node(graph, imports=[plant("planted_pair", COUNT=2)], server=server)
    assert search.status == "found"
    assert search.node is not None
    assert search.alone is False
    assert "sigmoid_2" in {search.node.name, *(item.name for item in search.group)}
    assert len(search.group) <= 2
    assert "only fused with" in search.sentence
    assert search.compiles <= search.budget


@pytest.mark.long
def test_a_lowering_that_raises_is_named_by_its_exception(folder: Path, server: ForkServer, plant: Plant) -> None:
    graph = saved(folder / "raises", net, *given(3))
    search = by_node(graph, imports=[plant("planted_op", KIND="raise", NODE="relu_1")], server=server)
    assert (search.status, search.sort, search.compiles) == ("found", "crash", 2)
    assert search.node is not None
    assert search.node.name == "relu_1"
    assert "make_fallback(torch.ops.aten.relu.default" in search.work_around


@pytest.mark.slow
def test_a_compiler_that_dies_is_cut_down_to_the_node(folder: Path, server: ForkServer, plant: Plant) -> None:
    graph = saved(folder / "dies", net, *given(4))
    search = by_node(graph, imports=[plant("planted_op", KIND="segfault", NODE="relu_2")], server=server)
    assert (search.status, search.sort, search.alone) == ("found", "signal", True)
    assert search.node is not None
    assert search.node.name == "relu_2"
    assert search.compiles <= search.budget


@pytest.mark.slow
def test_code_that_does_not_compile_is_cut_out(folder: Path, server: ForkServer) -> None:
    def one_relu(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        y = x @ w
        return [(torch.relu(y.sum(0)) * 2).exp() @ w, y.cos()]

    graph = saved(folder / "no_code", one_relu, *given(1), **{"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})
    search = by_node(graph, server=server)
    assert search.status == "found"
    assert search.node is not None
    assert search.node.name == "relu"
    assert search.compiles <= search.budget


def test_a_nan_of_eagers_own_is_not_the_compilers(
    folder: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = saved(folder / "nan", lambda x: [torch.log(x - 5).sum(-1) + 1], given(0)[0])
    search = by_node(graph, server=server)
    assert (search.status, search.verdict.exit_code, search.compiles) == ("nothing", 0, 1)
    assert search.nan_origins[0]["node"] == "log"
    assert any("eager itself gives NaN, first at `log`" in note for note in search.notes)


@pytest.mark.slow
def test_the_command_prints_one_document(folder: Path, server: ForkServer) -> None:
    saved(folder / "healthy", lambda x: [x.sin()], given(0)[0])
    done = CliRunner().invoke(command, [str(folder / "healthy"), "--by", "node", "--rung", "nop", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["verdict"], said["by"], said["by_node"]["status"]) == ("ok", "", "nothing")


def test_the_local_test_blames_the_node_and_not_what_comes_after() -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [((x * 3).exp() + 1).log()]

    x = torch.linspace(-1, 1, 32)
    gm = make_fx(f)(x)
    wrong = (x * 3).exp() * 1.01
    got = {"mul": x * 3, "exp": wrong, "add": wrong + 1, "log": (wrong + 1).log()}
    result = departures(gm, [x], got, seed=0)
    assert [item.name for item in result] == ["exp"]
    assert result[0].error == pytest.approx(0.01, rel=0.1)
    assert departures(gm, [x], {**got, "exp": (x * 3).exp()}, seed=0)[0].name == "add"


def test_amplified_rounding_is_no_departure() -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [(x + 1000) - (x + 1000).mean()]

    x = torch.linspace(0, 1e-3, 64)
    gm = make_fx(f)(x)
    shifted = x + 1000
    other = (shifted.double() * (1 + 4e-8)).float()  # another rounding of the sum
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    got = {names[-1]: other - shifted.double().mean().float()}
    assert departures(gm, [x], got, seed=0) == []
