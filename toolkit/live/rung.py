"""What a rung is. To add one: a file here with `RUNG = Mine()`, and its name in `rungs.NAMES`.

>>> class Mine(Rung):
...     name = "mine"
...     def build(self, gm, fake_inputs, spec): return lambda inputs: gm(*inputs)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx

    from .spec import ReplaySpec

Compiled = Callable[[list[Any]], Any]
"""Takes one list of flat inputs (and may empty it), returns the flat outputs."""


class CannotRun(Exception):
    """A rung's `build` found that it has no way to run this graph, which is no failure: "skipped, because REASON"."""


class Rung(ABC):
    """One way to run a graph."""

    name: str
    compiles_draws: bool = False
    """Whether Inductor's random prims are compiled into kernels, which draw numbers of their own."""

    def unavailable(self, spec: ReplaySpec) -> str | None:
        """Why this rung cannot run here on such a graph, or None when it can."""
        return None

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        """Why this rung cannot run this graph (asked after `unavailable`), or None. What only compiling tells is a
        CannotRun."""
        return None

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        """What a reader of the verdict has to know of how the rung runs this graph, in sentences."""
        return []

    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> AbstractContextManager[None]:
        """The context of `build` and of the run: a backward is compiled when it first runs."""
        return nullcontext()

    @abstractmethod
    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        """Compiles a graph that it may change (callers pass a copy). Whatever it raises is the failure of the rung."""


class Around(Rung):
    """A rung that does more about `build` than the rung inside it, which answers everything else."""

    def __init__(self, inner: Rung) -> None:
        self.inner, self.name, self.compiles_draws = inner, inner.name, inner.compiles_draws

    def unavailable(self, spec: ReplaySpec) -> str | None:
        return self.inner.unavailable(spec)

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        return self.inner.cannot_take(gm, spec)

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        return self.inner.notes(gm, spec)

    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> AbstractContextManager[None]:
        return self.inner.around(gm, spec)
