"""Freezing: stock's code and bits, what the report says of it, and what no longer is held."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch._guards import TracingContext
from torch._inductor import config
from torch._inductor.utils import run_and_get_code
from torch.testing._internal.two_tensor import TwoTensor

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.backends import graphdbg_triton
from graphdbg.toolkit.compile_fx import Observer, Pipeline
from graphdbg.toolkit.compile_fx.capturing import places_of

X = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


class Convnet(torch.nn.Module):
    """Convolutions with batch norm, a product of parameters alone, and a buffer that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 4, 3)
        self.left = torch.nn.Parameter(torch.randn(4, 6))
        self.right = torch.nn.Parameter(torch.randn(6, 5))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls.add_(1)
        y = self.second(self.norm(self.first(x)).relu())
        return y.mean((2, 3)) @ (self.left @ self.right), y, self.calls + 1


def made(kind: type[torch.nn.Module] = Convnet) -> torch.nn.Module:
    torch.manual_seed(0)
    return kind().eval()


@pytest.fixture(autouse=True)
def compiling_anew() -> Any:
    with config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        yield
        torch._dynamo.reset()


def frozen(model: torch.nn.Module, inputs: Any, pipeline: Pipeline | None = None, **settings: Any) -> Any:
    """Results and code under freezing: ours with a pipeline, else stock's."""
    torch._dynamo.reset()
    with torch.no_grad(), config.patch(freezing=True, **settings):
        if pipeline is None:
            compiled = torch.compile(model, options={"freezing": True})
        else:
            compiled = torch.compile(model, backend=graphdbg_triton, options={"freezing": True, "pipeline": pipeline})
        return run_and_get_code(compiled, *inputs)


def normal(code: list[str]) -> list[str]:
    return [re.sub(r"AOT ID.*|\b[0-9a-f]{12}\b|/tmp/\S+", "-", text) for text in code]


def joint(pipeline: Pipeline) -> Any:
    return next(report for report in pipeline.reports if report.stage == "joint")


@pytest.mark.long
def test_code_and_bits_are_stocks() -> None:
    wanted, their_code = frozen(made(), [X])
    pipeline = Pipeline()
    got, code = frozen(made(), [X], pipeline)
    assert all(torch.equal(*pair) for pair in zip(wanted, got, strict=True))
    assert normal(code) == normal(their_code)
    report = joint(pipeline)
    assert report.part == "inference"
    assert report.notes[0] == "weights of 2 convolutions are laid out channels-last"
    assert report.notes[1].startswith("froze 10 parameters (")
    assert report.notes[1].endswith("1 kept, since they are written to or returned")
    assert report.removed["aten.mm.default"] >= 1


def test_a_kept_buffer_is_written_to_in_each_call() -> None:
    model = made()
    with torch.no_grad(), config.patch(freezing=True):
        compiled = torch.compile(model, backend=graphdbg_triton)
        assert [float(compiled(X)[2]) for _ in range(3)] == [2.0, 3.0, 4.0]
    assert float(model.calls) == 3


class Holding(Observer):
    """Keeps the lists in which a compile holds parameters."""

    def after(self, stage: Any, work: Any, report: Any) -> None:
        if stage.name == "joint":
            context = TracingContext.get()
            self.whole, self.parts = context.params_flat, context.params_flat_unwrap_subclasses


def test_frozen_parameters_are_no_longer_held() -> None:
    holding = Holding()
    frozen(made(), [X], Pipeline([holding]))
    assert sum(value is not None for value in holding.whole) == 1
    assert sum(value is not None for value in holding.parts) == 1
    assert len(holding.whole) == 11


def test_parameters_of_the_module_can_go_too() -> None:
    model = made()
    pipeline = Pipeline()
    wanted = made()(X)
    got, _ = frozen(model, [X], pipeline, freezing_discard_parameters=True)
    assert torch.allclose(got[0], wanted[0], atol=1e-5)
    assert any("freezing_discard_parameters" in note for note in joint(pipeline).notes)
    with pytest.raises(RuntimeError, match="discarded"):
        model(X)


@pytest.mark.long
@pytest.mark.parametrize("how", ["skip", "replace"])
def test_parameters_freeze_without_the_joint_passes(how: str) -> None:
    options: Any = {"skip": ("joint",)} if how == "skip" else {"replace": {"joint": lambda work, pipeline: None}}
    pipeline = Pipeline(**options)
    got, _ = frozen(made(), [X], pipeline)
    assert any(note.startswith("froze 10 parameters") for note in joint(pipeline).notes)
    assert torch.allclose(got[0], made()(X)[0], atol=1e-5)


def test_nothing_is_frozen_with_grad_enabled() -> None:
    pipeline = Pipeline(until="partition")
    with pytest.raises(UsageError, match="stopped after partition"):
        torch.compile(made(), backend=graphdbg_triton, options={"freezing": True, "pipeline": pipeline})(X)
    assert [report.stage for report in pipeline.reports if report.part == "joint"] == ["joint", "partition"]
    assert not any("froze" in note for report in pipeline.reports for note in report.notes)


class OfTwo(torch.nn.Module):
    """A parameter that is two tensors, between plain ones."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.nn.Parameter(torch.randn(4, 4))
        self.two = torch.nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)))
        self.behind = torch.nn.Parameter(torch.randn(4, 4))
        self.register_buffer("sums", torch.zeros(4, 4))

    def forward(self, x: torch.Tensor) -> Any:
        self.sums.add_(x)
        return x @ self.before + self.two @ self.behind, self.sums * 2


@pytest.mark.long
def test_a_parameter_that_is_a_subclass() -> None:
    x = torch.linspace(0, 1, 16).reshape(4, 4)
    with torch.no_grad():
        wanted = made(OfTwo)(x)
    pipeline = Pipeline()
    got, _ = frozen(made(OfTwo), [x], pipeline)
    assert any(note.startswith("froze 3 parameters") for note in joint(pipeline).notes)
    assert torch.equal(got[1], wanted[1])
    for ours, eager in ((got[0].a, wanted[0].a), (got[0].b, wanted[0].b)):
        assert torch.allclose(ours, eager, atol=1e-6)


@pytest.mark.parametrize(
    ("kept", "owners", "held", "places"),
    [
        ([3], [0, 1, 2], set(), [3]),
        ([1, 3], [0, 1, 2], {1}, [1, 3]),
        ([2, 3], [0, 0, 1], {1}, [1, 2]),
        ([1, 2, 3], [0, 0, 1], {0, 1}, [1, 2, 3]),  # one part of a parameter is written to: both parts still come
        ([4, 5, 6], [0, 0, 1, 1, 2], {2}, [2, 3, 4]),
        ([0, 1], [], set(), [0, 1]),
    ],
)
def test_where_a_call_finds_what_was_kept(
    kept: list[int], owners: list[int], held: set[int], places: list[int]
) -> None:
    assert places_of(kept, owners, held) == places


def test_the_model_itself_is_left_as_it_was() -> None:
    model = made()
    before = copy.deepcopy(model.state_dict())
    frozen(model, [X], Pipeline())
    for name, value in model.state_dict().items():
        assert name == "calls" or torch.equal(value, before[name])
        assert value.stride() == before[name].stride()
