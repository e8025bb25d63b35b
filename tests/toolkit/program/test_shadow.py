"""Calls beside eager in a block of one's own: drift over steps, and what does not repeat itself."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import math
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.compilers import nop
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import flex_attention
from torch.nn.parallel import DistributedDataParallel

import graphdbg
from graphdbg.toolkit.judging.comparing import SUMS
from graphdbg.toolkit.program import beside, comparing
from graphdbg.toolkit.program.beside import Beside
from graphdbg.toolkit.program.comparing import Left, Narrow, Rounding
from graphdbg.toolkit.program.concluding import concluded, drift
from graphdbg.toolkit.program.judging import JudgedCall
from graphdbg.toolkit.program.operators import Poison, Tracing, first_difference
from graphdbg.toolkit.program.reach import is_library
from graphdbg.toolkit.program.records import Call, CallRung, Program
from graphdbg.toolkit.verdicts.verdict import Verdict, fails


def test_a_guard_that_the_program_leaves_out_is_named(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    model.scale = 1.0
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        keep = {"guard_filter_fn": lambda guards: [guard.guard_type == "TENSOR_MATCH" for guard in guards]}
        step = torch.compile(lambda x: model(x) * model.scale, backend="eager", options=keep)
        with torch.no_grad():
            step(torch.ones(3))
            model.scale = 2.0
            step(torch.ones(3))
    assert shadowed.verdict.failed and shadowed.at is not None and shadowed.at.number == 1
    assert shadowed.verdict.reason.endswith(
        "a guard is missing, maybe one that guard_filter_fn leaves out: try without it"
    )


def test_a_stance_that_leaves_guards_out_is_named(tmp_path: Path) -> None:
    model = torch.nn.Dropout(1.0).eval()
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        step = torch.compile(lambda x: model(x), backend="eager")
        step(torch.ones(3))
        with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
            model.train()
            try:
                step(torch.ones(3))
            except RuntimeError as error:
                pytest.skip(f"this torch does not leave that guard out: {error}")
    assert shadowed.verdict.failed and shadowed.at is not None and shadowed.at.number == 1
    assert shadowed.verdict.reason.endswith("maybe one that skip_guard_eval_unsafe leaves out: try without it")


def test_a_rung_that_departs_only_with_its_own_way_to_draw_is_accused(tmp_path: Path) -> None:
    def off(gm: torch.fx.GraphModule, _: Any) -> Any:
        far = 0.0 if torch._inductor.config.fallback_random else 1.0
        return lambda *args: tuple(value + far for value in gm(*args))

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: torch.nn.functional.dropout(x, 1.0), backend=off)(torch.ones(3))
    assert shadowed.verdict.failed and "only in the program's own call" not in shadowed.verdict.reason
    assert shadowed.at is not None and [row.verdict.failed for row in shadowed.at.rows if row.rung == "off"] == [True]


def test_a_backward_may_write_into_the_gradient_that_it_is_given(tmp_path: Path) -> None:
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.mul_(0.5)

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        step = torch.compile(lambda x: Halved.apply(x), backend="eager")
        step(torch.ones(3, requires_grad=True)).backward(torch.ones(3))
    assert shadowed.verdict.verdict == "ok", shadowed.verdict.reason
    assert any(row.part == "backward" for call in shadowed.calls for row in call.rows)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_call_that_recompiles_is_looked_at(fullgraph: bool, tmp_path: Path) -> None:
    torch._dynamo.reset()  # the code of the lambda is the same in both
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        step = torch.compile(lambda x: x.cos() + 1, backend="aot_eager", fullgraph=fullgraph, dynamic=False)
        for size in (3, 3, 3, 3, 4):
            step(torch.ones(size))
    assert [call.number for call in shadowed.calls] == [0, 1, 2, 4], shadowed.summary


def test_a_result_that_lies_in_memory_otherwise_than_eagers_is_told(tmp_path: Path) -> None:
    def contiguous(gm: torch.fx.GraphModule, _: Any) -> Any:
        return lambda *args: tuple(value.contiguous() for value in gm(*args))

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: x.transpose(1, 2) * 2, backend=contiguous)(torch.randn(1, 3, 4))
    assert shadowed.verdict.verdict == "ok" and [call.notes for call in shadowed.calls] == [
        ["from contiguous on the strides of result are (12, 3, 1), eager's are (12, 1, 4)"]
    ]


def test_drift_tells_a_fault_from_rounding_and_the_block_keeps_its_results(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    given = [torch.randn(3, 4) for _ in range(4)]
    alone = [model(value) for value in given]
    with graphdbg.shadow(tmp_path / "found", calls=4) as shadowed:
        step = torch.compile(model, backend="aot_eager")
        seen = [step(value) for value in given]
        torch.stack(seen).sum().backward()
    assert all(torch.equal(item, other) for item, other in zip(alone, seen, strict=True))
    assert shadowed.verdict.verdict == "ok", shadowed.summary
    assert shadowed.drift is not None and "no value differs by more than rounding" in shadowed.drift.sentence
    assert shadowed.summary.startswith("Results, gradients and what is written agree with eager: 4 calls")
    assert [sery.value for sery in shadowed.drift.series if sery.value == "result"]


@pytest.mark.parametrize(
    ("wrong", "said"), [(7, "3.0e-03 off at most of 7 steps"), (2, "3.0e-03 off at 3 of 7 steps"), (0, "no value")]
)
def test_a_fault_at_some_steps_or_at_every_one_stands_above_rounding(wrong: int, said: str) -> None:
    rows = [
        [
            CallRung("eager", differences={"result": 2e-7}),
            CallRung("inductor", Verdict("fails" if far > 1e-3 else "ok"), differences={"result": far}),
        ]
        for far in ([3e-3] * wrong + [5e-6] + [1e-7] * 6)[:7]
    ]
    result = drift([Call(str(at), "step", "train.py", 3, at, rows=of) for at, of in enumerate(rows)])
    assert result is not None and said in result.sentence
    assert result.sentence.endswith("a fault that acts at every step") == result.series[0].acts == (wrong == 7)
    assert ("▆" in result.lines[0]) is bool(wrong)


def _python_random(x: Any) -> Any:
    return x * random.SystemRandom().random()


def _written_by_others(x: Any) -> Any:
    x.numpy()[:] = random.SystemRandom().random()
    return x.exp()


@pytest.mark.parametrize(("step", "kernel"), [(_python_random, False), (_written_by_others, True)])
def test_eager_that_does_not_repeat_itself_is_explained(step: Any, kernel: bool, tmp_path: Path) -> None:
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend="eager")(torch.ones(3))
    assert shadowed.verdict.verdict == "nondeterministic", shadowed.summary
    assert "gets another number in each run" in shadowed.verdict.reason
    assert "test_shadow.py:" in shadowed.verdict.reason and ("may race" in shadowed.verdict.reason) is kernel


def _first_left_out(x: Any) -> Any:
    result = torch.empty_like(x)
    result[1:] = x[1:]
    return result * 1


@torch.library.custom_op("shadowed::moved", mutates_args=())
def _moved(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + 1e-6 * next(_MOVES))


_moved.register_fake(torch.empty_like)
_MOVES = itertools.count()


def _and_moved(x: Any) -> Any:
    return _moved(_first_left_out(x))


@pytest.mark.parametrize(("function", "value"), [(_first_left_out, 512.5), (_and_moved, 731.25)])
def test_what_depends_on_memory_that_nothing_wrote_convicts_no_compiler(
    function: Any, value: float, tmp_path: Path
) -> None:
    """`value`: one that no test before left in the memory that eager gets."""

    def other_memory(gm: Any, inputs: Any) -> Any:
        def run(*given: Any) -> Any:
            (result,) = gm(*given)
            result[0] = value
            return (result,)

        return run

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(function, backend=other_memory)(torch.ones(3))
    assert shadowed.verdict.verdict == "nondeterministic", shadowed.summary
    assert "memory that nothing wrote" in shadowed.verdict.reason


def test_huge_values_are_apart() -> None:
    assert comparing.apart(torch.tensor([1e31, 1.0]), torch.tensor([1e36, 1.0])) > 1e3


def test_no_guard_is_blamed_where_nothing_was_compiled_before(tmp_path: Path) -> None:
    compiled: list[Any] = []

    def unsteady(gm: Any, inputs: Any) -> Any:
        compiled.append(gm)
        by = 2.0 if len(compiled) == 2 else 1.0  # that of the program's own call, behind the rung's
        return lambda *given: tuple(result * by for result in gm(*given))

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(torch.sin, backend=unsteady)(torch.ones(3))
    assert shadowed.verdict.failed and "only in the program's own call" in shadowed.verdict.reason, shadowed.summary
    assert "nothing was compiled before" in shadowed.verdict.reason and "guard" not in shadowed.verdict.reason
    assert shadowed.verdict.layer != "dynamo"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda outputs: [part[:1] for part in outputs], "shape is (1,), eager's is (3,)"),
        (lambda outputs: [part.no_such_attribute for part in outputs], "AttributeError"),
    ],
)
def test_of_eager_that_does_not_repeat_itself_a_crash_and_a_shape_are_judged(
    wrong: Any, says: str, tmp_path: Path
) -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        return lambda *args: wrong(gm(*args))

    with graphdbg.shadow(tmp_path / "found") as shadowed, contextlib.suppress(AttributeError):
        torch.compile(_python_random, backend=backend)(torch.ones(3))
    assert shadowed.verdict.verdict == "fails" and says in shadowed.verdict.reason, shadowed.summary


@pytest.mark.parametrize("first", [0, 1])
def test_eager_that_raises_in_some_runs_is_no_failure(first: int, tmp_path: Path) -> None:
    runs = itertools.count(first)

    @torch.library.custom_op(f"shadow_test::raises{first}", mutates_args=())
    def raises_at_times(x: torch.Tensor) -> torch.Tensor:
        if next(runs) % 2:
            raise ArithmeticError("at times")
        return x + 1

    raises_at_times.register_fake(torch.empty_like)
    with graphdbg.shadow(tmp_path / "found") as shadowed, contextlib.suppress(ArithmeticError):
        torch.compile(lambda x: raises_at_times(x), backend="aot_eager")(torch.ones(3))
    assert shadowed.verdict.verdict == "nondeterministic", shadowed.summary
    assert not [note for note in shadowed.notes if "Recursion" in note]


def test_eager_that_fails_since_a_compile_failed_is_taken_as_it_was_before(tmp_path: Path) -> None:
    left: list[str] = []

    @torch.library.custom_op("shadow_test::spoilt", mutates_args=())
    def raises_since_then(x: torch.Tensor) -> torch.Tensor:
        if left:
            raise ArithmeticError(left[0])
        return x + 1

    @raises_since_then.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        left.append("what tracing left behind")
        raise KeyError("no shape")

    with graphdbg.shadow(tmp_path / "found") as shadowed, contextlib.suppress(RuntimeError):
        torch.compile(lambda x: raises_since_then(x), backend="aot_eager")(torch.ones(3))
    assert shadowed.verdict.kind == "crash" and shadowed.verdict.layer == "dynamo", shadowed.summary
    assert shadowed.at is not None and any("a state in which eager fails" in note for note in shadowed.at.notes)


def test_what_a_rung_alone_raises_is_not_laid_on_a_program_with_wrong_numbers(tmp_path: Path) -> None:
    @torch.library.custom_op("shadow_test::picky", mutates_args=())
    def raises_in_a_graph(x: torch.Tensor) -> torch.Tensor:
        if any("eval_with_key" in frame.filename for frame in traceback.extract_stack()):
            raise ArithmeticError("in a graph")
        return x + 1

    raises_in_a_graph.register_fake(torch.empty_like)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: raises_in_a_graph(x), backend=lambda gm, inputs: lambda x: [x + 2])(torch.ones(3))
    assert shadowed.verdict.kind == "wrong_numbers", shadowed.summary
    assert shadowed.at is not None and any("dynamo alone raises" in note for note in shadowed.at.notes)


def test_a_value_that_eager_lacks_in_some_runs_is_no_failure() -> None:
    again = comparing.unsteady({"result": torch.ones(2), "result requires grad": True}, {"result": torch.ones(2)})
    assert again == {"result requires grad": math.inf}


@pytest.mark.parametrize(
    "flips",
    [
        (0, 0, 1, 1),  # eager, dynamo and aot_eager; then what rounding does, in a run that flips, too
        (0, 0, 1, 0, 0, 0, 0, 1, 1),  # three runs for what rounding does, eager, aot_eager; then eager flips
    ],
)
def test_eager_runs_again_before_a_rung_is_accused(flips: tuple[int, ...], tmp_path: Path) -> None:
    left = list(flips)

    @torch.library.custom_op("shadow_test::flips", mutates_args=())
    def flips_once(x: torch.Tensor) -> torch.Tensor:
        return x + 7 * (left.pop(0) if left else 1)

    flips_once.register_fake(torch.empty_like)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: flips_once(x), backend="aot_eager")(torch.ones(3))
    assert shadowed.verdict.verdict == "nondeterministic", shadowed.summary
    assert "shadow_test.flips" in shadowed.verdict.reason or "differs by 7 from run to run" in shadowed.verdict.reason


def test_nan_that_eager_gives_too_is_said(tmp_path: Path) -> None:
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: (x.log() * x).sum(), backend="aot_eager")(torch.zeros(3))
    assert shadowed.verdict.verdict == "ok"
    assert shadowed.verdict.reason.startswith("result of ") and shadowed.verdict.reason.endswith(
        ", call 0 holds NaN in eager itself"
    )
    again = concluded(Program(shadowed.calls), tmp_path, JudgedCall(), ["python", "train.py"])
    assert [line.partition(" -o ")[0] for line in again.verdict.next][:1] == ["graphdbg dump --when nan"]


def test_nan_of_a_function_without_a_graph_is_not_to_be_recorded(tmp_path: Path) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            torch._dynamo.graph_break()
            x = x.log() * x
        return x

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend="aot_eager")(torch.zeros(3))
    again = concluded(Program(shadowed.calls), tmp_path, JudgedCall(), ["python", "train.py"])
    assert again.verdict.reason.endswith("holds NaN in eager itself")
    assert again.verdict.next == ["env TORCHDYNAMO_DISABLE=1 python train.py"]


def test_memory_that_nothing_wrote_and_a_kernel_in_no_fixed_order_are_told_apart() -> None:
    left_over = random.SystemRandom()

    def reads_memory(mode: Any) -> None:
        with mode:
            given = torch.empty(8)
            given.numpy()[:] = left_over.random()  # what was there before
            given.sum()

    def adds_up(mode: Any) -> None:
        with mode:
            torch.ones(8).sum()
        last = mode.steps[-1]
        if not torch.are_deterministic_algorithms_enabled():
            mode.steps[-1] = last._replace(results=(left_over.random(),))

    def writes_it_all(mode: Any) -> None:
        order = torch.arange(8).flip(0)
        with mode:
            given = torch.empty(8, dtype=torch.int64)
            given.numpy()[:] = left_over.randrange(1 << 40)
            given.detach()[order] = torch.arange(8)  # an inverse permutation
            given.sum()
            torch.zeros(8, dtype=torch.int64).copy_(given)

    def leaves_a_part(mode: Any) -> None:
        with mode:
            given = torch.empty(8)
            given.numpy()[:] = left_over.random()
            given[:4] = 1.0

    def copies_it(mode: Any) -> None:
        with mode:
            given = torch.empty(8)
            given.numpy()[:] = left_over.random()
            torch.zeros(8).copy_(given)

    assert not first_difference(writes_it_all)
    for reads in (reads_memory, leaves_a_part, copies_it):
        assert "memory that nothing wrote" in first_difference(reads)
    reported = first_difference(adds_up)
    assert (
        "in no fixed order" in reported
        and "use_deterministic_algorithms(True) was tried and makes it deterministic" in reported
    )
    assert not first_difference(lambda mode: None)


def test_a_call_that_registers_a_hook_registers_the_same_in_each_run(tmp_path: Path) -> None:
    class Hooked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.ready = torch.nn.Linear(4, 4), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.ready:
                self.inner.register_forward_hook(lambda module, args, result: None)
                self.ready = True
            return self.inner(x)

    model = Hooked()
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(model, backend="aot_eager")(torch.ones(2, 4)).sum().backward()
    assert shadowed.verdict.verdict == "ok", shadowed.verdict
    assert len(model.inner._forward_hooks) == 1


def test_results_that_the_loss_does_not_use_have_no_gradient(tmp_path: Path) -> None:
    left = torch.randn(4, requires_grad=True)

    def two(item: Any) -> Any:
        return torch.sin(item), (torch.cos(item), item * 2)

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(two, backend="aot_eager")(left)[0].sum().backward()
    assert left.grad is not None and torch.equal(left.grad, torch.cos(left.detach()))
    assert shadowed.verdict.verdict == "ok" and any(row.part == "backward" for row in shadowed.calls[0].rows), (
        shadowed.notes
    )


def test_rounding_moves_a_result_as_a_whole_too() -> None:
    given = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0))
    shifts = []
    for seed in range(8):
        moved = given.clone()
        Rounding(seed).move(moved)
        shifts.append(float((moved.double() - given.double()).mean()))
    one_by_one = torch.finfo(torch.float32).eps * 16 / 256  # what independent steps come to, of 65,536
    assert max(map(abs, shifts)) > 20 * one_by_one and max(map(abs, shifts)) < 17 * torch.finfo(torch.float32).eps


def test_what_goes_in_is_exact_where_it_is_a_half_or_a_whole_number() -> None:
    half, mixed = torch.rand(64, dtype=torch.bfloat16), torch.tensor([3.0, 0.0, -7.0, 1e20, math.inf, 0.3]).repeat(50)
    for given in (half, mixed):
        moved = given.clone()
        Rounding(0).move(moved, given=True)
        stays = (moved == given).view(-1, 1 if given is half else 6)
        assert bool(stays[:, : 1 if given is half else 5].all())
    assert not bool(stays[:, 5].all())


def test_integers_that_a_rung_truncates_wrongly_are_no_rounding(tmp_path: Path) -> None:
    def truncated(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.int8)

    def wrong(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        return lambda *args: [value.where(value != 0, -128) for value in gm(*args)]

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(truncated, backend=wrong)(torch.tensor([0.0, *range(1, 10)]))
    assert shadowed.verdict.verdict == "fails", shadowed.calls


def test_rounding_goes_through_a_loop_and_a_branch() -> None:
    x, yes = torch.linspace(-1, 1, 64), torch.tensor(True)
    for run in (
        lambda: torch.cond(yes, torch.sin, torch.cos, (x,)),
        lambda: torch.while_loop(lambda at, _: at < 3, lambda at, x: (at + 1, x.tanh()), (torch.tensor(0), x))[1],
    ):
        plain = run()
        with Rounding(0):
            moved = run()
        # an element by itself, by its sums, and all together by their sums, of a value whose size is below 1
        assert 0.0 < float((moved - plain).abs().max()) < (1 + 2 * SUMS) * torch.finfo(torch.float32).eps


def test_rounding_leaves_infinities_and_they_excuse_nothing(tmp_path: Path) -> None:
    moved = torch.tensor([math.inf, -math.inf, 1.0]).repeat(100)
    Rounding(0).move(moved)
    assert moved[:2].tolist() == [math.inf, -math.inf] and bool(torch.isinf(moved.view(-1, 3)[:, :2]).all())
    assert bool((moved.view(-1, 3)[:, 2] != 1.0).any())

    def attention(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (scores * 2 + mask).softmax(-1)

    def wrong(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        return lambda *args: [1.1 * value for value in gm(*args)]

    mask = torch.full((8, 8), -math.inf).triu(1)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(attention, backend=wrong)(torch.randn(8, 8), mask)
    assert shadowed.verdict.verdict == "fails", shadowed.summary


def test_a_path_that_only_compiled_code_takes_is_no_fault_and_what_is_wrong_in_it_is(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)

    def step(x: torch.Tensor) -> torch.Tensor:
        y = model(x)
        return (y * 3 if torch.compiler.is_compiling() else y + 1).sum()

    def wrong(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        return lambda *args: [1.1 * item for item in gm(*args)]

    for number, (backend, word) in enumerate({"aot_eager": "ok", wrong: "fails"}.items()):
        torch._dynamo.reset()
        with graphdbg.shadow(tmp_path / str(number)) as shadowed:
            torch.compile(step, backend=backend)(torch.ones(3)).backward()
        assert shadowed.verdict.verdict == word, shadowed.summary
        rows = [(row.rung, row.part) for row in shadowed.calls[0].rows if not row.verdict.failed]
        assert ("dynamo", "") in rows and (word == "fails" or ("aot_eager", "backward") in rows), rows


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return (3 if torch.compiler.is_compiling() else 2) * grad


def test_a_backward_that_only_compiled_code_takes_is_no_fault(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: _Scaled.apply(model(x)).sum(), backend="aot_eager")(torch.ones(3)).backward()
    assert shadowed.verdict.verdict == "ok", shadowed.summary
    assert any("torch.compiler.is_compiling()" in note for note in shadowed.calls[0].notes)
    own = "the program's own code gives other results where torch.compiler.is_compiling() is true"
    assert shadowed.verdict.reason == own
    assert "on the path of torch.compiler.is_compiling(), but its results differ without: " in shadowed.summary


class _Writing(_Scaled):
    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.mul_(2)


@pytest.mark.parametrize(("own", "word"), [(True, "fails"), (False, "ok")])
def test_a_write_into_the_gradient_counts_where_the_program_holds_it(own: bool, word: str, tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        result = torch.compile(lambda x: _Writing.apply(model(x)), backend="aot_eager")(torch.ones(3))
        given = torch.ones(3)
        result.backward(given) if own else (2 * result).backward(given)
    assert shadowed.verdict.verdict == word, shadowed.summary
    assert not own or "the gradient given to result is left as it was, eager changes it in place" in shadowed.summary


@pytest.mark.parametrize(("beside", "word"), [(True, "fails"), (False, "fails"), (None, "ok")])
def test_a_result_that_is_the_input_where_eagers_is_not_departs(beside: bool, word: str, tmp_path: Path) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        itself = beside is not None and beside is torch._inductor.config.fallback_random  # on in graphdbg's runs alone
        return lambda x: [x if itself else x + 0]

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: x + 0, backend=backend)(torch.ones(3))
    assert shadowed.verdict.verdict == word, shadowed.summary
    assert word == "ok" or "result shares the memory of x, eager's does not" in shadowed.summary


def test_wrong_numbers_are_named_before_the_memory_that_a_wrong_result_shares(tmp_path: Path) -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        kept = x + 1
        x.zero_()
        return kept

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(written, backend=lambda gm, inputs: lambda x: [x.zero_()])(torch.ones(3))
    assert shadowed.verdict.kind == "wrong_numbers", shadowed.summary
    assert "result is off by 1, relative to its size" in shadowed.summary
    assert "; result shares the memory of x, eager's does not" in shadowed.summary


def test_the_order_of_an_ordered_dict_is_state(tmp_path: Path) -> None:
    used = collections.OrderedDict(old=1, new=2)

    def step(x: torch.Tensor) -> torch.Tensor:
        used.move_to_end("old")
        return x + used["old"]

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend=lambda gm, inputs: gm.forward)(torch.ones(3))
    kept = list(used) == ["old", "new"]  # a torch that loses it
    assert shadowed.verdict.verdict == ("fails" if kept else "ok"), shadowed.summary
    assert not kept or "the order of used is left as it was, eager makes it ('new', 'old')" in shadowed.summary


def test_a_copy_in_place_of_the_input_is_no_departure(tmp_path: Path) -> None:
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        drop = torch.compile(lambda x: torch.nn.functional.dropout(x, training=False), backend="aot_eager")
        drop(torch.ones(3))
    assert shadowed.verdict.verdict == "ok", shadowed.summary


class _Asked(torch.nn.Module):
    """Counts how often the condition of a loop is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("asked", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.asked.add_(1)

        def condition(at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            self.asked.add_(1)
            return at < 3

        return torch.while_loop(condition, lambda at, x: (at + 1, x.tanh()), (torch.tensor(0), x))[1]


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="older Dynamo refuses a write in a loop's condition")
def test_a_count_kept_in_a_loop_is_no_rounding(tmp_path: Path) -> None:
    def loses_count(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: torch.Tensor) -> Any:
            counts = [
                (argument, argument + 1) for argument in args if argument.dim() == 0 and argument.is_floating_point()
            ]
            result = gm(*args)
            for item, wrong in counts:
                item.copy_(wrong)
            return result

        return run

    with graphdbg.shadow(tmp_path / "found") as shadowed, torch.no_grad():
        torch.compile(_Asked().eval(), backend=loses_count)(torch.ones(3))
    assert shadowed.verdict.verdict == "fails", shadowed.summary
    assert "asked, written is 1, eager's is 5" in shadowed.verdict.reason


@pytest.mark.parametrize(("factor", "verdict"), [(6e4, "rounding"), (math.inf, "fails")])
def test_a_half_that_overflows_in_eager_alone_is_no_fault_of_a_kernel_that_rounds_later(
    factor: float, verdict: str, tmp_path: Path
) -> None:
    def fused(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return lambda x: [(x.float() * min(factor, 6e4) * 2 / 4 - x.float()).nan_to_num()]

    def step(x: torch.Tensor) -> torch.Tensor:
        return (x * factor * 2 / 4).float() - x

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend=fused)(torch.linspace(0.125, 0.75, 6).half())
    assert shadowed.verdict.verdict == verdict, shadowed.summary


@pytest.mark.parametrize(
    ("given", "lost", "verdict"), [(1e30, 0.0, "rounding"), (1e30, 1.0, "fails"), (math.nan, 0.0, "fails")]
)
def test_a_nan_that_an_operation_makes_in_eager_alone_is_no_fault_of_a_kernel_that_makes_none(
    given: float, lost: float, verdict: str, tmp_path: Path
) -> None:
    def exact(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        signs = torch.tensor([1e30, -1e30], dtype=torch.float64)
        return lambda x: [(x.double() @ signs).float().nan_to_num() * (1 + lost)]

    def step(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.tensor([1e30, -1e30])  # in float32 an infinity less another

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend=exact)(torch.tensor([[given, given], [1.0, 0.5]]))
    assert shadowed.verdict.verdict == verdict, shadowed.summary
    assert verdict == "fails" or "eager's alone makes NaN" in shadowed.calls[0].rows[-1].verdict.reason


@pytest.mark.parametrize(
    ("dtype", "lone"),
    [
        (torch.float16, lambda x: x[:2] ** 2 - x[:2] ** 2),
        (torch.float32, lambda x: x[:2] @ torch.tensor([1e30, -1e30], dtype=x.dtype)),
    ],
)
def test_a_nan_that_eager_alone_makes_does_not_excuse_another_that_a_kernel_lost(
    dtype: torch.dtype, lone: Any, tmp_path: Path
) -> None:
    def lossy(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return lambda x: [lone(x.double()).to(dtype), x.abs().nan_to_num()]

    most = torch.finfo(dtype).max
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        step = torch.compile(lambda x: (lone(x), x.abs()), backend=lossy)
        step(torch.tensor([most, most, math.nan], dtype=dtype))
    assert shadowed.verdict.failed and "result[1]: 1 of 3 elements are not nan" in shadowed.summary, shadowed.summary


@pytest.mark.parametrize("always", [True, False])
def test_what_eager_does_not_repeat_by_itself_is_not_laid_on_unwritten_memory(always: bool) -> None:
    values, runs = torch.ones(8), iter(range(1, 99))

    def left(part: str, rung: str, mode: Any = None) -> Left:
        noise = 0.002 * next(runs) if rung == "eager" and (always or mode is not None) else 0.0
        return Left({"gradient of w": values + noise})

    shadow = SimpleNamespace(until=math.inf)
    function = SimpleNamespace(levels={})
    stub: Any = SimpleNamespace(function=function, poisoned={}, spoilt=False, shadow=shadow, _left_by=left)
    row = CallRung("inductor", fails("wrong_numbers", "inductor", ""), "backward", "gradient of w", error=0.009)
    eager = Left({"gradient of w": values})
    assert Beside._unlike(stub, row, eager, eager) is not None  # pyright: ignore[reportPrivateUsage]
    assert stub.poisoned == {"backward": not always}


@pytest.mark.parametrize(
    ("drawn", "factor", "verdict"),
    [(1, 1.0, "cannot_tell"), (0, 1.01, "fails"), (0, 1.0, "ok"), (None, 1.0, "fails")],  # None: the dropout is lost
)
def test_other_random_numbers_are_no_failure_and_hide_none(
    drawn: int | None, factor: float, verdict: str, tmp_path: Path
) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: torch.Tensor) -> Any:
            if drawn is None:
                return [args[0] + 1]
            torch.rand(drawn)
            return [output * factor for output in gm(*args)]

        return run

    with graphdbg.shadow(tmp_path / "found") as shadowed, torch.no_grad():
        torch.compile(lambda x: torch.nn.functional.dropout(x) + 1, backend=backend)(torch.ones(64))
    assert shadowed.verdict.verdict == verdict, shadowed.summary
    text = "it draws other random numbers than eager, whose are from aten.bernoulli_"
    assert (text in shadowed.summary) == (verdict == "cannot_tell"), shadowed.summary
    assert "Random numbers" not in shadowed.summary  # which is said of Inductor alone


OF_DTYPES = {
    torch.float32: "result: dtype is torch.float32, eager's is torch.float16",
    torch.float64: "it raises RuntimeError: no such dtype; eager does not, nor does the program's own call",
    torch.float16: "",
}


@pytest.mark.parametrize("dtype", OF_DTYPES)
def test_a_dtype_is_wrong_whichever_numbers_are_drawn(dtype: torch.dtype, tmp_path: Path) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: torch.Tensor) -> Any:
            results = gm(*args)
            if not fallback_random():
                return [torch.rand_like(each).to(dtype) for each in results]
            if dtype == torch.float64:
                raise RuntimeError("no such dtype")
            return results

        return run

    def fallback_random() -> bool:
        return torch._inductor.config.fallback_random

    with graphdbg.shadow(tmp_path / "found") as shadowed, torch.no_grad():
        torch.compile(lambda x: torch.rand_like(x) + 1, backend=backend)(torch.ones(64, dtype=torch.float16))
    assert shadowed.verdict.verdict == ("fails" if OF_DTYPES[dtype] else "ok"), shadowed.summary
    assert OF_DTYPES[dtype] in shadowed.summary, shadowed.summary


def test_rounding_is_known_of_what_eager_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)  # its backward: on a GPU alone
    q, k, v = (torch.randn(1, 1, 128, 8, requires_grad=True) for _ in range(3))

    def gradients(mode: Any) -> Any:
        with mode:
            result = flex_attention.flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j))
            return torch.autograd.grad(result.square().mean(), (q, k, v))

    plain, moved = gradients(contextlib.nullcontext()), gradients(Rounding(0))
    assert all(1e-8 < float((a - b).norm() / b.norm()) < 1e-3 for a, b in zip(moved, plain, strict=True))
    assert not first_difference(gradients)


@pytest.mark.parametrize("mode", [lambda: Rounding(0), Narrow, Tracing, lambda: Poison(0x44)])
def test_what_a_call_traces_with_real_tensors_is_left_alone(mode: Callable[[], Any]) -> None:
    """As eager's flex attention traces a score function that reads a learned bias."""

    def traces(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).copy_(x).sin()

    with mode():
        gm = make_fx(traces)(torch.ones(3))
    called = [node.target.overloadpacket.__name__ for node in gm.graph.nodes if node.op == "call_function"]
    assert [name for name in called if name != "detach"] == ["empty_like", "copy_", "sin"]


def test_a_backward_of_the_program_that_raises_is_judged(tmp_path: Path) -> None:
    torch._dynamo.reset()  # all functions of torch's own share the code in which it counts compiles

    def broken(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(args: Any) -> Any:
            raise RuntimeError("no such backward")

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    backend = aot_autograd(fw_compiler=nop, bw_compiler=broken)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        result = torch.compile(torch.sin, backend=backend)(torch.ones(3, requires_grad=True))
        with pytest.raises(RuntimeError, match="no such backward"):
            result.sum().backward()
    assert (shadowed.verdict.verdict, shadowed.verdict.kind) == ("fails", "crash"), shadowed.summary
    assert shadowed.calls[0].failed is not None and shadowed.calls[0].failed.part == "backward"


def test_an_error_of_eagers_backward_that_a_compile_raises_is_no_fault_of_it(tmp_path: Path) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x.exp().mul_(2)).sum()  # exp needs its result

    with (
        graphdbg.shadow(tmp_path / "found") as shadowed,
        pytest.raises(Exception, match="modified by an inplace operation"),
    ):
        torch.compile(step, backend="aot_eager")(torch.ones(3, requires_grad=True))
    assert shadowed.verdict.verdict == "ok" and "in its backward" in shadowed.calls[0].rows[-1].verdict.reason, (
        shadowed.summary
    )
    assert shadowed.summary.startswith("Results and what is written (no gradients) agree with eager: 1 call")


class _Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.cond(x.mean() > 0, lambda x: self.one(x).relu(), lambda x: self.other(x).tanh(), (x,))


def test_what_torch_compiles_in_eager_mode_too_has_its_gradients(tmp_path: Path) -> None:
    model = _Gated()
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(model, backend="aot_eager")(torch.ones(2, 4)).square().sum().backward()
    assert shadowed.verdict.verdict == "ok", shadowed.summary
    assert [row.rung for row in shadowed.calls[0].rows if row.part == "backward"] == ["eager", "dynamo", "aot_eager"]


@pytest.mark.parametrize(("dtype", "verdict"), [(torch.float16, "rounding"), (torch.float32, "fails")])
def test_what_overflows_in_eagers_half_precision_alone_is_no_reference(dtype: torch.dtype, verdict: str) -> None:
    eager, got = (comparing.Left({"result": torch.tensor(of, dtype=dtype)}) for of in ([math.nan, 1.0], [2.0, 1.0]))
    alone = got.values if dtype == torch.float16 else eager.values
    row = comparing.judged("inductor", "inductor", "forward", eager, got, {}, lambda _: {}, {}, lambda: alone)
    assert row.verdict.verdict == verdict, row.verdict
    eager, broken = (comparing.Left({"result": torch.tensor(of, dtype=dtype)}) for of in ([2.0, 1.0], [2.0, math.nan]))
    row = comparing.judged("inductor", "inductor", "forward", eager, broken, {}, lambda _: {}, {})
    assert (row.verdict.verdict, row.verdict.kind) == ("fails", "nan")


def test_what_pip_put_into_a_folder_is_a_library_and_the_programs_own_beside_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "theirs-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("theirs/__init__.py,sha256=x,3\n__editable__.theirs-1.0.pth,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert is_library(f"{tmp_path}/theirs/model.py") and not is_library(f"{tmp_path}/mine/model.py")
    assert is_library("/usr/lib/python3/dist-packages/numpy/core.py")


@pytest.mark.parametrize("mode", ["reduce-overhead", "default"])
def test_a_call_knows_whether_the_program_asks_for_cuda_graphs(mode: str, tmp_path: Path) -> None:
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: x, mode=mode)(torch.ones(2))
    assert [call.cuda_graphs for call in shadowed.calls] == [mode == "reduce-overhead"]


class _Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.fixture
def process_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class _Counted(DistributedDataParallel):
    def forward(self, *inputs: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(*inputs)


def test_a_replica_of_a_class_of_its_own_is_not_judged(process_group: None, tmp_path: Path) -> None:
    replica = _Counted(_Normed())
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(replica, backend="eager")(torch.randn(8, 4))
    assert replica.calls == 1 and "it talks to other processes" in shadowed.verdict.reason, shadowed.summary


@pytest.mark.long
@pytest.mark.parametrize("whole", [True, False])
def test_a_replica_is_judged_by_its_module_and_synchronises_no_more_than_the_program(
    whole: bool, process_group: None, tmp_path: Path
) -> None:
    replica = DistributedDataParallel(_Normed())
    averaged: list[Any] = []

    def averages(_, bucket):  # torch refuses a hook with another annotation than its own
        averaged.append(bucket)
        return allreduce_hook(torch.distributed.group.WORLD, bucket)

    replica.register_comm_hook(None, averages)
    doubled = lambda gm, inputs: lambda *given: [2 * part for part in gm(*given)]  # noqa: E731
    for backend, verdict in (("eager", "ok"), (doubled, "fails")):
        averaged.clear()
        with graphdbg.shadow(tmp_path / verdict, calls=1) as shadowed:
            step = torch.compile(replica if whole else lambda x: replica(x), backend=backend)
            step(torch.randn(8, 4)).square().sum().backward()
        assert shadowed.verdict.verdict == verdict, shadowed.summary
        assert len(averaged) == 1
    assert (shadowed.calls[0].function == "_Normed.forward") is whole


def test_a_kernel_that_ends_the_device_convicts_the_rung_that_ran_it_and_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    text, ended = "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress'", False

    def ends(*args: Any) -> Any:
        nonlocal ended
        ended = True
        return args

    def settle() -> None:
        if ended:
            raise torch.AcceleratorError(text)

    def asserted(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.compiler.is_compiling() else ends(x)[0]

    monkeypatch.setattr(beside, "settle", settle)
    for function, backend in ((torch.nn.Softmax(0), lambda gm, inputs: ends), (asserted, "eager")):
        ended = False
        with graphdbg.shadow(tmp_path / type(function).__name__) as shadowed:
            torch.compile(function, backend=backend)(torch.ones(2))
        (call,) = shadowed.calls
        assert call.lost and not shadowed.notes, shadowed.notes
        again = concluded(Program([call], raised="AcceleratorError"), tmp_path, JudgedCall(), ["train.py"], 1)
        if backend == "eager":
            assert (shadowed.verdict.verdict, call.rows) == ("cannot_tell", [])
            assert "eager raises AcceleratorError: CUDA error: an illegal memory access" in again.verdict.reason
            assert "the program itself ended" not in again.verdict.reason
        else:
            assert (shadowed.verdict.verdict, shadowed.verdict.kind, call.rows[-1].rung) == (
                "fails",
                "crash",
                "<lambda>",
            )
            assert again.verdict.next[0].startswith("graphdbg dump ")


def test_what_a_gpu_multiplies_in_tf32_is_moved_as_far() -> None:
    a, b = torch.rand(64, 64) - 0.5, torch.rand(64, 64) - 0.5
    far = {}
    for products in (False, True):
        with Rounding(0, products=products):
            far[products] = comparing.apart(a @ b, (a + 0) @ b)
    assert far[False] < 1e-5 and 1e-4 < far[True] < 5e-3


def test_an_eager_that_differs_in_its_first_run_alone_is_so_told(tmp_path: Path) -> None:
    ran: list[int] = []

    @torch.library.custom_op("graphdbg_shadow::tuned", mutates_args=())
    def tuned(x: torch.Tensor) -> torch.Tensor:
        ran.append(0)
        return x * (9 if len(ran) == 1 else 1)

    tuned.register_fake(lambda x: torch.empty_like(x))
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: tuned(x) + 1, backend="aot_eager")(torch.ones(4))
    assert shadowed.verdict.verdict == "nondeterministic" and "the runs after the first agree" in shadowed.summary, (
        shadowed.summary
    )


def test_a_module_without_memory_that_lends_its_form_is_judged(tmp_path: Path) -> None:
    base, given = torch.nn.Linear(4, 4, device="meta"), torch.nn.Linear(4, 4)
    parameters = dict(given.named_parameters())
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        step = torch.compile(lambda p, x: torch.func.functional_call(base, p, (x,)), backend="aot_eager")
        step(parameters, torch.ones(2, 4)).sum().backward()
    assert shadowed.verdict.verdict == "ok" and not shadowed.notes, (shadowed.summary, shadowed.notes)
    assert shadowed.summary.startswith("Results, gradients and what is written agree")


@pytest.mark.parametrize("rung", ["eager", "inductor"])
def test_a_gpu_that_is_too_full_for_another_run_accuses_nobody(rung: str, tmp_path: Path) -> None:
    def full(x: torch.Tensor) -> Any:
        large = x + 4
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {large.shape}")

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if rung == "inductor" or torch.compiler.is_compiling() else full(x)

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return gm if rung == "eager" else full

    with graphdbg.shadow(tmp_path / "found") as shadowed, contextlib.suppress(torch.OutOfMemoryError):
        torch.compile(step, backend=backend)(torch.ones(12347))
        tensors = [item for item in gc.get_objects() if type(item) is torch.Tensor and item.shape == (12347,)]
        assert not any(float(tensor[0]) == 5.0 for tensor in tensors)  # what the run had made is not kept
    assert not shadowed.verdict.failed, shadowed.summary
    assert "memory is not enough" in shadowed.summary, shadowed.summary


@torch.library.custom_op("shadowed::in_no_order", mutates_args=())
def _in_no_order(x: torch.Tensor) -> torch.Tensor:
    return x * next(_TURNS)


_in_no_order.register_fake(torch.empty_like)
_TURNS = itertools.cycle([1.0, 1.004])


def test_eager_that_differs_far_less_than_rounding_may_is_judged(tmp_path: Path) -> None:
    """As gradients in bfloat16 do whose kernels add up in no fixed order."""

    def small(x: torch.Tensor) -> torch.Tensor:
        x = x.to(torch.bfloat16)
        for _ in range(40):
            x = x * 1.1 / 1.1
        return _in_no_order(x.float())

    def off(gm: Any, inputs: Any) -> Any:
        return lambda *given: [value + value.std() for value in gm(*given)]

    given = torch.randn(64, generator=torch.Generator().manual_seed(0))
    for backend, verdict in ((off, "fails"), ("aot_eager", "rounding")):
        torch._dynamo.reset()
        with graphdbg.shadow(tmp_path / verdict) as shadowed:
            torch.compile(small, backend=backend)(given)
        assert shadowed.verdict.verdict == verdict, shadowed.summary


@torch.library.custom_op("shadowed::attention", mutates_args=())
def _attention(x: torch.Tensor, dropout_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, torch.tensor(next(_MOVES))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_seed_that_attention_leaves_unwritten_is_no_cause(dropout: float) -> None:
    """As the kernels on a GPU do; the sum after it is what does not repeat itself."""
    difference = first_difference(
        lambda mode: _under(mode, lambda: _in_no_order(_attention(torch.ones(3), dropout)[0]))
    )
    assert ("shadowed.attention" if dropout else "shadowed.in_no_order") in difference
    assert "generator" not in difference


def test_a_draw_from_a_generator_of_its_own_is_explained() -> None:
    generator = torch.Generator()
    difference = first_difference(lambda mode: _under(mode, lambda: torch.ones(3).bernoulli_(0.5, generator=generator)))
    assert "seed it with generator.manual_seed(0)" in difference


def _under(mode: Any, step: Callable[[], object]) -> None:
    with mode:
        step()
