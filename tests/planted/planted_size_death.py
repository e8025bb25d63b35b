"""Imported, registers an op that is an identity in eager, but kills the process where it is given fewer than 3 rows."""

import os
import signal

import torch


@torch.library.custom_op("planted_size_death::culprit", mutates_args=())
def culprit(x: torch.Tensor) -> torch.Tensor:
    """Gives back a copy."""
    if x.shape[0] < 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x.clone()


@culprit.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
