"""A program of the metadata checker's benchmark, called at its sizes, with a backward where it has one.

python healthy.py lstm
"""

from __future__ import annotations

import sys

import torch
from torch.utils import _pytree as pytree

from tests.models.healthy_models import PROGRAMS


def _main(name: str) -> None:
    torch.manual_seed(0)
    function, calls, train = PROGRAMS[name]()
    compiled = torch.compile(function)
    for arguments in calls:
        result = compiled(*arguments)
        if train:
            parts = [
                leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
            ]
            torch.stack([part.float().square().mean() for part in parts]).sum().backward()


if __name__ == "__main__":
    _main(*sys.argv[1:])
