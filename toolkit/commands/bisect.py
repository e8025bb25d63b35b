"""`graphdbg bisect`: the node, or the pass, lowering or setting, that makes a saved graph fail."""

from __future__ import annotations

from typing import Any

import click

from ...dumps.answers import found
from ...dumps.commands.options import json_option, seconds_option
from ...dumps.errors import NotRegisteredError
from ...dumps.output import emit, say
from ...dumps.store import resolve_graph
from ...dumps.wording import counted
from ...dumps.worst import keep
from ..blame.bisect_records import Bisection, Culprit, Subsystem
from ..verdicts.ladder_words import address
from ..verdicts.verdict import unloadable, with_trust_for
from ..verdicts.verdict_words import PROBES, first_line, known
from .options import check_option, device_option, import_option, limit_option, rung_option, seed_option, trust_option

INTERRUPTED_EXIT = 130


@click.command()
@click.argument("graph", metavar="RUN/ID")
@click.option("--by", type=click.Choice(["node", "pass"]), help="Search only so. [default: by node, then by pass]")
@rung_option
@seed_option
@device_option
@limit_option("Seconds that one trial may take.")
@check_option
@import_option()
@trust_option
@seconds_option("--max-time", "max_time_s", help="Stop after so many seconds, with what was found.")
@json_option("Print one JSON document, with every trial.")
def bisect(graph: str, check: str, imports: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Name the node that makes a graph fail, or the pass, lowering or setting, and what works around it.

    First it puts back the settings that the run itself had changed. Then it searches by node: each node is judged
    on the compiled values of its own inputs, so that an earlier error does not count against it. Where values are
    right as soon as they are returned, it compiles cuts of the graph until the smallest wrong stretch is left (at
    most 2*log2(n)+4 compiles of n operations). Then it searches by pass: parts of the compiler are switched off. It
    stops at the first conviction that a run confirms.

    With --by node it looks for a node that is wrong by itself even where the results are right within rounding.

    Each trial is a process of its own with a private cache: your Inductor cache and bisections are not touched.
    """
    from ..blame.bisect import INTERRUPTED
    from ..blame.bisect import bisect as run

    saved = resolve_graph(graph)
    try:
        result = run(saved, check=check, imports=imports, narrate=say, **options)
    except NotRegisteredError as error:
        record = unloadable(error, saved.path)
        verdict = record.then(with_trust_for(saved, f"graphdbg bisect {saved.name}"))
        result = Bisection(saved.id, saved.stage, options["rung"], sentence=record.reason, verdict=verdict)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        emit("\n".join(_lines(result)), as_json=False)
    record = result.verdict
    keep(saved.run, {saved.id: known(record)})
    code = INTERRUPTED_EXIT if result.stopped == INTERRUPTED else 1 if record.sought(check) else record.exit_code
    found(graph, address(saved), [result.to_json()], code)
    raise SystemExit(code)


def _lines(result: Bisection) -> list[str]:
    node, record = result.by_node, result.verdict
    lines = [first_line(record), ""]
    lines += [f"reproduced   {result.failure}"] if result.failure and result.reproduced else []
    lines += [f"backend      {result.backend}"] if result.backend else []
    lines += [_row(row) for row in result.rows]
    if node is not None and result.sentence != node.sentence:
        lines.append(f"by node      {node.sentence}")
    lines += [f"finding      {result.sentence}", *([f"meaning      {result.meaning}"] if result.meaning else [])]
    for index, finding in enumerate(result.findings):
        lines += [f"also         {finding.sentence}"] if index else []
        lines += _workaround(finding)
    if node is not None and node.others:
        lines.append(f"more nodes   wrong on right inputs: {', '.join(node.others)}")
    if result.reproduced:
        compiles = counted(len(result.probes) + (node.compiles if node is not None else 0) + 1, "compile")
        lines.append(f"probes       {compiles} in {result.seconds:.0f} s; your Inductor cache was not touched")
    lines += [f"stopped      {result.stopped}"] if result.stopped else []
    lines += [f"note         {note}" for note in dict.fromkeys(result.notes)]
    return lines + [f"next         {command}" for command in record.next]


def _workaround(finding: Culprit) -> list[str]:
    workaround = finding.workaround
    if workaround is None:
        return []
    state = "verified" if workaround.verified else "tried: does NOT remove the failure alone"
    also = f"; it also switches off {', '.join(workaround.also)}" if workaround.also else ""
    return [f"work around  ({state}{also})", *(f"    {line}" for line in workaround.code.splitlines())]


def _row(row: Subsystem) -> str:
    if row.verdict is None:
        return f"             {row.subsystem}: {row.reason}"
    remark = "; ".join([*([str(row.applications)] if row.applications else []), *([row.reason] if row.reason else [])])
    count = f" ({remark})" if remark else ""
    return f"             without {row.subsystem}{count}: {PROBES[row.verdict][1]}"
