"""What a rung is. To add one: a file here with `RUNG = Mine()`, and its name in `rungs.names.BUILT`.

>>> class Mine(Rung):
...     name = "mine"
...     def build(self, gm, fake_inputs, spec): return lambda inputs: gm(*inputs)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx

    from ..spec import ReplaySpec

Compiled = Callable[[list[Any]], Any]
"""Takes one list of flat inputs (and may empty it), returns the flat outputs."""


class Rung(ABC):
    """One way to run a graph."""

    name: str

    def unavailable(self, spec: ReplaySpec) -> str | None:
        """Why this rung cannot run here on such a graph, or None when it can."""
        return None

    @abstractmethod
    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        """Compiles a graph that it may change (callers pass a copy). Whatever it raises is the failure of the rung."""


class Planned(Rung):
    """A rung of the ladder that is not there yet: a normal row with its reason."""

    def __init__(self, name: str) -> None:
        self.name = name

    def unavailable(self, spec: ReplaySpec) -> str | None:
        return "not built yet"

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        raise NotImplementedError(f"the rung {self.name} is not built yet")
