"""The compile path generates stock's code: a few models here, all of them in tests/bench/bench_compile_fx.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor import compile_fx as stock_module

from tests.matrix.same_code import (
    OURS,
    STOCK,
    Cell,
    Codes,
    codes_of,
    collected,
    first_difference,
    pin_counters,
    run_by,
    torch_raising,
)
from tests.models.compile_models import MODELS


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def test_there_are_twenty_models_each_with_a_sentence() -> None:
    assert len(MODELS) == 20
    assert all(model.about.endswith(".") for model in MODELS.values())


@pytest.mark.parametrize(
    "cell",
    [
        Cell("cross_entropy_head", "train"),
        Cell("lstm", "infer-dynamic"),
        pytest.param(Cell("embedding_bag", "train-dynamic"), marks=pytest.mark.slow),
        pytest.param(Cell("variational_autoencoder", "train"), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_code_is_stocks(cell: Cell) -> None:
    stock = codes_of(cell, STOCK)
    assert len(stock.texts) == (2 if cell.mode.startswith("train") else 1)
    assert first_difference(stock, codes_of(cell, OURS)) is None


SETTINGS: dict[str, dict[str, Any]] = {
    "provenance": {"trace.provenance_tracking_level": 1},
    "provenance light": {"trace.provenance_tracking_level": 2},
    "wrapper in C++": {"cpp_wrapper": True},
    "not split": {"graph_partition": False},
    "torch's random numbers": {"fallback_random": True},
    "strides free": {"keep_output_stride": False},
    "backward strides kept": {"bw_outputs_user_visible": False},
    # Without passes on the joint graph Inductor itself refuses a draw that does not fall back.
    "no post-grad passes": {"use_post_grad_passes": False, "use_joint_graph_passes": False, "fallback_random": True},
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["provenance", "wrapper in C++"])
def test_code_is_stocks_under_a_setting(name: str) -> None:
    _same_under(name, Cell("cross_entropy_head", "train"))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["variational_autoencoder", "convnet", "gpt_block"])
@pytest.mark.parametrize("name", SETTINGS)
def test_code_is_stocks_under_any_setting(name: str, model: str) -> None:
    _same_under(name, Cell(model, "train"))
    _same_under(name, Cell(model, "infer-dynamic"))


@pytest.mark.parametrize("model", ["embedding_bag", pytest.param("convnet", marks=pytest.mark.slow)])
def test_frozen_code_is_stocks(model: str) -> None:
    cell = Cell(model, "infer")
    stock = codes_of(cell, STOCK, freezing=True)
    assert first_difference(codes_of(cell, STOCK), stock) is not None  # freezing changes it
    assert first_difference(stock, codes_of(cell, OURS, freezing=True)) is None


def _same_under(name: str, cell: Cell) -> None:
    stock = codes_of(cell, STOCK, **SETTINGS[name])
    assert stock.texts
    difference = first_difference(stock, codes_of(cell, OURS, **SETTINGS[name]))
    if difference is not None and first_difference(stock, codes_of(cell, STOCK, **SETTINGS[name])) is not None:
        pytest.skip(f"the code of this torch differs from compile to compile: {difference}")
    assert difference is None


def _branches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x, w: (x @ w).relu(), lambda x, w: (x @ w).sin(), (x, w)) + 1


@torch.compiler.nested_compile_region
def _region(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).gelu() if hasattr(x, "gelu") else torch.nn.functional.gelu(x @ w)


def _regions(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return _region(_region(x, w), w).softmax(-1)


@pytest.mark.long
@pytest.mark.parametrize("function", [_branches, _regions])
def test_code_with_graphs_inside_is_stocks(function: Callable[..., torch.Tensor]) -> None:
    """Bodies of cond and of invoke_subgraph, which are partitioned on their own, with gradients."""
    codes = [_codes_of_function(function, item) for item in (STOCK, OURS)]
    assert len(codes[0].texts) == 2
    assert first_difference(*codes) is None


def _codes_of_function(function: Callable[..., Any], compile_it: Callable[..., Any]) -> Codes:
    from torch._functorch import config as functorch_config

    def backend(gm: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
        compile_it(gm, given)
        return lambda *args: tuple(torch.zeros(4, 4) for _ in range(1))

    torch._dynamo.reset()
    x, w = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
    caches = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
    functorch = functorch_config.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=True)
    with collected() as codes, inductor_config.patch(caches), functorch:
        torch.compile(function, backend=backend)(x, w)
    return codes


@pytest.mark.parametrize(
    "cell",
    [Cell("embedding_bag", "train"), pytest.param(Cell("lstm", "infer-dynamic"), marks=pytest.mark.slow)],
    ids=str,
)
def test_works_while_torchs_orchestration_raises(cell: Cell) -> None:
    stock = codes_of(cell, STOCK)
    with torch_raising():
        with pytest.raises(Exception, match="must not be called now"):
            codes_of(cell, STOCK)
        assert first_difference(stock, codes_of(cell, OURS)) is None


def test_torchs_orchestration_is_put_back() -> None:
    code, inner = STOCK.__code__, stock_module.compile_fx_inner
    with torch_raising():
        assert STOCK.__code__ is not code
        assert stock_module.compile_fx_inner is not inner
    assert STOCK.__code__ is code
    assert stock_module.compile_fx is STOCK
    assert stock_module.compile_fx_inner is inner


@pytest.mark.slow
def test_results_and_gradients_are_stocks_bit_by_bit() -> None:
    cell = Cell("cross_entropy_head", "train")
    stock, ours = run_by(cell, STOCK), run_by(cell, OURS)
    assert len(stock) == 4  # loss, odds, gradients of the scale and of the logits' weight
    assert all(torch.equal(item, other) for item, other in zip(stock, ours, strict=True))


def test_a_difference_is_found() -> None:
    cell = Cell("cross_entropy_head", "infer")
    stock = codes_of(cell, STOCK)
    other = codes_of(cell, OURS, size_asserts=False)
    assert "line" in (first_difference(stock, other) or "")
    kept = Codes(stock.texts, [stock.kept[0] | {"output_strides": "[]"}])
    assert "output_strides" in (first_difference(stock, kept) or "")


def test_counters_start_anew() -> None:
    from torch._inductor import compile_fx

    next(compile_fx._graph_counter)
    pin_counters()
    assert next(compile_fx._graph_counter) == 0
