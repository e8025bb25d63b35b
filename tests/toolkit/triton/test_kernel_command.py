"""`graphdbg kernel`: lists, saves, interprets; says what it lacks; runs nothing that lies in a folder without
--trust."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

import graphdbg
from graphdbg import cli
from graphdbg.toolkit.launching.launches import Launches, open_launches

from .saved_run import example, example_inputs, saved, traced

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases") / "case"
    graphdbg.save_graph(traced(example, *example_inputs()), example_inputs(), folder)
    return folder


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return saved(example, example_inputs(), tmp_path_factory.mktemp("saved") / "launches")


def test_a_folder_is_listed_without_running_anything(launches: Launches, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["kernel", str(launches.folder)]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["KERNEL", "LAUNCHES", "GRID", "CONFIG", "ARGUMENTS"]
    assert first.split()[:4] == ["triton_poi_fused_0", "2", "(16,1,1)", "XBLOCK=256"]
    assert second.endswith("in_ptr0 f32[64, 64], out_ptr0 f32[64], 64, 63")
    assert cli.run(["kernel", str(launches.folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["launches"]
    assert [(row["kernel"], row["call"], row["grid"]) for row in rows] == [
        ("triton_poi_fused_0", 1, [16, 1, 1]),
        ("triton_poi_fused_0", 2, [16, 1, 1]),
        ("triton_per_fused_1", 1, [64, 1, 1]),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["triton_per_fused_1"], "somebody else. Read it, then run graphdbg kernel"),
        (["--all"], "--all --trust"),
        (
            ["nothing", "--trust"],
            "there is no kernel 'nothing': there are: triton_poi_fused_0 (#1 to #2), triton_per_fused_1",
        ),
        (["--all", "nothing", "--trust"], "cannot be used together"),
        (["--save", "elsewhere"], "launches that are saved already"),
    ],
)
def test_what_a_folder_is_not_used_for(
    arguments: list[str], said: str, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["kernel", str(launches.folder), *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and not captured.out


def test_a_folder_that_is_there_is_not_written_over(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["kernel", str(case), "--save", str(case)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_saving_needs_no_gpu_and_says_what_to_do_next(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "launches"
    assert cli.run(["kernel", str(case), "triton_per_fused_1", "--save", str(folder), "--target", "cuda:80"]) == 0
    captured = capsys.readouterr()
    assert f"graphdbg kernel {folder} --all --trust" in captured.err
    known = open_launches(folder)
    assert [launch.kernel for launch in known.launches] == ["triton_per_fused_1"]
    assert (known.index.target, known.index.graph) == ("cuda:80", str(case))
    assert "cc=80" in known.source(known.launches[0])


@pytest.mark.slow
def test_the_interpreter_alone_agrees_with_eager(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["kernel", str(case), "triton_poi_fused_0#2", "--interpret"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head == "triton_poi_fused_0, launch 2 of 2, grid (16,1,1), XBLOCK=256 warps=4 stages=1   interpreter"
    assert row.startswith("in_out_ptr0 = buf3 = node relu_1  f32[64, 64]  eager ") and row.endswith("ok")


@pytest.mark.slow
def test_a_wrong_result_exits_with_1(launches: Launches, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "launches"
    shutil.copytree(launches.folder, folder)
    path = folder / launches.launches[-1].folder / "launch.json"
    document = json.loads(path.read_text())
    (written,) = document["written"]
    storage = document["storages"][document["tensors"][written["argument"]]["storage"]]
    storage["after"] = storage["before"]
    path.write_text(json.dumps(document))
    assert cli.run(["kernel", str(folder), "--all", "--interpret", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [row["ok"] for row in document["launches"]] == [True, True, False] and document["device"] == "interpreter"


@NO_GPU
@pytest.mark.slow
def test_without_a_gpu_a_kernel_is_not_run_and_another_way_is_named(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["kernel", str(case), "triton_per_fused_1"]) == 3
    said = capsys.readouterr().err
    assert "no GPU here" in said and "--save DIR and on a GPU machine: graphdbg kernel DIR --trust" in said


@pytest.mark.slow
def test_a_kernel_of_another_name_is_told_with_the_list(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["kernel", str(case), "triton_poi_fused_7", "--interpret"]) == 2
    assert "triton_poi_fused_0 (#1 to #2), triton_per_fused_1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_fails_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gather(x: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        return [torch.sin(x), torch.ops.aten.index.Tensor(x.cos() @ x, [index]) + 1]

    inputs = [torch.randn(16, 16), torch.tensor([3, 99])]
    graphdbg.save_graph(traced(gather, *inputs), inputs, tmp_path / "case")
    assert cli.run(["kernel", str(tmp_path / "case")]) == 1
    said = capsys.readouterr().err
    assert "the graph failed in run after" in said and "replay --rung triton_interpret" in said
