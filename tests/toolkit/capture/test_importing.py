"""Repro scripts of torch's tools and exported programs become cases that run, with their settings and inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


@pytest.mark.long
def test_an_fx_graph_runnable_comes_with_its_settings_and_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = runnable(tmp_path)
    out = tmp_path / "case"
    assert cli.run(["import", str(file), "-o", str(out), "--trust", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["stage"], document["notes"]) == ("fx_graph_runnable", "joint_passed", [])
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
    result = import_file(tmp_path / "runnable.py", tmp_path / "case", trust=True)
    assert result.stage == "backward"
    assert "random numbers" in result.notes[0]


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


class Counting(torch.nn.Module):
    """Writes to a buffer and to an argument, and has a number as an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 5)
        self.register_buffer("seen", torch.zeros(1))
        self.scale = torch.tensor(2.0)

    def forward(self, x: torch.Tensor, *, y: torch.Tensor, times: int = 2) -> torch.Tensor:
        self.seen.add_(1)
        y.mul_(2)
        return self.linear(x).relu() * self.seen * times + y.sum() * self.scale


def exported() -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows")
    return torch.export.export(
        Counting(),
        (torch.randn(4, 3),),
        {"y": torch.ones(2), "times": 3},
        dynamic_shapes={"x": {0: rows}, "y": None, "times": None},
    ).run_decompositions({})


def test_an_exported_program_is_saved_with_its_signature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = exported()
    saved = graphdbg.load_graph(graphdbg.save_graph(program, (), tmp_path / "case"))
    roles = {item.source: item.role for item in saved.record.inputs}
    assert roles == {
        "linear.weight": "parameter",
        "linear.bias": "parameter",
        "seen": "buffer",
        "scale": "constant",
        "x": "user",
        "y": "user",
        "times": "user",
    }
    assert [symbol.name for symbol in saved.record.symbols]
    values = saved.inputs()
    expected = program.module()(values[4], y=values[5].clone(), times=3)
    assert torch.allclose(saved.module()(*values)[-1], expected)
    assert cli.run(["show", str(tmp_path / "case"), "--json"]) == 0
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    assert [(item["kind"], item["of"]) for item in outputs] == [
        ("mutation", "seen"),
        ("mutation", "y"),
        ("user", "output[0]"),
    ]


def test_an_exported_program_without_values_needs_some(tmp_path: Path) -> None:
    program = exported()
    program.example_inputs = None
    with pytest.raises(UsageError, match="takes 3 values and 0 are known"):
        graphdbg.save_graph(program, (), tmp_path / "case")
    assert not (tmp_path / "case").exists()
    graphdbg.save_graph(program, (torch.randn(7, 3), torch.ones(2), 3), tmp_path / "case")
    assert graphdbg.load_graph(tmp_path / "case").inputs()[4].shape == (7, 3)


TOOLS = """
import sys
import torch
import torch._inductor.config
from torch._dynamo.repro.aoti import save_graph_repro_ep


class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu() + 1


@torch.library.custom_op("graphdbg_import::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


def dynamic(x):
    return x.relu().sum()


def chosen(x):
    return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))


def own(x):
    return twice(x).sin()


kind, x = sys.argv[1], torch.randn(4, 3)
if kind == "minifier":
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
    try:
        torch.compile(dynamic)(x)
    except Exception as error:
        print(error)
elif kind == "ahead":
    program = torch.export.export(Model(), (x,))
    with open("ahead.py", "w") as file:
        patches = {"epilogue_fusion": False}
        save_graph_repro_ep(file, "inductor", exported_program=program, config_patches=patches, save_dir=".")
elif kind == "package":
    torch._inductor.aoti_compile_and_package(torch.export.export(Model(), (x,)), package_path="package.pt2")
else:
    if kind == "dynamic":
        torch._dynamo.mark_dynamic(x, 0)
    torch.compile({"dynamic": dynamic, "cond": chosen, "own": own}[kind])(x)
"""


def made_by_torch(kind: str, folder: Path, **environment: str) -> Path:
    """What torch's own tools leave of a small program: run in a process of its own."""
    (folder / "program.py").write_text(TOOLS)
    given = (
        os.environ
        | environment
        | {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0", "GRAPHDBG": ""}
    )
    done = subprocess.run(
        [sys.executable, "program.py", kind],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


def runnables(folder: Path) -> list[str]:
    """The fx_graph_runnable texts of a structured trace."""
    results: list[str] = []
    for log in folder.glob("*.log"):
        payload: list[str] | None = None
        for line in log.read_text().splitlines():
            if line.startswith("\t") and payload is not None:
                payload.append(line[1:])
                continue
            if payload:
                results.append("\n".join(payload) + "\n")
            payload = [] if '"fx_graph_runnable"' in line else None
        if payload:
            results.append("\n".join(payload) + "\n")
    return results


def traced(kind: str, folder: Path) -> Path:
    made_by_torch(kind, folder, TORCH_TRACE=str(folder / "trace"))
    (text,) = runnables(folder / "trace")
    (folder / "runnable.py").write_text(text)
    return folder / "runnable.py"


@pytest.mark.slow
def test_a_runnable_of_a_dynamic_graph_has_symbols(tmp_path: Path) -> None:
    result = import_file(traced("dynamic", tmp_path), tmp_path / "case", trust=True)
    saved = graphdbg.load_graph(tmp_path / "case")
    assert saved.record.symbols
    assert any("which dimensions were symbols" in note for note in result.notes)
    assert graphdbg.replay(saved, rung="inductor").ok


@pytest.mark.slow
def test_a_runnable_with_a_branch_is_no_python_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write a graph that holds other graphs \(cond.*graphdbg dump"):
        import_file(traced("cond", tmp_path), tmp_path / "case", trust=True)


@pytest.mark.slow
def test_a_runnable_with_an_own_operator_needs_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = traced("own", tmp_path)
    with pytest.raises(UsageError, match=r"graphdbg_import::twice is registered by no module .* --import MODULE"):
        import_file(file, tmp_path / "case", trust=True)
    (tmp_path / "own_ops.py").write_text(TOOLS.split("def dynamic")[0])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = import_file(file, tmp_path / "case", trust=True, imports=["own_ops"])
    assert result.nodes == 4


@pytest.mark.slow
def test_a_minifier_launcher(tmp_path: Path) -> None:
    folder = made_by_torch(
        "minifier",
        tmp_path,
        TORCHDYNAMO_REPRO_AFTER="aot",
        TORCHDYNAMO_REPRO_LEVEL="2",
        TORCH_COMPILE_DEBUG_DIR=str(tmp_path),
    )
    (launcher,) = folder.rglob("minifier_launcher.py")
    import_file(launcher, tmp_path / "case", trust=True)
    saved = graphdbg.load_graph(tmp_path / "case")
    assert saved.record.config["inductor"]["cpp.inject_relu_bug_TESTING_ONLY"] == "compile_error"
    assert not graphdbg.replay(saved, rung="inductor").ok


@pytest.mark.slow
def test_what_aotinductor_leaves(tmp_path: Path) -> None:
    made_by_torch("ahead", tmp_path)
    result = import_file(tmp_path / "ahead.py", tmp_path / "case", trust=True)
    assert result.kind == "repro of AOTInductor"
    saved = graphdbg.load_graph(tmp_path / "case")
    assert saved.record.config["inductor"]["epilogue_fusion"] is False
    assert [item.role for item in saved.record.inputs] == ["user"]
    made_by_torch("package", tmp_path)
    with pytest.raises(UsageError, match="package of AOTInductor, which holds compiled code and weights but no graph"):
        import_file(tmp_path / "package.pt2", tmp_path / "other", trust=True)


def whole_program(path: Path) -> bytes:
    torch.export.save(torch.export.export(MODEL, (torch.randn(2, 4),)), path)
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("empty.py", b"", "never called torch's run_repro"),
        ("binary.py", b"\x00\x01", "it is not Python"),
        ("cut.py", b"import torch\ndef f(:\n", r"not Python \(line 2\)"),
        ("lacks.py", b"import a_module_that_is_missing\n", "No module named 'a_module_that_is_missing'"),
        ("empty.pt2", b"", "not a .pt2 file, or is cut off"),
        ("cut.pt2", None, "not a .pt2 file, or is cut off"),
        ("weights.pt2", "weights", "torch.export.load cannot read it"),
    ],
)
def test_files_that_are_not_what_they_seem(name: str, content: bytes | str | None, why: str, tmp_path: Path) -> None:
    if content is None:
        whole = whole_program(tmp_path / name)
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    elif isinstance(content, str):
        torch.save(MODEL.state_dict(), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=why):
        import_file(tmp_path / name, tmp_path / "case", trust=True)
    assert not (tmp_path / "case").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".tmp-")]


def test_a_target_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").touch()
    assert cli.run(["import", str(tmp_path / "own.py"), "-o", str(tmp_path / "gone" / "case"), "--trust"]) == 2
    assert "is not a writable folder" in capsys.readouterr().err
    assert cli.run(["import", str(tmp_path / "gone.py"), "--json"]) == 2


@pytest.mark.parametrize(
    ("name", "why"), [("gone.py", "no such file"), ("x.onnx", "its name ends in none of"), ("own.py", "exists already")]
)
def test_bad_usage_is_a_sentence(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").touch()
    (tmp_path / "own.py").touch()
    if "exists" in why:
        (tmp_path / "case").mkdir()
    with pytest.raises(UsageError, match=why):
        import_file(tmp_path / name, tmp_path / "case", trust=True)
