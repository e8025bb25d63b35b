"""Kernels launched on a GPU: they agree, a wrong one differs, one that dies leaves the others, ceilings are what the
GPU does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import graphdbg
from graphdbg import cli
from graphdbg.dumps.tensors import hash_bytes
from graphdbg.toolkit.isolation import ForkServer, opened
from graphdbg.toolkit.launching.asking import TASKS, Ceilings, alone, ceilings, gpu, launches_of, target_here
from graphdbg.toolkit.launching.launches import Launches, open_launches

from .saved_run import example, example_inputs, traced

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def children() -> Iterator[ForkServer]:
    with opened(None, "inductor", *TASKS) as used:
        yield used


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory, children: ForkServer) -> Launches:
    """Interpreted in a child: this process may have a GPU open."""
    folder = tmp_path_factory.mktemp("saved")
    return _launches(example, example_inputs(), folder, children)


def _launches(function: Callable[..., Any], inputs: list[torch.Tensor], folder: Path, children: ForkServer) -> Launches:
    graphdbg.save_graph(traced(function, *inputs), inputs, folder / "case")
    saved = graphdbg.load_graph(folder / "case")
    return launches_of(saved, folder / "launches", target_here(gpu(children)), children)


def _with_source(launches: Launches, place: int, folder: Path, change: Callable[[str], str]) -> Launches:
    """A copy in which one launch has another source, as if it had been saved so."""
    shutil.copytree(launches.folder, folder)
    launch = launches.launches[place]
    source = change(launches.source(launch))
    assert source != launches.source(launch)
    (folder / launch.folder / "kernel.py").write_text(source)
    path = folder / launch.folder / "launch.json"
    document = json.loads(path.read_text())
    document["source"] = hash_bytes(source.encode())
    path.write_text(json.dumps(document))
    return open_launches(folder)


def test_every_launch_agrees_with_the_interpreter_and_with_eager(launches: Launches, children: ForkServer) -> None:
    for launch in launches.launches:
        judged = alone(launches, launch, children, None)
        assert judged.ok, judged
        assert judged.where == torch.cuda.get_device_name(0)
        assert all(row.interpreter is not None and row.eager is not None for row in judged.arguments)


def test_views_of_one_storage_with_offsets_agree(tmp_path: Path, children: ForkServer) -> None:
    base = torch.arange(200, dtype=torch.float32)
    inputs = [base[8:136].view(8, 16).t(), base[72:200].view(8, 16).t()]
    known = _launches(lambda a, b: [a * 2 + b, (a - b).sum(0)], inputs, tmp_path, children)
    assert known.launches and all(alone(known, launch, children, None).ok for launch in known.launches)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_other_dtypes_agree(dtype: torch.dtype, tmp_path: Path, children: ForkServer) -> None:
    values = (torch.arange(32 * 300) % 97 - 48).view(32, 300).to(dtype)
    known = _launches(lambda x: [x * 3 + 1, x.amax(1), x > 0], [values], tmp_path, children)
    for launch in known.launches:
        judged = alone(known, launch, children, None)
        assert judged.ok, judged


def test_a_kernel_that_computes_something_else_differs(
    launches: Launches, tmp_path: Path, children: ForkServer
) -> None:
    first = "tl.store(out_ptr0 + (0 * "
    wrong = _with_source(launches, 2, tmp_path / "wrong", lambda text: text.replace("tl.store(out_ptr0 + (", first))
    judged = alone(wrong, wrong.launches[2], children, None)
    assert not judged.ok and not judged.died
    (row,) = judged.arguments
    assert row.interpreter is not None and not row.interpreter.ok and "of 64 elements" in row.interpreter.why
    assert row.eager is not None and not row.eager.ok


def test_an_illegal_access_ends_one_child_and_the_others_go_on(
    launches: Launches, tmp_path: Path, children: ForkServer
) -> None:
    far = "tl.store(in_out_ptr0 + 4398046511104 + ("
    wild = _with_source(launches, 0, tmp_path / "wild", lambda text: text.replace("tl.store(in_out_ptr0 + (", far))
    judged = [alone(wild, launch, children, None) for launch in wild.launches]
    assert "illegal memory access" in judged[0].died and "launch" in judged[0].died
    assert [item.ok for item in judged] == [False, True, True]


@pytest.fixture(scope="module")
def limits(children: ForkServer) -> Ceilings:
    measured = ceilings(children)
    assert isinstance(measured, Ceilings), measured
    return measured


def test_the_ceilings_are_those_of_a_gpu(limits: Ceilings) -> None:
    assert limits.device == torch.cuda.get_device_name(0)
    assert 1e11 < limits.bandwidth < 2e13
    assert 0 < limits.launch_s < 1e-4
    assert limits.peaks["bf16"] > limits.peaks["fp32"] > 1e12


def test_a_large_copy_is_near_the_measured_bandwidth(tmp_path: Path, children: ForkServer, limits: Ceilings) -> None:
    values = torch.randn(4096, 1024)  # interpreted on the CPU first, so no larger
    known = _launches(lambda x: [x * 2 + 1], [values], tmp_path, children)
    (launch,) = known.launches
    place = alone(known, launch, children, limits).place
    assert place is not None and place.bytes == 2 * values.nbytes and place.flops == 2 * values.numel()
    assert place.bound in ("memory", "launch")
    assert place.bandwidth_share is not None and 0.2 < place.bandwidth_share < 1.3


def test_the_command_prints_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphdbg.save_graph(traced(example, *example_inputs()), example_inputs(), tmp_path / "case")
    assert cli.run(["kernel", str(tmp_path / "case"), "triton_poi_fused_0#2"]) == 0
    head, row, time, moved, note = capsys.readouterr().out.splitlines()
    assert head.startswith("triton_poi_fused_0, launch 2 of 2, grid (") and torch.cuda.get_device_name(0) in head
    assert "node relu_1" in row and "interpreter" in row and "eager" in row and row.endswith("ok")
    assert time.split()[0] == "time" and "measured here" in moved and note.startswith("note")


def test_the_command_on_a_folder_and_as_json(launches: Launches, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["kernel", str(launches.folder), "--all", "--trust", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] and len(document["launches"]) == 3 and document["ceilings"]["bandwidth"] > 0
    assert all(row["place"]["seconds"] > 0 for row in document["launches"])


def test_kernels_for_another_gpu_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphdbg.save_graph(traced(example, *example_inputs()), example_inputs(), tmp_path / "case")
    other = "cuda:80" if torch.cuda.get_device_capability(0) != (8, 0) else "cuda:90"
    assert cli.run(["kernel", str(tmp_path / "case"), "triton_per_fused_1", "--target", other]) == 2
    assert f"kernels for {other} cannot run here" in capsys.readouterr().err
