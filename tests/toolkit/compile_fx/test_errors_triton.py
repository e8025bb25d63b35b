"""Triton that does not compile: Inductor's real kernels for a GPU that is not here, refused by Triton itself.

A stand-in driver answers for an sm_90 GPU, which is as far as Triton's front end asks.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.codegen.triton import TritonOverrides
from torch._inductor.compile_worker.subproc_pool import SubprocException
from torch._inductor.runtime import hints, triton_helpers

from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.errors import Explained, explain
from graphdbg.toolkit.compile_fx.stage import Work

triton = pytest.importorskip("triton")
HERE = Path(__file__).name


class StandInDriver:
    """Enough of a driver for code to be written and Triton's front end to run."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


@pytest.fixture
def kernels_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton kernels for CPU tensors, compiled for sm_90."""
    fields = {
        "type": "cuda",
        "index": 0,
        "multi_processor_count": 132,
        "cc": 90,
        "major": 9,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "max_threads_per_block": 1024,
        "warp_size": 32,
    }
    known = {name: value for name, value in fields.items() if name in hints.DeviceProperties._fields}
    monkeypatch.setattr(hints.DeviceProperties, "create", classmethod(lambda cls, device: cls(**known)))
    monkeypatch.setattr(triton_helpers, "set_driver_to_gpu", lambda: None)
    monkeypatch.setattr(triton.runtime.driver, "_active", StandInDriver(), raising=False)
    torch._dynamo.reset()
    with inductor_config.patch(cpu_backend="triton", fx_graph_cache=False, compile_threads=1):
        yield
    torch._dynamo.reset()


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w) + 1


def failing(**options: Any) -> tuple[Any, Explained, Work]:
    """The exception of a compile, the account in the report of load, and the work of that stage."""
    works: list[Work] = []

    class Keep:
        wants_passes = False

        def before(self, stage: Any, work: Work) -> None:
            works.append(work)

        def after(self, stage: Any, work: Work, report: Any) -> None:
            works.append(work)

    pipeline = Pipeline(observers=[Keep()])  # pyright: ignore[reportArgumentType]
    x = torch.randn(16, 16)

    def backend(gm: Any, given: Any) -> Any:
        return compile_fx(gm, given, config_patches=options or None, pipeline=pipeline)

    with pytest.raises(BaseException) as caught:
        torch.compile(model, backend=backend)(x, x)
    reported = next(report.explained for report in pipeline.reports if report.stage == "load")
    assert reported is not None, caught.value
    return caught.value, reported, next(work for work in reversed(works) if work.coded is not None)


def test_a_kernel_that_is_no_python(kernels_for_a_gpu: None) -> None:
    error, reported, _ = failing(**{"triton.inject_relu_bug_TESTING_ONLY": "compile_error"})
    assert type(error).__name__ == "InductorError" and "Failed to import" in str(error)
    assert reported.kind == "Triton compile error" and reported.kernel == "triton_poi_fused_add_relu_0"
    assert [(node.node, node.op, node.line.split(":")[0]) for node in reported.nodes] == [
        ("relu", "aten.relu.default", HERE),
        ("add", "aten.add.Tensor", HERE),
    ]
    assert reported.nodes[0].code == "return torch.relu(x @ w) + 1"
    marked = [line for line in reported.excerpt.splitlines() if line.startswith(">")]
    assert len(marked) == 1 and "tmp1 = compile error!" in marked[0]
    assert "SyntaxError" in reported.compiler_line and reported.line is not None
    assert "compile error!" in Path(reported.file).read_text().splitlines()[reported.line - 1]


def test_tritons_own_error_with_line_and_caret(kernels_for_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TritonOverrides, "relu", staticmethod(lambda x: f"tl.no_such_function({x})"))
    error, reported, work = failing()
    assert type(error.inner_exception).__name__ == "CompilationError"
    check_refused(reported)
    assert reported.compiler_line.startswith(f"{reported.kernel}:{reported.line}:") and reported.message in str(error)
    # what a worker process sends is the same error as text
    with pytest.raises(Exception) as again:
        raise error.inner_exception
    details = "".join(traceback.format_exception(type(again.value), again.value, again.value.__traceback__))
    sent = SubprocException(details, reported.kernel)
    from_worker = explain(sent, work, "load")
    check_refused(from_worker)
    assert (from_worker.line, from_worker.column, from_worker.excerpt) == (
        reported.line,
        reported.column,
        reported.excerpt,
    )


def check_refused(explained: Explained) -> None:
    """The account of a kernel that calls a function which Triton has not."""
    assert explained.kind == "Triton compile error" and explained.kernel == "triton_poi_fused_add_relu_0", explained
    assert "no_such_function" in explained.why
    assert [node.node for node in explained.nodes] == ["relu", "add"]
    lines = explained.excerpt.splitlines()
    marked = next(i for i, line in enumerate(lines) if line.startswith(">"))
    assert "tl.no_such_function" in lines[marked] and lines[marked + 1].strip(" |") == "^"
    assert lines[marked].index("tl.no_such_function") == lines[marked + 1].index("^")
