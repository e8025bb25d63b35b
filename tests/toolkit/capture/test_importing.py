"""Repro scripts of torch's tools and exported programs become cases that run, with their settings and inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch._dynamo.repro.after_aot import save_graph_repro
from torch._inductor.decomposition import select_decomp_table

import graphdbg
from graphdbg import cli
from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.capture import inference_graph
from graphdbg.toolkit.capture.importing import import_file

MODEL = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


def runnable(folder: Path) -> Path:
    """What Inductor leaves of a graph in a structured trace, its inputs kept beside it."""
    captured = inference_graph(MODEL, (torch.randn(2, 4),), decompositions=select_decomp_table())
    with torch._inductor.config.patch({"epilogue_fusion": False}), (folder / "runnable.py").open("w") as file:
        save_graph_repro(file, captured.module, captured.values(), "inductor", save_dir=str(folder / "inputs"))
    return folder / "runnable.py"


def test_an_fx_graph_runnable_comes_with_its_settings_and_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = runnable(tmp_path)
    out = tmp_path / "case"
    assert cli.run(["import", str(file), "-o", str(out), "--trust", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["kind"], made["stage"], made["notes"]) == ("fx_graph_runnable", "joint_passed", [])
    saved = graphdbg.load_graph(out)
    assert saved.record.config["inductor"]["epilogue_fusion"] is False
    assert torch.equal(saved.inputs()[0], MODEL[0].weight)
    assert torch.allclose(saved.module()(*saved.inputs())[0], MODEL(saved.inputs()[2]))


@pytest.mark.slow
def test_an_exported_program_brings_its_parameters(tmp_path: Path) -> None:
    x = torch.randn(2, 4)
    torch.export.save(torch.export.export(MODEL, (x,)), tmp_path / "model.pt2")
    import_file(tmp_path / "model.pt2", tmp_path / "case", trust=True)
    saved = graphdbg.load_graph(tmp_path / "case")
    assert torch.equal(saved.module()(*saved.inputs())[0], MODEL(x))
    assert graphdbg.replay(saved, rung="inductor").ok


def backward(primals_1, tangents_1):  # no annotations: torch writes them into its script
    return (torch.ops.aten.mul.Tensor(tangents_1, primals_1),)


@pytest.mark.slow
def test_a_backward_without_its_values_says_so(tmp_path: Path) -> None:
    with (tmp_path / "runnable.py").open("w") as file:
        save_graph_repro(
            file, torch.fx.symbolic_trace(backward), [torch.ones(2), torch.ones(2)], "inductor", save_dir=None
        )
    made = import_file(tmp_path / "runnable.py", tmp_path / "case", trust=True)
    assert made.stage == "backward"
    assert "random numbers" in made.notes[0]


def test_nothing_runs_without_trust(tmp_path: Path) -> None:
    file = tmp_path / "evil.py"
    file.write_text(f"open({str(tmp_path / 'seen')!r}, 'w')\n")
    with pytest.raises(UsageError, match="--trust"):
        import_file(file, tmp_path / "case", trust=False)
    assert not (tmp_path / "seen").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "why"), [("x = 1\n", "never called torch's run_repro"), ("raise KeyError('mine')\n", "KeyError: 'mine'")]
)
def test_a_script_that_is_no_repro_says_what_to_do(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(UsageError, match=why):
        import_file(tmp_path / "own.py", tmp_path / "case", trust=True)
    assert not (tmp_path / "case").exists()


@pytest.mark.parametrize(
    ("name", "why"), [("gone.py", "no such file"), ("x.onnx", "suffix"), ("own.py", "exists already")]
)
def test_bad_usage_is_a_sentence(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").touch()
    (tmp_path / "own.py").touch()
    if "exists" in why:
        (tmp_path / "case").mkdir()
    with pytest.raises(UsageError, match=why):
        import_file(tmp_path / name, tmp_path / "case", trust=True)
