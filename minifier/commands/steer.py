"""`graphdbg steer`: pause a minification that runs, change its steps, go back to an earlier case, or end it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ...dumps.commands.options import json_option
from ...dumps.errors import BadValueError, CommandLineError
from ...dumps.output import emit, say
from ..events import STEPS
from ..steering import OF_STEPS, WHATS, give, outcome

WAIT_S = 10.0


@click.command()
@click.argument("out", metavar="OUT")
@click.argument("what", metavar="[ORDER]", type=click.Choice(WHATS), required=False)
@click.argument("target", metavar="[STEP|N]", required=False)
@json_option("Print what became of it as JSON.")
def steer(out: str, what: str | None, target: str | None, as_json: bool) -> None:
    """Change what a minification does while it runs, in any terminal. Without an order: say how it stands.

    \b
    pause, resume  ask nothing more for now (the query in flight is asked again
                   later), go on
    skip           end the step that runs, go on with the next one
    disable STEP   leave a step out; one that runs ends now. Also from the start:
                   minify --without STEP
    enable STEP    take it in again
    raise STEP     run it next
    restart N      search again from case N of the history, 0 is the original; the
                   smallest case of all is what is kept at the end
    cancel         end the search; the best case is verified and reported.
                   Twice: as Ctrl-C

    What changes the search is in its journal: graphdbg minify --resume does it again at the same place. graphdbg
    minify --help lists the steps; --json, or graphdbg tui OUT, says which one runs, and the numbers of the history.
    Where nothing is minified in OUT, an order is bad usage.
    """
    if what is None:
        _standing(Path(out), as_json)
        return
    step, number = _target(what, target)
    folder = Path(out)
    given = give(folder, what, step=step, number=number)
    answer = outcome(folder, given, WAIT_S)
    order = given.order
    line = {"id": order.id, "what": order.what, "step": order.step, "number": order.number, "state": "waiting"}
    if answer is None:
        say(f"{order.words}: not done yet; it will be, before the next query is asked")
    else:
        say(answer.sentence)
        line = {name: value for name, value in answer.to_json().items() if name not in ("event", "turn")}
    if as_json:
        emit(line, as_json=True, next=[shlex.join(["graphdbg", "steer", out])])
    if answer is not None and answer.state == "refused":
        raise SystemExit(1)


def _standing(out: Path, as_json: bool) -> None:
    """Prints how a minification stands, running or ended: step, history, orders."""
    import time

    from ..progress.telling import page
    from ..progress.watched import watched

    seen = watched(out)
    while seen.read():
        pass
    story = seen.story
    history = [[item.number, item.queries, item.nodes, item.input_bytes] for item in story.history]
    facts = {"state": seen.state, "step": story.step, "queries": len(story.queries), "best": story.best}
    facts |= {"original": story.original, "history": history}
    facts |= {"asked": list(seen.wishes.values()), "paused": story.paused}
    ended = [shlex.join(["graphdbg", "verify", str(out)])] if (out / "case").is_dir() else []
    emit(facts if as_json else "\n".join(page(seen, time.time())), as_json=as_json, next=ended)


def _target(what: str, target: str | None) -> tuple[str, int | None]:
    """The step or the number that an order is about. Raises UsageError where it is missing or superfluous."""
    if what in OF_STEPS:
        if target is None:
            raise CommandLineError(f"{what} needs a step", "", f"name one of {', '.join(STEPS)}")
        return target, None
    if what == "restart":
        if target is None or not target.isdigit():
            why = "it takes the number of a case in the history, 0 for the original"
            raise BadValueError(f"cannot restart from {target or 'nowhere'}", why, "for example: restart 0")
        return "", int(target)
    if target is not None:
        raise CommandLineError(f"{what} takes no further word such as {target!r}")
    return "", None
