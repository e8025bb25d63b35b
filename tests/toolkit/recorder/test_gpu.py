"""Recording on a GPU: Triton kernels, CUDA graphs, autocast to float16."""

from __future__ import annotations

from pathlib import Path

import pytest

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
