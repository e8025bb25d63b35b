"""`graphdbg compile` on a recorded run: rows, kernels, differences, code, files, and every way in which a compile can
end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from graphdbg.cli import run as command
from graphdbg.dumps.schema import TensorValue
from graphdbg.dumps.store import Run
from graphdbg.toolkit.compile_fx.showing import showing
from graphdbg.toolkit.compile_fx.stage import NAMES
from graphdbg.toolkit.isolation import ForkServer


@pytest.fixture
def here(recorded: Run, server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the folder of the run, with one server for all commands."""
    monkeypatch.chdir(recorded.path.parent)
    monkeypatch.setattr(showing, "opened", lambda *given: contextlib.nullcontext(server))
    return iter(())


@pytest.mark.long
def test_stages_are_rows_with_units_and_kernels_a_table(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/0_0/forward"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert "enters at post_grad; caches not used" in lines[0] and "nodes, cpu, torch" in lines[0]
    assert "before this graph was recorded: see run/0_0/dynamo" in lines[2]
    assert [line.split()[1] for line in lines[3:10]] == list(NAMES[NAMES.index("post_grad") :])
    assert "buffers" in lines[4] and "groups" in lines[5] and "lines" in lines[6]
    assert any(line.startswith("extern_kernels.addmm") and "conftest.py:" in line for line in lines)
    assert any(line.startswith("map: ") for line in lines)
    assert "total" in err and "\x1b" not in out


def test_until_says_what_is_left(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/0_0/forward", "--until", "lower"]) == 0
    out, err = capsys.readouterr()
    assert "stopped after lower, as asked; not run: schedule, codegen, load, align, cudagraphs" in err
    assert "\nbuffers:" in out.replace("forward, ", "") and "extern_kernels.addmm" not in out


def test_json_is_one_document(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/0_0/joint", "--until", "codegen", "--json", "--full"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["error"] is None and document["entered_at"] == "joint" and document["caches"] == "not used"
    parts = {part["part"]: part for part in document["parts"]}
    assert list(parts) == ["joint", "forward", "backward"]
    row = next(row for row in parts["joint"]["stages"] if row["stage"] == "joint")
    assert row["in"]["unit"] == "nodes" and {"seconds", "removed", "added", "reordered", "passes", "status"} <= set(row)
    assert {"name", "seconds", "nodes_before", "nodes_after", "skippable", "why_not", "status"} <= set(row["passes"][0])
    kernel = parts["forward"]["kernels"][0]
    assert isinstance(kernel["bytes_read"], int) and isinstance(kernel["flops"], int)
    node, kernels = next(iter(parts["forward"]["node_to_kernel"].items()))
    assert any(kernel["name"] in kernels[0] and node in kernel["nodes"] for kernel in parts["forward"]["kernels"])


def test_code_alone_goes_to_stdout(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/1_0/inference", "--emit", "source"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# run/1_0/inference: inference\n") and "codegen" in err and "extern_kernels.mm" in err
    compile(out, "output_code.py", "exec")


def test_a_folder_holds_graphs_code_kernels_and_tables(
    here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert command(["compile", "run/0_0/forward", "--emit", "source", "-o", str(target)]) == 0
    names = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert {
        "compile.json",
        "forward/before_post_grad.py",
        "forward/after_post_grad.py",
        "forward/output_code.py",
        "forward/stages.json",
        "forward/kernels.json",
        "forward/map.json",
        "forward/buffers.json",
    } <= names
    (kernel,) = (target / "forward" / "kernels").iterdir()
    assert (
        kernel.read_text().startswith(f"// {kernel.stem}: called 1 time, ")
        and "// tanh  conftest.py:" in kernel.read_text()
    )
    assert set(capsys.readouterr().out.splitlines()[-len(names) :]) == {
        f"{target / name}  {(target / name).stat().st_size:,} bytes" for name in names
    }
    both = json.loads((target / "forward" / "map.json").read_text())
    assert all(
        node in both["kernel_to_node"][label] for node, labels in both["node_to_kernel"].items() for label in labels
    )


def test_a_skipped_stage_is_a_row_and_the_code_is_compared(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/1_0/inference", "--skip", "joint", "--until", "codegen"]) == 0
    out, err = capsys.readouterr()
    assert "skipped (asked for)" in out and "generated code: the same as without --skip" in err


def test_a_skipped_pass_is_told_with_what_came_of_it(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--skip", "early_patterns,decompose_auto_functionalized", "--until", "post_grad"]
    assert command(["compile", "run/0_0/joint", *options]) == 0
    out, err = capsys.readouterr()
    assert "without early_patterns, as asked" in out and "joint.early_patterns: skipped 1 time" in err


def test_a_stage_that_changes_nothing_says_so(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/1_0/inference", "--diff", "joint"]) == 0
    assert "nothing changed (" in capsys.readouterr().out


def test_a_planted_rewrite_is_seen_in_the_difference(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/0_0/joint", "--diff", "joint", "--import", "planted_joint_pattern"]) == 0
    out = capsys.readouterr().out
    assert "+1 aten.sin" in out and "planted 1" in out
    (line,) = [
        line
        for line in out.splitlines()
        if "aten.tanh.default" in line and "aten.sin.default" in line and line[0] == "~"
    ]
    assert "->" in line
    assert "alike" in out


def test_a_failing_stage_keeps_the_rows_before_it(
    here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert command(["compile", "run/0_0/forward", "-o", str(target), "--import", "planted_raise"]) == 1
    out, err = capsys.readouterr()
    failing = next(line for line in out.splitlines() if line.startswith("forward   lower"))
    assert "FAILED" in failing and "planted in the lowering" in failing
    assert "schedule..cudagraphs" in out and "not run: a stage before failed" in out
    assert "conftest.py:" in err and "tanh" in err and "Traceback" not in err
    assert "graphdbg compile run/0_0/forward --until post_grad" in err
    assert (
        "planted in the lowering" in (target / "error.txt").read_text()
        and (target / "forward/after_post_grad.py").exists()
    )


LOADS = """
import sys
sys.modules["graphdbg"] = None
import torch, torch._inductor
inputs = torch.load("inputs.pt")
torch.save(torch._inductor.aoti_load_package("model.pt2")(*inputs), "outputs.pt")
"""


@pytest.mark.slow  # g++ builds a library
def test_a_package_runs_without_graphdbg(
    here: None, recorded: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["compile", "run/0_0/forward", "--package", str(tmp_path / "model.pt2")]) == 0
    out, err = capsys.readouterr()
    assert "enters at pre_grad" in out and f"{tmp_path}/model.pt2  " in out
    assert "aoti_load_package(" in err
    saved = recorded.graph("0_0/forward")
    inputs = [torch.randn_like(tensor) if isinstance(tensor, torch.Tensor) else tensor for tensor in saved.inputs()]
    torch.save(inputs, tmp_path / "inputs.pt")
    alone = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", LOADS], cwd=tmp_path, env=alone, check=True)
    for result, wanted in zip(torch.load(tmp_path / "outputs.pt"), saved.module()(*inputs), strict=True):
        assert torch.allclose(result, wanted, atol=1e-5)


def test_a_failure_is_one_document_too(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/0_0/forward", "--json", "--full", "--import", "planted_segfault"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (
        document["error"]["message"] == "killed by SIGSEGV in lower of forward"
        and document["error"]["stage"] == "lower"
    )
    status = {row["stage"]: row["status"] for row in document["parts"][0]["stages"]}
    assert status["post_grad"] == "ok" and status["lower"] == "failed" and status["load"] == "not_run"


def test_a_hang_is_told_with_its_stage(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/0_0/forward", "--limit", "2", "--import", "planted_hang"]) == 1
    assert "still in it after 2 s in lower of forward: give it more time with --limit" in capsys.readouterr().err


def test_a_device_that_is_not_there(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert command(["compile", "run/1_0/inference", "--device", "cuda"]) == 3
    assert "the graph cannot be moved to cuda" in capsys.readouterr().err


def test_a_graph_of_a_device_that_is_not_there_goes_as_far_as_it_can(
    here: None, recorded: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    (tmp_path / "case").mkdir()
    record = recorded.graph("1_0/inference").record
    _move(record)
    (tmp_path / "case" / "graph.json").write_bytes(msgspec.json.encode(record))
    assert command(["compile", str(tmp_path / "case"), "--until", "post_grad"]) == 0
    assert "nodes, cuda, torch" in capsys.readouterr().out
    assert command(["compile", str(tmp_path / "case")]) == 3
    out, err = capsys.readouterr()
    assert "inference lower" in out and "FAILED" in out
    assert "there is no cuda device here: --target cuda:90 writes the code" in err


def _move(value: Any) -> None:
    """Every tensor of a record to a GPU."""
    if isinstance(value, TensorValue):
        value.device = "cuda:0"
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            _move(item)


@pytest.mark.slow
def test_a_refusal_of_the_compiler_shows_the_source(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", "run/0_0/forward", "--import", "planted_code"]) == 1
    out, err = capsys.readouterr()
    assert "load" in out and "FAILED CppCompileError" in out and "no_such_function" in err and "cpp_fused" in err


@pytest.mark.slow
def test_an_interrupt_names_the_stage(recorded: Run, planted_modules: Path) -> None:
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(planted_modules), "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, "-m", "graphdbg", "compile", "run/0_0/forward", "--import", "planted_hang"]
    with subprocess.Popen(
        words, cwd=recorded.path.parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("forward   post_grad"):
                break
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted in lower of forward" in err and "FAILED interrupted" in out


@pytest.mark.slow
def test_the_users_cache_is_not_touched(recorded: Run, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    words = [sys.executable, "-m", "graphdbg", "compile", "run/1_0/inference"]
    subprocess.run(words, cwd=recorded.path.parent, env=environment, check=True, capture_output=True)
    assert not list(cache.rglob("*"))
