"""CUDA graphs on a GPU: right and faster, and what goes wrong with inputs is caught or handled, by the input's name.

Each test compiles through our path, with the parts of torch that would do the same made to raise, and without caches.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.recording import Recording

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
TREES = pytest.mark.parametrize("trees", [False, True], ids=["plain", "trees"])


def refused(*_: Any, **__: Any) -> Any:
    raise AssertionError("torch's own function was called")


@pytest.fixture(autouse=True)
def ours_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's own way of putting CUDA graphs on is closed, and no cache hands out what it made."""
    import torch._inductor.cudagraph_trees  # binds names of what is closed here: before that
    from torch._functorch import config
    from torch._inductor import compile_fx as stock
    from torch._inductor.output_code import CompiledFxGraph

    monkeypatch.setattr(stock, "cudagraphify", refused)
    monkeypatch.setattr(stock, "cudagraphify_impl", refused)
    monkeypatch.setattr(CompiledFxGraph, "post_compile", refused)
    torch._dynamo.reset()
    with config.patch(enable_autograd_cache=False):
        yield
    torch._dynamo.reset()


def compiled(
    function: Callable[..., Any], *, graphs: bool = True, trees: bool = False, **settings: Any
) -> tuple[Any, Pipeline]:
    """The function compiled through our path, and the pipeline that has its reports. `dynamic` is torch.compile's."""
    pipeline, dynamic = Pipeline(), settings.pop("dynamic", None)
    patches = {"triton.cudagraphs": graphs, "triton.cudagraph_trees": trees, "fx_graph_cache": False, **settings}

    def backend(gm: Any, inputs: Any) -> Any:
        return compile_fx(gm, inputs, config_patches=patches, pipeline=pipeline)

    return torch.compile(function, backend=backend, dynamic=dynamic), pipeline


def notes(pipeline: Pipeline, stage: str, part: str = "") -> str:
    return "\n".join(
        note for report in pipeline.reports if report.stage == stage and part in report.part for note in report.notes
    )


def step(call: Callable[..., Any], *inputs: Any) -> Any:
    """One call whose result outlives the next one."""
    torch.compiler.cudagraph_mark_step_begin()
    result = call(*inputs)
    return result.clone() if isinstance(result, torch.Tensor) else result


def median_ms(call: Callable[..., Any], *inputs: Any, repeats: int = 60) -> float:
    taken: list[float] = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.compiler.cudagraph_mark_step_begin()
        call(*inputs)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e3


def tensor(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda")


class Tiny(torch.nn.Module):
    """A linear layer whose weight is called `weight`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(tensor(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.weight) + 1


def many_small(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Bound by launches: 120 kernels of 32 × 32."""
    for _ in range(60):
        x = torch.tanh(x @ weight)
    return x


def test_replay_is_right_and_faster() -> None:
    x, weight = tensor(32, 32), tensor(32, 32) / 6
    without, _ = compiled(many_small, graphs=False)
    with torch.no_grad():
        expected = without(x, weight)
        other = without(x + 1, weight)
        plainly = median_ms(without, x, weight)
        for trees in (False, True):
            torch._dynamo.reset()
            recorded, pipeline = compiled(many_small, trees=trees)
            for _ in range(3):
                torch.testing.assert_close(step(recorded, x, weight), expected)
            torch.testing.assert_close(step(recorded, x + 1, weight), other)
            replayed = median_ms(recorded, x, weight)
            name = "trees" if trees else "plain"
            print(
                f"\n{name}: median {replayed:.3f} ms, without {plainly:.3f} ms, {plainly / replayed:.1f} times as fast"
            )
            assert "recorded as 1 graph" in notes(pipeline, "cudagraphs")
            assert replayed < plainly


@TREES
def test_training_step_by_step(trees: bool) -> None:
    model = Tiny()
    recorded, pipeline = compiled(model, trees=trees)
    for _ in range(4):
        x = tensor(8, 16)
        torch.compiler.cudagraph_mark_step_begin()
        recorded(x).sum().backward()
        got, model.weight.grad = model.weight.grad.clone(), None
        model(x).sum().backward()
        torch.testing.assert_close(got, model.weight.grad)
        model.weight.grad = None
    assert "recorded as 1 graph" in notes(pipeline, "cudagraphs", "forward")
    assert "recorded as 1 graph" in notes(pipeline, "cudagraphs", "backward")


def test_moved_static_input_is_an_error_with_its_name() -> None:
    model, x = Tiny(), tensor(8, 16)
    with torch.no_grad():
        recorded, pipeline = compiled(model)
        torch.testing.assert_close(step(recorded, x), model(x))
        assert "1 in place" in notes(pipeline, "cudagraphs")
        moved = model.weight.data.clone() * 2
        model.weight.data = moved
        with pytest.raises(UsageError, match=r"weight.*memory has moved"):
            recorded(x)


def test_moved_static_input_is_recorded_again_by_trees() -> None:
    model, x = Tiny(), tensor(8, 16)
    with torch.no_grad():
        recorded, _ = compiled(model, trees=True)
        for _ in range(3):
            torch.testing.assert_close(step(recorded, x), model(x))
        model.weight.data = model.weight.data.clone() * 2
        for _ in range(3):
            torch.testing.assert_close(step(recorded, x), model(x))


@pytest.mark.parametrize("how", ["without", "plain", "trees"])
def test_misaligned_input_is_copied(how: str) -> None:
    call, pipeline = compiled(lambda signal: signal * 2 + 1, graphs=how != "without", trees=how == "trees")
    memory = tensor(4100)
    with torch.no_grad():
        for start in (0, 1, 2, 0, 3):
            given = memory[start : start + 4096]
            assert torch.equal(step(call, given), given * 2 + 1)
    assert "1 input checked: arg0_1 (signal)" in notes(pipeline, "align")
    in_wrapper = "in the generated code" not in notes(pipeline, "align")
    if how == "without" and in_wrapper:
        assert "arg0_1 (signal) did not start on 16 bytes" in notes(pipeline, "align")


def test_misaligned_input_that_is_written_to_is_written_back() -> None:
    call, pipeline = compiled(lambda signal: signal.mul_(2) + 1, graphs=False)
    memory = torch.ones(4100, device="cuda")
    with torch.no_grad():
        call(memory[:4096])
        call(memory[1:4097])
    assert memory[:5].tolist() == [2, 4, 4, 4, 4] and memory[4095:].tolist() == [4, 2, 1, 1, 1]
    assert "(signal) did not start on 16 bytes" in notes(pipeline, "align")


@TREES
def test_window_that_overlaps_itself(trees: bool) -> None:
    call, pipeline = compiled(lambda window: window * 3, trees=trees)
    with torch.no_grad():
        for _ in range(3):
            given = tensor(64).as_strided((8, 8), (2, 1))
            assert torch.equal(step(call, given), given * 3)
    assert "arg0_1 (window) overlaps itself (a window" in notes(pipeline, "align")
    said = notes(pipeline, "cudagraphs")
    assert (
        "recorded as 1 graph" in said or "not used: arg0_1 (window) overlaps itself" in said
    )  # 2.11 refuses such inputs


def test_recording_copies_expanded_inputs_and_windows() -> None:
    run = Recording(
        lambda given: [given[0] + given[1]], make := [tensor(4).expand(4, 4), tensor(7).as_strided((4, 4), (1, 1))]
    )
    for _ in range(2):
        assert torch.equal(run(list(make))[0], make[0] + make[1])
        make = [tensor(4).expand(4, 4), tensor(7).as_strided((4, 4), (1, 1))]


def test_inputs_that_overlap_and_are_written_to_are_not_recorded() -> None:
    from graphdbg.toolkit.compile_fx.recording import refusal

    memory = tensor(32)
    a, b = memory[:20], memory[12:]
    assert refusal([a, b], (), (0,), ["a", "b"]) == "a and b overlap and a is written to: copies of them would part"
    call, _ = compiled(lambda a, b: a.add_(1).sum() + b.sum())
    with torch.no_grad():
        for _ in range(3):
            copy = memory.clone()
            expected = copy[:20].add_(1).sum() + copy[12:].sum()
            torch.testing.assert_close(step(call, a, b), expected)
            assert torch.equal(memory, copy)


@TREES
def test_each_call_writes_once(trees: bool) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4, device="cuda"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1)
            x.add_(1)
            return x + self.seen

    model, x = Counting(), torch.zeros(4, device="cuda")
    call, pipeline = compiled(model, trees=trees)
    with torch.no_grad():
        for count in range(1, 5):
            assert step(call, x).tolist() == [2.0 * count] * 4
            assert x.tolist() == [count] * 4 and model.seen.tolist() == [count] * 4
    said = notes(pipeline, "cudagraphs")
    assert (
        "(x) is written to (test_cudagraphs_gpu.py:" in said
    ) == trees  # torch's trees do not record that; ours does
    assert ("recorded 1 graph: " in said) == (not trees)


def test_forward_that_skips_turns_its_backward_off() -> None:
    def through_cpu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).cpu().cuda().sin() * w).sum()  # copies alone: no C++ to compile

    call, pipeline = compiled(through_cpu, graph_partition=False)
    x, w = tensor(8, 8), tensor(8, 8).requires_grad_()
    got = torch.autograd.grad(call(x, w), w)[0]
    torch.testing.assert_close(got, torch.autograd.grad(through_cpu(x, w), w)[0])
    assert "not used: cpu device" in notes(pipeline, "cudagraphs", "forward")
    assert "test_cudagraphs_gpu.py:" in notes(pipeline, "cudagraphs", "forward")
    assert "not used: its forward is not recorded (cpu device" in notes(pipeline, "cudagraphs", "backward")


@TREES
def test_dynamic_sizes(trees: bool) -> None:
    model = Tiny()
    call, pipeline = compiled(model, trees=trees, dynamic=True)
    with torch.no_grad():
        for rows in (4, 4, 4, 6, 6, 9, 4, 6):
            x = tensor(rows, 16)
            torch.testing.assert_close(step(call, x), model(x))
    assert "recorded as 1 graph" in notes(pipeline, "cudagraphs")


@TREES
def test_an_index_on_the_cpu_is_not_recorded(trees: bool) -> None:
    def picked(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2

    call, pipeline = compiled(picked, trees=trees, graph_partition=True)
    x = tensor(8, 4)
    for place in (1, 5, 5, 2):
        i = torch.tensor([place, 0])
        torch.testing.assert_close(step(call, x, i), picked(x, i))
    assert "is on the CPU" in notes(pipeline, "cudagraphs")


@TREES
def test_operator_on_the_cpu_splits_the_graph(trees: bool) -> None:
    def in_the_middle(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu((x @ w).cpu().sort().values.cuda() @ w)  # sort is called, not compiled

    call, pipeline = compiled(in_the_middle, trees=trees, graph_partition=True)
    w = tensor(8, 8)
    with torch.no_grad():
        for _ in range(4):
            x = tensor(8, 8)
            torch.testing.assert_close(step(call, x, w), in_the_middle(x, w))
    said = notes(pipeline, "cudagraphs")
    assert "recorded as 2 graphs" in said and "left out: " in said and "test_cudagraphs_gpu.py:" in said


def test_recording_is_deferred_past_fakes_and_made_per_thread() -> None:
    from graphdbg.toolkit.compile_fx.recording import deferred

    built: list[int] = []

    def make(inputs: list[Any]) -> Any:
        built.append(threading.get_ident())
        return Recording(lambda given: [given[0] * 2], inputs)

    call = deferred(lambda given: [given[0] * 2], make)
    with FakeTensorMode() as mode:
        assert tuple(call([mode.from_tensor(torch.empty(3, device="cuda"))])[0].shape) == (3,)
    assert not built
    x = tensor(3)
    results: list[torch.Tensor] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: results.append(call([x])[0].clone()))
        thread.start()
        thread.join()
    call([x])
    assert torch.equal(call([x])[0], x * 2) and torch.equal(results[0], x * 2) and torch.equal(results[1], x * 2)
    assert len(built) == 3
