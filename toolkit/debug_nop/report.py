"""The findings as text: a count, then a paragraph per origin with what follows from it. No torch.

>>> print(text_report(findings))
1 origin, 14 inherited.
`view_7` (model.py:52): stride expected (64, 1), got (1, 64) with s0=8; the fake function of mylib::foo is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dumps.wording import counted
from .findings import Finding, Mismatch, folded, origins

SHOWN = 8
"""How many inherited findings are named under an origin."""


def text_report(findings: Sequence[Finding]) -> str:
    """The whole report; "No mismatch." for none."""
    if not findings:
        return "No mismatch: every value is what its metadata says."
    first = origins(findings)
    lines = [headline(findings)]
    for origin, rest in folded(findings):
        lines += ["", sentence(origin), *_details(origin, rest)]
    lost = [one for one in findings if not one.origin and not any(one.where == of.where and of.name in one.under for of in first)]
    if lost:
        lines += ["", "Inherited from another graph:", *(f"  {sentence(one)}" for one in lost[:SHOWN])]
    return "\n".join(lines)


def headline(findings: Sequence[Finding]) -> str:
    """ "1 origin, 14 inherited."."""
    count = len(origins(findings))
    return f"{counted(count, 'origin')}, {len(findings) - count} inherited."


def sentence(finding: Finding) -> str:
    """One finding as one sentence."""
    shown = finding.own or finding.mismatches
    values = "; ".join(f"{one.property} expected {one.expected}, got {one.got}" for one in shown)
    symbols = ", ".join(f"{name}={value}" for name, value in finding.symbols.items())
    ends = list(dict.fromkeys(fault(finding, one) for one in shown))
    return f"{place(finding)}: {values}{f' with {symbols}' if symbols else ''}; {'; '.join(ends)}."


def place(finding: Finding) -> str:
    """Node and user line: "`view_7` (model.py:52)"."""
    where = f"near {finding.line}" if finding.near else finding.line or "no user line"
    where += f", {finding.where}" if finding.where else ""
    output = f", output {finding.output}" if finding.output >= 0 else ""
    return f"`{finding.name}` ({where}{output})"


def fault(finding: Finding, mismatch: Mismatch) -> str:
    """Whose fault it is."""
    return {
        "fake": f"the fake function of {finding.op} is wrong",
        "symbolic": f"the fake function of {finding.op} takes another branch for symbols than for numbers",
        "stale": "the recorded metadata is stale: the op and its fake function agree on something else",
        "schema": f"the schema of {finding.op} does not say that it writes to this argument",
        "input": "the graph was given something else than it was traced with",
        "unknown": f"the fake function of {finding.op} could not be asked",
        "inherited": f"inherited from {', '.join(f'`{name}`' for name in finding.under)}",
    }[mismatch.cause]


def next_step(finding: Finding) -> str:
    """What to do about an origin."""
    cause = finding.own[0].cause
    if cause == "fake" and all(one.property == "alias" for one in finding.own):
        return f"let {finding.op} return a clone, or say in its schema whose memory it returns: Tensor(a) -> Tensor(a)"
    return {
        "fake": f"correct the fake function of {finding.op} (torch.library.register_fake); report it if the op is torch's own",
        "symbolic": f"make the fake function of {finding.op} say the same for every size, or mark the size as static",
        "stale": "find the pass that changed the node or its arguments but not its metadata: graphdbg diff of two stages",
        "schema": f"declare the argument as mutated in the schema of {finding.op} (mutates_args)",
        "input": "look at the graph that made this input, or at what guards let it in",
        "unknown": "register a fake function for the op, then check again",
    }.get(cause, "")


def _details(origin: Finding, rest: Sequence[Finding]) -> list[str]:
    facts = [f"op {origin.op}"]
    if origin.module:
        facts.append(f"module {origin.module}")
    traced = [f"{one.property} traced as {one.traced}" for one in origin.own if one.traced]
    lines = ["   " + " · ".join([*facts, *traced])]
    if origin.code:
        lines.append(f"   line: {origin.code}")
    lines += [f"   why: {one.why}" for one in origin.own if one.why]
    if rest:
        names = ", ".join(f"`{one.name}`" for one in rest[:SHOWN])
        lines.append(f"   {len(rest)} inherited: {names}{', ...' if len(rest) > SHOWN else ''}")
    lines.append(f"   next: {next_step(origin)}")
    return lines
