"""One case everywhere: a saved graph with its inputs and how it enters the compiler, in two faces.

`case.saved` is records and needs no torch; `case.live()` is a module that runs, its inputs and the spec: what the judge, passes
and cutting take. A graph is decoded once per process: faces that were made are kept.

>>> case = Case.at("myrun/0_0/forward")
>>> judge(case.live(), "inductor")
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dumps.relocate import names_device
from ..dumps.store import SavedGraph, load_graph
from .spec import ReplaySpec

if TYPE_CHECKING:
    from torch import fx


@dataclass
class Live:
    """The live face. Who takes one leaves graph and inputs as they are, and returns new ones.

    `spec`: how it enters the compiler, and with what settings. `notes`: sentences on what could not be as recorded.
    """

    gm: fx.GraphModule
    inputs: list[Any]
    spec: ReplaySpec = field(default_factory=ReplaySpec)
    notes: list[str] = field(default_factory=list[str])


class Case:
    """A saved graph and its live faces."""

    def __init__(self, saved: SavedGraph) -> None:
        self.saved = saved
        self._faces: dict[tuple[Any, ...], Live] = {}

    @classmethod
    def at(cls, path: str | Path) -> Case:
        """The case of a graph's folder. Raises what `load_graph` does."""
        return cls(load_graph(path))

    def live(self, *, seed: int = 0, device: str | None = None, meeting: str = "") -> Live:
        """With its recorded inputs, what was not recorded made up by `seed`; with `device`, moved there. Process groups that it
        names are made (see `process_groups.join` for `meeting`)."""
        from .live import made_live

        key = (seed, device, meeting)
        if key not in self._faces:
            self._faces[key] = made_live(self.saved, seed=seed, device=device, meeting=meeting)
        return self._faces[key]

    def fakes(self) -> Live:
        """With fake tensors of the recorded sizes for inputs. Raises EnvironmentLackError where one is not known."""
        from .fake_values import made_fakes

        if ("fakes",) not in self._faces:
            self._faces["fakes",] = made_fakes(self.saved)
        return self._faces["fakes",]

    def device_for(self, rung: str, device: str | None) -> str | None:
        """The device to move it to for a rung: the one asked for; the CPU where kernels for a GPU are interpreted."""
        if device is None and rung == "triton_interpret" and names_device(self.saved.record.graph, "cuda"):
            return "cpu"
        return device
