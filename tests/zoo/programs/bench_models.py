"""A model of the benchmarks, in training, inference, training at several sizes, under bf16 autocast, or in low
precision.

python bench_models.py gpt_block train|infer|dynamic|bf16|bfloat16|float16
"""

from __future__ import annotations

import sys

import torch
from torch.utils import _pytree as pytree

from tests.models.compile_models import MODELS


def _loss(result: object) -> torch.Tensor:
    leaves = [
        leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
    return torch.stack([leaf.float().square().mean() for leaf in leaves]).sum()


def _cast(value: object, dtype: torch.dtype | None) -> object:
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if floating and dtype else value


def _main(name: str, variant: str) -> None:
    torch.manual_seed(0)
    entry = MODELS[name]
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(variant)
    model = entry.make(6)[0].to(dtype)
    compiled = torch.compile(model)
    if variant == "infer":
        model.eval()
        with torch.no_grad():
            compiled(*entry.make(6)[1])
        return
    rate = 1e-3
    optimizer = torch.optim.SGD(model.parameters(), rate) if dtype else torch.optim.AdamW(model.parameters(), rate)
    for size in (6, 8, 9) if variant == "dynamic" else (6, 6, 6) if dtype else (6, 6):
        given = pytree.tree_map(lambda item: _cast(item, dtype), entry.make(size)[1])
        with torch.autocast("cpu", torch.bfloat16, enabled=variant == "bf16"):
            loss = _loss(compiled(*given))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())


if __name__ == "__main__":
    _main(*sys.argv[1:])
