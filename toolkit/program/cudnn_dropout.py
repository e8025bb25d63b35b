# pyright: basic
"""cuDNN's random state of the dropout between recurrent layers on a GPU, read and put back.

torch keeps one per GPU, makes a new one at the first use after the GPU's generator was set, and passes it only to
`_cudnn_rnn`, so a tiny LSTM is run to see it.

For example:

    dropout = CudnnDropout(torch.device("cuda", 0))
    state = dropout.getstate(); train(); dropout.setstate(state)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .. import torch_private as t

_DRAWN = 4
"""By how much the generator's offset grows when the state is made again."""


class CudnnDropout(NamedTuple):
    """The state on one GPU."""

    device: torch.device

    def getstate(self) -> torch.Tensor:
        """A copy of it, (bytes,) of uint8 on the GPU; empty where the next use makes a new one, which stays so."""
        before = torch.cuda.get_rng_state(self.device)
        state = self._held()
        if torch.equal(before, torch.cuda.get_rng_state(self.device)):
            return state.clone()
        torch.cuda.set_rng_state(before, self.device)
        return torch.empty(0)

    def setstate(self, state: torch.Tensor) -> None:
        """Restores a copy. The generator, restored before, keeps its state."""
        if not state.numel():
            return
        generator = torch.cuda.get_rng_state(self.device)
        generator.view(torch.int64)[1] -= _DRAWN  # seed and offset
        torch.cuda.set_rng_state(generator, self.device)
        self._held().copy_(state)

    def _held(self) -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cuda", enabled=False), _Seen() as seen:
            flat, single = torch.ones(16, device=self.device), torch.ones(1, 1, 1, device=self.device)
            weights = [flat[:4].view(4, 1), flat[4:8].view(4, 1), flat[8:12], flat[12:]]  # in one piece, or torch warns
            torch.lstm(single, (single, single), weights, True, 1, 0.5, True, False, False)
        return seen.state


class _Seen(t.TorchDispatchMode):
    state = torch.empty(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._cudnn_rnn.default:
            self.state = args[-1]
        return func(*args, **(kwargs or {}))
