"""`inductor_nofuse`: Inductor with one loop per node and without its optional passes.

Right here and wrong under `inductor`: a pass or fusion is to blame. Wrong here too: a lowering or the generated code.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch import fx

from ..eager import has_kernel_draws
from ..spec import ReplaySpec
from . import entries
from .inductor import Inductor


class InductorNofuse(Inductor):
    """The same entries as `inductor`."""

    name = "inductor_nofuse"

    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> AbstractContextManager[None]:
        return entries.unfused(kernels_draw=has_kernel_draws(gm))


RUNG = InductorNofuse()
"""The one instance that the registry hands out."""
