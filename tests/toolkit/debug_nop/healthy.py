"""Healthy programs of many kinds, each a function that compiles itself, in one table; run as a script it runs those named, or all.

Nothing here is wrong: a finding in any graph of theirs is a false alarm.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

PROGRAMS: dict[str, Callable[[], Any]] = {}
"""Name -> what runs it once, compiled."""


def _row(name: str, function: Callable[..., Any], *inputs: Callable[[], Any], backward: bool = False, **options: Any) -> None:
    def run() -> Any:
        out = torch.compile(function, backend="inductor", **options)(*(one() for one in inputs))
        leaves = [one for one in torch.utils._pytree.tree_leaves(out) if isinstance(one, torch.Tensor)]
        if backward:
            sum(one.abs().sum() for one in leaves if one.requires_grad).backward()  # type: ignore[union-attr]
        return out

    PROGRAMS[name] = run


def _x(*shape: int, grad: bool = False, **options: Any) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape, requires_grad=grad, **options)


def _trained(name: str, make: Callable[[], nn.Module], *inputs: Callable[[], Any], loss: Any = None, **options: Any) -> None:
    """A module's forward and backward."""

    def run() -> None:
        out = torch.compile(make(), **options)(*(one() for one in inputs))
        leaves = [one for one in torch.utils._pytree.tree_leaves(out) if isinstance(one, torch.Tensor) and one.requires_grad]
        torch.stack([one.float().pow(2).mean() for one in leaves]).sum().backward()

    PROGRAMS[name] = run


def _optimized(name: str, make: Callable[[Any], torch.optim.Optimizer], steps: int = 3, sparse: bool = False) -> None:
    """An optimizer whose step is compiled."""

    def run() -> None:
        model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))
        optimizer = make(model.parameters())
        step = torch.compile(lambda: optimizer.step())
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 6)).pow(2).mean().backward()
            step()

    PROGRAMS[name] = run


def _floats(*values: float) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor(values)


# -- views and writes through them, functionalised


def _diagonal(x: torch.Tensor) -> torch.Tensor:
    x = x * 2
    x.diagonal().copy_(torch.ones(8))
    x[1:, 2].add_(3)
    return x


def _last_element(x: torch.Tensor) -> torch.Tensor:
    y = x.clone().view(-1)
    y[63:].copy_(torch.ones(1))
    y.as_strided((3, 3), (9, 2), 4).mul_(2)
    return y.view(8, 8)


def _strip(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    y[:, 2:5] = x[:, :3]
    y[::2].fill_(0)
    z = y.t()[3:].sin_()
    return y, z


def _of_an_input(x: torch.Tensor) -> torch.Tensor:
    x[2:].mul_(2)
    x.t()[1].copy_(x[0])
    x.select(0, 1).zero_()
    return x.view(-1)[5:] + 1


def _chain(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.clone()
    parts = list(y.split(2, 1))
    parts[1].copy_(parts[0])
    a, b = y.unbind(0)[:2]
    a.add_(b)
    y.unsqueeze(0)[..., 3:].exp_()
    y.squeeze_().t_()
    return [*parts, y]


_row("views: diagonal", _diagonal, _x(8, 8))
_row("views: diagonal, backward", _diagonal, _x(8, 8, grad=True), backward=True)
_row("views: last element, as_strided", _last_element, _x(8, 8))
_row("views: last element, backward", _last_element, _x(8, 8, grad=True), backward=True)
_row("views: strips", _strip, _x(8, 8))
_row("views: of an input", _of_an_input, _x(8, 8))
_row("views: of an input's view", _of_an_input, lambda: torch.randn(100)[9:73].view(8, 8))
_row("views: chain", _chain, _x(8, 6))
_row("views: of an input's chain", lambda x: (x.view(4, 16)[1:].add_(1), x[2].mul_(2), x.diagonal(1).zero_(), x + 1), _x(8, 8))
_row("views: expanded, stride 0", lambda x: (x.expand(4, 8), x.expand(4, 8).contiguous() + 1, x.expand(4, 8).t() * 2), _x(1, 8))
_row("views: one element", lambda x: (x.t() * 2, x.view(1, 1, 5).expand(3, 1, 5).sum(0), x.unsqueeze(1).squeeze()), _x(1, 5))
_row("views: empty", lambda x: (x[:0] * 2, x[:, 8:].sum(1), torch.cat([x[:0], x]), x[:0].view(0, 2, 4).t_ if False else x), _x(3, 8))
_row("views: unfold", lambda x: x.unfold(1, 3, 2).sum(-1) + x.unfold(0, 2, 1)[..., 0].sum(), _x(6, 9, grad=True), backward=True)
_row("scatter: slice, select, diagonal, as_strided", lambda x, y: (
    torch.slice_scatter(x, y[:, :3], 1, 2, 5), torch.select_scatter(x, y[0], 1, 3), torch.diagonal_scatter(x, y[0]),
    torch.as_strided_scatter(x, y[:3, :3], (3, 3), (8, 1), 9),
), _x(8, 8, grad=True), _x(8, 8), backward=True)  # fmt: skip
_row("scatter: of a transposed", lambda x, y: (torch.slice_scatter(x.t(), y, 0, 1, 3), torch.select_scatter(x.t()[1:], y[0], 0, 2)), _x(8, 6), _x(2, 8))
_row("index: by a 0-d tensor", lambda x, i: (x[i], x[i, 2:], x[:, i], x[i] + 1), _x(6, 5), lambda: torch.tensor(1))
_row("index: by a 0-d tensor, backward", lambda x, i: x[i] * 2, _x(6, 5, grad=True), lambda: torch.tensor(4), backward=True)
_row("index: a slice by 0-d tensors", lambda x, i: x[i : i + 2] * 2, _x(6, 5), lambda: torch.tensor(1))
_row("index: put, mask, tensors", lambda x, i: (x.clone().index_put_((i,), torch.ones(5)), x[i][:, i], x.index_add(0, i, x[i]), x.masked_fill(x > 0, 1)), _x(6, 5), lambda: torch.tensor([0, 2, 4]))
_row("index: assigned by 0-d", lambda x, i: x.clone().__setitem__(i, 3.0) or x.sum(), _x(6, 5), lambda: torch.tensor(2))

# -- foreach ops and optimizers
_row("foreach", lambda a, b: (
    torch._foreach_add([a, b], [b, a], alpha=2), torch._foreach_mul([a, b], 3.0), torch._foreach_sqrt([a.abs(), b.abs()]),
    torch._foreach_norm([a, b]), torch._foreach_lerp([a, b], [b, a], 0.5), torch._foreach_addcdiv([a], [b], [a.abs() + 1]),
), _x(4, 4), _x(4, 4))  # fmt: skip


def _foreach_in_place(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    torch._foreach_add_([a, b], 1.0)
    torch._foreach_mul_([a.view(-1), b.t()], [torch.tensor(2.0), torch.tensor(3.0)])
    torch._foreach_copy_([a], [b])
    torch._foreach_zero_([b[1:]])
    return a + 1, b


_row("foreach: in place", _foreach_in_place, _x(4, 4), _x(4, 4))
_optimized("optimizer: Adam foreach", lambda p: torch.optim.Adam(p, foreach=True))
_optimized("optimizer: AdamW capturable", lambda p: torch.optim.AdamW(p, capturable=True, amsgrad=True))
_optimized("optimizer: SGD momentum", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1))
_optimized("optimizer: SGD for loop", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False))
_optimized("optimizer: RMSprop", lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.1))
_optimized("optimizer: Adagrad", lambda p: torch.optim.Adagrad(p))
_optimized("optimizer: NAdam", lambda p: torch.optim.NAdam(p))
_optimized("optimizer: Adadelta", lambda p: torch.optim.Adadelta(p))
_optimized("optimizer: Rprop", lambda p: torch.optim.Rprop(p))
_optimized("optimizer: Adam single tensor", lambda p: torch.optim.Adam(p, foreach=False))
_optimized("optimizer: rate is a tensor", lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), capturable=True))

# -- functorch


def _net(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w).pow(2).sum()


def _per_sample(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return vmap(grad(_net, argnums=1), in_dims=(0, None))(x, w)


_row("func: vmap", lambda x: vmap(lambda row: (row.sin() * row.sum(), row.softmax(0)))(x), _x(4, 5))
_row("func: vmap twice", lambda x: vmap(vmap(lambda a, b: a @ b, in_dims=(None, 0)), in_dims=(0, None))(x, x), _x(4, 5))
_row("func: vmap, in_dims, out_dims", lambda x, y: vmap(lambda a, b: a.outer(b), in_dims=(1, 0), out_dims=2)(x, y), _x(3, 4), _x(4, 5))
_row("func: vmap with a write", lambda x: vmap(lambda r: r.clone().index_fill_(0, torch.tensor([1]), 0.0))(x), _x(4, 5))
_row("func: vmap of a batch norm", lambda x: vmap(lambda r: torch.nn.functional.instance_norm(r))(x), _x(2, 3, 4, 5))
_row("func: vmap, chunked", lambda x: vmap(lambda r: r.cumsum(0), chunk_size=2)(x), _x(4, 5))
_row("func: grad", lambda x: grad(lambda v: (v.sin() * v).sum())(x), _x(5))
_row("func: grad of grad", lambda x: grad(lambda v: grad(lambda u: (u**3).sum())(v).sum())(x), _x(5))
_row("func: vmap of grad", _per_sample, _x(3, 2), _x(4, 3))
_row("func: grad of vmap", lambda x: grad(lambda v: vmap(lambda r: r.sin().sum())(v).sum())(x), _x(4, 3))
_row("func: jacrev", lambda x: jacrev(lambda v: v.sin() * v.sum())(x), _x(4))
_row("func: jacfwd", lambda x: jacfwd(lambda v: v.sin() * v.sum())(x), _x(4))
_row("func: hessian", lambda x: hessian(lambda v: (v.sin() * v.sum()).sum())(x), _x(4))
_row("func: jacfwd of jacfwd", lambda x: jacfwd(jacfwd(lambda v: (v**3).sum()))(x), _x(3))
_row("func: jvp", lambda x, t: jvp(lambda v: v.exp().view(2, 2).t() @ v.view(2, 2), (x,), (t,)), _x(4), _x(4))
_row("func: vjp", lambda x: torch.func.vjp(lambda v: v.view(2, 2).t().sin(), x)[1](torch.ones(2, 2)), _x(4))
_row("func: jacrev, dynamic", lambda x: jacrev(lambda v: v.cos() * 2)(x), _x(5), dynamic=True)


def _ensemble() -> None:
    models = [nn.Linear(4, 3) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)  # type: ignore[arg-type]
    base = copy.deepcopy(models[0])

    def call(p: Any, b: Any, x: torch.Tensor) -> torch.Tensor:
        return functional_call(base, (p, b), (x,))

    torch.compile(lambda x: vmap(call, in_dims=(0, 0, None))(parameters, buffers, x).sum())(torch.randn(5, 4)).backward()


PROGRAMS["func: ensemble"] = _ensemble

# -- regions
_region = torch.compiler.nested_compile_region


@_region
def _block(x: torch.Tensor) -> torch.Tensor:
    return (x @ x).relu()


@_region
def _pair(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin() + y, (x.t() * 2).t()


def _blocks(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = _block(x)
    return x.sum()


def _pairs(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    for _ in range(2):
        x, y = _pair(x, y)
    return x.sum() + y.sum()


class _Regions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    @_region
    def layer(self, linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(linear(x)) + x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one in self.layers:
            x = self.layer(one, x)
        return x


_row("regions: backward", _blocks, _x(8, 8, grad=True), backward=True)
_row("regions: infer", _blocks, _x(8, 8))
_row("regions: pairs", _pairs, _x(6, 6, grad=True), backward=True)
_row("regions: pairs, dynamic", _pairs, _x(6, 6, grad=True), backward=True, dynamic=True)
_trained("regions: layers", _Regions, _x(4, 6))
_row("cond", lambda x: torch.cond(x.sum() > 0, lambda x: (x.sin() @ x).t(), lambda x: x.cos() + 1, (x,)), _x(5, 5))
_row("cond: backward", lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() + 1, (x,)), _x(5, 5, grad=True), backward=True)
_row("cond: nested", lambda x: torch.cond(x.sum() > 0, lambda x: torch.cond(x[0, 0] > 0, lambda x: x.sin(), lambda x: x + 1, (x,)), lambda x: x.cos(), (x,)), _x(5, 5), dynamic=True)


def _while(x: torch.Tensor) -> Any:
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x.sin() + 1), (torch.tensor(0), x))


def _map(x: torch.Tensor, y: torch.Tensor) -> Any:
    from torch._higher_order_ops.map import map as mapped

    return mapped(lambda a, b: (a + b).cos() @ b, x, y)


def _scan(x: torch.Tensor, y: torch.Tensor) -> Any:
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, one: (carry * 0.9 + one, carry.sin()), x, y)


def _associative(x: torch.Tensor) -> Any:
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


_row("while_loop", _while, _x(4))
_row("map", _map, _x(3, 4, 4), _x(4, 4))
_row("map: backward", _map, _x(3, 4, 4, grad=True), _x(4, 4), backward=True)
_row("scan", _scan, _x(4), _x(5, 4))
_row("scan: backward", _scan, _x(4, grad=True), _x(5, 4, grad=True), backward=True)
_row("associative_scan", _associative, _x(8, 4))


def _flex(mask: bool, score: bool, heads: int = 2) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    bias = torch.randn(64)

    def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
        return q >= k

    def with_bias(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s + bias[q] - 0.1 * (q - k)

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        block = create_block_mask(causal, None, None, 64, 64, device="cpu") if mask else None
        return flex_attention(q, k, v, score_mod=with_bias if score else None, block_mask=block)  # type: ignore[return-value]

    return run


_row("flex: mask made inside", _flex(True, False), *[_x(1, 2, 64, 16)] * 3)
_row("flex: mask and score", _flex(True, True), *[_x(1, 2, 64, 16)] * 3)
_row("flex: score", _flex(False, True), *[_x(1, 2, 64, 16)] * 3)


def _flex_outside() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    documents = torch.arange(64) // 20
    block = create_block_mask(lambda b, h, q, k: (documents[q] == documents[k]) & (q >= k), 1, None, 64, 64, device="cpu")
    torch.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=block))(*(torch.randn(1, 2, 64, 16) for _ in range(3)))


PROGRAMS["flex: documents"] = _flex_outside
_row("mask by vmap", lambda x: vmap(vmap(lambda q, k: (q >= k) & (q - k < 3), (0, None)), (None, 0))(x, x), lambda: torch.arange(6))

# -- modules


def _checkpointed() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from torch.utils.checkpoint import checkpoint

            return checkpoint(lambda v: self.b(self.a(v).relu()), x, use_reentrant=False)  # type: ignore[return-value]

    return Net()


_trained("module: checkpoint", _checkpointed, _x(4, 6))
_trained("module: LSTM", lambda: nn.LSTM(4, 5, 2, batch_first=True), _x(2, 3, 4))
_trained("module: GRU cell", lambda: nn.GRUCell(4, 5), _x(2, 4), _x(2, 5))
_trained("module: batch norm, channels last", lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).to(memory_format=torch.channels_last), lambda: torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last))  # type: ignore[call-overload]
_trained("module: conv transposed", lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), nn.GroupNorm(2, 4), nn.MaxPool2d(2)), _x(2, 3, 5, 5))
_trained("module: conv 1d, dilated", lambda: nn.Sequential(nn.Conv1d(4, 8, 3, dilation=2, groups=2), nn.AdaptiveAvgPool1d(2)), _x(2, 4, 12))
_trained("module: embedding bag", lambda: nn.EmbeddingBag(10, 4, mode="mean"), lambda: torch.tensor([[1, 2], [3, 4]]))
_trained("module: embedding", lambda: nn.Sequential(nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 3)), lambda: torch.tensor([[0, 2], [3, 4]]))
_trained("module: embedding, sparse", lambda: nn.Embedding(10, 4, sparse=True), lambda: torch.tensor([[0, 2], [3, 4]]))
_trained("module: attention", lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True), _x(2, 5, 8))
_trained("module: attention, dynamic", lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), _x(2, 5, 8), dynamic=True)
_trained("module: dropout", lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)), _x(4, 6))
_trained("module: weight norm", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), _x(3, 6))
_trained("module: upsample", lambda: nn.Sequential(nn.Conv2d(2, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelUnshuffle(2)), _x(1, 2, 4, 4))


def _autocast() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.compile(model)(torch.randn(4, 6)).float().sum().backward()


PROGRAMS["autocast"] = _autocast

# -- kinds of numbers
_row("complex", lambda x: (torch.fft.fft(x).abs(), torch.view_as_real(x * 2j), (x * 1j).conj() @ x.t().to(torch.complex64), (x + 1j).real, (x - 1j).imag), _x(4, 4))
_row("complex: backward", lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2).sin(), _x(4, 8, grad=True), backward=True)
_row("complex: input", lambda x: (x.real + 1, x.imag.t() * 2, x.conj().mul(x), torch.view_as_real(x)[..., 0]), _x(4, 4, dtype=torch.complex64))
_row("integers", lambda x: (x // 2, x & 3, x << 1, x.bitwise_not(), x.to(torch.uint8), x.to(torch.bool), ~(x > 1), x.float().round().int()), lambda: torch.arange(12).view(3, 4))
_row("uint8", lambda x: (x + 1, x.float() / 255, x.permute(2, 0, 1).contiguous(), x.sum(), x > 100, x.view(torch.int8)), lambda: torch.arange(48, dtype=torch.uint8).view(4, 4, 3))
_row("bool: any, all, where", lambda x: (x.any(0), x.all(), torch.where(x, 1.0, 2.0), x.nonzero_static(size=3), x.cumsum(0)), lambda: torch.tensor([[True, False], [True, True]]))
_row("view of another type", lambda x: (x.view(torch.int32) + 1, x.view(torch.int16).t(), x.half().view(torch.int16)), _x(4, 4))
_row("sort, topk, unique", lambda x: (x.sort(1), x.topk(2), x.argsort(0), x.max(1), x.median(0), x.kthvalue(2)), _x(4, 5))
_row("linear algebra", lambda x: (torch.linalg.qr(x), torch.linalg.inv(x @ x.t() + torch.eye(4)), torch.linalg.solve(x, x), torch.linalg.eigvalsh(x)), _x(4, 4))
_row("svd, cholesky", lambda x: (torch.linalg.svd(x), torch.linalg.cholesky(x @ x.t() + torch.eye(4)), torch.linalg.lstsq(x, x).solution), _x(4, 4))
_row("sparse product", lambda x: torch.sparse.mm(torch.eye(4).to_sparse(), x), _x(4, 4))
_row("random", lambda x: (torch.rand_like(x), torch.randn(3), torch.randperm(5), torch.bernoulli(x.sigmoid()), x.multinomial(2) if False else x), _x(4, 4))

# -- sizes
_row("dynamic", lambda x: (x.view(-1, 2).t(), x[: x.shape[0] // 2], torch.arange(x.shape[0]) * 2, x.reshape(x.shape[1], -1)), _x(6, 4), dynamic=True)
_row("dynamic: backward", lambda x: torch.cat([x[1:], x[:1]]).view(-1).softmax(0), _x(6, 4, grad=True), backward=True, dynamic=True)


def _captured(name: str, function: Callable[..., Any], *inputs: Callable[[], Any]) -> None:
    def run() -> None:
        with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
            torch.compile(function)(*(one() for one in inputs))

    PROGRAMS[name] = run


_captured("data: nonzero", lambda x: (x.nonzero() * 2, x[x > 0].sin(), torch.where(x > 0)[0]), _floats(1, -1, 2, 0))
_captured("data: nothing", lambda x: (x.nonzero() * 2, x[x > 0].view(-1, 1).t()), _floats(0, 0))
_captured("data: item", lambda x: (torch.zeros(int(x.sum().item())) + 1, x * x.max().item()), lambda: torch.tensor([1, 2]))
_captured("data: unique", lambda x: x.unique(return_counts=True), lambda: torch.tensor([1, 2, 1]))
_captured("data: repeat_interleave", lambda x, n: x.repeat_interleave(n, 0).t() * 2, _x(3, 2), lambda: torch.tensor([1, 0, 2]))
_captured("data: split", lambda x, n: torch.split(x, n.tolist()), _x(5, 2), lambda: torch.tensor([2, 3]))


def _schedule() -> None:
    compiled = torch.compile(lambda x, rate: x * rate + x.sum() * (rate - 1))
    for rate in (0.1, 0.2, 0.3):
        compiled(torch.randn(4), rate)


def _lengths() -> None:
    compiled = torch.compile(lambda x: (x.view(-1)[2:], x.t().contiguous(), x.flatten().unfold(0, 2, 1)))
    for length in (4, 6, 1, 9):
        compiled(torch.randn(length, 3))


PROGRAMS["numbers that change"] = _schedule
PROGRAMS["lengths that change"] = _lengths


def main(names: list[str]) -> None:
    """Runs them, each from a clean Dynamo; a program that this torch cannot run is named."""
    warnings.simplefilter("ignore")
    for name in names or list(PROGRAMS):
        torch._dynamo.reset()
        torch.manual_seed(0)
        print("#", name, flush=True)
        try:
            PROGRAMS[name]()
        except Exception as error:  # noqa: BLE001  told, for the test
            print("FAILED", name, type(error).__name__, str(error).splitlines()[:1], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
