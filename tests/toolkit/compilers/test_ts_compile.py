"""What TorchScript can be given: translated soundly, the caller's graph untouched; what it cannot, named."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from graphdbg import GraphdbgError
from graphdbg.toolkit.compilers import nnc_jit, simple_ts_compile, ts_compile
from graphdbg.toolkit.compilers.ts_compile import UnscriptableError

aten, prims = torch.ops.aten, torch.ops.prims
X = torch.linspace(-1, 2, 12).reshape(3, 4)
INDEX = torch.tensor([0, 1])

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sizes as outputs": (lambda a: (a.shape[0], a.shape[0] * a.shape[1], a.sin(), a.shape[0] > 2), (X,)),
    "a size as input": (lambda a, n: (a.expand(n, *a.shape) + n, n + 1), (X, 3)),
    "powers": (lambda a: (a.shape[0] ** 2, a + 1), (X,)),
    "division": (lambda a: (a[: a.shape[0] // 2], (a.shape[1] + 3) % 5, -a.shape[0], a * (1 / a.shape[0])), (X,)),
    "rounding": (
        lambda a: a.new_zeros(math.ceil(a.shape[0] / 2), math.trunc(a.shape[1] / 3), round(a.shape[0] / 2)),
        (X,),
    ),
    "largest and smallest": (lambda a: a.new_zeros(torch.sym_max(*a.shape), torch.sym_min(a.shape[0], 3)), (X,)),
    "roots and sums": (lambda a: a.new_zeros(torch.sym_sum([*a.shape, 2])) / math.sqrt(a.shape[0]), (X,)),
    "a difference": (lambda a: a.new_zeros(abs(a.shape[0] - 9)), (X,)),
    "indices that are None": (
        lambda a, i: (a[:, i], a[i, :, None], aten.index_put(a, [None, i], a[:, :2], True)),
        (X, INDEX),
    ),
    "scatter": (
        lambda a, i: aten.scatter_reduce.two(torch.zeros(3, 4), 1, i, a, "amax"),
        (X, torch.zeros(3, 4).long()),
    ),
    "convert_element_type": (lambda a: prims.convert_element_type(a, torch.float16), (X,)),
    "casts": (lambda a: (aten._to_copy(a, dtype=torch.float64), aten._to_copy(a, dtype=a.dtype)), (X,)),
    "casts with a layout": (lambda a: aten._to_copy(a, dtype=torch.half, layout=torch.strided, device=a.device), (X,)),
    "memory format": (lambda a: a.clone(memory_format=torch.channels_last), (torch.ones(1, 2, 3, 4),)),
    "full": (
        lambda a: [torch.full((2,), value, device=a.device) for value in (1.5, -math.inf, math.nan, True, 3, 1j)],
        (X,),
    ),
    "bool scalars": (lambda a: (torch.where(a > 0, True, False), (a > 0).masked_fill(a > 1, True)), (X,)),
    "random": (
        lambda a: (torch.rand_like(a), torch.randint(0, 9, (5,)), torch.bernoulli(a.sigmoid()), torch.randperm(5)),
        (X,),
    ),
    "dropout": (lambda a: torch.nn.functional.dropout(a, 0.3, True), (X,)),
    "an input that changes": (lambda a: (a.add_(1), a.view(-1)[0].mul_(2)), (X,)),
    "a number out of a tensor": (lambda a, n: a.narrow(0, 0, n.item()), (X, torch.tensor(2))),
    "a list": (lambda a: [a + 1, a.shape[0], None], (X,)),
    "a constant": (lambda a: a + torch.tensor([1.0, 2, 3, 4]), (X,)),
    "one tensor": (lambda a: a + 1, (X,)),
    "no operators": (lambda a: (a,), (X,)),
    "no inputs": (lambda: (torch.ones(3),), ()),
}


def fresh(values: Any) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_the_graph(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    gm = make_fx(function, tracing_mode="symbolic")(*fresh(inputs))
    code, targets = gm.code, [node.target for node in gm.graph.nodes]
    torch.manual_seed(0)
    wanted = gm(*fresh(inputs))
    state = torch.get_rng_state()
    given = fresh(inputs)
    compiled = ts_compile(gm, given)
    torch.testing.assert_close(given, list(inputs), rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)
    for _ in range(3):  # TorchScript profiles, specialises, and runs what it specialised
        torch.manual_seed(0)
        got = compiled(fresh(inputs))
    assert type(got) is type(wanted)
    for item, other in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
        assert type(item) is type(other)
        if isinstance(other, torch.Tensor):
            assert (item.dtype, item.stride()) == (other.dtype, other.stride())
            torch.testing.assert_close(item, other, equal_nan=True)
        else:
            assert item == other
    assert (gm.code, [node.target for node in gm.graph.nodes]) == (code, targets)


def test_a_choice_between_sizes() -> None:
    graph = fx.Graph()
    size = graph.placeholder("size")
    small = graph.call_function(torch.sym_not, (graph.call_function(operator.gt, (size, 2)),))
    graph.output((graph.call_function(torch.sym_ite, (small, 3, size)),))
    compiled = ts_compile(fx.GraphModule({}, graph), [5])
    assert (compiled([5]), compiled([2])) == ((5,), (3,))


def test_autocast_of_torchscript_is_off_meanwhile_and_back_afterwards() -> None:
    seen = []

    class Watching(list[Any]):
        def __iter__(self) -> Any:
            seen.append(torch._C._jit_set_autocast_mode(False))
            return super().__iter__()

    gm = make_fx(torch.sin)(X)
    before = torch._C._jit_set_autocast_mode(True)
    try:
        ts_compile(gm, Watching([X]))
        assert torch._C._jit_set_autocast_mode(True)
        assert seen
        assert not any(seen)
    finally:
        torch._C._jit_set_autocast_mode(before)


def test_a_device_keeps_its_index() -> None:
    from graphdbg.toolkit.compilers.scriptable import scriptable

    graph = fx.Graph()
    graph.output(graph.call_function(aten.ones.default, ([2],), {"device": torch.device("cuda:1")}))
    assert "'cuda:1'" in scriptable(fx.GraphModule({}, graph)).code


@pytest.mark.parametrize("compiler", [ts_compile, simple_ts_compile])
def test_a_higher_order_operator_is_named_with_the_user_line(compiler: Any) -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # the line

    caught: list[UnscriptableError] = []

    def compile_and_keep(gm: fx.GraphModule, inps: Any) -> Any:
        with pytest.raises(UnscriptableError) as error:
            compiler(gm, inps)
        caught.append(error.value)
        return gm

    torch._dynamo.reset()
    torch.compile(branches, backend=compile_and_keep)(X)
    (error,) = caught
    assert isinstance(error, GraphdbgError)
    assert (error.node, error.op) == ("cond", "higher_order.cond")
    assert error.user_line.startswith("test_ts_compile.py:")
    assert "# the line" in error.user_line
    assert "TorchScript has no form for higher-order operators" in str(error)


def test_an_operator_that_torchscript_refuses_is_named() -> None:
    def outside(x: Any) -> Any:
        import platform

        return x if platform.machine() else -x

    graph = fx.Graph()
    x = graph.placeholder("x")
    doubled = graph.call_function(aten.mul.Tensor, (x, 2))
    strange = graph.call_function(outside, (doubled,))
    strange.stack_trace = '  File "model.py", line 12, in forward\n    return outside(y)'
    graph.output((strange,))
    with pytest.raises(UnscriptableError) as caught:
        ts_compile(fx.GraphModule({}, graph), [X])
    assert caught.value.node == strange.name
    assert "outside" in caught.value.op
    assert caught.value.user_line == "model.py:12: return outside(y)"


def test_a_function_compiled_by_nnc_jit_has_gradients() -> None:
    x = torch.linspace(0, 1, 5).requires_grad_()
    nnc_jit(lambda x: (x.sin() * x.shape[0]).sum())(x).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, 5 * x.detach().cos())


@torch.library.custom_op("graphdbg_tests::increase", mutates_args={"x", "y"})
def increase(x: torch.Tensor, by: float, y: torch.Tensor | None = None) -> torch.Tensor:
    x.add_(by)
    if y is not None:
        y.mul_(2)
    return x.sum()


@increase.register_fake
def _(x: torch.Tensor, by: float, y: torch.Tensor | None = None) -> torch.Tensor:
    return x.new_empty(())


@torch.library.custom_op("graphdbg_tests::reset", mutates_args={"x"})
def reset(x: torch.Tensor) -> None:
    x.zero_()


@pytest.mark.parametrize("dynamic", [False, True])
def test_operators_that_change_their_arguments(dynamic: bool) -> None:
    def function(x: torch.Tensor, z: torch.Tensor) -> Any:
        y = x * 2
        total = increase(y[1:], 0.5, z)
        reset(y[:, 0])
        return y, total + increase(x.t().contiguous(), 1.0, z + 1)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="graphdbg_ts", dynamic=dynamic)
    for rows in (3, 4):
        for _ in range(3):
            x, z = torch.linspace(0, 1, 4 * rows).reshape(rows, 4), torch.ones(2)
            x2, z2 = x.clone(), z.clone()
            torch.testing.assert_close(compiled(x, z), function(x2, z2))
            torch.testing.assert_close((x, z), (x2, z2))
