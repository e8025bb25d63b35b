"""`graphdbg compile --target`: the kernels for a GPU that is not here, down to machine code."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import fx

pytest.importorskip("triton")

import graphdbg
from graphdbg.cli import main
from graphdbg.toolkit.triton.emission import same_source, triton_sources


def softmax_graph(device: str = "cpu") -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """softmax(relu(x) @ w) over rows: a pointwise and a reduction kernel around a library call."""
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    relu = graph.call_function(torch.ops.aten.relu.default, (x,))
    mm = graph.call_function(torch.ops.aten.mm.default, (relu, w))
    soft = graph.call_function(torch.ops.aten._softmax.default, (mm, -1, False))
    graph.output((soft,))
    return fx.GraphModule({}, graph), [torch.randn(32, 64), torch.randn(64, 96)]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("emission") / "case"
    graphdbg.save_graph(*softmax_graph(), folder)
    return folder


def command(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def emitted(case: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("emitted") / "out"
    arguments = [
        "compile",
        str(case),
        "--emit",
        "source,ttir,ttgir,llir,ptx,cubin",
        "--target",
        "cuda:90",
        "-o",
        str(out),
    ]
    assert command(arguments) == 0
    return out


def test_every_kernel_has_every_form(emitted: Path) -> None:
    document = json.loads((emitted / "compile.json").read_text())
    (part,) = document["parts"]
    kernels = {row["name"] for row in part["kernels"] if row["kind"] == "Triton"}
    assert len(kernels) == 2 and {row["name"] for row in part["compiled"]} == kernels
    assert document["target"] == "cuda:90 (H100, 132 SMs)" and "sm_90" in document["assembler"]
    for row in part["compiled"]:
        assert row["error"] == "" and row["registers"] > 0 and row["spill_stores"] == 0, row
        folder = emitted / part["part"] / "triton"
        assert set(row["files"]) == {"ttir", "ttgir", "llir", "ptx", "cubin"}
        ptx = (folder / row["files"]["ptx"]).read_text()
        assert f".entry {row['name']}(" in ptx and ".target sm_90a" in ptx
        assert "tt.func public" in (folder / row["files"]["ttir"]).read_text()
        assert '"ttg.num-warps" = ' in (folder / row["files"]["ttgir"]).read_text()
        assert "ptx_kernel" in (folder / row["files"]["llir"]).read_text()
        assert (folder / row["files"]["cubin"]).read_bytes()[:4] == b"\x7fELF"
    sources = list((emitted / part["part"] / "kernels").glob("triton_*.py"))
    assert len(sources) == 2 and all(
        "DeviceProperties(type='cuda', index=0" in source.read_text() for source in sources
    )


def test_registers_are_those_of_the_machine_code(emitted: Path) -> None:
    """The number in the table is the one that the machine code asks a GPU for: `.nv.info` of the ELF says the same."""
    from triton import knobs

    document = json.loads((emitted / "compile.json").read_text())
    row = document["parts"][0]["compiled"][0]
    cubin = emitted / document["parts"][0]["part"] / "triton" / row["files"]["cubin"]
    said = subprocess.check_output([knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)], text=True, timeout=60)
    assert re.search(r"REG:(\d+)", said), said
    assert int(re.search(r"REG:(\d+)", said).group(1)) == row["registers"]  # type: ignore[union-attr]


@pytest.mark.slow
def test_another_chip_gets_other_code(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", str(case), "--emit", "ptx", "--target", "cuda:80", "--kernel", "softmax"]) == 0
    out, err = capsys.readouterr()
    assert ".target sm_80" in out and out.startswith("// ---------- triton_per_fused__softmax")
    assert out.count(".visible .entry") == 1
    assert "Triton kernels for cuda:80 (A100, 108 SMs)" in err and "regs" in err
    assert "recorded on the CPU; these are the kernels that Inductor writes for a GPU" in err


@pytest.mark.slow
def test_a_wrong_kernel_name_is_told_with_those_there_are(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", str(case), "--emit", "ptx", "--kernel", "nosuch"]) == 2
    assert "no kernel is called 'nosuch': there are triton_" in capsys.readouterr().err


SOURCE = (
    "k = async_compile.triton('k', '''\nimport triton\n# kernel path: /a/b.py\nx = {'backend_hash': 'AB', 'n': "
    "1}\n''')\n"
)


def test_sources_are_compared_without_what_names_a_machine() -> None:
    (item,) = triton_sources(SOURCE).values()
    assert same_source(item, item.replace("'AB'", "'CD'").replace("/a/b.py", "/c.py"))
    assert not same_source(item, item.replace("'n': 1", "'n': 2"))


@pytest.mark.slow
def test_a_graph_of_dynamo_gives_both_halves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through AOTAutograd, which runs on the CPU, and onto the pretended GPU behind it."""

    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w).softmax(-1)

    graph = fx.symbolic_trace(step)
    inputs = [torch.randn(16, 32), torch.randn(32, 8, requires_grad=True)]
    graphdbg.save_graph(graph, inputs, tmp_path / "case", stage="dynamo")
    assert command(["compile", str(tmp_path / "case"), "--emit", "ptx", "--target", "cuda:90", "--json", "--full"]) == 0
    document = json.loads(capsys.readouterr().out)
    built = {part["part"]: part["compiled"] for part in document["parts"] if part["compiled"]}
    assert set(built) == {"forward", "backward"}
    assert all(row["registers"] for rows in built.values() for row in rows)
