"""What passes are seen to do: each that runs has a name of the table, a planted rewrite shows, and watching changes
nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.passes import PassReport, known
from graphdbg.toolkit.compile_fx.passes.watching import current, watched
from graphdbg.toolkit.compile_fx.pipeline import Observer

from .passes_cases import Case, compiled, seen, small, swap_relu


class Attention(torch.nn.Module):
    """A layer of a transformer: norm, attention with dropout, and a branch on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.into = torch.nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.into(self.norm(x)).view(2, 8, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.nn.functional.dropout((q @ k.transpose(-2, -1) * 0.5).softmax(-1), 0.1, self.training)
        y = (weights @ v).transpose(1, 2).reshape(2, 8, 16)
        return torch.cond(y.sum() > 0, lambda z: z.sin().view(2, 8, 16), lambda z: z.cos() * 1, (y,)).sum()


def convolutions() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(2)
    )


def watched_compile(model: Any, inputs: list[Any], skip: tuple[str, ...] = ()) -> Pipeline:
    """Through torch.compile, forward and backward, as far as code."""
    import torch._functorch.config as functorch_config

    pipeline = Pipeline(skip=skip, watch_passes=True, until="codegen")
    torch._dynamo.reset()
    with (
        functorch_config.patch(force_non_lazy_backward_lowering=True),
        pytest.raises(Exception, match="stopped after codegen"),
    ):
        torch.compile(model, backend="graphdbg_triton", options={"pipeline": pipeline})(*inputs)
    return pipeline


def training_attention() -> Pipeline:
    return watched_compile(Attention(), [torch.randn(2, 8, 16)])


def training_convolutions() -> Pipeline:
    model = convolutions()
    model(torch.randn(2, 3, 8, 8))
    return watched_compile(model, [torch.randn(2, 3, 8, 8)])


def inference() -> Pipeline:
    with torch.no_grad():
        return watched_compile(Attention().eval(), [torch.randn(2, 8, 16)])


@pytest.fixture(scope="module")
def attention() -> Pipeline:
    return training_attention()


@pytest.mark.long
def test_each_pass_of_a_transformer_in_training_is_in_the_table(attention: Pipeline) -> None:
    assert not unknown(attention)
    assert {report.part for report in attention.reports} >= {"dynamo", "joint", "forward"}


@pytest.mark.long
@pytest.mark.parametrize("run", [training_convolutions, inference])
def test_each_pass_that_runs_is_in_the_table(run: Callable[[], Pipeline]) -> None:
    assert not unknown(run())


def unknown(pipeline: Pipeline) -> list[str]:
    result = seen(pipeline)
    assert len(result) > 30
    return [name for name in result if known(*name.split(".", 1)) is None]


def test_passes_on_bodies_are_told_by_the_path_of_the_body(attention: Pipeline) -> None:
    removed = [item for item in seen(attention)["joint.remove_noop_ops"] if item.graph == "true_graph_0"]
    assert [item.removed for item in removed] == [{"aten.view.default": 1}]
    paths = {item.graph for item in seen(attention)["post_grad.stable_sort"]}
    assert {"", "true_graph_0", "false_graph_0"} <= paths


def test_matches_of_patterns_are_told_with_the_users_line(attention: Pipeline) -> None:
    (early,) = [item for item in seen(attention)["joint.early_patterns"] if not item.graph]
    (pairs,) = [item for item in early.matched if item.name == "pointless_permute_pair"]
    assert pairs.count == 1 and early.removed == {"aten.permute.default": 2}
    assert pairs.lines[0].startswith("test_passes_seen.py:")
    assert early.matches == sum(item.count for item in early.matched) > 1


def test_passes_inside_passes_are_told_so(attention: Pipeline) -> None:
    inner = [item for item in seen(attention)["joint.fuse_seed_creation_pass"] if not item.graph]
    assert [item.inside for item in inner] == ["replace_random_passes"]
    (outer,) = [item for item in seen(attention)["joint.replace_random_passes"] if not item.graph]
    assert outer.removed == {"aten.rand.default": 1} and "prims.inductor_random.default" in outer.added


def test_a_new_order_is_a_change() -> None:
    def late(graph: torch.fx.Graph) -> None:
        relu = next(node for node in graph.nodes if node.target is torch.ops.aten.relu.default)
        list(graph.nodes)[-2].append(relu)

    case = Case(lambda x, y: (x.relu(), y.sin()), small, (), {"joint_custom_post_pass": late})
    (report,) = seen(compiled(case))["joint.joint_custom_post_pass"]
    assert report.changed and report.reordered and not (report.removed or report.added or report.rewired)


def test_a_planted_rewrite_shows_with_its_effect() -> None:
    case = Case(lambda x, y: x.relu() + y, small, (), {"joint_custom_pre_pass": swap_relu})
    pipeline = compiled(case)
    (report,) = seen(pipeline)["joint.joint_custom_pre_pass"]
    assert (report.removed, report.added) == ({"aten.relu.default": 1}, {"aten.sigmoid.default": 1})
    (stage,) = [report for report in pipeline.reports if report.stage == "joint"]
    assert (stage.removed, stage.added) == (report.removed, report.added)
    changed = [
        own_pass.full_name
        for own_pass in stage.passes
        if own_pass.changed and own_pass.name != "stable_topological_sort"
    ]
    assert changed == ["joint.joint_custom_pre_pass"]


def test_a_planted_pattern_shows_and_can_be_left_out_alone() -> None:
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.pattern_matcher import Arg, CallFunction, register_graph_pattern

    group = joint_graph.pass_patterns[1]
    before = {key: list(entries) for key, entries in group.patterns.items()}

    @register_graph_pattern(CallFunction(torch.ops.aten.erf.default, Arg()), pass_dict=group)
    def planted_erf(match: Any, x: Any) -> None:
        match.replace_by_example(lambda x: torch.tanh(x), [x])

    case = Case(lambda x, y: torch.erf(x) + y, small, ())
    try:
        (report,) = seen(compiled(case))["joint.softmax_patterns"]
        without = compiled(case, ("joint.pass_pattern_1/planted_erf",))
    finally:
        group.patterns.clear()
        group.patterns.update(before)
    assert (report.removed, report.added) == ({"aten.erf.default": 1}, {"aten.tanh.default": 1})
    assert [(item.name, item.count) for item in report.matched] == [("planted_erf", 1)]
    (report,) = seen(without)["joint.softmax_patterns"]
    assert not report.changed and [(item.name, item.count, item.skipped) for item in report.matched] == [
        ("planted_erf", 0, 1)
    ]
    assert without.skipped_passes() == ["joint.softmax_patterns/planted_erf: kept from 1 match"]


def test_watching_changes_no_code_and_is_off_unless_asked_for() -> None:
    class Sees(Observer):
        wants_passes = True

    def code(pipeline: Pipeline) -> str:
        codes: list[str] = []

        class Keeps(Observer):
            def after(self, stage: Any, work: Any, report: Any) -> None:
                if stage.name == "codegen":
                    codes.append(work.coded.wrapper.value)

        pipeline.observers.append(Keeps())
        gm = torch.fx.symbolic_trace(lambda x, y: (x.view(8, 4) @ y).relu().softmax(-1) * 2)
        compile_fx(gm, small(), pipeline=pipeline)
        text = codes[0].partition("AOT ID")[2].partition("\n")[2]
        assert "def call" in text
        return text

    plain, eager = Pipeline(until="codegen"), Pipeline([Sees()], until="codegen")
    assert code(plain) == code(eager)
    assert not any(report.passes for report in plain.reports)
    assert sum(len(report.passes) for report in eager.reports) > 30


def test_torch_is_as_it_was_behind_a_watch_also_after_an_error() -> None:
    from torch._inductor import pattern_matcher
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    def all_of_it() -> list[Any]:
        kept = [vars(GraphTransformObserver)["apply_graph_pass"], pattern_matcher.PatternMatcherPass.apply]
        return [*kept, joint_graph.replace_random_passes, post_grad.stable_topological_sort]

    before = all_of_it()

    def fails(graph: torch.fx.Graph) -> None:
        assert all_of_it() != before
        raise ValueError("planted")

    with pytest.raises(Exception, match="planted"):
        compiled(Case(lambda x, y: x + y, small, (), {"joint_custom_pre_pass": fails}), ("joint.early_patterns",))
    assert all_of_it() == before
    assert current() is None


def test_a_failing_pass_is_named() -> None:
    def fails(graph: torch.fx.Graph) -> None:
        raise ValueError("planted")

    pipeline = Pipeline(watch_passes=True)
    gm = torch.fx.symbolic_trace(lambda x, y: x + y)
    with torch._inductor.config.patch(post_grad_custom_post_pass=fails), pytest.raises(Exception, match="planted"):
        compile_fx(gm, small(), pipeline=pipeline)
    (report,) = seen(pipeline)["post_grad.post_grad_custom_post_pass"]
    assert report.error == "ValueError: planted"


def test_a_skip_holds_on_its_own_thread_alone() -> None:
    """Two stages at once: each sees its own passes, and only one of them leaves any out; hooks go with the last one."""
    from torch._inductor.fx_passes import post_grad

    usual, inside, done = post_grad.stable_topological_sort, threading.Barrier(2), threading.Barrier(2)
    reports: dict[str, list[PassReport]] = {"skips": [], "sees": []}

    def run(who: str, skip: set[tuple[str, str]]) -> None:
        gm = torch.fx.symbolic_trace(lambda x: x + 1)
        from torch.fx.passes.graph_transform_observer import GraphTransformObserver

        with watched("post_grad", reports[who], skip):
            inside.wait(20)
            observer = GraphTransformObserver(gm, "remove_noop_ops", "post_grad_passes")
            observer.apply_graph_pass(lambda graph: graph.lint())
            done.wait(20)

    both = [
        threading.Thread(target=run, args=("skips", {("post_grad", "remove_noop_ops")})),
        threading.Thread(target=run, args=("sees", set())),
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(30)
    assert [skip.skipped_because for skip in reports["skips"]] == ["asked for"]
    assert [see.skipped_because for see in reports["sees"]] == [""]
    assert post_grad.stable_topological_sort is usual


def test_a_compile_stopped_after_pre_grad_has_its_passes() -> None:
    """Torch may run this stage inside the next one, which is not a stage of this compile then."""
    pipeline = Pipeline(until="pre_grad", watch_passes=True)
    compile_fx(torch.fx.symbolic_trace(lambda x, y: x.relu() + y), small(), pipeline=pipeline)
    (report,) = pipeline.reports
    assert report.stage == "pre_grad" and len(report.passes) >= 7
