"""`graphdbg bisect`: the pass, lowering or setting that makes a saved graph fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...dumps.commands.options import json_option, seconds_option
from ...dumps.output import emit, say
from ..next_command import with_flags
from ..verdict_words import PROBES, first_line
from .options import device_option, import_option, limit_option, seed_option, trust_option

if TYPE_CHECKING:
    from ..blame.bisect_records import Bisection, Finding, Row

INTERRUPTED_EXIT = 130


@click.command()
@click.argument("graph", metavar="RUN/ID")
@seed_option
@device_option
@limit_option("Seconds that one probe may take.")
@click.option("--check", type=click.Choice(["auto", "crash", "accuracy", "nan", "metadata", "hang", "memory"]), default="auto",
              show_default=True, help="What to compare after each run.")  # fmt: skip
@import_option()
@trust_option
@seconds_option("--max-time", "max_time_s", help="Stop after so many seconds, with what was found.")
@json_option("Print one JSON document, with every probe.")
def bisect(graph: str, imports: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Name the pass, lowering, decomposition or setting that makes a graph fail, and what works around it.

    \b
    Compiles the graph again and again with parts of the compiler switched off, each time in a process of
    its own and in a private cache: your Inductor cache and your own bisections are not touched.
    Exit code: 0 the graph does not fail, 1 it does, and what was found is printed, 4 it cannot be told, 130 interrupted.
    """
    from ...dumps.store import resolve_graph
    from ..blame.bisect import INTERRUPTED
    from ..blame.bisect import bisect as run

    result = run(resolve_graph(graph), imports=imports, narrate=say, **options)
    _show(result, as_json)
    raise SystemExit(INTERRUPTED_EXIT if result.stopped == INTERRUPTED else result.record.exit_code)


def _show(result: Bisection, as_json: bool) -> None:
    if as_json:
        import msgspec

        more = {"probe_count": len(result.probes), **result.record.flat()}
        emit({**msgspec.to_builtins(result), **more}, as_json=True)
        return
    lines = [first_line(result.record), ""]
    lines += [f"reproduced   {result.failure}"] if result.reproduced else []
    lines += [f"backend      {result.backend}"] if result.backend else []
    lines += [_row(row) for row in result.rows]
    lines += [f"finding      {result.sentence}", *([f"meaning      {result.meaning}"] if result.meaning else [])]
    for index, finding in enumerate(result.findings):
        lines += [f"also         {finding.sentence}"] if index else []
        lines += _workaround(finding)
    if result.reproduced:
        lines.append(
            f"probes       {len(result.probes) + 1} in {result.seconds:.0f} s; your Inductor cache was not touched"
        )
    lines += [f"stopped      {result.stopped}"] if result.stopped else []
    lines += [f"note         {note}" for note in result.notes]
    lines += [f"next         {with_flags(result.next)}"] if result.next else []
    emit("\n".join(lines), as_json=False)


def _workaround(finding: Finding) -> list[str]:
    found = finding.workaround
    if found is None:
        return []
    state = "verified" if found.verified else "tried: NOT enough by itself"
    also = f"; it also switches off {', '.join(found.also)}" if found.also else ""
    return [f"work around  ({state}{also})", *(f"    {line}" for line in found.code.splitlines())]


def _row(row: Row) -> str:
    if row.verdict is None:
        return f"             {row.subsystem}: {row.reason}"
    told = "; ".join([*([str(row.applications)] if row.applications else []), *([row.reason] if row.reason else [])])
    count = f" ({told})" if told else ""
    return f"             without {row.subsystem}{count}: {PROBES[row.verdict][1]}"
