"""`triton_interpret`: Inductor's Triton kernels for a GPU, on Triton's interpreter, with no GPU.

Right here and wrong under `inductor` on a GPU: what Triton or the assembler made of the kernels, or how they are launched.
Wrong here too: the kernels that Inductor wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import fx

from .._torch import mode_of
from ..spec import ReplaySpec
from . import _torch
from .base import Compiled
from .inductor import Inductor


class TritonInterpret(Inductor):
    """The same entries as `inductor`, for a pretended GPU."""

    name = "triton_interpret"

    def unavailable(self, spec: ReplaySpec) -> str | None:
        from ..triton.standin import lacks_triton

        return lacks_triton()

    @contextmanager
    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> Iterator[None]:
        from ..triton.interpreting.session import Session
        from ..triton.standin import pretending
        from ..triton.targets import DEFAULT, target_of

        with super().around(gm, spec), _torch.patterns_without_device(), pretending(target_of(DEFAULT)), Session().open():
            yield

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        from ..triton.retarget import retargeted

        made = retargeted(gm, fake_inputs, mode_of(gm, fake_inputs))
        compiled = super().build(made.gm, made.fakes, spec)
        return lambda inputs: compiled([*inputs, *made.added])


RUNG = TritonInterpret()
"""The one instance that the registry hands out."""
