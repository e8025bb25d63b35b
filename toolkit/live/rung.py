"""What a rung is, and the ladder of them as far as it can be read without torch. To add one: a file of `toolkit/rungs`
that ends in its RUNG.

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
    """What is known of a rung before its module is read; the ladder is climbed by `order`."""

    order: float = 0
    words: str = ""
    """How it runs a graph, in a few words."""
    layer: Layer | None = None
    """The layer that it adds to those below, at fault where it is the first that fails."""
    meaning: str = ""
    """What a failure of it means, in a sentence."""
    command: str | None = None
    """The command to go on with after one; None: minify under it."""
    is_side: bool = False
    """Whether it is no step towards Inductor: where it fails that is said, and it is not the first failing rung."""
    is_plain: bool = False
    """Whether it compiles nothing, and being right says nothing of a compiler."""
    is_whole: bool = False
    """Whether it runs a joint graph as it is, and needs nothing of Inductor."""
    has_passes: bool = True
    """Whether passes of Inductor's have a part in it."""
    is_usual: bool = False
    """Whether it is climbed by default."""
    used_by: tuple[str, ...] = ()
    """Arguments of a compile, or settings of Inductor, with which it is climbed by default, too."""
    goes_on: bool = False
    """Whether the ladder is climbed on after it fails, as after a side rung."""


LADDER = all_described(Path(__file__).parents[1] / "rungs", "RUNG", Facts)
"""The rungs by name, from trusted to clever."""
SIDE = frozenset(name for name, facts in LADDER.items() if facts.is_side)


class CannotRun(Exception):
    """A rung's `build` found that it has no way to run this graph, which is no failure: "skipped, because REASON"."""


class Rung(ABC):
    """One way to run a graph."""

    name: str
    compiles_draws: bool = False
    """Whether Inductor's random prims are compiled into kernels, which draw numbers of their own."""

    def __init__(self, **facts: Any) -> None:
        self.facts = Facts(**facts)

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
