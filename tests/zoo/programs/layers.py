"""Layers and losses, each in a short training step or in inference.

python layers.py group_norm
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _train(model: Callable[..., Any], *arguments: Any) -> None:
    compiled = torch.compile(model)(*arguments)
    parts = [item for item in (compiled if isinstance(compiled, tuple) else (compiled,)) if item.requires_grad]
    torch.stack([part.square().mean() for part in parts]).sum().backward()


def conv1d_dilated() -> None:
    _train(nn.Sequential(nn.Conv1d(3, 6, 3, dilation=2), nn.GLU(1), nn.Conv1d(3, 2, 1)), torch.randn(2, 3, 12))


def conv2d_strided() -> None:
    _train(nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)), torch.randn(2, 3, 8, 8))


def bias_before_batch_norm() -> None:
    first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
    norm = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    _train(nn.Sequential(first, nn.Softshrink(0.1), second, norm), torch.randn(8, 3, 24, 24))


def conv3d() -> None:
    _train(
        nn.Sequential(nn.Conv3d(1, 4, 3), nn.InstanceNorm3d(4, affine=True), nn.AvgPool3d(2)),
        torch.randn(1, 1, 6, 6, 6),
    )


def conv_transposed() -> None:
    _train(nn.Sequential(nn.ConvTranspose2d(4, 2, 3, 2, output_padding=1), nn.Softplus()), torch.randn(1, 4, 5, 5))


def pools() -> None:
    def f(x: Tensor) -> Tensor:
        return F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1) + F.adaptive_max_pool2d(x, 4)

    _train(f, torch.randn(1, 2, 8, 8, requires_grad=True))


def pixel_shuffle() -> None:
    _train(nn.Sequential(nn.Conv2d(2, 8, 1), nn.PixelShuffle(2)), torch.randn(1, 2, 4, 4))


def upsampled() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(F.interpolate(x, scale_factor=2, mode=mode) for mode in ("nearest", "bilinear", "bicubic"))

    _train(f, torch.randn(1, 2, 4, 4, requires_grad=True))


def grid_sampled() -> None:
    def f(x: Tensor, angle: Tensor) -> Tensor:
        cos, sin, zero = angle.cos(), angle.sin(), angle * 0
        rows = torch.stack([torch.stack([cos, -sin, zero]), torch.stack([sin, cos, zero])])
        return F.grid_sample(x, F.affine_grid(rows[None], [1, 1, 5, 5], align_corners=False), align_corners=False)

    _train(f, torch.randn(1, 1, 5, 5, requires_grad=True), torch.tensor(0.3))


def group_norm() -> None:
    _train(nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(4, 8), nn.SiLU()), torch.randn(2, 3, 5, 5))


def rms_norm() -> None:
    _train(nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 8)), torch.randn(3, 4, 8))


def local_response_norm() -> None:
    _train(nn.Sequential(nn.Conv2d(3, 8, 1), nn.LocalResponseNorm(3)), torch.randn(1, 3, 4, 4))


def batch_norm_momentum_none() -> None:
    _train(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=None)), torch.randn(5, 6))


def lstm_cell() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(4, 6)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = c = x.new_zeros(x.shape[1], 6)
            for item in x:
                h, c = self.cell(item, (h, c))
            return h, c

    _train(Steps(), torch.randn(3, 2, 4))


def rnn_tanh() -> None:
    torch._dynamo.config.allow_rnn = True
    layer = nn.RNN(4, 6, batch_first=True)
    _train(lambda x: layer(x)[0], torch.randn(2, 5, 4))


def embedding_tied() -> None:
    words = nn.Embedding(20, 8, padding_idx=0)
    _train(lambda index: F.log_softmax(words(index).mean(1) @ words.weight.t(), -1), torch.randint(0, 20, (3, 5)))


def embedding_max_bag() -> None:
    _train(nn.EmbeddingBag(20, 8, mode="max"), torch.randint(0, 20, (3, 5)))


def embedding_sparse_gradient() -> None:
    words = nn.Embedding(20, 4, sparse=True)
    _train(lambda index: words(index).sum(1), torch.randint(0, 20, (3, 5)))


def multi_head_attention() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[0, 3:] = True
    _train(lambda x: layer(x, x, x, key_padding_mask=mask)[0], torch.randn(2, 5, 8))


def cross_attention_causal() -> None:
    q, k = nn.Linear(8, 8), nn.Linear(8, 16)

    def f(x: Tensor, y: Tensor) -> Tensor:
        key, value = k(y).view(2, 6, 2, 8).transpose(1, 2).chunk(2, -1)
        return F.scaled_dot_product_attention(q(x).view(2, 5, 2, 4).transpose(1, 2), key, value)

    _train(f, torch.randn(2, 5, 8), torch.randn(2, 6, 8))


def attention_float_mask() -> None:
    bias = nn.Parameter(torch.zeros(1, 2, 4, 4))
    _train(
        lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=bias), torch.randn(1, 2, 4, 8, requires_grad=True)
    )


def switch_experts() -> None:
    class Switch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up = nn.Linear(8, 3), nn.Parameter(torch.randn(3, 8, 8))

        def forward(self, x: Tensor) -> Tensor:
            odds, best = self.gate(x).softmax(-1).max(-1)
            return torch.bmm(x[:, None], self.up[best])[:, 0] * odds[:, None]

    _train(Switch(), torch.randn(6, 8))


def low_rank() -> None:
    base, down, up = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
    _train(lambda x: base(x) + 0.5 * up(down(x)), torch.randn(3, 8))


def mixture_density() -> None:
    layer = nn.Linear(4, 9)

    def f(x: Tensor, y: Tensor) -> Tensor:
        mean, scale, weight = layer(x).chunk(3, -1)
        normal = torch.distributions.Normal(mean, F.softplus(scale) + 0.1, validate_args=False)
        return -torch.logsumexp(weight.log_softmax(-1) + normal.log_prob(y[:, None]), -1).mean()

    _train(f, torch.randn(5, 4), torch.randn(5))


def contrastive() -> None:
    layer = nn.Linear(6, 4)

    def f(x: Tensor, y: Tensor) -> Tensor:
        a, b = F.normalize(layer(x), dim=-1), F.normalize(layer(y), dim=-1)
        return F.cross_entropy(a @ b.t() / 0.1, torch.arange(5))

    _train(f, torch.randn(5, 6), torch.randn(5, 6))


def many_losses() -> None:
    if torch.__version__ < "2.13":
        raise SystemExit("left out: this torch's Inductor gets its gradients wrong (by 0.3 to 0.9)")
    layer = nn.Linear(4, 3)

    def f(x: Tensor, words: Tensor, hot: Tensor) -> Tensor:
        y = layer(x)
        return (
            F.nll_loss(y.log_softmax(-1), words)
            + F.binary_cross_entropy_with_logits(y, hot)
            + F.multi_margin_loss(y, words)
            + F.poisson_nll_loss(y, hot)
            + F.kl_div(y.log_softmax(-1), hot.softmax(-1), reduction="batchmean")
        )

    _train(f, torch.randn(5, 4), torch.randint(0, 3, (5,)), torch.rand(5, 3))


def triplet() -> None:
    layer = nn.Linear(4, 4)
    _train(lambda a, b, c: F.triplet_margin_loss(layer(a), layer(b), layer(c)), *(torch.randn(3, 4) for _ in range(3)))


def ctc() -> None:
    def f(x: Tensor, words: Tensor) -> Tensor:
        lengths = torch.full((2,), 6), torch.full((2,), 3)
        return F.ctc_loss(x.log_softmax(-1), words, *lengths)

    _train(f, torch.randn(6, 2, 5, requires_grad=True), torch.randint(1, 5, (2, 3)))


def activations() -> None:
    def f(x: Tensor) -> Tensor:
        return sum(
            (act(x) for act in (F.elu, F.selu, F.mish, F.hardswish, F.softsign, F.logsigmoid, F.leaky_relu, F.relu6)), x
        )

    _train(f, torch.randn(4, 5, requires_grad=True))


def gumbel() -> None:
    layer = nn.Linear(4, 4)
    _train(lambda x: F.gumbel_softmax(layer(x), tau=0.5, hard=False), torch.randn(3, 4))


def dropouts() -> None:
    _train(nn.Sequential(nn.Conv2d(2, 4, 1), nn.Dropout2d(0.4), nn.AlphaDropout(0.2)), torch.randn(2, 2, 4, 4))


def linear_algebra() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        square = x @ x.t() + 3 * torch.eye(4)
        return torch.linalg.cholesky(square), torch.linalg.solve(square, x), torch.linalg.slogdet(square)[1]

    _train(f, torch.randn(4, 6, requires_grad=True))


def einsums() -> None:
    a, b = nn.Parameter(torch.randn(3, 4, 5)), nn.Parameter(torch.randn(5, 6))
    _train(lambda x: torch.einsum("bi,ijk,kl->bjl", x, a, b), torch.randn(2, 3))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
