"""Operators, devices, passes and lowerings that fail: the node, the user's line, the pass, and what to do."""

from __future__ import annotations

import multiprocessing
import os
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._dynamo import device_interface
from torch._dynamo.exc import SkipFrame
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.lowering import lowerings, register_lowering
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import Pipeline, compile_fx, compile_inner
from graphdbg.toolkit.compile_fx.errors import Explained, carried
from graphdbg.toolkit.live.entries import compiling

HERE = Path(__file__).name


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Operators that a compile cannot take, each for another reason."""
    result = torch.library.Library("errors_graph", "FRAGMENT")
    result.define("untraceable(Tensor x) -> Tensor")
    result.impl("untraceable", lambda x: x + 1, "CPU")
    result.define("unlowered(Tensor x) -> Tensor")
    result.impl("unlowered", lambda x: x + 1, "CPU")
    result.impl("unlowered", torch.empty_like, "Meta")
    result.define("aliasing(Tensor(a!) x) -> Tensor(a!)")
    result.impl("aliasing", lambda x: x.add_(1), "CPU")
    result.impl("aliasing", lambda x: x, "Meta")
    yield torch.ops.errors_graph
    result._destroy()


def told_of(pipeline: Pipeline, stage: str) -> Explained:
    """The account in the report of the stage that failed."""
    results = [report.explained for report in pipeline.reports if report.stage == stage and report.explained]
    assert results, [(report.stage, report.error[:80]) for report in pipeline.reports]
    return results[-1]


def traced(function: Any) -> Any:
    """A graph as Dynamo leaves one, with stack traces; not run through any fake propagation."""
    tracer = torch.fx.Tracer()
    tracer.record_stack_traces = True  # from a function called forward inwards
    code = function.__code__.replace(co_name="forward")
    forward = types.FunctionType(code, function.__globals__, "forward", closure=function.__closure__)
    return torch.fx.GraphModule({}, tracer.trace(forward))


def fails(graph: Any, inputs: list[Any], kind: type[BaseException] = Exception, **options: Any) -> tuple[Any, Pipeline]:
    pipeline = Pipeline(until="lower")
    with pytest.raises(kind) as caught, inductor_config.patch(options):
        compile_fx(graph, inputs, pipeline=pipeline)
    return caught.value, pipeline


def inner_fails(graph: Any, fakes: list[Any], mode: Any, pipeline: Pipeline) -> Any:
    with pytest.raises(Exception) as caught, compiling(mode):
        compile_inner(graph, fakes, is_inference=True, pipeline=pipeline)
    return caught.value


def test_an_operator_without_a_fake_kernel(library: Any) -> None:
    error, pipeline = fails(traced(lambda x: (library.untraceable.default(x.sin()),)), [torch.randn(4)])
    messages = told_of(pipeline, "capture")
    assert type(error).__name__ == "UnsupportedOperatorException" and "errors_graph.untraceable.default" in str(error)
    assert messages.kind == "unsupported operator" and messages.nodes[0].op == "errors_graph.untraceable.default"
    assert messages.nodes[0].line.startswith(HERE) and "library.untraceable" in messages.nodes[0].code
    assert '@torch.library.register_fake("errors_graph::untraceable")' in messages.fix
    assert messages.nodes[0].node in messages.what and HERE in messages.what


def test_an_operator_without_a_lowering(library: Any) -> None:
    graph = traced(lambda x: (library.unlowered.default(x) * 2,))
    error, pipeline = fails(graph, [torch.randn(4)], implicit_fallbacks=False)
    messages = told_of(pipeline, "lower")
    assert type(error).__name__ == "InductorError" and messages.error_type == "MissingOperatorWithoutDecomp"
    assert (messages.kind, messages.nodes[0].op) == ("unsupported operator", "errors_graph.unlowered.default")
    assert messages.nodes[0].line.startswith(HERE) and "implicit_fallbacks = True" in messages.fix
    assert error.graphdbg_explained == messages.text()


def test_an_operator_that_cannot_be_made_functional(library: Any) -> None:
    _, pipeline = fails(traced(lambda x: (library.aliasing.default(x.clone()),)), [torch.randn(4)])
    messages = told_of(pipeline, "capture")
    assert (messages.kind, messages.nodes[0].op) == ("unsupported operator", "errors_graph.aliasing.default")
    assert "alias annotations" in messages.why and "mutates_args" in messages.fix


def test_an_operator_that_generated_code_cannot_call(library: Any) -> None:
    mode, pipeline = FakeTensorMode(), Pipeline(until="lower")
    with mode:
        fake = torch.empty(4)
    graph = make_fx(lambda x: (library.aliasing.default(x),))(fake)
    error = inner_fails(graph, [fake], mode, pipeline)
    messages = told_of(pipeline, "lower")
    assert type(error.inner_exception).__name__ == "LoweringException"
    assert messages.kind == "unsupported operator" and "fallback is not possible" in messages.why
    assert (
        "Can't generate FallbackKernel" in messages.message and messages.nodes[0].op == "errors_graph.aliasing.default"
    )


def test_a_size_that_depends_on_data() -> None:
    _, pipeline = fails(traced(lambda x: (x.nonzero() * 2,)), [torch.randn(4)])
    messages = told_of(pipeline, "capture")
    assert messages.kind == "depends on data" and "capture_dynamic_output_shape_ops" in messages.fix
    assert messages.nodes[0].node == "nonzero" and messages.nodes[0].line.startswith(HERE)


@pytest.mark.parametrize("device", ["meta", "cuda"])
def test_operands_on_two_devices_in_capture(device: str) -> None:
    with FakeTensorMode():
        x, y = torch.empty(4), torch.empty(4, device=device)
    error, pipeline = fails(traced(lambda x, y: (torch.add(x.sin(), y),)), [x, y])
    messages = told_of(pipeline, "capture")
    name = {"meta": "meta", "cuda": "cuda:0"}[device]
    assert messages.kind == "device mismatch" and "device" in str(error)
    assert f"sin is on cpu (from the input x), y is on {name} (an input of the graph)" in messages.why
    assert messages.nodes[0].node == "add" and messages.nodes[0].line.startswith(HERE)


def test_operands_on_two_devices_in_fake_propagation() -> None:
    mode, pipeline = FakeTensorMode(), Pipeline(until="lower")
    with mode:
        fakes = [torch.empty(4), torch.empty(4, device="cuda")]
    aten = torch.ops.aten
    graph = traced(lambda x, y: (aten.add.Tensor(aten.sin.default(y), aten.cos.default(x)),))
    inner_fails(graph, fakes, mode, pipeline)
    messages = told_of(pipeline, "post_grad")
    assert messages.kind == "device mismatch"
    assert "sin_default is on cuda:0 (from the input y), cos_default is on cpu (from the input x)" in messages.why


def test_a_moved_input_is_named_before_the_first_stage() -> None:
    graph = traced(lambda weight, x: (weight * x,))
    for node in graph.graph.find_nodes(op="placeholder"):
        node.meta["val"] = torch.empty(4, device="meta")
    pipeline = Pipeline()
    with pytest.raises(UsageError) as caught:
        compile_fx(graph, [torch.empty(4, device="meta"), torch.empty(4)], pipeline=pipeline)
    assert "x (input 1) is on cpu, and the graph was traced with it on meta" in str(caught.value)
    assert "weight" not in str(caught.value) and not pipeline.reports
    assert carried(caught.value) is not None and "Move it to meta" in caught.value.graphdbg_explained  # pyright: ignore[reportAttributeAccessIssue]


class Failing(CustomGraphPass):
    """A pass of the configuration that does what it is given to the first multiplication."""

    def __init__(self, action: Callable[[Any], Any]) -> None:
        self.action = action

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
            self.action(node)

    def uuid(self) -> Any:
        return None


def refuse(node: Any) -> None:
    raise ValueError(f"no rule for {node.target}")


def endless(node: Any) -> int:
    return 1 + endless(node)


def hungry(node: Any) -> bytearray:
    return bytearray(1 << 60)


PASSES = [
    ("post_grad_custom_post_pass", "post_grad", "post_grad.post_grad_custom_post_pass"),
    ("joint_custom_pre_pass", "joint", "joint.joint_custom_pre_pass"),
]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize(("setting", "stage", "name"), PASSES)
def test_a_pass_that_raises(setting: str, stage: str, name: str, watched: bool) -> None:
    pipeline = Pipeline(until="lower", watch_passes=watched)
    with pytest.raises(Exception, match="no rule for") as caught, inductor_config.patch({setting: Failing(refuse)}):
        compile_fx(traced(lambda x: (x.sin() * 3,)), [torch.randn(4)], pipeline=pipeline)
    messages = told_of(pipeline, stage)
    assert (messages.kind, messages.pass_name) == ("pass failed", name)
    assert messages.nodes[0].op == "aten.mul.Tensor" and messages.nodes[0].line.startswith(HERE)
    assert messages.why == "ValueError: no rule for aten.mul.Tensor" and "no rule for" in str(caught.value)
    assert f"--skip {name}" in messages.fix
    assert any(line.startswith(">") and "raise ValueError" in line for line in messages.excerpt.splitlines())


def test_the_way_out_that_is_promised_works() -> None:
    pipeline = Pipeline(until="lower", skip=(PASSES[0][2],))
    with inductor_config.patch({PASSES[0][0]: Failing(refuse)}):
        compile_fx(traced(lambda x: (x.sin() * 3,)), [torch.randn(4)], pipeline=pipeline)
    assert not any(report.error for report in pipeline.reports)


def test_recursion_and_memory_are_sentences() -> None:
    for action, kind, said in ((endless, "recursion", "endless"), (hungry, "out of memory", "MemoryError")):
        graph = traced(lambda x: (x.sin() * 3,))
        error, pipeline = fails(graph, [torch.randn(4)], post_grad_custom_post_pass=Failing(action))
        messages = told_of(pipeline, "post_grad")
        assert messages.kind == kind and said in messages.why and messages.fix, error


def test_a_lowering_that_raises(library: Any) -> None:
    op = library.unlowered.default

    def lower(x: Any) -> Any:
        raise AssertionError("no such layout")

    register_lowering(op)(lower)
    try:
        error, pipeline = fails(traced(lambda x: (library.unlowered.default(x) * 2,)), [torch.randn(4)])
    finally:
        lowerings.pop(op, None)
    messages = told_of(pipeline, "lower")
    assert messages.kind == "lowering failed" and messages.why == "AssertionError: no such layout"
    assert messages.nodes[0].op == "errors_graph.unlowered.default" and messages.nodes[0].line.startswith(HERE)
    assert any(line.startswith(">") and "no such layout" in line for line in messages.excerpt.splitlines())
    assert type(error.inner_exception).__name__ == "LoweringException"


class OldGpu(device_interface.CudaInterface):
    """The interface of a GPU whose bfloat16 is emulated."""

    class properties:
        name, major, minor = "Old GPU", 7, 5

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return including_emulation


OldGpu.get_device_properties = staticmethod(lambda device=None: OldGpu.properties)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.filterwarnings("ignore:Old GPU does not support bfloat16")
@pytest.mark.parametrize("cached", [True, False])
def test_bfloat16_on_an_old_gpu(monkeypatch: pytest.MonkeyPatch, cached: bool) -> None:
    device_interface.get_interface_for_device("cpu")  # fills the table
    for name in ("cuda", "cuda:0"):
        monkeypatch.setitem(device_interface.device_interfaces, name, OldGpu)
    mode, pipeline = FakeTensorMode(), Pipeline()
    with mode:
        fake = torch.empty(4, device="cuda", dtype=torch.bfloat16)
    graph = make_fx(lambda x: (torch.ops.aten.sin.default(x),))(fake)
    settings = {"use_post_grad_passes": False, "fx_graph_cache": False}  # their patterns make tensors on the GPU
    bundled = functorch_config.patch(bundled_autograd_cache=cached)
    with pytest.raises(Exception) as caught, compiling(mode), inductor_config.patch(settings), bundled:
        compile_inner(graph, [fake], is_inference=True, pipeline=pipeline)
    # as in stock: where a result is to be kept it passes through as it is, elsewhere it is wrapped
    raised = caught.value if cached else caught.value.inner_exception  # pyright: ignore[reportAttributeAccessIssue]
    assert type(raised) is SkipFrame and str(raised) == "BF16 is not supported"
    messages = told_of(pipeline, "lower")
    assert messages.kind == "bfloat16 on an old GPU" and messages.error_type == "SkipFrame"
    assert messages.what == "bfloat16 cannot be compiled for Old GPU (compute capability 7.5)"
    assert "is bfloat16" in messages.why and "runs it uncompiled" in messages.why and "float16" in messages.fix
    assert caught.value.graphdbg_explained == messages.text()  # pyright: ignore[reportAttributeAccessIssue]


def waiting_for(future: Any) -> Callable[[Any, Pipeline], None]:
    """A stage that waits for a worker as loading does, by torch's own function."""

    def run(work: Any, pipeline: Pipeline) -> None:
        AsyncCompile()._wait_futures({"triton_poi_fused_sin_0": future})

    return run


@pytest.mark.skipif(not hasattr(inductor_config, "compile_worker_wait_timeout"), reason="this torch waits for ever")
def test_a_worker_that_hangs_is_named() -> None:
    pipeline = Pipeline(replace={"load": waiting_for(Future())})
    with pytest.raises(Exception) as caught, inductor_config.patch(compile_worker_wait_timeout=1):
        compile_fx(traced(lambda x: (x.sin() * 3,)), [torch.randn(4)], pipeline=pipeline)
    messages = told_of(pipeline, "load")
    assert messages.kind == "compile timed out" and messages.kernel == "triton_poi_fused_sin_0", caught.value
    assert "WAIT_TIMEOUT" in messages.fix and "did not" in messages.why


def test_a_worker_that_dies_is_a_sentence() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as workers:
        pipeline = Pipeline(replace={"load": waiting_for(workers.submit(os._exit, 3))})
        with pytest.raises(Exception, match="exited unexpectedly"):
            compile_fx(traced(lambda x: (x.sin() * 3,)), [torch.randn(4)], pipeline=pipeline)
    messages = told_of(pipeline, "load")
    assert messages.kind == "compile worker died" and "TORCHINDUCTOR_COMPILE_THREADS=1" in messages.fix
