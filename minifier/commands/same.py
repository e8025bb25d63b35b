"""`graphdbg same`: are two cases, repros, graphs or runs the same failure?"""

from __future__ import annotations

import click

from ...dumps.commands.options import json_option
from ...dumps.output import emit, say
from ...dumps.store import SavedGraph
from ...toolkit.commands.options import RungName, import_option, seed_option, trust_option
from ...toolkit.verdicts.signature import Signature


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--rung",
    metavar="RUNG",
    type=RungName(),
    help="How a graph of a run is run to see its failure. Default: as the other side was found, else inductor.",
)
@seed_option
@import_option()
@trust_option
@json_option()
def same(first: str, second: str, rung: str | None, seed: int, imports: tuple[str, ...], as_json: bool) -> None:
    """Are A and B the same failure?

    Each is a case folder, the folder that minify or report wrote, a repro.py that graphdbg wrote, RUN/ID, or a run
    (its failing graph). A case says how it failed, and is not run; a graph of a run is replayed once.

    The signature id of 8 characters is equal for the same failure on two machines and two versions of torch. For
    wrong numbers it holds what the minimised graph calls: minify both to be certain.
    """
    from ...toolkit.replaying.replay import replay
    from ...toolkit.verdicts.verdict_words import headline
    from ..sameness import CODES, compared, rung_of, side_of

    chosen = rung or rung_of(first) or rung_of(second) or "inductor"

    def judge(saved: SavedGraph) -> tuple[Signature | None, str]:
        say(f"finding out how {saved.name} fails under {chosen}")
        judgement = replay(saved, rung=chosen, seed=seed, outputs=False, imports=imports)
        verdict = judgement.verdict
        said = f"cannot be judged ({headline(verdict)})" if verdict.exit_code else "does not fail"
        return judgement.signature if verdict.failed else None, f"{saved.name} {said} under {chosen} here"

    comparison = compared(side_of(first, judge), side_of(second, judge))
    if as_json:
        emit(comparison.plain(), as_json=True)
    else:
        lines = [f"{comparison.says.replace('_', ' ')}: {comparison.reason}", ""]
        for side in comparison.sides:
            text = side.signature.text() if side.signature is not None else ""
            calls = f" [{', '.join(side.failure.calls)}]" if side.failure and side.failure.calls and side.sharp else ""
            lines.append(f"{side.id or '-' * 8}  {side.name}" + (f"  {text}" if text else "") + calls)
        emit("\n".join([*lines, *(f"Next: {command}" for command in comparison.next)]), as_json=False)
    raise SystemExit(CODES[comparison.says])
