"""`graphdbg localize`: the first node of a failing graph whose compiled value is wrong on right inputs."""

from __future__ import annotations

import click

from ...dumps.commands.options import json_option
from ...dumps.output import emit, say
from .options import device_option, import_option, limit_option, rung_option, seed_option, trust_option


@click.command()
@click.argument("graph", metavar="RUN/ID")
@rung_option
@seed_option
@device_option
@limit_option("Seconds that one compile may take.")
@import_option()
@trust_option
@json_option()
def localize(
    graph: str, rung: str, seed: int, device: str | None, limit_s: float, imports: tuple[str, ...], as_json: bool
) -> None:
    """Find the first node whose compiled value departs from float64 beyond what eager's own error explains.

    \b
    Each node is judged on the compiled values of its own inputs, so an error made earlier is not held against it.
    Where values are right as soon as they are returned, cuts of the graph are compiled until the smallest wrong
    stretch is left. Every compile runs in a process of its own; at most 2*log2(n)+4 are made for n operations.
    Where the results are right within rounding, a node that is wrong by itself is still looked for, once.
    Exit code: 0 no failure and no wrong node, 1 there is one.
    """
    from ...dumps.store import resolve_graph
    from ..blame.localize import localize as run
    from ..blame.localized import to_json

    saved = resolve_graph(graph)
    found = run(saved, rung, seed, device, limit_s=limit_s, imports=imports, tell=say)
    if as_json:
        emit(to_json(found), as_json=True)
    else:
        for note in dict.fromkeys(found.notes):
            say(f"note: {note}")
        if found.others:
            say(f"more values that are wrong on right inputs: {', '.join(found.others)}")
        emit(found.sentence, as_json=False)
    raise SystemExit(found.record.exit_code)
