"""Programs of the capture matrix about values: random numbers, quantised, float8, complex, sparse, views, overlap,
writes.

>>> function, arguments = dropout()
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.capture_hops import Made


def dropout() -> Made:
    """Dropout in training."""
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 4)).train(), (torch.randn(4, 8),)


def random_makers() -> Made:
    """rand, randn_like and randint in one graph."""
    return lambda x: x * torch.rand(4, 3) + torch.randn_like(x) + torch.randint(0, 5, (3,)), (torch.randn(4, 3),)


def bernoulli() -> Made:
    """Draws with given probabilities."""
    return lambda p: torch.bernoulli(p) * 2 + torch.bernoulli(p, 0.5), (torch.rand(16),)


def randperm() -> Made:
    """A random order, beside random numbers."""
    return lambda x: x.cumsum(0) * torch.randperm(6)[:, None] + torch.rand(6, 2), (torch.randn(6, 2),)


def quantised_ops() -> Made:
    """Quantise and dequantise as PT2 export writes them, around a product."""
    import torch.ao.quantization.fx._decomposed  # registers the operators

    ops = torch.ops.quantized_decomposed

    def f(x: Tensor, w: Tensor) -> Tensor:
        q = ops.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
        back = ops.dequantize_per_tensor(q, 0.05, 3, -128, 127, torch.int8)
        return back @ w.to(torch.float32).mul(0.1)

    return f, (torch.randn(4, 8), torch.randint(-128, 127, (8, 4), dtype=torch.int8))


def quantised_tensor() -> Made:
    """A quantised tensor of torch's own kind as input."""
    return lambda q: q.dequantize() * 2, (torch.quantize_per_tensor(torch.randn(4, 4), 0.1, 2, torch.quint8),)


def float8() -> Made:
    """Casts to and from both float8 formats, and a float8 input."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        small = (x * 4).to(torch.float8_e4m3fn)
        return small.to(torch.float32) @ w.to(torch.float32), x.to(torch.float8_e5m2)

    return f, (torch.randn(4, 8), torch.randn(8, 4).to(torch.float8_e4m3fn))


def complex_numbers() -> Made:
    """Complex products, a conjugate view as input, and real parts out."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x * y + torch.view_as_complex(torch.stack([x.real, x.imag], -1).contiguous())
        return z, torch.view_as_real(z).sum(-1) + z.abs()

    a, b = (torch.randn(3, 4, dtype=torch.complex64) for _ in range(2))
    return f, (a, b.conj())


def complex_fft() -> Made:
    """A Fourier transform there and back."""
    return lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=8).tanh(), (torch.randn(2, 8),)


def sparse_product() -> Made:
    """A sparse matrix as input of a product."""
    return lambda s, x: torch.sparse.mm(s, x).relu(), (torch.eye(4).to_sparse(), torch.randn(4, 3))


def nested_tensor() -> Made:
    """A jagged nested tensor as input."""
    ragged = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
    return lambda n: (n * 2).sin(), (ragged,)


def expanded_input() -> Made:
    """An input whose rows are all the same memory."""
    return lambda x, y: (x + y).sum(0), (torch.randn(1, 4).expand(3, 4), torch.randn(3, 4))


def strided_input() -> Made:
    """An input by as_strided with an offset and a hole."""
    return lambda x: x.softmax(-1) @ x.t(), (torch.as_strided(torch.randn(40), (3, 4), (8, 2), 3),)


def unfolded_input() -> Made:
    """Overlapping windows of one signal."""
    return lambda windows, kernel: windows @ kernel, (torch.randn(10).unfold(0, 4, 2), torch.randn(4, 2))


def shared_storage() -> Made:
    """Two inputs that overlap in one storage, one of them written to."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    memory = torch.randn(12)
    return f, (memory[:8], memory[4:])


def views_returned() -> Made:
    """Outputs that are views of an input and of each other."""

    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        return x.t(), y.view(-1), y[0]

    return f, (torch.randn(3, 4),)


def aliased_output() -> Made:
    """An input returned as it is, beside a new value."""
    return lambda x, y: (x, x + y, y[1:]), (torch.randn(3, 4), torch.randn(3, 4))


def input_written() -> Made:
    """Inputs written to in place, by value and through a view."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        y[:, 0] = x.sum(1)
        return x + y

    return f, (torch.randn(3, 4), torch.randn(3, 4))


def metadata_written() -> Made:
    """A tensor whose sizes are changed in place, after its values were."""

    def f(x: Tensor) -> Tensor:
        y = x.mul_(3).clone()
        y.t_()
        y.unsqueeze_(0)
        return y.relu() + 1

    return f, (torch.randn(3, 4),)


def result_written() -> Made:
    """An input that came out of an operation, written to in place, with gradients."""
    return lambda x, y: x.mul_(2).sin() * y, (
        torch.randn(3, 4, requires_grad=True) * 3,
        torch.randn(3, 4, requires_grad=True),
    )


def two_tensor() -> Made:
    """An input that holds two tensors, in training, beside a plain one."""
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.randn(3, 4), torch.randn(3, 4)).requires_grad_()
    return lambda x, y: (x * y).sin() @ x.t() + x.sum(), (x, torch.randn(3, 4))


def compiled_numpy() -> Made:
    """NumPy functions, methods, operators and attributes of arrays, between tensors."""
    import numpy as np

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.numpy(), y.numpy()
        scaled = np.exp(a - a.max(axis=-1, keepdims=True)) / np.linalg.norm(b)
        return torch.from_numpy(scaled.T @ np.maximum(a, b)), torch.from_numpy((scaled > 0.5).astype(np.int32))

    return f, (torch.randn(3, 4), torch.randn(3, 4))


def odd_shapes() -> Made:
    """Empty tensors and tensors without dimensions."""

    def f(empty: Tensor, zero: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return empty * 2, zero.exp() + x.max(), torch.cat([empty, x]).sum()

    return f, (torch.randn(0, 3), torch.tensor(0.5), torch.randn(2, 3))


def bool_masks() -> Made:
    """Boolean inputs and outputs, masked_fill, where, logical operators."""

    def f(x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.masked_fill(~keep, -1.0), torch.where(keep & (x > 0), x, -x), keep.any(1) ^ (x.sum(1) > 0)

    return f, (torch.randn(4, 5), torch.rand(4, 5) > 0.5)


def double_precision() -> Made:
    """float64 through a small network, in training."""
    return nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2)).double(), (torch.randn(3, 4).double(),)


def half_precision() -> Made:
    """float16 and bfloat16 mixed."""
    return lambda x, y: (x * 2).softmax(-1).float() + F.layer_norm(y, (8,)).float(), (
        torch.randn(4, 8).half(),
        torch.randn(4, 8).bfloat16(),
    )


def integers() -> Made:
    """Integer arithmetic: bits, division, remainders, overflow."""

    def f(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (a << 2) ^ b, a // (b.abs() + 1) + a % 7, (a.to(torch.uint8) * 3).to(torch.int16)

    return f, (torch.randint(-50, 50, (12,)), torch.randint(-50, 50, (12,)))
