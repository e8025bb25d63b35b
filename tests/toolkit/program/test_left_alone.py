"""What a program sees while its calls run beside eager: the same as alone, whatever it does around them."""

from __future__ import annotations

import argparse
import contextlib
import runpy
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch.utils.flop_counter import FlopCounterMode

import graphdbg
from graphdbg.dumps import opening
from graphdbg.toolkit.live.torch_state import put_settings
from graphdbg.toolkit.program import aside, shadowing
from graphdbg.toolkit.program.aside import Outside, no_side_effects
from graphdbg.toolkit.program.comparing import Left, apart, judged, kept, unrepeated, unsteady
from graphdbg.toolkit.program.concluding import concluded, table_rows
from graphdbg.toolkit.program.judging import JudgedCall
from graphdbg.toolkit.program.reach import reach
from graphdbg.toolkit.program.records import Call, CallRung, Program
from graphdbg.toolkit.program.repro import isolates
from graphdbg.toolkit.program.start import Randomness, StartState, leaves_of


def test_hooks_on_leaves_are_called_as_often_as_alone(tmp_path: Path) -> None:
    model, seen = torch.nn.Linear(3, 3), []
    model.weight.register_hook(seen.append)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(model, backend="aot_eager")(torch.ones(2, 3)).sum().backward()
    assert shadowed.verdict.verdict == "ok" and [row for row in shadowed.calls[0].rows if row.part], shadowed.summary
    assert len(seen) == 1


class Trained(torch.nn.Module):
    """A model that can reach what feeds it, as one of a training framework does."""

    def __init__(self, batches: Any) -> None:
        super().__init__()
        self.linear, self.batches = torch.nn.Linear(3, 3), batches

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    def next_loss(self, scale: float) -> torch.Tensor:
        return self.linear(next(self.batches)).sum() * scale


def _batches() -> Any:
    yield from torch.arange(12.0).view(4, 1, 3)


@pytest.mark.parametrize("kind", ["a generator", "an iterator", "a loader"])
def test_what_can_be_read_but_once_is_read_by_the_program_alone(kind: str, tmp_path: Path) -> None:
    batches = {
        "a generator": _batches,
        "an iterator": lambda: iter([*_batches()]),
        "a loader": lambda: iter(torch.utils.data.DataLoader([*_batches()], batch_size=None)),
    }[kind]()
    model = Trained(batches)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        reads = torch.compile(model.next_loss, backend="aot_eager")
        does_not = torch.compile(model, backend="aot_eager")
        first = next(batches)
        does_not(first).sum().backward()
        reads(1.0).backward()
        assert torch.equal(next(batches), torch.tensor([[6.0, 7.0, 8.0]]))
    calls = {call.function: call for call in shadowed.calls}
    assert [*calls] == ["Trained.forward", "Trained.next_loss"]  # no method goes by the name of another
    assert calls["Trained.forward"].judged and [row for row in calls["Trained.forward"].rows if row.part]
    why = calls["Trained.next_loss"].why
    assert why.startswith("it reads batches, a ") and why.endswith("whose state cannot be restored"), why


class Odd:
    """An iterator that holds itself."""

    def __init__(self) -> None:
        self.itself = self

    def __next__(self) -> Any:
        raise StopIteration


def test_odd_iterators_and_a_profiler_never_raise_into_the_program(tmp_path: Path) -> None:
    with graphdbg.shadow(tmp_path / "found", calls=4) as shadowed:
        step = torch.compile(Trained(Odd()), backend="eager")
        results = [step(torch.ones(1, 3))]
        outer = sys.getprofile()
        sys.setprofile(lambda *_: None)
        try:
            results.append(step(torch.ones(1, 3)))
        finally:
            sys.setprofile(outer)
    assert torch.equal(*results)
    assert shadowed.calls[0].judged, shadowed.calls[0].why
    assert (
        shadowed.calls[1].why
        == "it can reach batches, a Odd, and the program's own profiler hides whether it reads that"
    )


def test_a_call_that_can_reach_an_iterator_and_raises_is_judged(tmp_path: Path) -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError("planted")

    model, batches = Trained(_batches()), torch.ones(1, 3)
    with graphdbg.shadow(tmp_path / "found") as shadowed, contextlib.suppress(Exception):
        torch.compile(model, backend=backend)(batches)
    assert shadowed.verdict.failed and shadowed.verdict.kind == "crash", shadowed.summary
    assert len([*model.batches]) == 4


def test_a_call_that_reaches_more_than_the_free_memory_holds_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "FREELY_BYTES", 1 << 20)
    monkeypatch.setattr(opening, "most_in_memory", lambda: 2 << 20)
    corpus = torch.arange(1 << 19, dtype=torch.float64)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda at: corpus[at : at + 4] * 2, backend="eager")(3)
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
    assert [call.why for call in shadowed.calls] == [
        "it reaches over 4.0 MiB of tensors, too much to copy in the free memory",
        "",
    ]


def test_what_a_namespace_holds_is_put_back(tmp_path: Path) -> None:
    counts, options = SimpleNamespace(steps=0), argparse.Namespace(scale=torch.ones(3))

    def step(x: torch.Tensor) -> torch.Tensor:
        counts.steps += 1
        options.scale.mul_(2)
        return x * options.scale

    with graphdbg.shadow(tmp_path / "found"):
        assert torch.compile(step, backend="aot_eager")(torch.ones(3)).tolist() == [2.0] * 3
    assert counts.steps == 1 and options.scale.tolist() == [2.0] * 3


def test_a_tool_that_this_machine_lacks_is_no_failure_of_the_compilers(tmp_path: Path) -> None:
    class InvalidCxxCompiler(RuntimeError):
        pass

    def backend(gm: Any, inputs: Any) -> Any:
        raise InvalidCxxCompiler("no g++")

    with graphdbg.shadow(tmp_path / "found") as shadowed, contextlib.suppress(Exception):
        torch.compile(torch.nn.Linear(3, 3), backend=backend)(torch.ones(2, 3))
    assert [row.verdict.reason for row in shadowed.calls[0].rows if row.verdict.skipped] == [
        "no C++ compiler was found (g++, or what CXX names)"
    ]
    call = Call("1:1", "step", "train.py", 3, 0, rows=shadowed.calls[0].rows)
    ended = concluded(Program([call], raised="InductorError: no g++"), tmp_path, JudgedCall(), [], 1)
    assert ended.verdict.verdict == "cannot_tell" and "ended with code 1: no C++ compiler" in ended.verdict.reason
    assert "backend" not in table_rows(ended)[0][4]


def test_calls_while_another_thread_compiles_are_counted(tmp_path: Path) -> None:
    compiling, called = threading.Event(), threading.Event()

    def slow(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        compiling.set()
        assert called.wait(60)
        return gm.forward

    with graphdbg.shadow(tmp_path / "found", max_time_s=0.0) as shadowed:  # nothing is looked at, so no turns are taken
        quick = torch.compile(lambda x: x + 1, backend="eager")
        quick(torch.ones(2))
        other = torch.compile(lambda x: x + 2, backend=slow)
        thread = threading.Thread(target=other, args=(torch.ones(2),))
        thread.start()
        assert compiling.wait(60)
        quick(torch.ones(2))
        called.set()
        thread.join()
    assert sorted(shadowed.counts.values()) == [1, 2]


def test_a_result_that_the_loss_does_not_use(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        unused, used = torch.compile(lambda x: (model(x), model(x).sum()), backend="aot_eager")(torch.ones(2, 3))
        used.backward()
    assert unused.requires_grad
    assert shadowed.verdict.verdict == "ok" and [row for row in shadowed.calls[0].rows if row.part], shadowed.summary


def test_threads_that_call_one_function_take_turns_and_lose_no_call_and_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, results = torch.nn.BatchNorm1d(3), dict[int, torch.Tensor]()

    def worker(number: int) -> None:
        for _ in range(5):
            results[number] = step(torch.full((2, 3), float(number)))
            print("thread", number)

    with graphdbg.shadow(tmp_path / "found", calls=10) as shadowed:
        step = torch.compile(model, backend="aot_eager")
        threads = [threading.Thread(target=worker, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("end")
    assert [call.number for call in shadowed.calls] == list(range(10)) and shadowed.verdict.verdict == "ok", (
        shadowed.summary
    )
    assert int(model.num_batches_tracked or 0) == 10
    assert sorted(capsys.readouterr().out.splitlines()) == ["end"] + ["thread 0"] * 5 + ["thread 1"] * 5


def test_a_copy_of_a_compiled_model_is_where_the_program_copies_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    compiled = "torch.compile(torch.nn.Linear(3, 3), backend='eager')"
    script.write_text(f"import copy, torch\nstep = {compiled}\ncopy.deepcopy(step)(torch.ones(2, 3))")
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        runpy.run_path(str(script))
    assert (shadowed.calls[0].file, shadowed.calls[0].line) == (str(script), 3)


def test_a_wrapper_whose_gradient_is_a_wrapper_is_copied(tmp_path: Path) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    given = TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_()
    with graphdbg.shadow(tmp_path / "found", calls=3) as shadowed:
        step = torch.compile(lambda x: x.sin(), backend="aot_eager")
        for _ in range(2):
            step(given).sum().backward()
    assert [call.why for call in shadowed.calls] == ["", ""] and shadowed.verdict.verdict == "ok", shadowed.summary
    assert isinstance(given.grad, TwoTensor)
    assert torch.equal(given.grad.a, 2 * torch.ones(3).cos())


def test_a_sparse_tensor_is_put_back_and_compared(tmp_path: Path) -> None:
    torch.manual_seed(0)
    graph = (torch.rand(5, 5) < 0.5).float().to_sparse_coo()
    by_row = torch.eye(5).to_sparse_csr()

    def smooth(x: torch.Tensor) -> Any:
        graph.mul_(2)
        graph.add_(torch.eye(5).to_sparse_coo())  # has other indices and values then
        return torch.sparse.mm(graph, x.sin()) + by_row @ x, graph

    def alone() -> torch.Tensor:
        return smooth(torch.ones(5, 2))[1].to_dense()

    before = graph.clone()
    expected, graph.data = alone(), before.clone()
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        x = torch.ones(5, 2, requires_grad=True)
        torch.compile(smooth, backend="eager")(x)[0].sum().backward()
    assert shadowed.verdict.verdict == "ok", shadowed.summary
    assert graph.to_dense().equal(expected)
    assert apart(kept(before), kept(graph)) > 0.1


def test_what_a_backend_raises_is_said(tmp_path: Path) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
        raise ValueError("no tanh here")

    with graphdbg.shadow(tmp_path / "found") as shadowed, pytest.raises(Exception, match="no tanh"):
        torch.compile(torch.tanh, backend=backend)(torch.ones(3))
    assert "it raises BackendCompilerFailed: ValueError: no tanh here; eager does not" in shadowed.verdict.reason


def test_a_function_of_which_dynamo_makes_no_graph_is_named(tmp_path: Path) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            torch._dynamo.graph_break()
        return x

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend="eager")(torch.ones(3))
    assert shadowed.calls[0].notes == [
        "Dynamo makes no graph of this function, so it runs in eager (TORCH_LOGS=graph_breaks says why)"
    ]
    assert shadowed.verdict.verdict == "ok"


def test_the_rank_of_a_call_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadowing, "alone", lambda: False)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)

    def wrong(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        return lambda *args: [1.1 * item for item in gm(*args)]

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: x.sin(), backend=wrong)(torch.ones(3))
    assert ", call 0 on rank 1: result is off by 0.1" in shadowed.summary


def test_the_largest_difference_of_a_rung_is_that_of_all_its_parts() -> None:
    rows = [CallRung("inductor", error=2e-7), CallRung("inductor", part="backward", error=0.0)]
    call = Call("1", "step", "train.py", 3, 0, rows=rows)
    conclusion = concluded(Program([call], {"step train.py:3": 1}), Path(), JudgedCall(), [])
    assert table_rows(conclusion)[0][4] == "inductor 2.0e-07"


def test_a_large_difference_that_is_rounding_is_named_with_what_rounding_does() -> None:
    eager, got = ({"result": torch.ones(2), "gradient of k.bias": torch.tensor([1e-9 * sign])} for sign in (1, -1))
    levels = {("", "gradient of k.bias"): (3.0, 3.0)}
    row = judged("inductor", "inductor", "", Left(eager), Left(got), {}, lambda count: {}, levels)
    assert (row.verdict.verdict, row.error, row.rounding) == ("rounding", 2.0, 3.0)
    call = Call("1", "step", "train.py", 3, 0, rows=[row])
    conclusion = concluded(Program([call], {"step train.py:3": 1}), Path(), JudgedCall(), [])
    assert table_rows(conclusion)[0][5] == "gradient of k.bias, which rounding alone may move by 3.0e+00"


@pytest.mark.long
def test_a_program_that_dynamo_refuses_before_it_makes_a_graph_ends(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    refused = "torch.compile(lambda x: print(x.sum()) or x, fullgraph=True, backend='eager')"
    script.write_text(f"import torch\nstep = {refused}\ntry: step(torch.ones(3))\nexcept Exception: print('refused')")
    words = [sys.executable, "-m", "graphdbg", "triage", "--", sys.executable, str(script)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 1 and done.stdout.startswith("refused\nFAILS: crash"), done.stdout + done.stderr


def test_hooks_on_leaves_of_a_step_with_its_own_backward_leave_nothing(tmp_path: Path) -> None:
    model, seen = torch.nn.Linear(3, 3), []
    model.weight.register_hook(lambda gradient: seen.append(1))

    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend="aot_eager")(torch.ones(2, 3))
    assert len(seen) == 1
    assert "it changes seen" in shadowed.verdict.reason


class Slotted:
    __slots__ = ("h", "n")

    def __init__(self) -> None:
        self.h, self.n = torch.zeros(2), 0


def test_slots_and_numpy_arrays_are_put_back_and_compared(tmp_path: Path) -> None:
    state, array = Slotted(), np.zeros(2, np.float32)

    def step(state: Slotted, array: Any, x: torch.Tensor) -> Any:
        state.h, state.n = state.h + x, state.n + 1
        array += 1
        return state.h.numpy() + array

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        compiled = torch.compile(step, backend="aot_eager")
        for _ in range(3):
            result = compiled(state, array, torch.ones(2))
    assert (state.n, state.h.tolist(), array.tolist(), result.tolist()) == (3, [3.0, 3.0], [3.0, 3.0], [6.0, 6.0])
    assert shadowed.verdict.verdict == "ok" and shadowed.calls[0].rows[-1].value in (
        "result",
        "array, written",
        "state.h",
    )


def test_a_coroutine_is_named(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    async def step(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        try:
            torch.compile(step, backend="aot_eager")(torch.ones(1)).close()  # torch 2.13 may crash later where one runs
        except torch._dynamo.exc.InternalTorchDynamoError:
            pytest.skip("this Dynamo cannot read a coroutine of this Python")
    assert "it returns a generator or a coroutine, which does its work only after the call" in shadowed.verdict.reason
    assert not [item for item in recwarn if "never awaited" in str(item.message)]


def test_numpy_s_random_numbers_are_eager_s_and_state_by_tensors_is_named_without_its_numbers(tmp_path: Path) -> None:
    state = {torch.zeros(2): torch.zeros(2)}

    def step(state: dict[torch.Tensor, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        noise = torch.from_numpy(np.random.normal(0, 1, (2,)).astype(np.float32))
        for key in state:
            key += noise
            state[key] = noise * 2
        return x + noise

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend="aot_eager")(state, torch.ones(2))
    assert shadowed.verdict.verdict == "ok" and shadowed.calls[0].judged, shadowed.summary


def test_a_number_of_another_generator_of_numpys_is_seen(recwarn: pytest.WarningsRecorder) -> None:
    np = pytest.importorskip("numpy")
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(0))
    try:
        drawn = Randomness([])
        assert not drawn.moved()
        np.random.normal()
        assert drawn.moved()
        drawn.put_back()
        assert not drawn.moved()
        assert not recwarn.list
    finally:
        np.random.set_bit_generator(before)


def test_a_key_that_is_a_tensor_is_named_by_its_place() -> None:
    assert [name for name, _ in leaves_of({"a": 1, torch.ones(2): 2}, "state")] == ["state['a']", "state[Tensor 1]"]


def test_the_program_s_dispatch_modes_see_none_of_it(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 8)
    with graphdbg.shadow(tmp_path / "found") as shadowed, FlopCounterMode(display=False) as counted:
        torch.compile(model, backend="aot_eager")(torch.ones(2, 8)).sum().backward()
    torch._dynamo.reset()  # it leaves what it met under such a mode uncompiled, torch's own functions, too
    assert counted.get_total_flops() == 2 * 2 * 2 * 8 * 8
    assert "it is called under" in shadowed.verdict.reason, shadowed.summary


class Stateful:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


def test_what_an_object_that_is_called_keeps_is_its_state(tmp_path: Path) -> None:
    stateful = Stateful()
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(stateful, backend="aot_eager")(torch.ones(2))
    assert (stateful.count, shadowed.verdict.verdict, shadowed.calls[0].function) == (1, "ok", "Stateful.__call__"), (
        shadowed.summary
    )


_SEEN: list[int] = []


class _Logs(torch.nn.Module):
    @property
    def scale(self) -> int:
        _SEEN.append(1)
        return 2

    @staticmethod
    def shifted(x: torch.Tensor) -> torch.Tensor:
        _SEEN.append(2)
        return x + 1

    def unused(self) -> None:
        _UNNAMED.clear()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shifted(x) * self.scale


_UNNAMED = [1]


def test_globals_that_methods_write_are_state(tmp_path: Path) -> None:
    model = torch.nn.Sequential(_Logs())
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(model, backend="aot_eager")(torch.ones(2))
    assert _SEEN == [2, 1]
    assert shadowed.calls[0].why.startswith("it changes _SEEN (neither"), shadowed.summary
    assert _UNNAMED not in [box.owner for box in reach(model, (torch.ones(2),), {}).boxes]


def test_settings_of_torch_are_state(tmp_path: Path) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        return x + 1

    start = StartState(reach(step, (), {}))
    try:
        torch.set_default_dtype(torch.float64)
        assert start.switched() == {"torch's default dtype": "float64"}
        put_settings(start.ambient)
        assert (torch.get_default_dtype(), start.switched()) == (torch.float32, {})
        with graphdbg.shadow(tmp_path / "found") as shadowed:
            torch.compile(step, backend="eager")(torch.ones(3))
        assert shadowed.verdict.verdict == "ok", shadowed.summary
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.long
def test_a_setting_that_compiled_code_loses_is_a_departure(tmp_path: Path) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        return x + 1

    def loses(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        return lambda *args: [gm(*args), torch.set_default_dtype(torch.float32)][0]

    try:
        with graphdbg.shadow(tmp_path / "found") as shadowed:
            torch.compile(step, backend=loses)(torch.ones(3))
    finally:
        torch.set_default_dtype(torch.float32)
    assert "torch's default dtype is left as it was, eager makes it 'float64'" in shadowed.summary


def test_a_module_that_has_no_sizes_yet_is_named(tmp_path: Path) -> None:
    model = torch.nn.LazyLinear(2)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x: model(x), backend="eager")(torch.ones(2, 3))
    assert "model.weight cannot be copied" in shadowed.verdict.reason


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad])
def test_that_torch_compiles_nothing_inside_of_a_transform_is_told(transform: Any, tmp_path: Path) -> None:
    torch._dynamo.reset()
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        transform(torch.compile(lambda x: x.sin().sum(), backend="aot_eager"))(torch.ones(2, 3))
    assert "torch.compile leaves a function to eager" in shadowed.verdict.reason


@pytest.mark.skipif(isolates(), reason="this torch keeps them apart")
def test_entries_of_rungs_do_not_count_against_the_programs_limit(tmp_path: Path) -> None:
    def compiled(folder: Path | None) -> int:
        torch._dynamo.reset()

        def step(x: torch.Tensor, number: int) -> torch.Tensor:
            return x * number

        with graphdbg.shadow(folder) if folder else contextlib.nullcontext():
            function = torch.compile(step, backend="aot_eager", dynamic=False)
            for number in range(12):
                function(torch.ones(2), number)
        entries = _debug_get_cache_entry_list(step.__code__)
        return sum(not hasattr(getattr(entry.backend, "compiler_fn", None), "of_a_rung") for entry in entries)

    counts = compiled(None), compiled(tmp_path / "found")
    assert counts[0] == counts[1] > 4, counts


def test_what_triton_compiles_at_a_first_launch_is_no_effect_of_the_call(tmp_path: Path) -> None:
    written = []
    for module in ("triton.runtime.cache", "mylab.saving"):
        names: dict[str, Any] = {"__name__": module, "subprocess": subprocess, "sys": sys, "tempfile": tempfile}
        exec("def write(path):\n tempfile.NamedTemporaryFile('w', dir=path).close()", names)
        exec("def build():\n subprocess.run([sys.executable, '--version'], capture_output=True)", names)
        written.append((names["write"], names["build"]))
    with no_side_effects(True):
        (write, build), (own_write, own_build) = written
        write(tmp_path)
        build()
        with pytest.raises(Outside, match="writes to"):
            own_write(tmp_path)
        with pytest.raises(Outside, match="starts a process"):
            own_build()


def test_a_call_that_the_program_captures_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(4, 4)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        step = torch.compile(model, backend="eager")
        step(torch.ones(2, 4))
        with monkeypatch.context() as captured:
            captured.setattr(shadowing.torch_state, "is_capturing", lambda: True)
            step(torch.ones(2, 4)), step(torch.ones(3, 4))
    assert shadowed.verdict.verdict == "ok" and len(shadowed.calls) == 1, shadowed.summary
    [note] = shadowed.notes
    assert note.startswith("calls made while the program captures a CUDA graph were not judged")


def test_a_step_counter_may_be_written_or_be_another(tmp_path: Path) -> None:
    state, weight = {"step": torch.zeros(())}, torch.ones(3)

    def step() -> None:
        state["step"].add_(1)
        weight.sub_(1)

    def moved(*_: Any) -> Any:
        def run(*_: Any) -> Any:
            weight.sub_(1)
            state["step"] = state["step"] + 1
            return ()

        return run

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(step, backend=moved)()
    assert shadowed.verdict.verdict == "ok" and state["step"] == 1, shadowed.summary


@pytest.mark.parametrize(
    ("name", "again", "words"),
    [
        ("x, written", {}, "eager changes x in one of two runs alone"),
        ("result[1]", {}, "eager leaves result[1] in one of two runs alone"),
        ("result", {"result": torch.ones(2)}, "eager's result has another form from run to run"),
        ("x, written", {"x, written": torch.ones(3)}, "eager's x differs by 1 from run to run"),
    ],
)
def test_what_eager_does_not_repeat_is_told(name: str, again: dict[str, Any], words: str) -> None:
    eager = {name: torch.zeros(3)}
    assert unrepeated(name, unsteady(eager, again)[name], again) == words


def test_dispatch_keys_that_a_failed_compile_left_are_not_served_with() -> None:
    keys = aside.dispatch_keys()
    left = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
    with torch._C._ExcludeDispatchKeyGuard(left):
        assert str(aside.dispatch_keys()) != str(keys)
        with aside.dispatch(keys):
            assert str(aside.dispatch_keys()) == str(keys)
