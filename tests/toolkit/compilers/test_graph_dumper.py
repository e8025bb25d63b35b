"""graph_dumper_aot: joint, forward, backward and inference graphs as one run, whoever writes into it at the same
time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from graphdbg import GraphdbgError, load_graph, open_run
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.writer import RunWriter
from graphdbg.toolkit.backends import Backend
from graphdbg.toolkit.compilers import get_inputs, graph_dumper_aot

from .models import built, step

PROGRAM = """
import sys, torch
from graphdbg.toolkit.compilers import graph_dumper_aot
model = torch.nn.Linear(3, 2)
backend = graph_dumper_aot("net", sys.argv[1])
torch.compile(model, backend=backend)(torch.ones(4, 3)).sum().backward()
"""


LIGHT_PROGRAM = """
import sys, torch
from graphdbg.toolkit.backends import Backend
graph = torch.fx.Graph()
graph.output((graph.call_function(torch.ops.aten.sin.default, (graph.placeholder("x"),)),))
gm = torch.fx.GraphModule({}, graph)
compiler = Backend("graphdbg_dump").arguments({"folder": sys.argv[1] + "/net"})["fw_compiler"]
compiler(gm, [torch.ones(2)])([torch.ones(2)])
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model with changing buffers, of two sizes, with example inputs, and then without gradients."""
    folder = tmp_path_factory.mktemp("dumps")
    model, inputs = built("convnet")
    torch._dynamo.reset()
    backend = graph_dumper_aot("net", folder, dump_example_input=True)
    compiled = torch.compile(model, backend=backend, dynamic=False)
    step(model, compiled, inputs)
    with torch.no_grad():
        compiled(*inputs)
    return backend.path


def test_what_the_process_starts_later_is_not_told_of_the_run(trained: Path) -> None:
    assert trained.exists()
    assert [name for name in os.environ if "GRAPHDBG" in name] == []


def test_all_stages_are_saved_and_ran(trained: Path) -> None:
    rows = open_run(trained).rows
    assert [(row.stage, row.status) for row in rows] == [
        ("joint", "compiled"),
        ("forward", "ran"),
        ("backward", "ran"),
        ("inference", "ran"),
    ]
    words = [sys.executable, "-m", "graphdbg", "ls", trained, "--stages"]
    listed = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert listed.stdout.count("backward") == 2
    assert listed.returncode == 0


def test_example_inputs_are_those_of_the_first_execution(trained: Path) -> None:
    _, (images,) = built("convnet")
    for saved in open_run(trained).graphs():
        values = get_inputs(trained / saved.id)
        by_source = dict(zip([item.source for item in saved.record.inputs], values, strict=True))
        if saved.stage != "backward":
            assert torch.equal(by_source["L['x']"], images)
            assert torch.equal(by_source["L['self']._modules['norm']._buffers['running_mean']"], torch.zeros(4)) or (
                saved.stage == "inference"
            )
        assert len(saved.module()(*values)) > 0


def test_a_joint_graph_keeps_its_two_parts(trained: Path) -> None:
    (joint,) = [saved for saved in open_run(trained).graphs() if saved.stage == "joint"]
    roles = [item.role for item in joint.record.inputs]
    assert {"parameter", "buffer", "user", "tangent"} == set(roles)
    primals, tangents = get_inputs(joint.path, parts=True)
    assert (len(primals), len(tangents)) == (len(roles) - 1, 1)
    assert joint.inputs_record is not None
    assert all(item.stored is not None and item.stored.storage for item in joint.inputs_record.inputs)
    out = joint.module()(*primals, *tangents)
    model, inputs = built("convnet")
    wanted = step(model, model, inputs)[1]
    assert any(
        isinstance(value, torch.Tensor) and value.shape == wanted.shape and torch.allclose(value, wanted)
        for value in out
    )


def test_recompiles_and_symbols_without_example_inputs(tmp_path: Path) -> None:
    torch._dynamo.reset()
    table = torch.nn.Embedding(10, 4)
    dumping = {"backend": "graphdbg_dump", "options": {"folder": tmp_path / "run"}}
    compiled: Any = torch.compile(lambda ids, k: table(ids).sum(0) * k, dynamic=True, **dumping)
    for k in (2.0, 3.0):
        for count in (3, 5):
            compiled(torch.arange(count), k).sum().backward()
    run = open_run(tmp_path / "run")
    assert {row.stage for row in run.rows} == {"joint", "forward", "backward"}
    forward = next(saved for saved in run.graphs() if saved.stage == "forward")
    values = get_inputs(forward.path)
    assert any(
        isinstance(value, torch.Tensor) and torch.equal(value, torch.arange(3)) for value in values
    )  # an index is kept
    assert forward.record.symbols


def test_an_empty_graph_is_saved_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backend = graph_dumper_aot("net", tmp_path)
    graph = torch.fx.Graph()
    graph.output((graph.placeholder("x"),))
    torch._dynamo.reset()
    backend(torch.fx.GraphModule({}, graph), [torch.ones(2)])
    assert "is empty: it has no operators" in capsys.readouterr().err
    assert [row.stage for row in open_run(backend.path).rows] == ["inference"]


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, trained: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "file").touch()
    with pytest.raises(GraphdbgError, match=r"cannot dump graphs into .*: it is there already"):
        graph_dumper_aot("net", tmp_path)
    again = graph_dumper_aot("net", trained.parent, dump_example_input=True)
    assert again.path == trained  # this process's own
    with pytest.raises(GraphdbgError, match="is written with dump_example_input=True"):
        graph_dumper_aot("net", trained.parent)
    RunWriter.create(tmp_path / "other", RunRecord(format=FORMAT, command=["train.py"]))
    with pytest.raises(GraphdbgError, match="it is there already"):
        graph_dumper_aot("other", tmp_path)


def test_two_threads_write_one_run(tmp_path: Path) -> None:
    arguments = Backend("graphdbg_dump").arguments({"folder": tmp_path / "run"})
    compiler = arguments["fw_compiler"]
    gm = torch.fx.experimental.proxy_tensor.make_fx(lambda x: (x.sin(),))(torch.ones(3))
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(10):
                compiled = compiler(gm, [torch.ones(3)])
                assert torch.equal(compiled([torch.ones(3)])[0], torch.ones(3).sin())
        except Exception as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    rows = open_run(tmp_path / "run").rows
    assert len({row.id for row in rows}) == len(rows) == 40
    assert {row.status for row in rows} == {"ran"}


@pytest.mark.parametrize(
    ("program", "stages"),
    [
        pytest.param(LIGHT_PROGRAM, ["forward"], id="one graph", marks=pytest.mark.slow),
        pytest.param(PROGRAM, ["backward", "forward", "joint"], id="a training step", marks=pytest.mark.slow),
    ],
)
def test_two_ranks_write_one_run(tmp_path: Path, program: str, stages: list[str]) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    messages = [process.communicate(timeout=200)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    assert messages[0].startswith(f"graphdbg: graphs are saved in {tmp_path / 'net'}; list them with graphdbg ls ")
    assert messages[1] == ""
    rows = open_run(tmp_path / "net").rows
    name = "0_0" if "joint" in stages else "x0_0"
    assert sorted(row.id for row in rows) == [f"{rank}:{name}/{stage}" for rank in (0, 1) for stage in stages]
    assert {row.status for row in rows if row.stage != "joint"} == {"ran"}
    assert load_graph(tmp_path / "net" / f"1:{name}" / "forward").rank == 1
