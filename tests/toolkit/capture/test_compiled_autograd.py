"""Backwards of programs that compile nothing: nothing changes for the program, and what is recorded says and repeats
what ran."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.external_utils import call_hook

from graphdbg.toolkit import torch_private as t
from graphdbg.toolkit.capture.compiled_autograd import PASSES, capturing, disable, enable, reset
from graphdbg.toolkit.capture.compiled_autograd.passes import cpu_scalars_to_gpu

from . import hooked_models


def train(maker: Callable[[], hooked_models.Made], steps: int = 2) -> tuple[list[torch.Tensor | None], list[str]]:
    """Gradients and what the hooks saw, after backwards that accumulate."""
    torch.manual_seed(0)
    module, loss_of = maker()
    log: list[str] = []
    hooked_models.hook(module, log)
    for _ in range(steps):
        torch.manual_seed(1)
        hooked_models.loss_with_hooks(loss_of(module), log).backward()
    return [parameter.grad for parameter in module.parameters()], log


def same(item: Any, other: Any) -> bool:
    if item is None or other is None:
        return item is other
    return item.dtype == other.dtype and item.stride() == other.stride() and torch.equal(item, other)


FAST = (hooked_models.mlp, hooked_models.checkpointed)
HOOKED = [
    pytest.param(maker, id=maker.__name__, marks=() if maker in FAST else pytest.mark.slow)
    for maker in hooked_models.MODELS
]


@pytest.mark.parametrize("maker", HOOKED)
def test_gradients_and_hooks_are_those_of_eager_and_the_graph_repeats_them(
    maker: Callable[[], hooked_models.Made],
) -> None:
    grads, log = train(maker)
    with capturing() as captures:
        watched, seen = train(maker)
    assert all(same(item, other) for item, other in zip(grads, watched, strict=True))
    assert seen == log
    first, second = captures  # the second adds to gradients that are there
    assert first.uncaptured == second.uncaptured == ""
    alone, _ = train(maker, steps=1)
    for backward, wanted in ((first, alone), (second, grads)):
        with torch.no_grad():
            outputs = dict(zip(backward.outputs, backward.module(*backward.values), strict=True))
        assert all(name.endswith(".grad") for name in outputs)
        outputs.pop("unnamed.grad", None)  # an input of the model that wants a gradient
        assert len(outputs) == sum(grad is not None for grad in wanted)
        ordered = sorted((tuple(value.shape), value.double().sum().item()) for value in outputs.values())
        assert ordered == sorted(
            (tuple(value.shape), value.double().sum().item()) for value in wanted if value is not None
        )


def qualified(name: str) -> str:
    """What a code object knows of its name: all of it since Python 3.11."""
    return name if sys.version_info >= (3, 11) else name.rpartition(".")[2]


def test_every_node_names_its_autograd_node_and_hooks_are_named() -> None:
    with capturing() as captures:
        train(hooked_models.mlp, steps=1)
    calls = [node for node in captures[0].module.graph.nodes if node.op == "call_function"]
    named = [node for node in calls if not node.meta.get("autograd_node")]
    assert [node.meta.get("hook", "") for node in named] == [], named
    names = set(captures[0].nodes.values())
    for node in calls:
        name, _, number = node.meta["autograd_node"].rstrip(")").partition(" (NodeCall ")
        assert captures[0].nodes[int(number)] == name
    assert {"MulBackward0", "SumBackward0", "SquareBackward", "AddmmBackward0", "ReluBackward0"} <= names
    hooks = {node.meta["hook"] for node in calls if "hook" in node.meta}
    assert any(qualified("Square.backward") in name for name in hooks)
    assert any(qualified("loss_with_hooks.<locals>.<lambda>") + " (hooked_models.py:" in name for name in hooks)


def test_lines_of_the_forward_are_told_under_anomaly_mode() -> None:
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    try:
        with capturing() as captures:
            train(hooked_models.mlp, steps=1)
    finally:
        torch.autograd.set_detect_anomaly(False)
    lines = {node.name: node.stack_trace for node in captures[0].module.graph.nodes if node.op == "call_function"}
    assert 'hooked_models.py", line' in lines["threshold_backward"]


def test_inputs_are_named_for_what_they_are() -> None:
    with capturing() as captures:
        train(hooked_models.mlp)
    assert captures[1].reason.partition(";")[0].endswith("finds a gradient this time")
    described = captures[1].inputs_described  # other tests' modules may be alive: then the class comes first
    roles = {item.name: (item.role, item.source.removeprefix("Sequential.")) for item in described}
    assert roles["grad_output"][0] == "tangent"
    assert ("parameter", "2.weight (a view)") in roles.values()
    assert ("saved", "0.weight.grad") in roles.values()
    assert any(role == "constant" and qualified("Square.backward") in source for role, source in roles.values())
    assert captures[0].outputs[-1].removeprefix("Sequential.") in ("0.weight.grad", "0.bias.grad")


def test_the_passes_are_seen_and_can_be_left_out() -> None:
    with capturing() as captures:
        train(hooked_models.mlp, steps=1)
    reports = {own_pass.name: own_pass for own_pass in captures[0].passes}
    assert set(reports) <= {name for name, _ in PASSES}
    assert reports["accumulate_grad_in_eager_order"].moved > 0
    with capturing(skip=["accumulate_grad_in_eager_order"]) as skipped:
        train(hooked_models.mlp, steps=1)
    assert next(own_pass for own_pass in skipped[0].passes if own_pass.name == "accumulate_grad_in_eager_order").skipped

    def places(graph: Any) -> list[int]:
        return [index for index, node in enumerate(graph.nodes) if node.target is t.call_accumulate_grad]

    assert captures[0].captured is not None and skipped[0].captured is not None
    last = len(captures[0].captured.graph.nodes)
    assert min(places(captures[0].captured.graph)) < min(places(skipped[0].captured.graph)) < last


def test_our_accumulate_pass_orders_as_torchs_own() -> None:
    graphs: list[Any] = []

    class Ends(Exception):
        pass

    def take(gm: Any) -> Any:
        graphs.append(gm)
        raise Ends

    for maker in (hooked_models.mlp, hooked_models.mixture_of_experts):
        torch.manual_seed(0)
        module, loss_of = maker()
        hooked_models.hook(module, [])
        loss = loss_of(module)
        with pytest.raises(Ends), enable(take):
            loss.backward(retain_graph=True)
        with capturing() as captures:
            loss.backward()
        assert captures[0].captured is not None
        ours = [(node.op, str(node.target)) for node in captures[0].captured.graph.nodes]
        assert ours == [(node.op, str(node.target)) for node in graphs[-1].graph.nodes], maker.__name__


def test_a_backward_is_recorded_once_and_again_for_other_sizes() -> None:
    net = nn.Linear(3, 2)
    with capturing() as captures:
        for rows in (4, 4, 5, 4, 5):
            net(torch.ones(rows, 3)).sum().backward()
            net.zero_grad()
    assert len(captures) == 2
    assert captures[1].reason.startswith("AddmmBackward0 (NodeCall 2) is fed with [5, 2] instead of [4, 2]")


def test_double_backward_inputs_and_grad_are_recorded() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with capturing() as captures:
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, 6 * x.detach())
    assert [backward.outputs for backward in captures] == [["output[0]"], ["output[0]"]]
    with torch.no_grad():
        assert torch.equal(captures[1].module(*captures[1].values)[0], second)


def test_formulas_that_notice_a_mode_are_left_alone() -> None:
    x = torch.rand(5, requires_grad=True)
    with pytest.warns(UserWarning, match="no backward was recorded"), capturing() as captures:
        x.prod().backward()
    plain = x.grad
    x.grad = None
    x.prod().backward()
    assert captures == [] and same(plain, x.grad)


def test_a_failing_hook_fails_as_it_would_and_what_ran_is_recorded() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))

    def fails(grad: torch.Tensor) -> None:
        raise ValueError("the hook's own")

    next(net.parameters()).register_hook(fails)
    with pytest.raises(ValueError, match="the hook's own"), capturing() as captures:
        net(torch.ones(2, 3)).sum().backward()
    (backward,) = captures
    assert isinstance(backward.error, ValueError)
    names = {name.removeprefix("Sequential.") for name in backward.outputs}  # other tests' modules may be alive
    assert "2.weight.grad" in names and "0.weight.grad" not in names


def test_two_threads_get_their_own_gradients() -> None:
    grads: dict[int, torch.Tensor] = {}

    def work(index: int) -> None:
        net = nn.Linear(4, 4, bias=False)
        nn.init.constant_(net.weight, index)
        for _ in range(5):
            net.zero_grad()
            net(torch.full((2, 4), float(index))).pow(2).sum().backward()
        grads[index] = net.weight.grad  # type: ignore[assignment]

    with capturing():
        threads = [threading.Thread(target=work, args=(index,)) for index in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    watched = dict(grads)
    for index in (1, 2, 3):
        work(index)
        assert torch.allclose(watched[index], grads[index])


def test_contexts_restore_what_was_there() -> None:
    ran: list[str] = []

    def compiler(name: str) -> Callable[[Any], Any]:
        return lambda gm: (ran.append(name), gm)[1]

    def backward(depth: int) -> None:
        x = torch.ones(3, requires_grad=True)
        for _ in range(depth):  # torch's cache asks for the structure, not for the compiler
            x = x * 2
        x.sum().backward()

    reset()
    with enable(compiler("outer"), dynamic=False):
        backward(3)
        with disable():
            backward(4)
            assert not t.compiled_autograd_enabled
            with enable(compiler("inner"), dynamic=False):
                backward(5)
        assert t.compiled_autograd_enabled
        backward(6)
    assert ran == ["outer", "inner", "outer"]
    assert not t.compiled_autograd_enabled and t.set_autograd_compiler(None, False) == (None, False)
    backward(7)
    assert len(ran) == 3
    reset()


def test_a_captured_backward_is_a_case(tmp_path: Any) -> None:
    import graphdbg

    with capturing() as captures:
        train(hooked_models.mlp, steps=1)
    saved = graphdbg.load_graph(captures[0].save(tmp_path / "case"))
    assert saved.stage == "compiled_autograd"
    loaded = saved.module()
    assert [node.meta.get("autograd_node") for node in loaded.graph.nodes] == [
        node.meta.get("autograd_node") for node in captures[0].module.graph.nodes
    ]
    with torch.no_grad():
        outputs = loaded(*saved.inputs(seed=0))
        assert all(map(torch.equal, outputs, captures[0].module(*captures[0].values)))


def test_what_a_tracer_differentiates_is_no_backward_of_the_program() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def gradient(x: torch.Tensor) -> torch.Tensor:
        (grad,) = torch.autograd.grad((x.sin() * x).sum(), x)
        return grad

    with capturing() as captures:
        make_fx(gradient)(torch.ones(3, requires_grad=True))
        torch.func.grad(lambda x: (x**2).sum())(torch.ones(3))
    assert captures == []


def test_a_module_with_its_own_idea_of_parameters_breaks_nothing() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def parameters(self, recurse: bool = True) -> Any:
            return [self.weight]

        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("ask somebody else")

    odd = Odd()
    with capturing() as captures:
        (odd.weight * 2).sum().backward()
    assert torch.equal(odd.weight.grad, torch.full((3,), 2.0))  # type: ignore[arg-type]
    assert len(captures) == 1


def test_an_interrupt_in_a_capture_does_not_end_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, outputs: Any) -> Any:
        raise KeyboardInterrupt

    x = torch.ones(3, requires_grad=True)
    with capturing() as captures:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(t.AutogradCompilerInstance, "end_capture", interrupted)
            (x * 2).sum().backward()
        (x * 3).sin().sum().backward()
    assert len(captures) == 1 and not t.compiled_autograd_enabled


def test_two_models_of_one_shape_are_two_graphs() -> None:
    with capturing() as captures:
        for module in (nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3).double()):
            module(torch.ones(2, 3, dtype=module.weight.dtype)).sum().backward()
    assert len(captures) == 3
    assert captures[1].reason == "the same sizes with other parameters or dtypes"


def test_inputs_of_one_memory_that_is_written_to_are_named() -> None:
    flat = torch.zeros(6)
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    x.grad, y.grad = flat[:3], flat[3:]
    with capturing() as captures:
        ((x * 2).sum() + (y * 3).sum()).backward()
    assert torch.equal(flat, torch.tensor([2.0, 2, 2, 3, 3, 3]))
    assert len(captures[0].shared) == 2


def test_a_compiled_part_is_part_of_the_graph_and_hooks_that_run_no_operator_are_named() -> None:
    net, seen = nn.Linear(3, 3), []
    compiled = torch.compile(lambda x: net(x).sin(), backend="aot_eager")
    scale = torch.rand(3, requires_grad=True)

    def count(grad: Any) -> None:
        seen.append(grad.shape)

    net.bias.register_hook(count)

    def loss(size: int) -> Any:
        return (compiled(torch.ones(size, 3) * scale) ** 2).sum()

    loss(2).backward()
    wanted = [scale.grad, net.weight.grad, net.bias.grad]
    scale.grad = net.weight.grad = net.bias.grad = None
    with capturing() as captures:
        loss(2).backward()
    assert not captures.reasons and len(seen) == 2
    assert all(
        same(item, other) for item, other in zip(wanted, [scale.grad, net.weight.grad, net.bias.grad], strict=True)
    )
    (backward,) = captures
    with torch.no_grad():
        result = backward.module(*backward.values)
    assert sorted(value.sum().item() for value in result) == sorted(
        grad.sum().item() for grad in wanted if grad is not None
    )
    cos = next(node for node in backward.module.graph.nodes if node.target is torch.ops.aten.cos.default)
    assert (
        cos.meta["autograd_node"].startswith("CompiledFunctionBackward (NodeCall ")
        and "lambda" in cos.meta["stack_trace"]
    )
    (hook,) = backward.hooks
    assert qualified("<locals>.count") in hook["hook"] and "AccumulateGrad (NodeCall " in hook["node"]


def test_an_empty_list_has_its_reasons() -> None:
    with (
        pytest.warns(UserWarning, match="no backward was recorded: the block called no backward"),
        capturing() as captures,
    ):
        pass
    assert captures == [] and "no backward was recorded: the block called no backward" in repr(captures)
    x = torch.rand(5, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="ProdBackward0 computes otherwise while it is watched"),
        capturing() as captures,
    ):
        x.prod().backward()
    assert list(captures.reasons.values()) == [1]


def scalars_graph(device: str) -> Any:
    """A capture's beginning: a tensor on `device`, a number that arithmetic uses and one that a hook sees, both on the
    CPU."""
    from torch.fx import Graph

    mode = t.FakeTensorMode()

    def fake(shape: list[int], where: str) -> Any:
        return t.FakeTensor(mode, torch.empty(shape, device="meta"), torch.device(where))

    graph = Graph()
    inputs = graph.placeholder("inputs")
    values = [fake([4], device), fake([], "cpu"), fake([], "cpu"), fake([2], "cpu")]
    items = []
    for place, value in enumerate(values):
        item = graph.call_function(operator.getitem, (inputs, place))
        item.meta["val"] = value
        items.append(item)
    scaled = graph.call_function(torch.ops.aten.mul.Tensor, (items[0], items[1]))
    graph.call_function(call_hook, (items[2], scaled))
    graph.output([graph.call_function(torch.ops.aten.add.Tensor, (scaled, items[3]))])
    return graph


def test_numbers_stay_on_the_cpu_where_all_of_the_backward_is_there() -> None:
    assert cpu_scalars_to_gpu(scalars_graph("cpu")) == []


@pytest.mark.gpu
def test_numbers_that_only_arithmetic_sees_are_moved_to_the_gpu_of_the_backward() -> None:
    graph = scalars_graph("cuda:0")
    assert cpu_scalars_to_gpu(graph) == [1]
    assert [str(node.meta["val"].device) for node in graph.nodes if "val" in node.meta] == [
        "cuda:0",
        "cuda:0",
        "cpu",
        "cpu",
    ]


@pytest.mark.gpu
def test_on_a_gpu_gradients_are_those_of_eager_and_numbers_are_moved_for_cuda_graphs() -> None:
    from torch._inductor import config

    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)).cuda()
        half = torch.tensor(0.5)
        ((net(torch.ones(4, 6, device="cuda")) / half).pow(2) * torch.tensor(3.0)).sum().backward()
        return [parameter.grad for parameter in net.parameters()]  # type: ignore[misc]

    plain = run()
    with config.patch("triton.cudagraphs", True), capturing() as captures:
        watched = run()
    assert all(map(torch.equal, plain, watched))
    (backward,) = captures
    report = next(own_pass for own_pass in backward.passes if own_pass.name == "cpu_scalars_to_gpu")
    assert report.moved > 0
    with torch.no_grad():
        outputs = backward.module(*backward.values)
    wanted = sorted(grad.double().sum().item() for grad in plain)
    assert sorted(value.double().sum().item() for value in outputs) == wanted


def test_sizes_that_change_become_symbols(tmp_path: Any) -> None:
    import graphdbg

    torch.manual_seed(0)
    embedding, cell, head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def backward(rows: int, columns: int) -> None:
        x = cell(embedding(torch.randint(0, 20, (rows, columns)))).relu()
        nn.functional.cross_entropy(head(x.mean(1)), torch.zeros(rows, dtype=torch.long)).backward()
        for module in (embedding, cell, head):
            module.zero_grad()

    with capturing() as captures:
        for rows, columns in ((3, 5), (3, 7), (3, 11), (3, 4)):
            backward(rows, columns)
    _, second = captures  # the third and fourth are the second's graph
    assert second.reason.endswith("; what differs is a symbol now")
    with torch.no_grad():
        for capture in captures:  # the graph with symbols is right for both sizes
            assert all(map(torch.equal, second.module(*capture.values), capture.module(*capture.values)))
    saved = graphdbg.load_graph(second.save(tmp_path / "case"))
    assert [symbol.hint for symbol in saved.record.symbols] == [7]
    assert graphdbg.replay(saved, rung="eager").text == "ok"


def test_graphs_with_nothing_in_common_get_no_symbols() -> None:
    from graphdbg.toolkit.capture.compiled_autograd.symbols import Sizes, with_symbols

    def captured(size: int, twice: bool) -> Any:
        x = torch.ones(size, requires_grad=True)
        with capturing() as captures:
            (x.sin().cos() if twice else x.sin().exp()).sum().backward()
        return captures[0].module

    assert "have different operators" in str(with_symbols(captured(3, True), captured(4, False)))
    assert with_symbols(captured(3, True), captured(3, True)) == "no size of an input differs"
    assert not isinstance(with_symbols(captured(3, True), captured(4, True)), str)
    sizes = Sizes()
    assert sizes.expression((7, 9), new=True).of([sizes.symbols[0][1]]) == 9
    for pair in ((21, 27), (49, 81), (8, 10), (98, 162)):
        assert sizes.expression(pair).of([7]) == pair[0] and sizes.expression(pair).of([9]) == pair[1]
    assert len(sizes.symbols) == 1
