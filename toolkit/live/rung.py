"""The interface of a rung, and the ladder's facts that can be read without torch. To add a rung: a file of
`toolkit/rungs` that ends in its RUNG.

>>> class Mine(Rung):
...     name = "mine"
...     def build(self, gm, fake_inputs, spec): return lambda inputs: gm(*inputs)
>>> RUNG = Mine(order=25, words="the graph called as it is", has_passes=False)
>>> LADDER["eager"].words.partition(",")[0]
'node by node by torch itself'
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dumps.registered import all_described

if TYPE_CHECKING:
    from torch import fx

    from ..verdicts.verdict import Layer
    from .spec import ReplaySpec

Compiled = Callable[[list[Any]], Any]
"""Takes one list of flat inputs (and may empty it), returns the flat outputs."""


class Facts(NamedTuple):
    """Facts about a rung, known before its module is imported. `order`: its place on the ladder."""

    order: float = 0
    words: str = ""
    """How the rung runs a graph, in a few words."""
    layer: Layer | None = None
    """The compiler layer that the rung adds: at fault where this is the first rung that fails."""
    meaning: str = ""
    """What a failure of the rung means, in a sentence."""
    command: str | None = None
    """The command to suggest after a failure; None: minify under this rung."""
    is_side: bool = False
    """Whether the rung is beside the ladder: its failure is reported, but it never is the first failing rung."""
    is_plain: bool = False
    """Whether the rung compiles nothing, so that its success proves nothing about a compiler."""
    is_whole: bool = False
    """Whether it runs a joint graph as it is, and needs no part of Inductor."""
    has_passes: bool = True
    """Whether Inductor's passes take part in it."""
    is_usual: bool = False
    """Whether it is used by default."""
    used_by: tuple[str, ...] = ()
    """Compile arguments or Inductor settings whose use makes this rung a default one, too."""
    goes_on: bool = False
    """Whether the ladder goes on after this rung fails, as after a side rung."""


LADDER = all_described(Path(__file__).parents[1] / "rungs", "RUNG", Facts)
"""The rungs by name, in order of trust."""
SIDE = frozenset(name for name, facts in LADDER.items() if facts.is_side)


class CannotRun(Exception):
    """Raised by a rung's `build` that has no way to run this graph: no failure, but "skipped, because REASON"."""


class Rung(ABC):
    """One way to run a graph."""

    name: str
    compiles_draws: bool = False
    """Whether Inductor's random prims are compiled into kernels, which draw numbers of their own."""

    def __init__(self, **facts: Any) -> None:
        self.facts = Facts(**facts)

    def unavailable(self, spec: ReplaySpec) -> str | None:
        """Why this rung cannot be used here for graphs of this spec; None when it can."""
        return None

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        """Why this rung cannot run this graph, or None; asked after `unavailable`. What shows only in a compile raises
        CannotRun there."""
        return None

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        """Sentences about how the rung runs this graph that a reader of the verdict must know."""
        return []

    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> AbstractContextManager[None]:
        """The context for both `build` and the run: a backward is compiled only when it first runs."""
        return nullcontext()

    @abstractmethod
    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        """Compiles a graph that it may change (callers pass a copy). Whatever it raises is the failure of the rung."""


class Around(Rung):
    """A rung that wraps another one: subclasses extend `build`, everything else is the inner rung's."""

    def __init__(self, inner: Rung) -> None:
        super().__init__(**inner.facts._asdict())
        self.inner, self.name, self.compiles_draws = inner, inner.name, inner.compiles_draws

    def unavailable(self, spec: ReplaySpec) -> str | None:
        return self.inner.unavailable(spec)

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        return self.inner.cannot_take(gm, spec)

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        return self.inner.notes(gm, spec)

    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> AbstractContextManager[None]:
        return self.inner.around(gm, spec)
