"""`graphdbg demo`: a planted compiler bug, recorded, found, shrunk and reported, each step as its own command."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import click

from ...dumps.output import emit, say
from ...dumps.wording import counted


@click.command()
@click.option("-o", "--output", metavar="DIR", help="New folder for everything. Default: demo-run-N.")
@click.option(
    "--plant", type=click.Choice(["accuracy", "compile_error"]), help="Only this bug. Default: one after the other."
)
@click.option("--layers", type=click.IntRange(1), default=1, show_default=True, help="Layers of the model.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where the model trains."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def demo(output: str | None, plant: str | None, layers: int, device: str, as_json: bool) -> int:
    """Record a training run with a planted compiler bug; find, shrink and report it.

    \b
    Switches on Inductor's own relu test bug (wrong numbers, then a kernel that does not
    compile) in a small GPT, and runs dump, ls, triage, minify and report on it.
    Takes a few minutes. Exit code: 0 the bugs were found and reduced, 1 a step failed.
    """
    from ...dumps.errors import UsageError
    from .. import demo as play

    folder = Path(output) if output else _free_folder()
    if folder.exists():
        raise UsageError(f"cannot write into {folder}", "it exists already", "choose another folder with -o")
    shown = play.Demo(folder, say, layers, device)
    say(f"The demo works in {folder}/. The script is {folder}/train_gpt.py, plain PyTorch.")
    outcomes: list[play.Outcome] = []
    for bug in (plant,) if plant else play.PLANTS:
        say(f"\nBug: {bug} (Inductor's own test hook, inject_relu_bug_TESTING_ONLY)")
        outcomes.append(shown.play(bug))
    if as_json:
        emit({"folder": str(folder), "bugs": play.summary(outcomes)}, as_json=True)
        return 0
    say("")
    for one in outcomes:
        emit(
            f"{one.plant}: {one.graph} reduced from {one.original_nodes} to {counted(one.nodes, 'node')} in {one.seconds:.0f} s; "
            f"{folder / one.report}/repro.py shows it in {one.rate}",
            as_json=False,
        )
    say(
        f"\nLook at {folder}/accuracy/report/issue.md"
        if not plant
        else f"\nLook at {folder / outcomes[0].report}/issue.md"
    )
    return 0


def _free_folder() -> Path:
    """demo-run-N with the first N that is free."""
    return next(path for path in (Path(f"demo-run-{number}") for number in count(1)) if not path.exists())
