"""`graphdbg kernel --check` on saved graphs: what it prints, its JSON, its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import msgspec
import torch

from graphdbg.dumps import live
from graphdbg.dumps.errors import EnvironmentLackError, UsageError
from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.kernel_checks.findings import CheckedKernels, KernelFault, UserLine
from graphdbg.toolkit.kernel_checks.showing import shown, task, text
from graphdbg.toolkit.live.how import How

from .planted import captured, embed


def test_a_finding_names_its_place_in_the_kernel_in_the_graph_and_in_the_program() -> None:
    fault = KernelFault(
        "load",
        "triton_poi_fused_index_2",
        4,
        (17, 0, 0),
        14,
        "tmp3 = tl.load(in_ptr1 + (tmp2), xmask)",
        29,
        3,
        31,
        12,
        1,
        "in_ptr1",
        "arg2_1",
        "arg2_1",
        "float32",
        [1000, 64],
        64128,
        64000,
        ["index", "add_1"],
        [UserLine("model.py:41", "x = self.embed[idx]")],
    )
    kernels = CheckedKernels([fault], [], 6, [], 9, 3, 1.2, 4.92)
    assert text(kernels, "run/0_0/forward").splitlines() == [
        "run/0_0/forward: kernels checked: 6 kernels, 9 launches, 3 library calls not checked: 1 finding",
        "1 out-of-bounds load   triton_poi_fused_index_2, launch 4, program (17,0,0), lanes 3..31 (29), in 12 programs",
        "    kernel  triton_poi_fused_index_2.py:14   tmp3 = tl.load(in_ptr1 + (tmp2), xmask)",
        "    reads   in_ptr1 = arg2_1 f32[1000,64]: element 64128; storage has 64000",
        "    nodes   index, add_1",
        "    yours   model.py:41   x = self.embed[idx]",
        "    next    graphdbg compile run/0_0/forward --target cuda:90 --emit source --kernel triton_poi_fused_index_2",
        "plain 1.2 s, checked 4.9 s (4.1x)",
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`right`, and `wrong`, whose indices are beyond its table: eager refuses it, and the kernel reads what is not
    there."""
    result = tmp_path_factory.mktemp("graphs")
    gm, inputs, _ = captured(embed, lambda: [torch.randn(100, 64), torch.randint(0, 100, (31,))])
    live.save_graph(gm, inputs, result / "right")
    beyond = [torch.full_like(tensor, 150) if tensor.dtype == torch.int64 else tensor for tensor in inputs]
    live.save_graph(gm, beyond, result / "wrong")
    return result


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphdbg", "kernel", *words, "--check"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_eager_need_not_run(folder: Path) -> None:
    payload = {"path": str(folder / "wrong"), "seed": 0, "imports": [], "kernel": None}
    result = msgspec.convert(task(payload), CheckedKernels)
    assert {finding.kind for finding in result.findings} == {"load", "assert"}
    assert any("eager itself fails at node index" in item for item in result.unchecked)
    with pytest.raises(
        UsageError, match="there is no kernel triton_poi_fused_cos_0: the graph has triton_poi_fused_index_mul_0"
    ):
        task({**payload, "kernel": "triton_poi_fused_cos_0"})


def test_without_triton_nothing_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(EnvironmentLackError, match="Triton is not installed") as raised:
        shown(load_graph(folder / "right"), None, How(limit_s=1.0), as_json=False)
    assert raised.value.exit_code == 3


@pytest.mark.slow
def test_a_graph_whose_indices_are_out_of_its_table(folder: Path) -> None:
    ran = _run(folder, "wrong", "--json")
    assert ran.returncode == 1, ran.stderr
    document = json.loads(ran.stdout)
    assert not document["ok"]
    assert {finding["kind"] for finding in document["findings"]} == {"load", "assert"}
    load = next(finding for finding in document["findings"] if finding["kind"] == "load")
    assert (load["storage"], load["element"], load["shape"]) == (6400, 9600, [100, 64])
    assert load["lines"][0]["code"] == "return w[i] * 2"


@pytest.mark.slow
def test_a_graph_without_fault_and_a_kernel_that_is_not_there(folder: Path) -> None:
    ran = _run(folder, "right")
    assert ran.returncode == 0, ran.stderr
    said = "right: kernels checked: 1 kernel, 1 launch, 0 library calls not checked: no finding"
    assert ran.stdout.startswith(f"OK\n\n{said}\nplain ")
    name = "triton_poi_fused_index_mul_0"
    assert _run(folder, "right", name).returncode == 0
    ran = _run(folder, "right", "triton_poi_fused_cos_0")
    assert ran.returncode == 2
    assert f"the graph has {name}" in ran.stderr
