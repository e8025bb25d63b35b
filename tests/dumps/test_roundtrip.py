"""Live graph -> record -> live graph: byte-identical records, the same results, nothing of the live one changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch.fx import Graph, GraphModule, symbolic_trace

import graphdbg
from graphdbg.dumps import inert, live
from graphdbg.dumps.schema import GraphRecord

from .graphs import MemoryTensors
from .live_graphs import Block, Caught, caught, fresh, same


def g(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


@torch.library.custom_op("graphdbg_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda ctx, grad: grad * 2)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0].cos()


def branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)).sum()


def loop(x: torch.Tensor) -> Any:
    from torch._higher_order_ops import while_loop

    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))


def scanned(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops import scan

    return scan(lambda carry, y: (carry + y, carry * y), torch.zeros(3), x)[1].sum()


@mark_compile_region
def part(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


def region(x: torch.Tensor) -> torch.Tensor:
    return (part(x) + part(x * 2)).sum()


def without_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.sin()
    return (x * 2 + y).sum()


MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "block": (Block(), (g(4, 8),), True),
    "cond": (branches, (g(4, 4),), True),
    "while_loop": (loop, (torch.randn(3),), False),
    "scan": (scanned, (g(4, 3),), True),
    "invoke_subgraph": (region, (g(4),), True),
    "custom op": (lambda x: torch.ops.graphdbg_test.twice(x).sum(), (g(3),), True),
    "autograd function": (lambda x: Sine.apply(x).sum(), (g(3),), True),
    "complex": (lambda x: (torch.fft.fft(x).abs() ** 2).sum(), (g(8),), True),
    "mutation": (lambda x: x.add_(1).mul(2).sum(), (torch.randn(4),), False),
    "data-dependent size": (lambda x: x[x > 0].sin(), (torch.randn(10),), False),
    "item": (lambda x: torch.arange(x[0].item()) + x.sum(), (torch.tensor([3, 4]),), False),
    "vmap": (lambda x: torch.func.vmap(lambda y: y.softmax(0))(x), (torch.randn(4, 3),), False),
    "grad": (lambda x: torch.func.grad(lambda y: (y**3).sum())(x), (torch.randn(4),), False),
    "no_grad": (without_grad, (g(4),), True),
    "views": (lambda x: x.t()[1:].as_strided((2, 2), (1, 2)).sum(), (g(4, 6),), True),
    "attention": (
        lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum(),
        (g(1, 2, 8, 4),),
        True,
    ),
}


def saved(gm: GraphModule, stage: str) -> tuple[GraphRecord, MemoryTensors, bytes]:
    sink = MemoryTensors()
    record = live.encode(gm, id=f"0_0/{stage}", stage=stage, sink=sink)
    data = msgspec.json.encode(record)
    return msgspec.json.decode(data, type=GraphRecord), sink, data


def check(stage: str, gm: GraphModule, run: bool) -> None:
    """Save, load both ways, save again; run the original and the loaded one on the same inputs."""
    before = gm.print_readable(print_output=False)
    record, sink, data = saved(gm, stage)
    assert gm.print_readable(print_output=False) == before
    module = live.module(record, sink)
    fake, inputs, mode = live.fake_module(record, sink)
    assert saved(module, stage)[2] == data
    assert saved(fake, stage)[2] == data
    assert len(inputs) == sum(node.op == "placeholder" for node in gm.graph.nodes)
    assert fake.shape_env is mode.shape_env
    if run:
        real = live.inputs(record, None, sink, 0)
        torch.manual_seed(1)
        expected = gm(*fresh(real))
        torch.manual_seed(1)
        assert same(module(*fresh(real)), expected)


FEW = ("block", "cond", "views", "data-dependent size", "item", "attention")
"""Sizes of the others are symbols in the long matrix only: what is saved of a symbol does not depend on the
operator."""


@pytest.mark.parametrize(
    ("name", "dynamic"),
    [
        *(pytest.param(name, False, id=f"{name}-static") for name in MODELS),
        *(
            pytest.param(name, True, id=f"{name}-dynamic", marks=() if name in FEW else pytest.mark.slow)
            for name in MODELS
        ),
    ],
)
def test_what_torch_builds_comes_back(name: str, dynamic: bool) -> None:
    function, args, backward = MODELS[name]
    kept: list[tuple[str, bytes]] = []
    graphs: Caught = caught(
        function,
        *args,
        dynamic=dynamic,
        backward=backward,
        keep=lambda stage, gm, _: kept.append((stage, saved(gm, stage)[2])),
    )
    assert graphs
    for stage, gm, _ in graphs:
        check(stage, gm, run=True)
    assert kept  # encoded while the compiler stack was running, as the recorder does


def test_encoding_adds_no_guard() -> None:
    guards: list[tuple[int, int]] = []

    def keep(stage: str, gm: GraphModule, _: Any) -> None:
        env = next(
            v.fake_mode.shape_env
            for n in gm.graph.nodes
            for v in [n.meta.get("val", n.meta.get("example_value"))]
            if hasattr(v, "fake_mode")
        )
        before = len(env.guards), dict(env.replacements)
        record = saved(gm, stage)[0]
        assert record.symbols
        assert (len(env.guards), dict(env.replacements)) == before
        guards.append((len(record.guards), before[0]))

    caught(Block(), g(4, 8), dynamic=True, keep=keep)
    assert len(guards) >= 3


def test_symbols_come_back_with_hints_ranges_and_facts() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] * 2 == y.shape[0])
        torch._check(x.shape[0] < 100)
        return torch.cat([x, y])[: x.shape[0] + 3].sum()

    def keep(stage: str, gm: GraphModule, _: Any) -> None:
        record, sink, _ = saved(gm, stage)
        _, inputs, mode = live.fake_module(record, sink)
        env = mode.shape_env
        results = {item.name: item for item in record.symbols}
        assert {str(symbol): int(number) for symbol, number in env.backed_var_to_val.items()} == {
            name: item.hint for name, item in results.items()
        }
        assert not hasattr(env, "name_to_symbol") or set(results) <= set(env.name_to_symbol)  # since torch 2.15
        for symbol, span in env.var_to_range.items():
            assert int(span.lower) == results[str(symbol)].lower
        assert len(env.guards) == len([guard for guard in record.guards if guard.kind == "guard"])
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        assert any(isinstance(size, torch.SymInt) for value in tensors for size in value.shape)

    caught(f, torch.randn(5), torch.randn(10), dynamic=True, backward=False, keep=keep)


class Tower(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(4),
            torch.nn.GELU(approximate="tanh"),
            torch.nn.AdaptiveAvgPool2d((2, 2)),
            torch.nn.Flatten(),
            torch.nn.Linear(16, 5),
            torch.nn.Dropout(0.3),
        )
        self.table = torch.nn.Embedding(7, 5, padding_idx=1)
        self.tied = torch.nn.Linear(5, 7, bias=False)
        self.tied.weight = self.table.weight
        self.free = torch.nn.Parameter(torch.randn(5))

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = self.layers(x) + self.table(i).sum(1) + self.free
        return self.tied(y).t().contiguous().float().clamp(min=-1.5, max=float("inf"))


def test_leaf_modules_methods_and_tied_parameters(tmp_path: Path) -> None:
    gm = symbolic_trace(Tower().eval())
    check("dynamo", gm, run=False)
    record, sink, _ = saved(gm, "dynamo")
    module = live.module(record, sink)
    inputs = [torch.randn(2, 3, 8, 8), torch.randint(0, 7, (2, 3))]
    assert same(module(*inputs), gm(*inputs))
    assert not module.get_submodule("layers.1").training
    assert module.get_submodule("tied").weight is module.get_submodule("table").weight
    live.save_graph(gm, inputs, tmp_path / "case")
    again = graphdbg.load_graph(tmp_path / "case")
    assert same(again.module()(*again.inputs()), gm(*inputs))


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True),
        torch.nn.GRUCell(3, 4),
        torch.nn.MultiheadAttention(8, 2, batch_first=True),
        torch.nn.Upsample(scale_factor=2.0, mode="nearest"),
        torch.nn.GroupNorm(2, 4, affine=False),
        torch.nn.PReLU(3),
        torch.nn.ConvTranspose1d(2, 4, 3, stride=2, groups=2),
        torch.nn.MaxPool2d(2, return_indices=True),
        torch.nn.CrossEntropyLoss(label_smoothing=0.1),
        torch.nn.RMSNorm(4),
        torch.nn.BatchNorm1d(3, track_running_stats=False),
        torch.nn.Softmax(dim=-1),
        torch.nn.Unflatten(1, (2, 2)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_leaf_modules_are_rebuilt(module: torch.nn.Module) -> None:
    graph = Graph()
    graph.output(graph.call_module("leaf", (graph.placeholder("x"),)))
    record, sink, data = saved(GraphModule({"leaf": module}, graph), "dynamo")
    loaded = live.module(record, sink)
    assert repr(loaded.leaf) == repr(module)
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), loaded.leaf.state_dict().values(), strict=True)
    )
    assert saved(loaded, "dynamo")[2] == data


NAMES = ("sin", "add", "getitem", "cat", "float", "view")
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
ARGUMENTS = st.recursive(
    SCALARS
    | st.complex_numbers()
    | st.sampled_from(
        [
            torch.float32,
            torch.float8_e4m3fn,
            torch.complex64,
            torch.device("cuda", 3),
            torch.device("cpu"),
            torch.strided,
            torch.channels_last,
            torch.preserve_format,
            torch.per_tensor_affine,
            Ellipsis,
            torch.Size([2, 3]),
            range(1, 9, 2),
            slice(None, 3),
            slice(1, None, -1),
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(ARGUMENTS)
@settings(max_examples=150)
def test_every_argument_comes_back(value: Any) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    # A node that never runs may hold anything.
    graph.call_function(torch.ops.aten.sin.default, (x, value, torch.ops.aten.add.Tensor), {"out": {"k": [value]}})
    graph.output((x,))
    live_one = GraphModule({}, graph)
    record, _, data = saved(live_one, "inference")
    loaded = live.module(record, None)
    before, after = (
        next(node.args[1] for node in gm.graph.nodes if node.op == "call_function") for gm in (live_one, loaded)
    )
    if repr(inert.value(value)) == repr(
        value
    ):  # other text is made inert on loading: Inductor writes arguments into code
        assert repr(after) == repr(before)
        assert saved(loaded, "inference")[2] == data


OPS: list[tuple[Any, Callable[[Any, list[Any]], tuple[Any, ...]]]] = [
    (torch.ops.aten.add.Tensor, lambda pick, v: (pick(v), pick(v))),
    (torch.ops.aten.mul.Tensor, lambda pick, v: (pick(v), 0.5)),
    (torch.ops.aten.transpose.int, lambda pick, v: (pick(v), 0, 1)),
    (torch.ops.aten.relu.default, lambda pick, v: (pick(v),)),
    (torch.ops.aten.softmax.int, lambda pick, v: (pick(v), -1)),
    (torch.ops.aten.index.Tensor, lambda pick, v: (pick(v), [None, torch.tensor([3, 0, 2, 1])])),
    (torch.ops.aten.as_strided.default, lambda pick, v: (pick(v), [4, 4], [1, 4], 0)),
    (torch.ops.prims.convert_element_type.default, lambda pick, v: (pick(v), torch.float32)),
    (torch.ops.aten.add_.Tensor, lambda pick, v: (v[-1], 1)),
    (torch.where, lambda pick, v: (pick(v).__class__ and pick(v), pick(v), pick(v))),
]


@given(st.data())
@settings(max_examples=40)
def test_any_graph_of_ops_comes_back_and_computes_the_same(data: st.DataObject) -> None:
    graph = Graph()
    values: list[Any] = [graph.placeholder(f"x_{i}") for i in range(data.draw(st.integers(1, 3)))]

    def pick(among: list[Any]) -> Any:
        return data.draw(st.sampled_from(among))

    for _ in range(data.draw(st.integers(1, 10))):
        op, args = pick(OPS)
        if op is torch.where:
            condition = graph.call_function(torch.ops.aten.gt.Scalar, (pick(values), 0))
            values.append(graph.call_function(op, (condition, pick(values), pick(values))))
        elif op is torch.ops.aten.add_.Tensor:
            copy = graph.call_function(torch.ops.aten.clone.default, (pick(values),))
            values.append(graph.call_function(op, (copy, 1)))
        else:
            values.append(graph.call_function(op, args(pick, values)))
    graph.output(tuple(data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))))
    gm = GraphModule(torch.nn.Module(), graph)
    record, sink, bytes_ = saved(gm, "inference")
    loaded = live.module(record, sink)
    assert saved(loaded, "inference")[2] == bytes_
    inputs = [torch.randn(4, 4) for node in graph.nodes if node.op == "placeholder"]
    original = Interpreted(gm)
    assert same(Interpreted(loaded)(*fresh(inputs)), original(*fresh(inputs)))


class Interpreted:
    """Runs a graph whose arguments hold tensors, which FX's printed code cannot."""

    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm

    def __call__(self, *args: Any) -> Any:
        return torch.fx.Interpreter(self.gm).run(*args)


def test_a_case_folder_keeps_everything(tmp_path: Path) -> None:
    stage, gm, _ = caught(Block(), g(4, 8), dynamic=True)[-1]
    record, sink, _ = saved(gm, stage)
    record.compile_kwargs = {"static_input_idxs": [0, 1], "is_backward": True}
    module, inputs = live.module(record, sink), live.inputs(record, None, sink, 3)
    live.save_graph(module, inputs, tmp_path / "case")
    again = graphdbg.load_graph(tmp_path / "case")
    assert (again.stage, again.record.compile_kwargs) == (stage, record.compile_kwargs)
    assert [(s.name, s.hint) for s in again.record.symbols] == [(s.name, s.hint) for s in record.symbols]
    assert same(again.inputs(seed=9), inputs)
    assert sorted(path.name for path in (tmp_path / "case").iterdir()) >= ["graph.json", "graph.py", "inputs.json"]
    with pytest.raises(graphdbg.GraphdbgError, match="exists already"):
        live.save_graph(module, inputs, tmp_path / "case")
