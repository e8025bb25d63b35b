"""What AOTAutograd's descriptors say of inputs and outputs, in our words.

>>> outputs_of(gm)[0]
OutputDescription(name='add', kind='user', source='output[0]')
"""

from __future__ import annotations

from typing import Any

from ...dumps.schema import InputRecord
from ..recorder.roles import of_aot
from .captured import OutputDescription

_KINDS = (
    ("GradAOTOutput", "gradient"), ("InputMutationAOTOutput", "mutation"), ("MetadataMutationAOTOutput", "mutation"),
    ("IntermediateBaseAOTOutput", "alias base"), ("SavedForBackwardsAOTOutput", "saved"), ("TokenAOTOutput", "token"),
    ("ViewBaseAOTInput", "alias base"),
)  # fmt: skip


def inputs_of(gm: Any, stage: str) -> list[InputRecord]:
    """The role and the source of each placeholder."""
    return of_aot(gm, [], stage)


def outputs_of(gm: Any) -> list[OutputDescription]:
    """What each output is."""
    output = gm.graph.output_node()
    described = output.meta.get("desc") or [None] * len(output.args[0])
    return [
        OutputDescription(getattr(node, "name", str(node)), _kind(one), _source(one))
        for node, one in zip(output.args[0], described, strict=False)
    ]


def _kind(described: Any) -> str:
    name = type(described).__name__
    return next((kind for part, kind in _KINDS if part == name), "user" if described is not None else "unknown")


def _source(described: Any) -> str:
    return str(described.expr()) if hasattr(described, "expr") else ""
