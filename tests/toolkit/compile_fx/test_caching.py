"""The FX graph cache around the compile path: what it says is reported, keys are stock's, and changed code stays out of
it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor import compile_fx as stock

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import Pipeline, compile_fx

X = torch.linspace(-1, 1, 12).view(3, 4)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty caches of graphs, and those of kernels as they are: a fresh one costs half a minute of toolchain probes."""
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache
    from torch._inductor.codecache import FxGraphCache

    monkeypatch.setattr(FxGraphCache, "_get_tmp_dir", staticmethod(lambda: str(tmp_path / "fx")))
    monkeypatch.setattr(AOTAutogradCache, "_get_tmp_dir", staticmethod(lambda: str(tmp_path / "aot")))
    torch._dynamo.reset()
    with (
        inductor_config.patch(fx_graph_cache=True),
        functorch_config.patch(enable_autograd_cache=False),
        torch.no_grad(),
    ):
        yield tmp_path


def waves(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + x.cos()


def compiled(function: Callable[..., Any] = waves, **options: Any) -> tuple[Pipeline, torch.Tensor]:
    """Compiled and called through torch.compile: without its symbols of sizes, torch's cache takes no graph."""
    torch._dynamo.reset()
    pipeline = Pipeline(**options)
    return pipeline, torch.compile(function, backend=partial(compile_fx, pipeline=pipeline))(X)


def compiled_by_stock(function: Callable[..., Any] = waves) -> None:
    torch._dynamo.reset()
    torch.compile(function, backend=lambda gm, given: stock.compile_fx(gm, given))(X)


def ran(pipeline: Pipeline, stage: str) -> bool:
    return any(report.stage == stage for report in pipeline.reports)


def test_a_miss_is_saved_and_then_hit() -> None:
    first, value = compiled()
    second, again = compiled()
    ((part, state, key),) = first.caches
    assert (part, state) == ("inference", "miss")
    assert second.caches == [("inference", "hit", key)]
    assert ran(first, "lower")
    assert not ran(second, "lower")
    assert ran(second, "cudagraphs")  # what is put on loaded code is in no cache
    assert torch.equal(value, again)


def test_what_stock_saved_is_found_and_the_other_way_round() -> None:
    from torch._dynamo.utils import counters

    compiled_by_stock()
    pipeline, _ = compiled()
    assert pipeline.caches[0][1] == "hit"
    assert compiled(torch.exp)[0].caches[0][1] == "miss"
    hits = counters["inductor"]["fxgraph_cache_hit"]
    compiled_by_stock(torch.exp)
    assert counters["inductor"]["fxgraph_cache_hit"] == hits + 1


def test_caches_that_are_off_are_said_to_be() -> None:
    with inductor_config.patch(fx_graph_cache=False):
        pipeline, _ = compiled()
    assert pipeline.caches == [("inference", "off", "")]


def test_a_graph_that_cannot_be_cached_says_why(cache: Path) -> None:
    def unnamed(graph: fx.Graph) -> None:
        """A custom pass without the uuid that a key would need."""

    with inductor_config.patch(post_grad_custom_post_pass=unnamed):
        pipeline, _ = compiled()
    ((_, state, reason),) = pipeline.caches
    assert state == "bypass"
    assert "post" in reason.lower()
    assert not (cache / "fx").exists()


@pytest.mark.parametrize(
    "options", [{"skip": ["joint"]}, {"replace": {"pre_grad": lambda work, pipeline: None}}], ids=["skip", "replace"]
)
def test_changed_code_is_neither_read_nor_saved(cache: Path, options: dict[str, Any]) -> None:
    pipeline, _ = compiled(**options)
    assert pipeline.caches == [("inference", "off", "")]
    assert list(cache.rglob("*")) == []
    compiled()
    saved = sorted(cache.rglob("*"))
    assert saved
    pipeline, _ = compiled(**options)
    assert pipeline.caches == [("inference", "off", "")]
    assert ran(pipeline, "lower")
    assert sorted(cache.rglob("*")) == saved


def test_a_stopped_compile_reads_no_cache(cache: Path) -> None:
    compiled()
    pipeline = Pipeline(until="lower")
    torch._dynamo.reset()
    with pytest.raises(UsageError, match="stopped after lower"):
        torch.compile(waves, backend=partial(compile_fx, pipeline=pipeline))(X)
    assert ran(pipeline, "lower")
    assert not ran(pipeline, "schedule")


def test_a_backward_compiled_later_stays_out_of_caches(cache: Path) -> None:
    pipeline = Pipeline(skip=["joint"])
    weight = torch.ones(4, requires_grad=True)
    with torch.enable_grad():
        out = torch.compile(lambda x, w: (x * w).sin(), backend=partial(compile_fx, pipeline=pipeline))(X, weight)
        assert [part for part, *_ in pipeline.caches] == ["forward"]
        out.sum().backward()
    assert pipeline.caches == [("forward", "off", ""), ("backward", "off", "")]
    assert list(cache.rglob("*")) == []


def test_a_hit_of_autograds_cache_is_reported() -> None:
    with functorch_config.patch(enable_autograd_cache=True):
        first, second = compiled()[0], compiled()[0]
    assert ran(first, "lower")
    assert [state for _, state, _ in first.caches] == ["miss"]
    assert second.caches == [("dynamo", "hit", "AOTAutograd's cache")]
    assert not ran(second, "lower")
    (capture,) = [report for report in second.reports if report.stage == "capture"]
    assert "did not run" in capture.notes[0]


def test_a_cache_for_other_processes_is_refused_for_changed_code() -> None:
    with torch._dynamo.config.patch(caching_precompile=True), pytest.raises(UsageError, match="caching_precompile"):
        compile_fx(fx.symbolic_trace(lambda x: (x.sin(),)), [X], skip=["joint"])
