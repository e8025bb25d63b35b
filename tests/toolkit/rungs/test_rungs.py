"""Each rung on graphs that it can take, and its reason on those that it cannot."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch._inductor.inductor_prims  # registers the operators
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.rung import LADDER, SIDE
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.replaying.fidelity import watching_compiles
from graphdbg.toolkit.rungs import NAMES, rung
from graphdbg.toolkit.rungs.inductor import RETRACED, made_by_inductor, needs_decomposing
from graphdbg.toolkit.verdicts.verdict import Layer

X = torch.linspace(-2, 2, 64).reshape(8, 8)
INFERENCE = ReplaySpec("inference")
OTHERS = ReplaySpec("forward")
INDUCTORS = ReplaySpec("forward", {"static_input_idxs": [], "graph_id": 0})


def traced(function: Callable[..., Any], *inputs: Any, **options: Any) -> fx.GraphModule:
    return make_fx(function, **options)(*inputs)


def layer_norm(x: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.ops.aten.native_layer_norm.default(x.sin(), [8], None, None, 1e-5))


NORM = traced(layer_norm, X)
CHAIN = traced(lambda x: [((x.sin() * 2).relu() + 3).sum(-1)], X)


def loops(name: str) -> int:
    """How many loops the generated code of CHAIN has under a rung."""
    seen: list[str] = []
    outcome = judge(Live(CHAIN, [X], INFERENCE), name, watch=lambda: watching_compiles(lambda gm: None, seen.append))
    assert outcome.text == "ok"
    return "".join(seen).count("for(")


def test_a_rung_has_the_name_of_its_file() -> None:
    assert {name: rung(name).name for name in NAMES} == {name: name for name in NAMES}


def test_a_rung_blames_a_layer_that_verdicts_know() -> None:
    known = get_args(Layer)
    wrong = {name: facts.layer for name, facts in LADDER.items() if facts.layer not in (None, *known)}
    assert not wrong, f"`layer` of a rung is one of {', '.join(known)}: {wrong}"


def test_a_step_of_the_ladder_has_a_row_that_says_what_is_wrong() -> None:
    page = (Path(__file__).parents[3] / "docs" / "concepts" / "rungs.md").read_text(encoding="utf-8")
    reported = page.partition("| the first that fails |")[2]
    missing = [name for name in NAMES if name not in SIDE and f"| `{name}` |" not in reported]
    assert not missing, f"docs/concepts/rungs.md needs a row under `the first that fails` for {missing}"


def test_without_fusion_every_node_has_a_loop_of_its_own() -> None:
    assert loops("inductor_nofuse") >= loops("inductor") + 3


def test_what_nofuse_changes_is_put_back() -> None:
    before = loops("inductor")
    judge(Live(CHAIN, [X], INFERENCE), "inductor_nofuse")
    assert loops("inductor") == before


def test_nofuse_leaves_out_custom_passes_and_keeps_what_lowering_needs() -> None:
    from torch._inductor import config

    def wrong(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
            node.replace_all_uses_with(node.args[0])

    with config.patch(post_grad_custom_post_pass=wrong):
        assert judge(Live(CHAIN, [X], INFERENCE), "inductor").text.startswith("wrong numbers")
        assert judge(Live(CHAIN, [X], INFERENCE), "inductor_nofuse").text == "ok"


def test_nofuse_takes_operators_that_draw_random_numbers() -> None:
    gm = traced(lambda x: [torch.ops.aten.native_dropout.default(x, 0.5, True)[0]], X)
    assert judge(Live(gm, [X], INFERENCE), "inductor_nofuse").ok


def kernel_draws(x: torch.Tensor) -> list[torch.Tensor]:
    seeds = torch.ops.prims.inductor_seeds(1, torch.device("cpu"))
    return [x * torch.ops.prims.inductor_random([8, 8], torch.ops.prims.inductor_lookup_seed(seeds, 0), "rand")]


@pytest.mark.parametrize("name", ["inductor", pytest.param("inductor_nofuse", marks=pytest.mark.slow)])
def test_operators_that_draw_like_kernels(name: str) -> None:
    assert judge(Live(traced(kernel_draws, X), [X], INDUCTORS), name).text == "ok"


@pytest.mark.parametrize("name", ["inductor", pytest.param("inductor_nofuse", marks=pytest.mark.slow)])
def test_dropout_in_a_graph_of_another_backend(name: str) -> None:
    def dropout(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.ops.aten.native_dropout.default(item, 0.5, True)[0] for item in layer_norm(x)[:1]]

    outcome = judge(Live(traced(dropout, X), [X], OTHERS), name)
    assert outcome.text == "ok", outcome


@pytest.mark.parametrize("name", ["decomposed", "inductor", "inductor_nofuse"])
def test_a_graph_of_another_backend_is_traced_through_the_decompositions(name: str) -> None:
    outcome = judge(Live(NORM, [X], OTHERS), name)
    assert outcome.text == "ok"
    assert any(note.startswith(RETRACED) for note in outcome.notes)


def test_inductors_own_graphs_are_never_traced_again() -> None:
    assert needs_decomposing(NORM, OTHERS) == ["aten.native_layer_norm.default"]
    assert needs_decomposing(NORM, INDUCTORS) == []
    assert made_by_inductor(ReplaySpec("post_grad_forward"))
    reason = rung("decomposed").unavailable(INDUCTORS)
    assert reason is not None
    assert "decomposed already" in reason


def test_a_joint_graph_of_another_backend() -> None:
    from functorch.compile import aot_function, default_partition, nop

    caught: list[fx.GraphModule] = []

    def catch(joint: fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        caught.append(copy.deepcopy(joint))
        return default_partition(joint, inputs, **kwargs)

    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(x @ w)

    weights = X.clone().requires_grad_()
    aot_function(model, fw_compiler=nop, partition_fn=catch)(X, weights).sum().backward()
    outcome = judge(
        Live(caught[0], [X, weights.detach(), X], ReplaySpec("joint", {"num_fwd_outputs": 1})), "decomposed"
    )
    assert outcome.text == "ok", outcome
    assert outcome.notes == [RETRACED]


def test_a_wrong_decomposition_is_seen_in_a_graph_that_is_not_decomposed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.decomposition import decompositions, fast_random_decomps

    wrong = lambda x, *more: [1.1 * value for value in layer_norm_by_hand(x)]  # noqa: E731
    monkeypatch.setitem(decompositions, torch.ops.aten.native_layer_norm.default, wrong)
    fast_random_decomps.cache_clear()
    try:
        assert judge(Live(NORM, [X], OTHERS), "decomposed").text.startswith("wrong numbers")
        assert judge(Live(NORM, [X], OTHERS), "nop").text == "ok"
    finally:
        monkeypatch.undo()
        fast_random_decomps.cache_clear()


def layer_norm_by_hand(x: torch.Tensor) -> list[torch.Tensor]:
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + 1e-5)
    return [(x - mean) * rstd, mean, rstd]


def test_torchscript_runs_what_it_can_say_and_skips_the_rest() -> None:
    assert judge(Live(CHAIN, [X], INFERENCE), "torchscript").text == "ok"
    assert "AOTAutograd" in (rung("torchscript").unavailable(ReplaySpec("dynamo")) or "")
    seeded = traced(lambda x: [x * torch.ops.prims.inductor_seed(torch.device("cpu"))], X)
    assert judge(Live(seeded, [X], INFERENCE), "torchscript").text.startswith("skipped, because")


def test_aot_inductor_says_that_it_takes_no_sizes() -> None:
    gm = traced(lambda x, n: [x * n], X, 3, tracing_mode="symbolic")
    reason = rung("aot_inductor").cannot_take(gm, INFERENCE)
    assert reason is not None
    assert "sizes" in reason


@pytest.mark.slow
@pytest.mark.parametrize("spec", [INFERENCE, INDUCTORS])
def test_aot_inductor(spec: ReplaySpec) -> None:
    outcome = judge(Live(CHAIN, [X], spec), "aot_inductor")
    assert outcome.text == "ok", outcome


def test_aot_inductor_says_that_it_makes_no_backward() -> None:
    gm = fx.symbolic_trace(lambda x, w: (torch.tanh(x @ w),))
    inputs = [X, X.clone().requires_grad_()]
    assert "compiles no backward" in judge(Live(gm, inputs, ReplaySpec("dynamo")), "aot_inductor").text


@pytest.mark.slow
def test_aot_inductor_decomposes_what_was_recorded_whole() -> None:
    gm = make_fx(lambda x: (torch.nn.functional.gelu(x),), tracing_mode="fake")(X)
    outcome = judge(Live(gm, [X], INFERENCE), "aot_inductor")
    assert outcome.text == "ok", outcome


@pytest.mark.skipif(torch.cuda.is_available(), reason="says why it cannot run without one")
def test_cudagraphs_need_a_device() -> None:
    assert rung("inductor_cudagraphs").unavailable(INFERENCE) == "there is no CUDA device here"


@pytest.mark.gpu
@pytest.mark.parametrize("stage", ["inference", "dynamo"])
def test_cudagraphs(stage: str) -> None:
    gm = fx.symbolic_trace(lambda x, w: (torch.tanh(x @ w),)) if stage == "dynamo" else CHAIN
    inputs = [X.cuda(), X.cuda().requires_grad_()] if stage == "dynamo" else [X.cuda()]
    outcome = judge(Live(gm, inputs, ReplaySpec(stage, device="cuda")), "inductor_cudagraphs")
    assert outcome.text == "ok", outcome
    assert judge(Live(CHAIN, [X], INFERENCE), "inductor_cudagraphs").text.startswith("skipped, because no value")
