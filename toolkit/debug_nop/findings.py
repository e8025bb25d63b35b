"""What the checker found: mismatches by node, folded under their origins. Records that cross processes; no torch.

A finding is an origin when something about that node itself is wrong: the op's fake function, its schema, or the metadata
recorded on it. What follows from an origin (the op did right by what it was given) is inherited, and names its origins.

>>> [finding.node for finding in findings if finding.origin]
['foo']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Property = Literal["size", "dtype", "stride", "offset", "device", "layout", "alias", "mutation", "value", "kind", "run"]

Cause = Literal["fake", "symbolic", "stale", "schema", "input", "unknown", "inherited"]
"""fake: the op's fake function says something else than the op does, on the same arguments. symbolic: only under symbols.
stale: the op and its fake function agree; what is recorded on the node is not what they say. schema: the op does what its
schema does not say. input: the graph was given something else than it was traced with. unknown: the fake function could
not be run."""


class Mismatch(msgspec.Struct, omit_defaults=True):
    """One property of one value: as traced (with symbols, where it has any), as expected with numbers, and as it was."""

    property: Property
    expected: str
    got: str
    cause: Cause
    traced: str = ""
    why: str = ""


class Finding(msgspec.Struct, omit_defaults=True):
    """All mismatches of one value of one node. `output`: which of a tuple's values; -1 for a single one.

    `graph` is the path of a subgraph ("true_graph_0."), `where` the graph's id in a live compile ("0_0/backward").
    `line` is the user's ("model.py:52"), or that of the nearest node before it (`near`). `under` are the names of the
    origins that an inherited finding follows from. `times`: in how many runs it was seen.
    """

    node: str
    op: str
    mismatches: list[Mismatch]
    output: int = -1
    graph: str = ""
    where: str = ""
    line: str = ""
    code: str = ""
    near: bool = False
    module: str = ""
    symbols: dict[str, int | float | bool] = {}
    under: list[str] = []
    times: int = 1

    @property
    def origin(self) -> bool:
        """Whether anything of it is not inherited."""
        return any(mismatch.cause != "inherited" for mismatch in self.mismatches)

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What makes two findings one: graph, subgraph, node, value."""
        return self.where, self.graph, self.node, self.output

    @property
    def name(self) -> str:
        """The node's name with that of the subgraph that it is in."""
        return f"{self.graph}{self.node}"

    @property
    def from_outside(self) -> bool:
        """Whether it is an input of the graph that was wrong when it came."""
        return self.op == "placeholder" and all(mismatch.cause == "input" for mismatch in self.mismatches)

    @property
    def of_metadata(self) -> bool:
        """Whether it is more than a node that could not be run."""
        return any(mismatch.property != "run" for mismatch in self.mismatches)

    @property
    def own(self) -> list[Mismatch]:
        """The mismatches that are not inherited."""
        return [mismatch for mismatch in self.mismatches if mismatch.cause != "inherited"]


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """One finding per value, in order of first appearance; properties that other runs add are added."""
    found: dict[tuple[str, str, str, int], Finding] = {}
    for finding in findings:
        known = found.get(finding.key)
        if known is None:
            copies = [msgspec.structs.replace(mismatch) for mismatch in finding.mismatches]
            found[finding.key] = msgspec.structs.replace(finding, mismatches=copies, under=list(finding.under))
            continue
        known.times += finding.times
        seen = {(mismatch.property, mismatch.cause) for mismatch in known.mismatches}
        known.mismatches += [one for one in finding.mismatches if (one.property, one.cause) not in seen]
        known.under += [name for name in finding.under if name not in known.under]
    return list(found.values())


def origins(findings: Sequence[Finding]) -> list[Finding]:
    """Those that something about their own node is wrong with."""
    return [finding for finding in findings if finding.origin]


def folded(findings: Sequence[Finding]) -> list[tuple[Finding, list[Finding]]]:
    """Each origin with the findings that follow from it; what follows from several stands under each."""
    rest = [finding for finding in findings if not finding.origin]
    return [
        (origin, [one for one in rest if one.where == origin.where and origin.name in one.under]) for origin in origins(findings)
    ]


def joined(known: Sequence[Finding], more: Sequence[Finding]) -> list[Finding]:
    """The findings of a further graph added to those of graphs that ran before it.

    What a backward was given wrong comes from its forward: a saved value by its name, a tangent by the property.
    """
    before = [finding for finding in known if not finding.from_outside]
    for finding in more:
        if not finding.from_outside or not before:
            continue
        tangent = finding.node.startswith("tangents_")
        wrong = {mismatch.property for mismatch in finding.mismatches}
        owners = [
            one for one in before
            if one.where != finding.where
            and (wrong & {mismatch.property for mismatch in one.mismatches} if tangent else one.node == finding.node)
        ]  # fmt: skip
        names = [name for one in owners for name in ([one.node] if one.origin else one.under)]
        if names:
            finding.under = list(dict.fromkeys(names))
            for mismatch in finding.mismatches:
                mismatch.cause, mismatch.why = "inherited", f"from {owners[0].where}"
    return merged([*known, *more])


class MetadataMismatch(AssertionError):
    """A graph's values are not what its metadata says. The text lists every origin; `findings` holds all of them."""

    def __init__(self, text: str, findings: Sequence[Finding]) -> None:
        super().__init__(text)
        self.findings = list(findings)

    @property
    def detail(self) -> str:
        """The property that the first origin has wrong: what makes two failures of this kind one."""
        found = origins(self.findings)
        return found[0].own[0].property if found else ""
