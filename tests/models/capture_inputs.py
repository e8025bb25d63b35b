"""Programs of the capture matrix about what inputs are to memory and to autograd: views, bases, overlap, leaves,
strides.

>>> function, arguments = two_views()
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.capture_hops import Made


class Labelled(torch.Tensor):
    """A subclass without a dispatch of its own, whose results are plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore


class Net(nn.Module):
    """What the programs with parameters and buffers have in common."""

    seen: Tensor
    row: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.register_buffer("seen", torch.zeros(3, 6))


def _result(*shape: int) -> Tensor:
    """What an operation on a leaf returned."""
    return torch.randn(*shape).requires_grad_() * 1.5


def two_views() -> Made:
    """Two views of one base that is no input, one of them written to."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return (a.sum() + b.sin()) * 1.5

    base = torch.randn(3, 8)
    return f, (base[0], base[2])


def base_and_view() -> Made:
    """A result of autograd and a row of it, both inputs, the row written to, in training."""

    def f(whole: Tensor, row: Tensor) -> Tensor:
        row.add_(1)
        return whole.sin().sum() + row.sum()

    whole = _result(3, 4)
    return f, (whole, whole[1])


def view_before_base() -> Made:
    """The same with the view as first input, and a second view that overlaps it."""

    def f(part: Tensor, whole: Tensor, other: Tensor) -> Tensor:
        part.mul_(0.5)
        return (whole.cos().sum() + other.exp().sum()) * part.sum()

    whole = _result(12)
    return f, (whole[2:8], whole, whole[5:])


def overlapping_strided() -> Made:
    """Two inputs by as_strided that share every other element, with offsets, one of them written to."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        a.add_(b.sum())
        return a * 2 + b.flip(0)

    memory = torch.randn(40)
    return f, (memory.as_strided((4, 3), (6, 2), 1), memory.as_strided((4, 3), (6, 1), 3))


def overlapping_training() -> Made:
    """Windows of one signal that overlap, of which the second is written to, in training."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        b.mul_(a.detach().mean())
        return (a * a).sum() + b.exp().sum()

    signal = _result(10)
    return f, (signal[:7], signal[3:])


def buffer_written_training() -> Made:
    """A buffer that is written in place while gradients are recorded, beside batch norm's statistics."""

    class Counting(Net):
        def forward(self, x: Tensor) -> Tensor:
            result = x @ self.weight
            self.seen.mul_(0.9).add_(result.detach(), alpha=0.1)
            return F.relu(result + self.seen)

    return Counting(), (torch.randn(3, 4),)


def buffer_and_its_view() -> Made:
    """A buffer and a row of it that another buffer is, the row written to."""

    class Ring(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("row", self.seen[1])

        def forward(self, x: Tensor) -> Tensor:
            self.row.copy_(x.sum(0))
            return self.seen * 2 + x

    return Ring(), (torch.randn(3, 6),)


def leaves_and_results() -> Made:
    """A leaf and a result, each with and without gradients, and a result cut off from its leaf."""

    def f(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor) -> Tensor:
        return (a * b + c * d).sin() * e

    leaf = torch.randn(4).requires_grad_()
    return f, (leaf, torch.randn(4), leaf * 2, torch.randn(4) + 1, (leaf * 3).detach())


def detached_alias() -> Made:
    """A leaf and the same memory without gradients, which is read only."""
    leaf = torch.randn(3, 4).requires_grad_()
    return lambda a, b: (a * b.cos()).sum(1), (leaf, leaf.detach())


def expanded_training() -> Made:
    """A leaf and a result whose rows are all the same memory, in training."""
    return lambda a, b: (a * b).exp().sum(0), (
        torch.randn(1, 4).requires_grad_().expand(3, 4),
        _result(1, 4).expand(3, 4),
    )


def zero_strides() -> Made:
    """One number spread over a matrix, with an offset, and a scalar expanded."""
    return lambda a, b, x: x * a + b, (
        torch.randn(8)[5:6].expand(3, 4),
        torch.tensor(2.0).expand(3, 4),
        torch.randn(3, 4),
    )


def labelled() -> Made:
    """A subclass without a dispatch of its own."""
    return lambda x, w: (x * w).relu(), (torch.randn(3, 4).as_subclass(Labelled), torch.randn(3, 4))


def dropout_and_rand() -> Made:
    """Dropout beside random numbers of the program's own, in training."""
    return lambda x: F.dropout(x * torch.rand(3, 4), 0.3) + torch.randn_like(x).abs(), (_result(3, 4),)


def channels_last_result() -> Made:
    """Pictures in channels-last order that came out of an operation, one of them a slice with an offset."""

    class Conv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 8, 3, padding=1).to(memory_format=torch.channels_last)  # pyright: ignore

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.conv(x).relu() + self.conv(y)

    pictures = _result(4, 4, 6, 6).to(memory_format=torch.channels_last)
    return Conv(), (pictures[:2], torch.randn(4, 4, 6, 6).to(memory_format=torch.channels_last)[2:])


def offsets() -> Made:
    """Slices with offsets of memory that is larger than they are, transposed and with a step, in training."""
    return lambda a, b: (a @ b).tanh(), (_result(5, 6)[2:, 1:].t(), torch.randn(9, 8).requires_grad_()[3::2, ::2])


def number_tensors() -> Made:
    """Numbers in tensors of no dimension: float32 and float64, one that requires grad, one that is an element of an
    input."""

    def f(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return x * a + b.to(x.dtype) * c

    x = torch.randn(3, 4)
    return f, (x, torch.tensor(0.5).requires_grad_(), torch.tensor(2.0, dtype=torch.float64), x[1, 2])


def tied_and_turned() -> Made:
    """A parameter that two modules share, and its transpose as an input."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Tensor, turned: Tensor) -> Tensor:
            return self.head(self.embed(tokens)) + self.embed(tokens) @ turned

    tied = Tied()
    return tied, (torch.randint(0, 6, (5,)), tied.embed.weight.t())


def parameter_and_data() -> Made:
    """A parameter and its own memory as a plain tensor, as `weight.data` and as a transposed view that has its
    gradient."""

    class Beside(Net):
        def forward(self, x: Tensor, data: Tensor, turned: Tensor) -> Tensor:
            return x @ self.weight + (data.sum() * turned).sum()

    net = Beside()
    return net, (torch.randn(3, 4), net.weight.data, net.weight.t())


def one_twice() -> Made:
    """One result under two names, written to under one of them, in training."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return a.sin().sum() + b.cos().sum()

    result = _result(6)
    return f, (result, result)


def two_dtypes() -> Made:
    """A complex tensor and its numbers as real ones; and bytes of floats."""

    def f(z: Tensor, parts: Tensor, x: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
        return parts.sum() * z.real, x + (bits & 1)

    z, x = torch.randn(3, 4, dtype=torch.complex64), torch.randn(5)
    return f, (z, torch.view_as_real(z), x, x.view(torch.int32))


def imaginary() -> Made:
    """The imaginary part of a conjugate, which is a negative view."""
    return lambda x, y: x * 2 + y, (torch.randn(3, 4, dtype=torch.complex64).conj().imag, torch.randn(3, 4))


def views_of_a_leaf() -> Made:
    """Rows of one leaf that is no input, as split and unbind give them, in training."""
    leaf = torch.randn(6, 4).requires_grad_()
    a, b = leaf.split(3)
    c = leaf.unbind(0)[4]
    return lambda a, b, c: (a * b + c).sigmoid(), (a, b, c)


def results_of_inference() -> Made:
    """Tensors that were made in inference mode, one a view of the other."""
    with torch.inference_mode():
        whole = torch.randn(4, 6) * 2
        part = whole[1:, ::2]
    return lambda a, b: a.sum(1)[1:, None] * b, (whole, part)


def empty_views() -> Made:
    """Empty slices of a storage that other inputs use, and a tensor without elements of its own."""
    memory = torch.randn(6, 4)
    return lambda a, b, c: torch.cat([a, b]).sum(0) + c.sum(), (memory[3:3], memory[2:5], torch.empty(0, 7))


def bucket() -> Made:
    """Parameters and gradients that are slices of two flat buffers, and a step that writes both, as DDP and FSDP lay
    them out."""

    def f(flat: Tensor, a: Tensor, b: Tensor, ga: Tensor, gb: Tensor) -> Tensor:
        norm = flat.norm()
        ga.div_(norm)
        gb.div_(norm)
        a.sub_(ga, alpha=0.1)
        b.sub_(gb, alpha=0.1)
        return flat.sum()

    gradients, values = torch.randn(20), torch.randn(20)
    return f, (gradients, values[:12].view(3, 4), values[12:], gradients[:12].view(3, 4), gradients[12:])


def dynamic_views() -> Made:
    """Two views of one base of a size that changes, the first written to."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return (a * b.roll(1)).cumsum(0)

    base = torch.randn(2, 9)
    return f, (base[0], base[1])


def dynamic_overlap_training() -> Made:
    """Parts of one result that overlap, of a size that changes, one written to, in training."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return a.sin().sum() + b.cos().sum()

    whole = _result(11)
    return f, (whole[:7], whole[3:10])


def parted_under_no_grad() -> Made:
    """Inputs that require grad, of which one is written to under no_grad, in training."""

    def f(x: Tensor, state: Tensor) -> Tensor:
        with torch.no_grad():
            state.lerp_(x, 0.1)
        return (x * state).sum(1)

    return f, (_result(3, 4), torch.randn(3, 4))


def spread_tangents() -> Made:
    """Outputs whose gradients come with zero strides, channels-last and transposed."""

    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.sin(), x.cos().permute(0, 2, 3, 1), x.exp().to(memory_format=torch.channels_last)

    return f, (_result(2, 3, 4, 5),)


def ones_and_holes() -> Made:
    """Sizes of 1 with strides that no contiguous tensor has, and a channel of a picture."""
    a = torch.randn(30).as_strided((1, 3, 1), (17, 5, 23), 2)
    return lambda a, b: a + b, (a, torch.randn(2, 4, 6)[:1, ::2][:, :1, 3:4])
