"""The checker's findings: mismatches by node, grouped under their origins. Records that cross processes; no torch.

A finding is an origin when something about that node itself is wrong: the op's fake function, its schema, or the
metadata recorded on it. A finding that follows from an origin (the op is right for its inputs) is inherited, and names
its origins.

For example: `[finding.node for finding in findings if finding.origin]` gives `['foo']`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...dumps.wording import counted

TORCHS = frozenset(
    {"aten", "prims", "prim", "inductor", "quantized", "mkldnn", "mkl", "onednn", "_c10d_functional", "higher_order"}
)
"""Namespaces of torch's own ops."""

Property = Literal["size", "dtype", "stride", "offset", "device", "layout", "alias", "mutation", "value", "kind", "run"]

Cause = Literal["fake", "symbolic", "stale", "schema", "input", "unknown", "loose", "inherited"]
"""fake: the op's fake function contradicts the op, on the same arguments. symbolic: so only with symbolic sizes. stale:
op and fake function agree, but the recorded metadata differs. schema: the op does what its schema does not declare.
input: the graph's input differs from the traced one. unknown: the fake function could not be run. loose: the recorded
metadata is no promise, so nothing is broken. unknown and loose are no findings, nor is what follows from them."""


class Mismatch(msgspec.Struct, omit_defaults=True):
    """One property of one value: as traced (with symbols, where it has any), as expected in numbers, and as
    observed."""

    property: Property
    expected: str
    got: str
    cause: Cause
    traced: str = ""
    why: str = ""


class NodeMismatch(msgspec.Struct, omit_defaults=True):
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
        return bool(self.own)

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Findings with this key are one: graph, subgraph, node, value."""
        return self.where, self.graph, self.node, self.output

    @property
    def name(self) -> str:
        """The node's name with that of the subgraph that it is in."""
        return f"{self.graph}{self.node}"

    @property
    def from_outside(self) -> bool:
        """Whether it is a wrong input of the graph."""
        return self.op == "placeholder" and all(mismatch.cause == "input" for mismatch in self.mismatches)

    @property
    def of_custom_op(self) -> bool:
        """Whether an operator of the user's is at fault: its fake function or its schema."""
        custom = "::" in self.op and self.op.partition("::")[0] not in TORCHS
        return custom and any(mismatch.cause in ("fake", "symbolic", "schema") for mismatch in self.own)

    @property
    def of_metadata(self) -> bool:
        """Whether it is about metadata, rather than a node that could not be run."""
        return any(mismatch.property != "run" for mismatch in self.mismatches)

    @property
    def own(self) -> list[Mismatch]:
        """The mismatches that are not inherited."""
        return [mismatch for mismatch in self.mismatches if mismatch.cause != "inherited"]


def merged(findings: Sequence[NodeMismatch]) -> list[NodeMismatch]:
    """Merges findings of the same value, in order of first appearance; properties seen in other runs are added."""
    by_key: dict[tuple[str, str, str, int], NodeMismatch] = {}
    for finding in findings:
        known = by_key.get(finding.key)
        if known is None:
            copies = [msgspec.structs.replace(mismatch) for mismatch in finding.mismatches]
            by_key[finding.key] = msgspec.structs.replace(finding, mismatches=copies, under=list(finding.under))
            continue
        known.times += finding.times
        seen = {(mismatch.property, mismatch.cause) for mismatch in known.mismatches}
        known.mismatches += [added for added in finding.mismatches if (added.property, added.cause) not in seen]
        known.under += [name for name in finding.under if name not in known.under]
    return list(by_key.values())


def origins(findings: Sequence[NodeMismatch]) -> list[NodeMismatch]:
    """The findings about their own node, not inherited ones."""
    return [finding for finding in findings if finding.origin]


def folded(findings: Sequence[NodeMismatch]) -> list[tuple[NodeMismatch, list[NodeMismatch]]]:
    """Each origin with the findings that follow from it; a finding with several origins is listed under each."""
    rest = [finding for finding in findings if not finding.origin]
    return [
        (origin, [follower for follower in rest if follower.where == origin.where and origin.name in follower.under])
        for origin in origins(findings)
    ]


def joined(known: Sequence[NodeMismatch], more: Sequence[NodeMismatch]) -> list[NodeMismatch]:
    """Adds the findings of a graph to those of graphs that ran before it.

    A wrong input of a backward is inherited from its forward: a saved value with the same name, a tangent with the same
    property.
    """
    before = [finding for finding in known if not finding.from_outside]
    for finding in more:
        if not finding.from_outside or not before:
            continue
        owners = [earlier for earlier in before if earlier.where != finding.where and _gave(earlier, finding)]
        names = [name for earlier in owners for name in ([earlier.node] if earlier.origin else earlier.under)]
        if names:
            finding.under = list(dict.fromkeys(names))
            for mismatch in finding.mismatches:
                mismatch.cause, mismatch.why = "inherited", f"from {owners[0].where}"
    return merged([*known, *more])


def _gave(earlier: NodeMismatch, finding: NodeMismatch) -> bool:
    """Whether a later graph may have its wrong input from an earlier finding."""
    if not finding.node.startswith("tangents_"):
        return earlier.node == finding.node
    return bool({wrong.property for wrong in finding.mismatches} & {wrong.property for wrong in earlier.mismatches})


class MetadataMismatch(AssertionError):
    """A graph's values are not what its metadata says. The text lists every origin; `findings` holds all of them."""

    def __init__(self, text: str, findings: Sequence[NodeMismatch]) -> None:
        super().__init__(text)
        self.findings = list(findings)

    @property
    def detail(self) -> str:
        """The wrong property of the first origin: two failures of this kind with the same property are the same."""
        roots = origins(self.findings)
        return roots[0].own[0].property if roots else ""


SHOWN = 8
"""How many inherited findings are named under an origin."""


def text_report(findings: Sequence[NodeMismatch]) -> str:
    """The whole report; "No mismatch." for none."""
    if not findings:
        return "No mismatch: every value is what its metadata says."
    lines, shown = [headline(findings)], set[int]()
    for origin, rest in folded(findings):
        lines += ["", sentence(origin), *_details(origin, rest)]
        shown |= {id(finding) for finding in (origin, *rest)}
    if lost := [finding for finding in findings if id(finding) not in shown]:
        lines += ["", "Inherited from another graph:", *(f"  {sentence(finding)}" for finding in lost[:SHOWN])]
    return "\n".join(lines)


def headline(findings: Sequence[NodeMismatch]) -> str:
    """The counts as a sentence: "1 origin, 14 inherited."."""
    count = len(origins(findings))
    return f"{counted(count, 'origin')}, {len(findings) - count} inherited."


def sentence(finding: NodeMismatch) -> str:
    """One finding as one sentence."""
    shown = finding.own or finding.mismatches
    values = "; ".join(f"{mismatch.property} expected {mismatch.expected}, got {mismatch.got}" for mismatch in shown)
    symbols = ", ".join(f"{name}={value}" for name, value in finding.symbols.items())
    ends = list(dict.fromkeys(fault(finding, mismatch) for mismatch in shown))
    return f"{place(finding)}: {values}{f' with {symbols}' if symbols else ''}; {'; '.join(ends)}."


def place(finding: NodeMismatch) -> str:
    """Node and user line: "`view_7` (model.py:52)"."""
    where = f"near {finding.line}" if finding.near else finding.line or "no user line"
    where += f", {finding.where}" if finding.where else ""
    output = f", output {finding.output}" if finding.output >= 0 else ""
    return f"`{finding.name}` ({where}{output})"


def fault(finding: NodeMismatch, mismatch: Mismatch) -> str:
    """In words, whose fault a mismatch is."""
    return {
        "fake": f"the fake function of {finding.op} is wrong",
        "symbolic": f"the fake function of {finding.op} takes another branch for symbols than for numbers",
        "stale": "the recorded metadata is stale: the op and its fake function agree on something else",
        "schema": f"the schema of {finding.op} does not say that it writes to this argument",
        "input": "the graph was given something else than it was traced with",
        "unknown": f"the fake function of {finding.op} could not be asked",
        "loose": "not a promise",
        "inherited": f"inherited from {', '.join(f'`{name}`' for name in finding.under)}",
    }[mismatch.cause]


def next_step(finding: NodeMismatch) -> str:
    """The advice on an origin."""
    cause = finding.own[0].cause
    if cause == "fake" and all(mismatch.property == "alias" for mismatch in finding.own):
        return f"let {finding.op} return a clone, or say in its schema whose memory it returns: Tensor(a) -> Tensor(a)"
    return {
        "fake": f"correct the fake function of {finding.op} (torch.library.register_fake); report it if the op is "
        "torch's own",
        "symbolic": f"make the fake function of {finding.op} say the same for every size, or mark the size as static",
        "stale": "find the pass that changed the node or its arguments but not its metadata: graphdbg diff of two "
        "stages",
        "schema": f"declare the argument as mutated in the schema of {finding.op} (mutates_args)",
        "input": "look at the graph that made this input, or at the guards that accepted it",
        "unknown": f"register or correct the fake function of {finding.op}, then check again",
    }.get(cause, "")


def _details(origin: NodeMismatch, rest: Sequence[NodeMismatch]) -> list[str]:
    facts = [f"op {origin.op}", *([f"module {origin.module}"] if origin.module else [])]
    traced = [f"{mismatch.property} traced as {mismatch.traced}" for mismatch in origin.own if mismatch.traced]
    lines = ["   " + " · ".join([*facts, *traced])]
    if origin.code:
        lines.append(f"   line: {origin.code}")
    lines += [f"   why: {mismatch.why}" for mismatch in origin.own if mismatch.why]
    if rest:
        names = ", ".join(f"`{follower.name}`" for follower in rest[:SHOWN])
        lines.append(f"   {len(rest)} inherited: {names}{', ...' if len(rest) > SHOWN else ''}")
    lines.append(f"   next: {next_step(origin)}")
    return lines
