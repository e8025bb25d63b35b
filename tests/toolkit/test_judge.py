"""One graph under one rung, in this process: what is wrong with it is named, what is right is not."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.schema import Ambient
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.walk import plain
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live import eager
from graphdbg.toolkit.live.case import Case, Live
from graphdbg.toolkit.live.eager import run_graph
from graphdbg.toolkit.live.spec import ReplaySpec, is_opaque
from graphdbg.toolkit.rungs import NAMES, CannotRun, Rung, rung

INFERENCE = ReplaySpec("inference")


def traced(function: Callable[..., Any], *inputs: Any) -> fx.GraphModule:
    return make_fx(function)(*inputs)


def bug(kind: str, stage: str = "inference") -> ReplaySpec:
    return ReplaySpec(stage, config={"inductor": {"cpp.inject_relu_bug_TESTING_ONLY": kind}})


X = torch.linspace(-1, 1, 64).reshape(8, 8)
RELU = traced(lambda x: [torch.relu(x) * 2], X)


@pytest.mark.parametrize("name", ["eager", "nop", "inductor"])
def test_a_healthy_graph_is_ok(name: str) -> None:
    outcome = judge(Live(RELU, [X], INFERENCE), name, keep_outputs=True)
    assert (outcome.ok, outcome.text, outcome.signature) == (True, "ok", None)
    assert outcome.outputs is not None
    assert torch.equal(outcome.outputs[0], X.relu() * 2)
    assert outcome.errors[0].rung == pytest.approx(0.0, abs=1e-7)
    assert outcome.seconds > 0


def test_a_graph_that_returns_packed_numbers_is_judged() -> None:
    packed = torch.arange(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    outcome = judge(Live(traced(lambda x, y: [x.clone(), y + 1], packed, X), [packed, X], INFERENCE), "nop")
    assert (outcome.ok, outcome.signature) == (True, None), outcome.text


@pytest.mark.parametrize(("part", "word"), [(slice(1, None), "nondeterministic"), (slice(None), "ok")])
def test_a_result_that_was_written_in_part_is_no_memory_that_nothing_wrote(part: slice, word: str) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    result = graph.call_function(torch.empty_like, (x,))
    graph.call_function(operator.setitem, (result, part, graph.call_function(operator.getitem, (x, part))))
    graph.output([graph.call_function(torch.sin, (result,))])
    outcome = judge(Live(fx.GraphModule({}, graph), [X], INFERENCE), "nop")
    assert outcome.verdict.verdict == word, outcome.text


def test_a_constant_that_a_graph_holds_is_used_as_it_is(tmp_path: Path) -> None:
    weights = torch.linspace(1, 2, 64).reshape(8, 8)
    saved = load_graph(save_graph(traced(lambda x: [torch.relu(x) * weights], X), [X], tmp_path / "case"))
    assert judge(Case(saved).live(), "inductor").text == "ok"


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "kind", "stage"),
    [("accuracy", "accuracy", "compare"), ("compile_error", "crash", "compile"), ("runtime_error", "crash", "run")],
)
def test_a_planted_fault_is_found_and_named(fault: str, kind: str, stage: str) -> None:
    outcome = judge(Live(RELU, [X], bug(fault)), "inductor")
    assert not outcome.ok
    assert outcome.signature is not None
    assert (outcome.signature.kind, outcome.signature.stage) == (kind, stage)
    assert (outcome.verdict.verdict, outcome.verdict.fault, outcome.verdict.layer) == ("fails", "compiler", "inductor")
    assert kind != "accuracy" or (outcome.verdict.where and outcome.verdict.where.name == "mul")
    larger = traced(lambda x, w: [(x @ w).relu().sum(-1), x + 1], torch.randn(16, 4), torch.randn(4, 4))
    again = judge(Live(larger, [torch.randn(16, 4), torch.randn(4, 4)], bug(fault)), "inductor")
    assert again.signature is not None
    assert outcome.signature.same_as(again.signature)


def test_only_what_is_asked_is_compared() -> None:
    assert judge(Live(RELU, [X], bug("accuracy")), "inductor", check="crash").ok
    assert judge(Live(RELU, [X], bug("accuracy")), "inductor", check="metadata").ok
    assert not judge(Live(RELU, [X], bug("compile_error")), "inductor", check="accuracy").ok


def test_settings_and_state_are_put_back() -> None:
    from torch._inductor import config

    judge(Live(RELU, [X], bug("accuracy")), "inductor")
    assert config.cpp.inject_relu_bug_TESTING_ONLY is None
    assert torch.is_grad_enabled()
    spec = ReplaySpec("inference", config={"inductor": {"no_such_setting": 1, "b": {"opaque": ["f", "f"]}}})
    notes = judge(Live(RELU, [X], spec), "eager").notes
    assert ["no_such_setting" in note for note in notes] == [True, False]
    assert "could not be saved" in notes[1]


def test_neither_graph_nor_inputs_are_changed() -> None:
    gm = traced(lambda x, y: [x.add_(1), y * 2], X.clone(), X.clone())
    before, inputs = gm.code, [X.clone(), X.clone()]
    outcome = judge(Live(gm, inputs, INFERENCE), "inductor")
    assert outcome.ok, outcome.text
    assert gm.code == before
    assert all(torch.equal(tensor, X) for tensor in inputs)


def test_uninitialised_memory_gives_no_verdict() -> None:
    gm = traced(lambda x: [x + torch.empty(8, 8)], X)
    outcome = judge(Live(gm, [X], INFERENCE), "inductor")
    assert not outcome.ok
    assert outcome.signature is not None
    assert outcome.signature.kind == "nondeterministic"
    assert outcome.text.startswith("nondeterministic")


def test_memory_that_nothing_wrote_is_not_compared() -> None:
    gm = traced(lambda x: [torch.empty_like(x), torch.ops.aten.resize(x, [12, 8]), x + 1], X)
    for name in ("nop", "inductor"):
        outcome = judge(Live(gm, [X], INFERENCE), name)
        assert outcome.ok, outcome.text
        assert "uninitialised memory in eager and was not compared" in " ".join(outcome.notes)


def test_what_eager_does_not_repeat_is_named() -> None:
    # Clamped: beside what a large number left in memory that nothing wrote the change of the other operand would be
    # rounding.
    gm = traced(lambda x: [(x.sin() + torch.nan_to_num(torch.empty(8, 8)).clamp(-1, 1)).cos()], X)
    graph = gm.graph
    sin = next(node for node in graph.nodes if "sin" in node.name)
    calls: list[int] = []

    def unsteady(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * len(calls)

    sin.target = unsteady
    gm.recompile()
    outcome = judge(Live(gm, [X], INFERENCE), "nop")
    assert outcome.verdict.verdict == "nondeterministic"
    assert outcome.verdict.where is not None
    assert outcome.verdict.where.node == sin.name


def test_a_graph_may_write_to_an_input_that_other_operations_made() -> None:
    captured: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, inputs: list[torch.Tensor]) -> fx.GraphModule:
        captured.append(gm)
        return gm

    def write(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) + 1

    torch.compile(write, backend=keep)(X.clone().requires_grad_().add(1))
    given = X.clone().requires_grad_()
    for name in ("nop", "decomposed", "inductor"):
        outcome = judge(Live(captured[0], [given], ReplaySpec("dynamo")), name)
        assert outcome.ok, (name, outcome.text)
        assert len(outcome.errors) >= 2, "output and gradient were compared"


def test_an_index_that_is_an_input_is_known() -> None:
    graph = fx.Graph()
    x, at = graph.placeholder("x"), graph.placeholder("at")
    graph.output((graph.call_function(operator.getitem, (x, at)),))
    outcome = judge(Live(fx.GraphModule({}, graph), [X, torch.tensor(3)], ReplaySpec("dynamo")), "inductor")
    assert outcome.ok, outcome.text


def test_an_eager_failure_gives_no_verdict_and_names_the_node() -> None:
    gm = traced(lambda x: [x.view(64)], X)
    outcome = judge(Live(gm, [torch.randn(3)], INFERENCE), "inductor")
    assert outcome.signature is not None
    assert (outcome.signature.kind, outcome.signature.stage) == ("error", "eager")
    assert "node view" in outcome.text


def test_no_reference_is_never_ok() -> None:
    gm = traced(lambda x: [x.view(torch.int32) + 1], X)
    outcome = judge(Live(gm, [X], INFERENCE), "inductor")
    assert not outcome.ok
    assert outcome.text.startswith("no reference")


class Planted(Rung):
    """A rung made of a function of the outputs, to plant faults that Inductor does not have."""

    name = "planted"

    def __init__(self, change: Callable[[list[Any], list[Any]], list[Any]]) -> None:
        self.change = change

    def build(self, gm: fx.GraphModule, fake_inputs: Any, spec: ReplaySpec) -> Callable[[list[Any]], list[Any]]:
        return lambda inputs: self.change(run_graph(gm, inputs), inputs)


PUT = torch.ops.aten.index_put.default
WRITES: dict[str, Callable[..., Any]] = {
    "index_put": lambda x, at, values: [PUT(x, [at], values) * 2],
    "index_put_": lambda x, at, values: [x.index_put_((at,), values) * 2],
    "scatter": lambda x, at, values: [x.scatter(0, at[:, None].expand(3, 2), values) * 2],
    "index_copy": lambda x, at, values: [x.index_copy(0, at, values) * 2],
    "columns": lambda x, at, values: [PUT(x.t(), [None, at], values.t()) * 2],
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_last_to_one_place_is_no_failure(name: str) -> None:
    values = torch.tensor([[1.0, 2], [3, 4], [5, 6]])

    def judged_at(at: list[int]) -> Any:
        inputs = [torch.zeros(4, 2), torch.tensor(at), values]
        turned = Planted(lambda outs, given: [WRITES[name](torch.zeros(4, 2), given[1].flip(0), given[2].flip(0))[0]])
        wrong = Planted(lambda outs, given: [outs[0] + 1])
        live = Live(traced(WRITES[name], *inputs), inputs, INFERENCE)
        return [judge(live, used, "numbers").verdict for used in (turned, wrong)]

    turned, wrong = judged_at([0, 2, 1])
    assert (turned.verdict, wrong.verdict) == ("ok", "fails")
    turned, _ = judged_at([0, 1, 1])
    assert (turned.verdict, turned.where and turned.where.node) == ("nondeterministic", traced_name(name)), turned


def traced_name(name: str) -> str:
    return {"columns": "index_put"}.get(name, name)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def run(change: Callable[[list[Any], list[Any]], list[Any]], spec: ReplaySpec = INFERENCE) -> Any:
        monkeypatch.setattr("graphdbg.toolkit.judging.judge.rung_named", lambda _: Planted(change))
        return judge(Live(RELU, [X], spec), "planted")

    return run


def test_a_graph_that_a_rung_has_no_way_to_run_is_skipped(planted: Callable[..., Any]) -> None:
    def refuse(outputs: list[Any], inputs: list[Any]) -> list[Any]:
        raise CannotRun("it has no way to run relu")

    outcome = planted(refuse)
    assert (outcome.ok, outcome.text) == (False, "skipped, because it has no way to run relu")


def test_the_second_judgement_reads_what_the_first_one_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "baseline.pt"
    first = judge(Live(RELU, [X], bug("accuracy")), "inductor", shared=kept)
    assert kept.exists()
    monkeypatch.setattr(
        "graphdbg.toolkit.judging.judge.reference", lambda *_: pytest.fail("the reference was computed again")
    )
    again = judge(Live(RELU, [X], bug("accuracy")), "inductor", shared=kept)
    assert again.signature == first.signature
    assert again.errors == first.errors


@pytest.mark.parametrize(
    ("change", "kind", "detail"),
    [
        (lambda out, _: [out[0] + 1e-3], "accuracy", ""),
        (lambda out, _: [out[0] / (out[0] > 0)], "nan", "nan"),
        (lambda out, _: [out[0].double()], "metadata", "dtype"),
        (lambda out, _: [out[0].t().contiguous().t()], "metadata", "stride"),
        (lambda out, inputs: [out[0], inputs[0].zero_()][:1], "metadata", "mutation"),
        (lambda out, _: [], "metadata", "number of outputs"),
    ],
)
def test_each_kind_of_difference(planted: Callable[..., Any], change: Any, kind: str, detail: str) -> None:
    outcome = planted(change)
    assert not outcome.ok
    assert (outcome.signature.kind, outcome.signature.detail) == (kind, detail)


def test_memory_is_a_kind_of_its_own(planted: Callable[..., Any]) -> None:
    def run_out(*_: Any) -> list[Any]:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    assert planted(run_out).signature.kind == "memory"


def test_another_name_is_answered_with_the_nearest_rung() -> None:
    assert len(NAMES) >= 13
    with pytest.raises(UsageError, match="inductor"):
        rung("inducter")


def linear_relu() -> tuple[fx.GraphModule, list[Any]]:
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    product = graph.call_function(torch.matmul, (x, w))
    dropped = graph.call_function(torch.nn.functional.dropout, (graph.call_function(torch.relu, (product,)), 0.5, True))
    graph.output((dropped,))
    return fx.GraphModule(torch.nn.Module(), graph), [torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)]


@pytest.mark.long
def test_a_dynamo_graph_is_judged_with_its_gradients_and_random_numbers() -> None:
    gm, inputs = linear_relu()
    outcome = judge(Live(gm, inputs, ReplaySpec("dynamo")), "inductor", keep_outputs=True)
    assert (outcome.ok, outcome.text) == (True, "ok")
    assert outcome.outputs is not None
    assert len(outcome.outputs) == 2
    assert judge(Live(gm, inputs, ReplaySpec("dynamo", ambient=Ambient(grad=False))), "nop").ok


def joint(x: torch.Tensor, w: torch.Tensor, tangent: torch.Tensor) -> list[torch.Tensor]:
    out = torch.relu(x @ w)
    inner = tangent * (out > 0)
    return [out, inner @ w.permute(1, 0), x.permute(1, 0) @ inner]


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, "accuracy"])
def test_a_joint_graph_is_partitioned_and_both_halves_run(fault: str | None) -> None:
    inputs = [torch.randn(8, 8) for _ in range(3)]
    gm = traced(joint, *inputs)
    for node, name in zip(gm.graph.find_nodes(op="placeholder"), ["primals_1", "primals_2", "tangents_1"], strict=True):
        node.name = node.target = name
    gm.recompile()
    config = {"inductor": {"cpp.inject_relu_bug_TESTING_ONLY": fault}} if fault else {}
    outcome = judge(Live(gm, inputs, ReplaySpec("joint", {"num_fwd_outputs": 1}, config=config)), "inductor")
    assert outcome.ok == (fault is None), outcome.text


def test_inductors_random_numbers_are_drawn_eagerly() -> None:
    prims = torch.ops.prims

    def draw(x: torch.Tensor) -> list[torch.Tensor]:
        seeds = prims.inductor_seeds.default(3, torch.device("cpu"))
        first, second, three = (prims.inductor_lookup_seed.default(seeds, index) for index in range(3))
        uniform = prims.inductor_random.default([8, 8], first, "rand")
        normal = prims.inductor_random.default([8, 8], second, "randn")
        whole = prims.inductor_randint.default(-3, 1000, [8, 8], three)
        return [x + uniform, normal, whole]

    for name in ("inductor", "nop"):
        outcome = judge(Live(traced(draw, X), [X], ReplaySpec("forward")), name)
        assert (outcome.ok, outcome.text) == (True, "ok"), outcome.text


@pytest.mark.long
@pytest.mark.usefixtures("no_order_of_draws")
def test_draws_are_in_eagers_order_where_torch_keeps_none() -> None:
    """The scheduler takes the smaller draw first here."""
    rand = partial(torch.ops.aten.rand.default, dtype=torch.float32, device="cpu")

    def masks(x: torch.Tensor) -> list[torch.Tensor]:
        large, small = rand([256, 16]) > 0.5, rand([16, 16]) > 0.5
        return [((x @ x) * small).square().sum(), large.sum(0), small]

    gm = traced(masks, torch.randn(16, 16))
    for name in ("inductor", "inductor_nofuse"):
        outcome = judge(Live(gm, [torch.randn(16, 16)], ReplaySpec("inference")), name)
        assert (outcome.ok, outcome.text) == (True, "ok"), outcome.text


def test_philox_is_uniform_and_normal() -> None:
    seed = torch.tensor(12345)
    uniform, normal = eager.rand([20_000], seed), eager.randn([20_000], seed)
    assert 0 <= float(uniform.min()) < float(uniform.max()) < 1
    assert abs(float(uniform.mean()) - 0.5) < 0.01
    assert abs(float(normal.mean())) < 0.03
    assert abs(float(normal.std()) - 1) < 0.03
    whole = eager.randint(-5, 6, [20_000], seed)
    assert (int(whole.min()), int(whole.max())) == (-5, 5)


def test_encoded_values_become_plain() -> None:
    assert plain({"tuple": [1, {"float": "inf"}]}) == [1, float("inf")]
    assert plain({"dict": [["a", {"tuple": []}]]}) == {"a": []}
    assert is_opaque(plain([{"opaque": ["f", "<f>"]}]))
    assert not is_opaque(plain({"dict": [["a", 1]]}))


W = torch.linspace(-2, 2, 64).reshape(8, 8)
CANDIDATES: dict[str, Callable[[torch.Tensor], Any]] = {
    "the culprit and more": lambda x: [(torch.relu(x @ W) * 2).sum(0), x + 1],
    "its numbers are eager's": lambda x: [x + 1],
    "its numbers are not, but near": lambda x: [torch.softmax(x * 3, -1) @ W],
    "random": lambda x: [torch.relu(torch.rand_like(x)) - x],
    "uninitialised": lambda x: [torch.relu(torch.empty_like(x)) + x],
    "in place": lambda x: [torch.relu(x).add_(1)],
}


@pytest.mark.long
@pytest.mark.parametrize("fault", ["accuracy", pytest.param("compile_error", marks=pytest.mark.slow)])
def test_the_lean_order_says_what_the_full_one_says(fault: str) -> None:
    lean = {"accuracy": "numbers", "compile_error": "compile"}[fault]
    said: list[bool] = []
    for name, function in CANDIDATES.items():
        gm = traced(function, X)
        full = judge(Live(gm, [X], bug(fault)), "inductor")
        short = judge(Live(gm, [X], bug(fault)), "inductor", lean=lean)
        if full.signature is not None and full.signature.kind in ("error", "nondeterministic"):
            # it cannot be judged; what memory holds that nothing wrote is chance, and may be NaN in one of them
            assert short.signature is None or short.signature.kind in (full.signature.kind, "nan"), name
            continue
        assert short.ok == full.ok, name
        assert (short.signature is None) == (full.signature is None), name
        if short.signature is not None and full.signature is not None:
            assert short.signature.kind == full.signature.kind, name
            assert short.signature.same_as(full.signature), name
            assert full.signature.same_as(short.signature), name
        said.append(short.ok)
    assert True in said
    assert False in said


def test_the_lean_order_takes_no_crash_where_eager_cannot_run() -> None:
    gm = traced(lambda x: [torch.relu(x)[4]], X)
    short = X[:2].clone()
    for lean in ("", "compile"):
        outcome = judge(Live(gm, [short], bug("compile_error")), "inductor", lean=lean)
        assert outcome.signature is None or outcome.signature.kind == "error", lean


def test_the_lean_order_makes_no_reference_for_eagers_own_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphdbg.toolkit.judging import judge as module

    built: list[int] = []
    original = module.reference

    def counting(*given: Any) -> Any:
        built.append(1)
        return original(*given)

    monkeypatch.setattr(module, "reference", counting)
    plain_sum = traced(lambda x: [x + 1], X)
    outcome = judge(Live(plain_sum, [X], INFERENCE), "inductor", check="accuracy", lean="numbers")
    assert (outcome.ok, outcome.text, built) == (True, "ok", [])
    assert not judge(Live(RELU, [X], bug("accuracy")), "inductor", check="accuracy", lean="numbers").ok
    assert built == [1]


def two(x: torch.Tensor, change: float = 0.0) -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(x.clone(), x.clone() + 1 + change)


def test_tensors_that_hold_others_are_compared_by_all_that_they_hold() -> None:
    g = fx.Graph()
    x = g.placeholder("x")
    g.output((g.call_method("sin", (x,)),))
    case = Live(fx.GraphModule({}, g), [two(X).requires_grad_()], ReplaySpec("dynamo"))
    assert judge(case, "decomposed").ok

    def off(outputs: list[Any], inputs: list[Any]) -> list[Any]:
        return [outputs[0] * two(torch.ones(()), -1 + 1.01)]

    outcome = judge(case, Planted(off))
    assert not outcome.ok
    assert outcome.signature is not None
    assert outcome.signature.kind == "accuracy"


def test_what_is_written_inside_of_one_counts() -> None:
    g = fx.Graph()
    x = g.placeholder("x")
    g.call_method("mul_", (x, 2))
    g.output((x,))
    case = Live(fx.GraphModule({}, g), [two(X)], ReplaySpec("dynamo", ambient=Ambient(grad=False)))
    assert judge(case, Planted(lambda outputs, inputs: outputs)).ok
    outcome = judge(case, Planted(lambda outputs, inputs: (inputs[0].b.mul_(1.5), outputs)[1]))
    assert not outcome.ok


@pytest.mark.parametrize("dropped", [0.0, 0.5])
def test_attention_that_drops_nothing_draws_nothing(dropped: float) -> None:
    graph = fx.Graph()
    q = graph.placeholder("q")
    attention = torch.nn.functional.scaled_dot_product_attention
    graph.output(graph.call_function(attention, (q, q, q), {"dropout_p": dropped}))
    assert eager.has_random(fx.GraphModule(torch.nn.Module(), graph)) == bool(dropped)


@pytest.mark.parametrize("function", [torch.nn.functional.dropout, torch.nn.functional.dropout2d])
@pytest.mark.parametrize(
    ("given", "drawn"), [((0.0, True), False), ((0.5, False), False), ((0.5, True), True), ((), True)]
)
def test_dropout_that_drops_nothing_draws_nothing(function: Any, given: tuple[Any, ...], drawn: bool) -> None:
    graph = fx.Graph()
    graph.output(graph.call_function(function, (graph.placeholder("x"), *given)))
    assert eager.has_random(fx.GraphModule(torch.nn.Module(), graph)) == drawn
