"""The stage and its decisions, on the CPU, and what surrounds it, held against stock."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._inductor import compile_fx as stock

from graphdbg.dumps.wording import listed
from graphdbg.toolkit import torch_private as t
from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.inputs import InputName, readable


@pytest.fixture(autouse=True)
def ours_alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Torch's own post_compile is closed; AOTAutograd's cache would call it."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("torch's own function was called")

    for owner, name in ((stock, "cudagraphify"), (t.CompiledFxGraph, "post_compile")):
        monkeypatch.setattr(owner, name, refused)
    torch._dynamo.reset()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield
    torch._dynamo.reset()


def compiled(function: Any, pipeline: Pipeline, **settings: Any) -> Any:
    def backend(gm: Any, inputs: Any) -> Any:
        return compile_fx(gm, inputs, config_patches=settings or None, pipeline=pipeline)

    return torch.compile(function, backend=backend)


def notes(pipeline: Pipeline, stage: str) -> dict[str, str]:
    return {report.part: "\n".join(report.notes) for report in pipeline.reports if report.stage == stage}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(signal)).t()


@pytest.mark.long
@pytest.mark.parametrize("skip", [(), ("align", "cudagraphs")])
@pytest.mark.parametrize("asked", [False, True])
def test_without_a_gpu_the_report_says_so_and_training_is_right(asked: bool, skip: tuple[str, ...]) -> None:
    model, x, pipeline = Model(), torch.randn(3, 4), Pipeline(skip=skip)
    call = compiled(model, pipeline, **{"triton.cudagraphs": asked})
    call(x).sum().backward()
    got, model.fc.weight.grad = model.fc.weight.grad, None
    model(x).sum().backward()
    torch.testing.assert_close(got, model.fc.weight.grad)
    said = notes(pipeline, "cudagraphs")
    if skip:
        assert said == {"forward": "", "backward": ""}
    elif asked:
        assert said["forward"] == "not used: no CUDA device in this graph"
        assert said["backward"] == "not used: its forward is not recorded (no CUDA device in this graph)"
    else:
        assert set(said.values()) == {"not used: not asked for (triton.cudagraphs)"}


def test_inputs_are_called_as_in_the_program() -> None:
    seen: dict[str, list[str]] = {}

    def look(work: Any, pipeline: Pipeline) -> None:
        from graphdbg.toolkit.compile_fx.inputs import names_of
        from graphdbg.toolkit.compile_fx.pipeline import usual

        seen[work.part] = [str(name) for name in names_of(work.gm)]
        usual("align")(work, pipeline)

    model = Model()
    compiled(model, Pipeline(replace={"align": look}))(torch.randn(3, 4, requires_grad=True)).sum().backward()
    assert seen["forward"] == ["primals_1 (self.fc.weight)", "primals_2 (self.fc.bias)", "primals_3 (signal)"]
    assert "primals_1 (self.fc.weight)" in seen["backward"]
    assert readable("L['self']._modules['a']._modules['0']._buffers['b']") == "self.a.0.b"
    assert readable("L['xs'][0]") == "xs[0]"
    assert str(InputName("x", "x")) == "x" and listed("abcd", 2) == "a, b and 2 more"


@pytest.mark.slow
def test_partition_wrapper_of_the_user_takes_over() -> None:
    from torch._inductor.utils import set_customized_partition_wrappers

    x, pipeline = torch.randn(3, 4), Pipeline()
    set_customized_partition_wrappers(lambda call, _: call)
    try:
        with torch.no_grad():
            result = compiled(torch.sin, pipeline, graph_partition=True)(x)
    finally:
        set_customized_partition_wrappers(None)
    torch.testing.assert_close(result, torch.sin(x))
    assert notes(pipeline, "align")["inference"] == "left to the customized partition wrapper"
    assert notes(pipeline, "cudagraphs")["inference"].startswith("left to the customized partition wrapper")


def test_compiled_regions_are_one_operator_for_dispatch_modes() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Watching(TorchDispatchMode):
        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    from torch._higher_order_ops.wrap import inductor_compiled_code

    @inductor_compiled_code.py_impl(Watching)
    def _(mode: Any, call: Any, inputs: Any, **_: Any) -> Any:
        seen.append("inductor_compiled_code")
        return call(inputs)

    x = torch.randn(3, 4)
    with torch.no_grad():
        call = compiled(lambda x: torch.sin(x) + 1, Pipeline(), wrap_inductor_compiled_regions=True)
        call(x)
        with Watching():
            result = call(x)
    torch.testing.assert_close(result, torch.sin(x) + 1)
    assert "inductor_compiled_code" in seen


def test_code_from_the_cache_of_autograd_goes_through_the_same_stages() -> None:
    model, x = Model(), torch.randn(3, 4)
    for again in (False, True):
        torch._dynamo.reset()
        pipeline = Pipeline()
        with torch._functorch.config.patch(enable_autograd_cache=True):
            compiled(model, pipeline, **{"triton.cudagraphs": True})(x).sum().backward()
        ran = {report.stage for report in pipeline.reports if report.part == "forward"}
        assert not again or ran == {"align", "cudagraphs"}
        assert notes(pipeline, "align")["forward"] == "nothing to check: CPU kernels load from anywhere"
        assert notes(pipeline, "cudagraphs")["forward"] == "not used: no CUDA device in this graph"
    assert t.CompiledFxGraph.post_compile.__name__ == "refused"  # as before


def with_stock(function: Any, inputs: Any, **settings: Any) -> None:
    """The same through torch's compile_fx, whose post_compile is open again for it."""
    from torch._inductor.compile_fx import compile_fx as stock

    torch._dynamo.reset()
    backend = lambda gm, given: stock(gm, given, config_patches=settings)  # noqa: E731
    with torch.no_grad():
        torch.compile(function, backend=backend)(*inputs)


@pytest.mark.parametrize("partition", [True, False])
def test_skips_are_counted_as_in_stock(partition: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"triton.cudagraphs": True, "graph_partition": partition}
    x = torch.randn(3)
    t.counters.clear()
    with torch.no_grad():
        compiled(torch.cos, Pipeline(), **settings)(x)
    ours = t.counters["inductor"]["cudagraph_skips"]
    monkeypatch.undo()
    t.counters.clear()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        with_stock(torch.cos, [x], **settings)
    assert ours == t.counters["inductor"]["cudagraph_skips"] == 1


@pytest.mark.skipif(not hasattr(t.inductor_config, "cudagraph_policy"), reason="this torch has no CUDAGraphPolicy")
def test_policy_is_asked_as_in_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.cudagraph_utils import CUDAGraphPolicy

    asked: list[str] = []

    class Policy(CUDAGraphPolicy):
        def should_wrap(self, compiled_graph: Any) -> bool:
            asked.append("should_wrap")
            return False

        def wrap_output(self, output_code: Any) -> Any:
            asked.append("wrap_output")
            return output_code

    x, pipeline = torch.randn(3), Pipeline()
    with t.inductor_config.patch(cudagraph_policy=Policy()), torch._functorch.config.patch(enable_autograd_cache=False):
        with torch.no_grad():
            compiled(torch.cos, pipeline)(x)
        ours = list(asked)
        asked.clear()
        monkeypatch.undo()
        with_stock(torch.cos, [x])
    assert ours == asked == ["should_wrap", "wrap_output"]
    assert notes(pipeline, "cudagraphs")["inference"] == "not used: the CUDAGraphPolicy leaves this graph alone"
