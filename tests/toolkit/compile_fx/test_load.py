"""What the load stage says: what was loaded, and by torch's own clocks what took the time."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch._inductor import config

from graphdbg.toolkit.backends import graphdbg_triton
from graphdbg.toolkit.compile_fx import Pipeline

X = torch.linspace(-1, 1, 49).reshape(7, 7)


def notes(kernel: bool) -> list[str]:
    pipeline = Pipeline()
    torch._dynamo.reset()
    with config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        function = (lambda x: (x @ x).relu().softmax(0)) if kernel else (lambda x: x @ x)
        torch.compile(function, backend=graphdbg_triton, options={"pipeline": pipeline})(X)
    return next(report.notes for report in pipeline.reports if report.stage == "load")


def test_kernels_are_counted_and_their_time_told() -> None:
    loaded, spent = notes(kernel=True)
    assert loaded == "a module with 1 C++ kernel"
    assert re.search(r"Python load, kernels included \d+\.\d\d\d s", spent)


def test_a_call_of_a_library_alone_loads_no_kernel() -> None:
    assert notes(kernel=False)[0] == "a module without kernels of its own"


def test_a_build_is_told(tmp_path: Path) -> None:
    pipeline = Pipeline()
    torch._dynamo.reset()
    unique = float(tmp_path.stat().st_mtime_ns % 1_000_003)  # code that no cache has seen
    with config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        torch.compile(lambda x: x.relu() + unique, backend=graphdbg_triton, options={"pipeline": pipeline})(X)
    report = next(report for report in pipeline.reports if report.stage == "load")
    match = re.search(r"C\+\+ build (\d+\.\d+) s", report.notes[1])
    assert match is not None
    assert 0 < float(match[1]) <= report.seconds
