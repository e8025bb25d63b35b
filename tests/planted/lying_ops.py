"""Custom ops whose fake function or schema says something else than they do, and a program that calls twenty of them.

Importing registers the ops (namespace `lying`). Each planted line of `Twenty` ends in a comment with the name of the
plant.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

LIBRARY = torch.library.Library("lying", "FRAGMENT")


def _op(name: str, schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> None:
    LIBRARY.define(f"{name}{schema}")
    LIBRARY.impl(name, real, "CPU")
    torch.library.register_fake(f"lying::{name}", fake, lib=LIBRARY)


def _moved(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.reshape(-1)[:3], x.reshape(-1)])[3:].view(x.shape)


def _doubling(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + y


def _two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + 1, (x + 2).t().contiguous().t()


_cached = torch.zeros(6, 6)

_op("size", "(Tensor x) -> Tensor", lambda x: x.new_ones(x.shape[0], 3), lambda x: x.new_empty(x.shape[0], 4))
_op("dtype", "(Tensor x) -> Tensor", lambda x: x.double(), torch.empty_like)
_op("stride", "(Tensor x) -> Tensor", lambda x: (x + 1).t().contiguous().t(), lambda x: x.new_empty(x.shape))
_op("offset", "(Tensor x) -> Tensor", _moved, torch.empty_like)
_op("device", "(Tensor x) -> Tensor", torch.clone, lambda x: torch.empty_like(x, device="meta"))
_op("alias", "(Tensor x) -> Tensor", lambda x: x, torch.empty_like)
_op("copy", "(Tensor x) -> Tensor", torch.clone, lambda x: x.view(x.shape))
_op("mutation", "(Tensor x, Tensor y) -> Tensor", _doubling, lambda x, y: torch.empty_like(x))
_op("second", "(Tensor x) -> (Tensor, Tensor)", _two, lambda x: (torch.empty_like(x), torch.empty_like(x)))
_op("cached", "(Tensor x) -> Tensor", lambda x: _cached, lambda x: x.new_empty(6, 6))
_op("honest", "(Tensor x) -> Tensor", lambda x: x + 1, torch.empty_like)

OPS: Any = torch.ops.lying


class Twenty(torch.autograd.Function):
    """Ten lies in the forward, ten in the backward; two of them in a row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(w)
        a = OPS.size(x + 1)  # size forward
        b = OPS.dtype(x + 2)  # dtype forward
        c = OPS.stride(x + 3)  # stride forward
        d = OPS.stride(OPS.honest(c) * 2)  # stride again forward
        e = OPS.offset(x + 4)  # offset forward
        g = OPS.device(x + 5)  # device forward
        base = x + 6
        h = OPS.alias(base)  # alias forward
        i = OPS.copy(x + 7).sin()  # copy forward
        j = OPS.mutation(x + 8, w)  # mutation forward
        k = OPS.second(x + 9)[1].exp()  # second forward
        out = a.sum() + b.half().float() + c.cos() + d * 2 + e.view(-1).view(e.shape) + h * 2 + i + j + k
        return out + (g.sum().to("cpu") * 0)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        (w,) = ctx.saved_tensors
        a = OPS.size(g + 1)  # size backward
        b = OPS.dtype(g * w)  # dtype backward
        c = OPS.stride(g + w)  # stride backward
        d = OPS.offset(c + 1)  # offset backward
        e = OPS.device(g - w)  # device backward
        base = g + 2
        h = OPS.alias(base)  # alias backward
        i = OPS.copy(g + 3).sin()  # copy backward
        j = OPS.mutation(g + 4, w)  # mutation backward
        k = OPS.second(g + 5)[1].exp()  # second backward
        out = a.mean() + b.half().float() + c + d.t().contiguous().t() + h * base + i + j + k
        m = OPS.dtype(OPS.stride(out)).float()  # both backward
        return out + m, out + (e.sum().to("cpu") * 0)


def twenty(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A scalar that depends on all of them."""
    return (Twenty.apply(x * 2, w) ** 2).sum()


def planted() -> dict[str, str]:
    """Name of the plant -> "file.py:line"."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    marked = [(number, line) for number, line in enumerate(lines, 1) if line.endswith(("ward",)) and "  # " in line]
    return {line.rpartition("  # ")[2]: f"{Path(__file__).name}:{number}" for number, line in marked}
