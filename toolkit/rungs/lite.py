"""`lite` and `strict`: Inductor with the settings of torch's modes of these names. Side rungs: they say what makes a
failure go away, and are no step towards `inductor`.

`lite` leaves every operator to eager's own kernel and runs no pass; its half of the decompositions is at work from the
stages dynamo and pre_grad only, since other graphs are decomposed already. `strict` asks for eager's numerics (torch
2.15 and newer).
"""

from __future__ import annotations

from typing import Any

from torch import fx

from .. import torch_private as t
from ..live.spec import FULL_STAGES, ReplaySpec
from .inductor import Inductor


class Mode(Inductor):
    """The same entries as `inductor`, under the settings of a mode."""

    def __init__(self, name: str, **facts: Any) -> None:
        super().__init__(**facts)
        self.name = name

    def unavailable(self, spec: ReplaySpec) -> str | None:
        known = self.name in t.list_mode_options()
        return super().unavailable(spec) if known else f"this torch has no mode {self.name}"

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        late = self.name == "lite" and spec.stage not in FULL_STAGES
        said = f"a graph of the stage {spec.stage} is decomposed already, and the mode lite does not decompose"
        return [*super().notes(gm, spec), *[said] * late]

    def settings(self) -> dict[str, Any]:
        return t.list_mode_options()[self.name]


RUNG = Mode(
    "lite",
    order=80,
    words="torch's mode of that name: every operator by eager's own kernel",
    layer="inductor",
    is_side=True,
)
"""The one instance that the registry hands out."""
