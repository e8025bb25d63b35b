"""What `compile_fx` takes and returns: graphs of any output, nested inputs, settings, decompositions, and where it
stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import Tensor, fx, nn

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import NAMES, Observer, Pipeline, Stage, StageReport, compile_fx, compile_inner
from graphdbg.toolkit.compile_fx.inner import product_of
from graphdbg.toolkit.compile_fx.pipeline import Unfinished
from graphdbg.toolkit.compile_fx.stage import Work

X = torch.linspace(-1, 1, 12).view(3, 4)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    with functorch_config.patch(enable_autograd_cache=False), inductor_config.patch(fx_graph_cache=False):
        yield
    torch._dynamo.reset()


class Asking(Observer):
    """Notes what `ask(work)` is at the beginning of one stage, for each part."""

    def __init__(self, stage: str, ask: Callable[[Work], Any]) -> None:
        self.stage, self.ask = stage, ask
        self.seen: dict[str, Any] = {}

    def before(self, stage: Stage, work: Work) -> None:
        if stage.name == self.stage:
            self.seen[work.part] = self.ask(work)


class Linear(nn.Module):
    """Trains, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.linear(x), 0.5, self.training).sin()


def parts(pipeline: Pipeline) -> list[str]:
    return list(dict.fromkeys(report.part for report in pipeline.reports))


def stages(pipeline: Pipeline, part: str) -> list[str]:
    return [report.stage for report in pipeline.reports if report.part == part]


def test_a_graph_that_returns_no_tuple_returns_what_it_did() -> None:
    gm = fx.symbolic_trace(lambda x: {"a": x + 1, "b": [x * 2, (x,)]})
    result = compile_fx(gm, [X])(X)
    assert set(result) == {"a", "b"}
    assert torch.equal(result["a"], X + 1)
    assert torch.equal(result["b"][0], X * 2)
    assert torch.equal(result["b"][1][0], X)


def test_a_graph_of_dynamo_export_keeps_its_nesting() -> None:
    def function(given: dict[str, Tensor], scale: Tensor) -> dict[str, list[Tensor]]:
        return {"out": [given["x"] * scale, given["y"].cos()]}

    given = ({"x": X, "y": X + 1}, torch.tensor(2.0))
    gm, _ = torch._dynamo.export(function)(*given)
    result = compile_fx(gm, given)(*given)
    assert torch.equal(result["out"][0], X * 2)
    assert torch.equal(result["out"][1], torch.compile(torch.cos)(X + 1))


def test_nested_inputs_are_flattened() -> None:
    gm = fx.symbolic_trace(lambda xs, pair: (xs[0] + xs[1]["k"] * pair[1],))
    given = [[X, {"k": X + 2}], (X, X + 3)]
    (result,) = compile_fx(gm, given)(*given)
    torch.testing.assert_close(result, X + (X + 2) * (X + 3))


@pytest.mark.long
def test_settings_reach_a_backward_that_is_compiled_at_its_first_call() -> None:
    asking = Asking("lower", lambda work: (inductor_config.size_asserts, inductor_config.triton.cudagraphs))
    pipeline = Pipeline([asking])
    patches = {"size_asserts": False}
    backend = lambda gm, given: compile_fx(gm, given, config_patches=patches, pipeline=pipeline)  # noqa: E731
    assert inductor_config.size_asserts
    out = torch.compile(Linear(), backend=backend)(X)
    assert asking.seen == {"forward": (False, False)}  # no size is symbolic, so torch waits
    assert parts(pipeline) == ["dynamo", "joint", "forward"]
    out.sum().backward()
    assert asking.seen["backward"] == (False, False)
    assert stages(pipeline, "backward") == list(NAMES[NAMES.index("post_grad") :])
    assert inductor_config.size_asserts


@pytest.mark.long
def test_a_backward_with_symbolic_sizes_is_compiled_at_once() -> None:
    pipeline = Pipeline()
    backend = lambda gm, given: compile_fx(gm, given, pipeline=pipeline)  # noqa: E731
    weight = torch.ones(4, requires_grad=True)
    out = torch.compile(lambda x, w: (x + w).mean(0), backend=backend, dynamic=True)(X, weight)
    assert parts(pipeline) == [
        "dynamo",
        "joint",
        "forward",
        "backward",
    ]  # it needs the number of rows that were averaged
    out.sum().backward()
    torch.testing.assert_close(weight.grad, torch.ones(4))


@pytest.mark.parametrize("cpp_wrapper", [False, True])
def test_an_input_on_another_device_is_named(cpp_wrapper: bool) -> None:
    gm = fx.symbolic_trace(lambda x, weight: (x + weight,))
    for node, device in zip(gm.graph.find_nodes(op="placeholder"), ("cpu", "meta"), strict=True):
        node.meta["val"] = torch.empty(3, 4, device=device)
    with pytest.raises(UsageError, match=r"weight \(input 1\) is on cpu, and the graph was traced with it on meta"):
        compile_fx(gm, [X, X], config_patches={"cpp_wrapper": cpp_wrapper})


def test_decompositions_of_the_caller_are_used() -> None:
    table = {torch.ops.aten.sinc.default: lambda x: x.cos()}
    (result,) = compile_fx(fx.symbolic_trace(lambda x: (torch.sinc(x),)), [X], decompositions=table)(X)
    torch.testing.assert_close(result, X.cos())


def test_an_inner_compiler_of_the_caller_is_used() -> None:
    seen: list[bool] = []

    def inner(gm: Any, inputs: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["is_inference"])
        return compile_inner(gm, inputs, **kwargs)

    with torch.no_grad():
        (result,) = compile_fx(fx.symbolic_trace(lambda x: (x + 1,)), [X], inner_compile=inner)(X)
    assert seen == [True]
    assert torch.equal(result, X + 1)


def test_an_empty_graph_is_returned_as_it_is() -> None:
    pipeline = Pipeline()
    (result,) = compile_fx(fx.symbolic_trace(lambda x: (x,)), [X], pipeline=pipeline)(X)
    assert torch.equal(result, X)
    assert stages(pipeline, "inference") == ["joint"]
    assert pipeline.caches == []


def test_the_inner_compiler_refuses_a_graph_without_a_tuple() -> None:
    gm = fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(UsageError, match="not a tuple"):
        compile_inner(gm, [X], is_inference=True)


def test_arguments_are_saved_where_the_setting_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import itertools
    import tempfile

    import torch._inductor.debug as debug

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(debug, "save_args_cnt", itertools.count())
    compile_fx(fx.symbolic_trace(lambda x: (x.tan(),)), [X], config_patches={"save_args": True})
    assert [path.name for path in tmp_path.rglob("*.pkl")] == ["compile_fx_inner_0.pkl"]


def test_random_numbers_go_on_where_they_were() -> None:
    state = torch.get_rng_state()
    compile_fx(fx.symbolic_trace(lambda x: (torch.dropout(x, 0.5, True),)), [X])
    assert torch.equal(torch.get_rng_state(), state)


def test_strides_of_outputs_are_told_to_who_traces() -> None:
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    gm = make_fx(lambda x: (x.permute(1, 0) + 1, x * 2), tracing_mode="fake")(X)
    with FakeTensorMode() as mode:
        fake = torch.empty(3, 4)
    with tracing(TracingContext(mode)), TracingContext.report_output_strides() as strides:
        compile_inner(gm, [fake], is_inference=True)
    assert strides == [(1, 4), (4, 1)]


def test_a_compile_without_caches_uses_a_folder_of_its_own() -> None:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    outside = Path(cache_dir())
    asking = Asking("codegen", lambda work: Path(cache_dir()))
    pipeline = Pipeline([asking], until="codegen")
    gm = fx.symbolic_trace(lambda x: (x + 1,))
    compile_fx(gm, [X], config_patches={"force_disable_caches": True}, pipeline=pipeline)
    assert asking.seen["inference"].parent == outside


def test_the_hint_about_tf32_is_given_where_torch_finds_it_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch asks for a GPU that has it, so what it asks is answered here; the hint on a real one is in the test
    below."""
    from torch._inductor import compile_fx as stock

    messages: list[str] = []
    monkeypatch.setattr(stock, "is_tf32_warning_applicable", lambda gm: True)
    monkeypatch.setattr(stock, "_warn_tf32_disabled", lambda: messages.append("hint"))
    compile_fx(fx.symbolic_trace(lambda x: (x + 1,)), [X])
    assert messages == ["hint"]


@pytest.mark.gpu
def test_the_hint_about_tf32_on_a_gpu() -> None:
    from torch._inductor import compile_fx as stock

    stock._warn_tf32_disabled.cache_clear()
    x = torch.ones(16, 16, device="cuda")
    with pytest.warns(UserWarning, match="TensorFloat32"):
        compile_fx(fx.symbolic_trace(lambda x: (x @ x,)), [x])


@pytest.mark.long
@pytest.mark.parametrize("until", NAMES)
def test_training_stops_behind_each_stage(until: str) -> None:
    pipeline = Pipeline(until=until)
    module = Linear()
    compiled = torch.compile(module, backend=lambda gm, given: compile_fx(gm, given, pipeline=pipeline))
    if until == NAMES[-1]:
        compiled(X).sum().backward()
        assert module.linear.weight.grad is not None
        return
    with pytest.raises(UsageError, match=f"its compile was stopped after {until}"):
        compiled(X)
    ran = [report.stage for report in pipeline.reports if not report.error]
    assert max(map(NAMES.index, ran)) == NAMES.index(until)


@pytest.mark.parametrize("until", NAMES[:-1])
def test_inference_stops_behind_each_stage(until: str) -> None:
    pipeline = Pipeline(until=until)
    with torch.no_grad():
        result = compile_fx(fx.symbolic_trace(lambda x: (x.sin() + 1,)), [X], pipeline=pipeline)
    assert isinstance(result, Unfinished) == (until in ("pre_grad", "capture"))  # later ones stop inside AOTAutograd
    with pytest.raises(UsageError, match=f"stopped after {until}"):
        result(X)
    inference = [name for name in NAMES[2:] if name != "partition" and NAMES.index(name) <= NAMES.index(until)]
    assert stages(pipeline, "inference") == inference


def test_a_replacement_does_the_work_of_a_stage() -> None:
    def replacement(work: Work, pipeline: Pipeline) -> None:
        for node in work.gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
            node.target = torch.ops.aten.cos.default

    pipeline = Pipeline(replace={"joint": replacement})
    with torch.no_grad():
        (result,) = compile_fx(fx.symbolic_trace(lambda x: (x.sin(),)), [X], pipeline=pipeline)(X)
    torch.testing.assert_close(result, X.cos())
    (report,) = (report for report in pipeline.reports if report.stage == "joint")
    assert report.replaced
    assert (report.removed, report.added) == ({"aten.sin.default": 1}, {"aten.cos.default": 1})


@pytest.mark.long
@pytest.mark.parametrize("stage", [name for name in NAMES if name in ("pre_grad", "joint", "post_grad")])
def test_a_stage_that_rewrites_can_be_skipped(stage: str) -> None:
    pipeline = Pipeline(skip=[stage])
    module = Linear().eval()
    compiled = torch.compile(module, backend=lambda gm, given: compile_fx(gm, given, pipeline=pipeline))(X)
    torch.testing.assert_close(compiled, module(X))
    reports: list[StageReport] = [report for report in pipeline.reports if report.stage == stage]
    assert reports
    assert all(report.skipped_because for report in reports)


def test_sizes_of_products_for_the_log() -> None:
    assert product_of("aten.addmm_8_16_32") == ("aten.addmm", "-", "8", "16", "32")
    assert product_of("aten.bmm_2_3_4_5") == ("aten.bmm", "2", "3", "4", "5")
    assert product_of("odd") == ("odd", "-", "?", "?", "?")


class TestBackend:
    """torch.compile(backend="graphdbg_triton")."""

    def test_modes_are_torch_compiles(self) -> None:
        asking = Asking("lower", lambda work: inductor_config.triton.cudagraphs)
        options = {"observers": [asking], "size-asserts": False}
        torch.compile(torch.sin, backend="graphdbg_triton", options=options)(X)
        torch._dynamo.reset()
        assert asking.seen == {"inference": False}
        from graphdbg.toolkit.compile_fx.entering import compile_graph

        asking = Asking("pre_grad", lambda work: inductor_config.triton.cudagraphs)
        pipeline = Pipeline([asking], until="pre_grad")
        gm = fx.symbolic_trace(lambda x: (x.sin(),))
        compile_graph(gm, [X], {"pipeline": pipeline}, "reduce-overhead")
        assert asking.seen == {"dynamo": True}

    def test_an_unknown_option_is_a_sentence(self) -> None:
        with pytest.raises(Exception, match="backend graphdbg_triton has no option 'skp'"):
            torch.compile(torch.sin, backend="graphdbg_triton", options={"skp": ("joint",)})(X)

    def test_an_unknown_mode_is_a_sentence(self) -> None:
        with pytest.raises(Exception, match="backend graphdbg_triton has no mode 'fastest'"):
            torch.compile(torch.sin, backend="graphdbg_triton", mode="fastest")(X)

    def test_until_is_an_option(self) -> None:
        with pytest.raises(UsageError, match="stopped after lower"):
            torch.compile(torch.sin, backend="graphdbg_triton", options={"until": "lower"})(X)
