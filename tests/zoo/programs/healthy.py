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
        made = compiled(*arguments)
        if train:
            parts = [one for one in pytree.tree_leaves(made) if isinstance(one, torch.Tensor) and one.requires_grad]
            torch.stack([one.float().square().mean() for one in parts]).sum().backward()


if __name__ == "__main__":
    _main(*sys.argv[1:])
