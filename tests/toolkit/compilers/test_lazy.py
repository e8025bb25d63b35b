"""Graphs through the lazy TorchScript backend: results, memory and in-place updates as in eager, and who cannot be
taken."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import aot_function
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit import backends
from graphdbg.toolkit.compilers import lazy, lazy_compile
from graphdbg.toolkit.compilers.lazy_tracing import NotExtractedError

X, W = torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(-1, 1, 16).reshape(4, 4)
ONE = torch.ones(())
CHANNELS_LAST = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)


def clones(values: Any) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def scaled(values: Any, factor: int) -> list[Any]:
    """Clones with other numbers where that changes no kind."""
    return [
        value * factor if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() else value
        for value in clones(values)
    ]


def leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (list, tuple)) else [value]


def same(item: Any, other: Any) -> bool:
    if not isinstance(item, torch.Tensor):
        return type(item) is type(other) and item == other
    alike = (item.dtype, item.shape, item.stride(), item.device) == (
        other.dtype,
        other.shape,
        other.stride(),
        other.device,
    )
    return alike and torch.equal(item, other)


def sharing(values: list[Any]) -> list[tuple[int, int]]:
    """The pairs that share memory."""
    pointers = [value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0 for value in values]
    return [(i, j) for i, item in enumerate(pointers) for j in range(i) if item and item == pointers[j]]


def mlp(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.mm(w) + 1).relu()


def first_changes(x: torch.Tensor) -> Any:
    x.t()[1].add_(1)
    return x, x.t(), x * 2, x


def one_value(h: torch.Tensor) -> Any:
    return h, h.clone(), h, h.t(), h[0], None, 3


FORMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an MLP": (mlp, (X, W)),
    "an argument changed through a view of a view, and returned": (first_changes, (X,)),
    "arguments and views of them": (lambda x, y: [x, x.t(), y[1:], x.as_strided((2, 2), (1, 2)), None, 3], (X, W)),
    "one value many times": (lambda x: one_value(x + 1), (X,)),
    "a copy of an argument": (lambda x: x.clone(), (X,)),
    "copied into, broadcast, from another dtype": (lambda x, y: x.copy_(y.sum(0)), (X, X.double())),
    "filled": (lambda x: x.fill_(3.0), (X,)),
    "equal numbers in three places": (lambda x, s, r: x * s + r + 1.0, (X, ONE, ONE.clone())),
    "a number in memory changed": (lambda n, x: (n.add_(1), x * n), (ONE, X)),
    "a changed truth": (lambda t, u: t.copy_(t | u), (torch.tensor(False), torch.tensor(True))),
    "factories without a device": (lambda x: (torch.full((4,), 2.0) + x, torch.arange(4) + x, torch.ones(4)), (X,)),
    "factories with one": (lambda x: torch.zeros(4, device="cpu").add_(1) + x.new_ones(4) + torch.ones_like(x), (X,)),
    "a factory like an argument, with one": (lambda x: torch.zeros_like(x, device="cpu") + x, (X,)),
    "a factory written to through a view": (lambda x: (lambda z: (z.view(2, 2).add_(1), z + x))(torch.zeros(4)), (X,)),
    "a constant": (lambda x: torch.tensor([1.0, 2.0, 3.0, 4.0]) + x, (X,)),
    "no computation": (lambda x: x, (X,)),
    "channels last": (lambda x: (x.relu(), x.permute(0, 3, 1, 2) + 1), (CHANNELS_LAST,)),
    "a transposed result": (lambda x: (x + 1).t(), (X,)),
    "an expanded argument": (lambda x: x + 1, (torch.ones(1, 4).expand(3, 4),)),
    "nothing in it": (lambda x: x + 1, (torch.empty(0, 3),)),
    "integers": (lambda x: (x / 2, x.sum(), x > 1, x + 1), (torch.arange(5, dtype=torch.int32),)),
    "bfloat16": (lambda x: (x + 1.5, x.float()), (X.bfloat16(),)),
    "complex": (lambda x: x * 2, (torch.ones(3, dtype=torch.complex64),)),
    "a number as input": (lambda x, n, f: (x * n + f, n), (X, 3, 2.5)),
}


@pytest.mark.parametrize("form", FORMS)
def test_results_are_eagers(form: str) -> None:
    function, given = FORMS[form]
    gm = fx.symbolic_trace(function) if form == "a number as input" else make_fx(function)(*clones(given))
    compiled = lazy_compile(gm, given)
    for factor in (1, 2):  # what was compiled holds nothing of the values that it was compiled with
        item, other = scaled(given, factor), scaled(given, factor)
        if form == "an expanded argument":
            item, other = list(given), list(given)
        wanted, got = leaves(gm(*item)), leaves(compiled(other))
        assert len(wanted) == len(got)
        assert [place for place, pair in enumerate(zip(wanted, got, strict=True)) if not same(*pair)] == []
        assert sharing([*item, *wanted]) == sharing([*other, *got])
        assert all(same(a, b) for a, b in zip(item, other, strict=True))
    assert len(compiled.extractions) == 1
    assert bool(compiled.ir) == (form not in ("no computation", "arguments and views of them"))


def test_an_argument_comes_back_as_itself() -> None:
    gm = make_fx(lambda x: (x.mul_(2), x, x + 1))(X.clone())
    x = X.clone()
    first, second, _ = lazy_compile(gm, [x])([x])
    assert first is x
    assert second is x


@pytest.mark.parametrize(
    "draw",
    [
        torch.rand_like,
        torch.randn_like,
        lambda x: torch.rand(4) + x,
        torch.bernoulli,
        lambda x: torch.native_dropout(x, 0.5, True)[0],
    ],
)
def test_random_numbers_are_drawn_in_each_run_as_by_eager(draw: Callable[..., Any]) -> None:
    given = X.sigmoid()
    gm = make_fx(draw)(given)
    before = torch.get_rng_state()
    compiled = lazy_compile(gm, [given])
    assert torch.equal(torch.get_rng_state(), before)
    for seed in (1, 2):
        torch.manual_seed(seed)
        wanted = gm(given)
        torch.manual_seed(seed)
        assert torch.equal(compiled([given]), wanted)


class Net(torch.nn.Module):
    """A plain attribute, parameters, buffers, and an inner graph with a factory."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.inner = fx.symbolic_trace(lambda x: x.relu() + torch.ones(4))
        self.plain = torch.arange(4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.norm(self.linear(x))) + self.plain


class Whole(fx.Tracer):
    record_stack_traces = True

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, fx.GraphModule) or super().is_leaf_module(m, module_qualified_name)


def test_parameters_buffers_and_inner_graphs() -> None:
    torch.manual_seed(0)
    net = Net()
    ours: Any
    eager: Any
    ours, eager = (fx.GraphModule(owner, Whole().trace(owner)) for owner in (net, copy.deepcopy(net)))
    assert isinstance(ours.inner, fx.GraphModule)
    compiled = lazy_compile(ours, [X])
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(compiled([X]), eager(X))
            torch.testing.assert_close(ours.norm.running_var, eager.norm.running_var)
            assert ours.norm.num_batches_tracked == eager.norm.num_batches_tracked
            for item in (ours, eager):  # what an optimizer writes is seen
                item.linear.weight.mul_(2)
                item.plain = item.plain + 1
    assert len(compiled.extractions) == 1


class Wavy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.relu().sin()  # LINE 1
        return torch.where(y > 0, y, 0.0) + y.sin()  # LINE 2


def line(number: int) -> str:
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"test_lazy.py:{next(place for place, item in enumerate(text, 1) if item.endswith(f'# LINE {number}'))}"


def test_every_operator_that_falls_back_is_named_with_the_users_line() -> None:
    gm = fx.GraphModule({}, Whole().trace(Wavy()))
    with pytest.raises(NotExtractedError) as caught:
        lazy_compile(gm, [X])
    sin, where = (f"{op} has no lazy kernel" for op in ("aten::sin", "aten::where.self"))
    assert caught.value.why == f"{sin} ({line(1)}, {line(2)}); {where} ({line(2)})"
    assert [fallback.op for fallback in caught.value.fallbacks] == ["aten::sin", "aten::where.self", "aten::sin"]


def test_a_fallback_inside_an_inner_graph_is_named_by_its_own_node() -> None:
    root = torch.nn.Module()
    root.inner = fx.symbolic_trace(lambda x: x.relu().sin())
    graph = fx.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    with pytest.raises(NotExtractedError, match=r"aten::sin has no lazy kernel \(node sin\)"):
        lazy_compile(fx.GraphModule(root, graph), [X])


SHARED = torch.arange(12.0)
REFUSED: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "shared": (
        lambda x, y: (x.add_(1), y * 2),
        [SHARED.view(3, 4), SHARED.view(4, 3)],
        "shares its memory with another input",
    ),
    "sparse": (lambda x: x * 2, [torch.eye(3).to_sparse()], "an input is sparse"),
    "device": (lambda x: x * 2, [torch.ones(3, device="meta")], "an input is on meta"),
    "conjugate": (lambda x: x * 2, [torch.ones(3, dtype=torch.complex64).conj()], "conjugate view"),
    "item": (lambda x: x * x.sum().item(), [X], "aten::_local_scalar_dense has no lazy kernel"),
    "nonzero": (lambda x: x.nonzero(), [X], "aten::nonzero has no lazy kernel"),
    "multinomial": (
        lambda x: x.multinomial(2),
        [X.sigmoid()],
        "aten::multinomial has no lazy kernel (node multinomial)",
    ),
    "set": (lambda x, y: x.set_(y), [X.clone(), X.clone()], "gives an input other memory"),
    "reinterpreted": (lambda x: x.view(torch.int32), [X], "seen as another dtype"),
    "mistake": (lambda x: x.mm(x), [X], "mm cannot be traced (node mm)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_is_refused_with_a_sentence(case: str) -> None:
    function, given, reason = REFUSED[case]
    with pytest.raises(NotExtractedError) as caught:
        lazy_compile(fx.symbolic_trace(function), given)
    assert reason in str(caught.value)


def test_each_geometry_is_extracted_once_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "KEPT", 2)
    compiled = lazy_compile(fx.symbolic_trace(lambda x, n: x * n), [X, 2])
    first = compiled.graph_hash
    for n in (2, 3, 2, math.nan, math.nan):
        torch.testing.assert_close(compiled([X, n]), X * n, equal_nan=True)
    assert len(compiled.extractions) == 2
    assert torch.equal(compiled([W, 2]), W * 2)
    assert len(compiled.extractions) == 2
    assert compiled.graph_hash != first


def test_a_graph_that_torch_forgot_is_extracted_again() -> None:
    compiled = lazy_compile(make_fx(mlp)(X, W), [X, W])
    (extraction,) = compiled.extractions.values()
    extraction.key = b"\x01" * 16
    assert torch.equal(compiled([X, W]), mlp(X, W))
    assert next(iter(compiled.extractions.values())) is not extraction


def test_under_aot_function() -> None:
    wide = W.clone().requires_grad_()
    aot_function(lambda x, w: (x.mm(w) * 2).tanh(), fw_compiler=lazy_compile, bw_compiler=lazy_compile)(
        X, wide
    ).sum().backward()
    other = W.clone().requires_grad_()
    (X.mm(other) * 2).tanh().sum().backward()
    torch.testing.assert_close(wide.grad, other.grad)


def model(wave: bool) -> Callable[..., torch.Tensor]:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = (x @ w).tanh()
        return (h.sin() if wave else h) @ w  # LINE 3

    return step


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("wave", [False, True])
def test_training_under_the_backend(wave: bool, dynamic: bool, tmp_path: Path) -> None:
    torch._dynamo.reset()
    (tmp_path / "0_0-forward.ir.txt").write_text("mine")
    step = torch.compile(
        model(wave), backend=backends.graphdbg_lazy, options={"folder": str(tmp_path)}, dynamic=dynamic
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for rows in (3, 5, 5) if dynamic else (3, 3):
            x = torch.linspace(0, 1, rows * 4).reshape(rows, 4)
            ours, eager = W.clone().requires_grad_(), W.clone().requires_grad_()
            step(x, ours).square().sum().backward()
            model(wave)(x, eager).square().sum().backward()
            torch.testing.assert_close(ours.grad, eager.grad)
    messages = [str(item.message) for item in said if "graphdbg" in str(item.message)]
    forward = (
        f"graphdbg: 0_0/forward runs as it is, not through the lazy backend: aten::sin has no lazy kernel ({line(3)})"
    )
    assert messages == ([forward] if wave else [])
    assert (tmp_path / "0_0-forward.ir.txt").read_text() == "mine"
    (saved,) = sorted(tmp_path.glob("0_0-forward.1.ir.txt")) if not wave else [tmp_path / "0_0-backward.ir.txt"]
    title, graph_hash, *ir = saved.read_text().splitlines()
    assert title.startswith("# 0_0/")
    assert len(graph_hash) == len("# graph hash ") + 32
    assert any("aten::mm" in item for item in ir)


@pytest.mark.long
def test_importing_begins_nothing_and_a_program_may_have_begun_it() -> None:
    script = """
import torch
from graphdbg.toolkit.compilers import lazy, lazy_compile
try:
    torch.ones(2).to("lazy")
except Exception as error:
    print("not begun")
import torch._lazy.ts_backend
torch._lazy.ts_backend.init()
print(lazy_compile(torch.fx.symbolic_trace(lambda x: x + 1), [torch.ones(2)])([torch.ones(2)]).tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["not begun", "[2.0, 2.0]"]
