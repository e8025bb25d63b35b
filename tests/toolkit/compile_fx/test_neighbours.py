"""What one compile does to others: nothing. Stock's in another thread or inside ours, batches that have gone, observers
that raise."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx as stock

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import Observer, Pipeline, Stage, StageReport, compile_fx
from graphdbg.toolkit.compile_fx.stage import Work


def f(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 1.0).sum()


def leaf() -> torch.Tensor:
    return torch.randn(4, requires_grad=True)


@pytest.fixture(autouse=True)
def without_caches() -> Any:
    torch._dynamo.reset()
    with functorch_config.patch(enable_autograd_cache=False), torch._inductor.config.patch(fx_graph_cache=False):
        yield
    torch._dynamo.reset()


def test_stock_in_another_thread_partitions_by_itself_while_we_skip() -> None:
    partition_fn, seen = stock.partition_fn, []

    class Meanwhile(Observer):
        def before(self, stage: Stage, work: Work) -> None:
            if stage.name == "partition":
                thread = threading.Thread(target=elsewhere)
                thread.start()
                thread.join()

    def elsewhere() -> None:
        gm = torch.fx.symbolic_trace(f)
        stock.compile_fx(gm, [leaf()], inner_compile=lambda gm, *_, **__: seen.append(len(gm.graph.nodes)) or gm)

    pipeline = Pipeline([Meanwhile()], skip=("joint",), until="partition")
    compile_fx(torch.fx.symbolic_trace(f), [leaf()], pipeline=pipeline)
    assert seen
    assert sorted(report.stage for report in pipeline.reports) == ["capture", "joint", "partition", "pre_grad"]
    assert stock.partition_fn is partition_fn


def test_stock_nested_in_ours_is_stocks() -> None:
    class Nested(Observer):
        done = False

        def before(self, stage: Stage, work: Work) -> None:
            if stage.name == "partition" and not self.done:
                self.done = True
                stock.compile_fx(torch.fx.symbolic_trace(f), [leaf()])

    pipeline = Pipeline([Nested()], skip=("joint", "align"), until="partition")
    compile_fx(torch.fx.symbolic_trace(f), [leaf()], pipeline=pipeline)
    assert sorted(report.stage for report in pipeline.reports) == ["capture", "joint", "partition", "pre_grad"]


def test_a_batch_is_not_kept_by_what_was_compiled_for_it() -> None:
    compiled = torch.compile(f, backend="graphdbg_triton")
    batch = leaf()
    compiled(batch).backward()
    gone = weakref.ref(batch)
    del batch
    gc.collect()
    assert gone() is None
    assert compiled is not None


class Raising(Observer):
    def after(self, stage: Stage, work: Work, report: StageReport) -> None:
        raise ValueError("observer")


def test_an_observer_that_raises_is_warned_of_and_changes_nothing() -> None:
    with pytest.warns(UserWarning, match=r"an observer of the compile path failed in 'after' \(ValueError: observer\)"):
        compiled = torch.compile(f, backend="graphdbg_triton", options={"observers": [Raising()]})
        x = leaf()
        assert torch.allclose(compiled(x), f(x))


@pytest.mark.filterwarnings("ignore:an observer")
def test_an_observer_hides_no_error_of_a_stage() -> None:
    def fail(work: Work, pipeline: Pipeline) -> None:
        raise KeyError("the real one")

    with pytest.raises(Exception, match="the real one"):
        compile_fx(torch.fx.symbolic_trace(f), [leaf()], observers=[Raising()], replace={"lower": fail})


@pytest.mark.parametrize("more", [{"skip": ("joint",)}, {"until": "lower"}, {"replace": {"joint": print}}])
def test_a_pipeline_and_its_parts_contradict_each_other(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a pipeline was given"):
        compile_fx(torch.fx.symbolic_trace(f), [leaf()], pipeline=Pipeline(), **more)
