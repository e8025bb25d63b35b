"""Errors of compiles for a CUDA GPU: Triton in this process and in workers, devices that do not match, memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.codegen.triton import TritonOverrides
from torch._inductor.custom_graph_pass import CustomGraphPass

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.errors import Explained

pytestmark = pytest.mark.gpu
HERE = Path(__file__).name


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w) + 1


def failing(threads: int, **options: Any) -> tuple[Any, Explained]:
    """The exception of a compile with so many compile processes, and the account in the report of load."""
    from torch._inductor.async_compile import AsyncCompile

    torch._dynamo.reset()
    pipeline = Pipeline()
    x = torch.randn(16, 16, device="cuda")

    def backend(gm: Any, given: Any) -> Any:
        return compile_fx(gm, given, config_patches=options or None, pipeline=pipeline)

    with inductor_config.patch(compile_threads=threads, fx_graph_cache=False):
        if threads > 1:
            AsyncCompile.wait_pool_ready()
        with pytest.raises(BaseException) as caught:
            torch.compile(model, backend=backend)(x, x)
    reported = next(report.explained for report in pipeline.reports if report.stage == "load")
    assert reported is not None, caught.value
    print(reported.text())
    return caught.value, reported


def check_nodes(explained: Explained) -> None:
    assert explained.kind == "Triton compile error" and explained.kernel == "triton_poi_fused_add_relu_0", explained
    assert [(node.node, node.op) for node in explained.nodes] == [
        ("relu", "aten.relu.default"),
        ("add", "aten.add.Tensor"),
    ]
    assert all(node.line.startswith(HERE) for node in explained.nodes)
    assert sum(line.startswith(">") for line in explained.excerpt.splitlines()) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_that_is_no_python(threads: int) -> None:
    error, reported = failing(threads, **{"triton.inject_relu_bug_TESTING_ONLY": "compile_error"})
    check_nodes(reported)
    assert (
        "compile error!" in reported.excerpt and "SyntaxError" in reported.compiler_line and "SyntaxError" in str(error)
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_tritons_own_error(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TritonOverrides, "relu", staticmethod(lambda x: f"tl.no_such_function({x})"))
    error, reported = failing(threads)
    check_nodes(reported)
    assert "no_such_function" in reported.why and "no_such_function" in str(error)
    marked, caret = reported.excerpt.split("\n> ")[1].splitlines()[:2]
    assert f"> {marked}".index("tl.no_such_function") == caret.index("^")


def test_inputs_on_two_devices() -> None:
    graph = torch.fx.symbolic_trace(lambda x, y: (x.sin() + y,))
    pipeline = Pipeline(until="lower")
    with pytest.raises(Exception, match="device"):
        compile_fx(graph, [torch.randn(4, device="cuda"), torch.randn(4)], pipeline=pipeline)
    reported = next(report.explained for report in pipeline.reports if report.explained)
    assert reported.kind == "device mismatch"
    assert "sin is on cuda:0 (from the input x), y is on cpu (an input of the graph)" in reported.why


def test_a_moved_input() -> None:
    graph = torch.fx.symbolic_trace(lambda x, y: (x * y,))
    for node in graph.graph.find_nodes(op="placeholder"):
        node.meta["val"] = torch.empty(4, device="cuda")
    with pytest.raises(UsageError, match=r"y \(input 1\) is on cpu, and the graph was traced with it on cuda:0"):
        compile_fx(graph, [torch.empty(4, device="cuda"), torch.empty(4)])


class Hungry(CustomGraphPass):
    """A pass that asks the GPU for more than any has."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            torch.empty(1 << 46, dtype=torch.uint8, device="cuda")

    def uuid(self) -> Any:
        return None


def test_memory_of_the_gpu() -> None:
    pipeline = Pipeline(until="lower")
    graph = torch.fx.symbolic_trace(lambda x: (x.sin() * 3,))
    with pytest.raises(Exception, match="memory"), inductor_config.patch(post_grad_custom_post_pass=Hungry()):
        compile_fx(graph, [torch.randn(4, device="cuda")], pipeline=pipeline)
    reported = next(report.explained for report in pipeline.reports if report.explained)
    assert (
        reported.kind == "out of memory" and "of the GPU" in reported.fix and reported.error_type == "OutOfMemoryError"
    )
