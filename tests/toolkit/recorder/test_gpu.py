"""Recording on a GPU: Triton kernels, CUDA graphs, autocast to float16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import graphdbg

KINDS = ("static", "dynamic", "reduce_overhead", "autocast", "convnet", "triton_kernel")


@pytest.mark.gpu
def test_output_is_unchanged_and_kernels_are_kept(runner):
    script = str(Path(__file__).parent / "scripts" / "gpu.py")
    plain = runner.python(script, *KINDS)
    done = runner.dump("gpu", "--inputs", "first", "--", script, *KINDS)
    assert plain.code == 0, plain.stderr
    assert done.stdout == plain.stdout
    assert "not recorded" not in done.stderr, done.stderr
    run = graphdbg.open_run(done.run)
    assert any(path.name.startswith("triton_") for path in run.graph("0_0/forward").code_files())
    assert {saved.status for saved in run.graphs()} <= {"ran", "compiled", "skipped"}


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["static", "reduce_overhead"])
def test_a_nan_on_the_gpu_leaves_the_step_that_gives_it(runner, way):
    script = str(Path(__file__).parent / "scripts" / "gpu_nan.py")
    plain = runner.python(script, way)
    done = runner.dump(f"gpu-nan-{way}", "--when", "nan,error", "--", script, way)
    assert plain.code == 0, plain.stderr
    assert done.stdout == plain.stdout, done.stderr
    assert "NaN first in 0_0/backward" in done.stderr and "execution 37" in done.stderr, done.stderr
    run = graphdbg.open_run(done.run)
    assert {run.graph(f"0_0/{stage}").inputs_record.execution for stage in ("forward", "backward")} == {37}
    outcome = graphdbg.replay(run.graph("0_0/backward"))
    assert outcome.nan == outcome.eager_nan != [], outcome.text


@pytest.mark.gpu
def test_an_assert_on_the_device_leaves_the_inputs_of_its_step(runner):
    script = str(Path(__file__).parent / "scripts" / "gpu_nan.py")
    plain = runner.python(script, "assert")
    done = runner.dump("gpu-assert", "--when", "error", "--", script, "assert")
    assert done.code == plain.code != 0
    assert "those of" in done.stderr and "are kept" in done.stderr, done.stderr
    inputs = graphdbg.open_run(done.run).graph("0_0/forward").inputs()
    rows = [
        value for value in inputs if isinstance(value, torch.Tensor) and value.dtype is torch.int64 and value.numel()
    ]
    assert any(int(value.max()) == 10**6 for value in rows)


@pytest.mark.gpu
@pytest.mark.parametrize("inputs", ["last", "first"])
def test_last_inputs_of_a_killed_gpu_run_equal_what_it_saved(runner, inputs):
    script = str(Path(__file__).parent / "scripts" / "gpu_nan.py")
    done = runner.dump(f"gpu-kill-{inputs}", "--inputs", inputs, "--", script, "kill")
    assert done.code == 137, done.stderr
    wanted = torch.load(runner.folder / "killed.pt", map_location="cuda")
    values = [
        value for value in graphdbg.open_run(done.run).graph("0_0/forward").inputs() if isinstance(value, torch.Tensor)
    ]
    results = [any(item.shape == value.shape and torch.equal(item, value) for item in values) for value in wanted]
    assert all(results) == (inputs == "last")
