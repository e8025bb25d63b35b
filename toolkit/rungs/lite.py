"""`lite` and `strict`: Inductor with the settings of torch's modes of these names. Side rungs: they say what makes a
failure go away, and are no step towards `inductor`.

`lite` leaves every operator to eager's own kernel and runs no pass; its half of the decompositions is at work from the
stages dynamo and pre_grad only, since other graphs are decomposed already. `strict` asks for eager's numerics (torch
2.15 and newer).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
        if self.name not in t.list_mode_options():
            return f"this torch has no mode {self.name}"
        return super().unavailable(spec)

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        sentences = super().notes(gm, spec)
        if self.name == "lite" and spec.stage not in FULL_STAGES:
            sentences.append(
                f"a graph of the stage {spec.stage} is decomposed already, and the mode lite does not decompose"
            )
        return sentences

    @contextlib.contextmanager
    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> Iterator[None]:
        with super().around(gm, spec), t.inductor_config.patch(t.list_mode_options()[self.name]):
            yield


RUNG = Mode(
    "lite",
    order=80,
    words="torch's mode of that name: every operator by eager's own kernel",
    layer="inductor",
    is_side=True,
)
"""The one instance that the registry hands out."""
