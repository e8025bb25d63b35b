"""`graphdbg demo`: a planted compiler bug, recorded, found, shrunk and reported, each step as its own command."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ...dumps.atomic import free_path
from ...dumps.commands.options import json_option
from ...dumps.output import emit, say
from ...dumps.wording import counted


@click.command()
@click.option("-o", "--output", metavar="DIR", help="New folder for everything. Default: demo-run-N.")
@click.option(
    "--plant",
    type=click.Choice(["accuracy", "compile_error"]),
    default="accuracy",
    show_default=True,
    help="The bug: wrong numbers, or a kernel that does not compile.",
)
@click.option("--layers", type=click.IntRange(1), default=24, show_default=True, help="Blocks of the model.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where the model trains."
)
@json_option()
def demo(output: str | None, plant: str, layers: int, device: str, as_json: bool) -> int:
    """Record a training run with a planted compiler bug; find, shrink and report it.

    Switches on Inductor's own relu test bug in a small residual network, and runs dump, ls, triage, minify and
    report on it. Takes one to two minutes on two idle cores.
    """
    from ...dumps.errors import ExistsAlreadyError
    from .. import demo as play

    folder = Path(output) if output else free_path("demo-run", bare=False)
    if folder.exists():
        raise ExistsAlreadyError(f"cannot write into {folder}", "it exists already", "choose another folder with -o")
    shown = play.Demo(folder, say, layers, device)
    say(f"The demo works in {folder}/. The script is {folder}/{play.SCRIPT}.py, plain PyTorch.")
    say(f"Bug: {plant} (Inductor's own test hook, inject_relu_bug_TESTING_ONLY)")
    bug = shown.play(plant)
    if as_json:
        tried = shlex.join(["python", str(folder / bug["report"] / "repro.py")])
        emit({"folder": str(folder), "bugs": [bug]}, as_json=True, next=[tried])
        return 0
    say("")
    where, seconds = folder / bug["report"], bug["repro_seconds"]
    reduced = f"{plant}: {bug['graph']} reduced from {bug['original_nodes']} to {counted(bug['nodes'], 'node')}"
    shows = f"with a repro after {seconds:.0f} s; {where}/repro.py shows it in {bug['rate']}"
    emit(f"{reduced}, {shows}", as_json=False)
    say(f"Look at {where}/issue.md, or at all of it: cd {shlex.quote(str(folder))} && graphdbg tui\n")
    say("For a run of your own, in the environment that trains:\n" + "\n".join(f"  {line}" for line in OWN))
    return 0


OWN = (
    "graphdbg dump -o myrun train.py             (or python ..., torchrun ..., accelerate launch ...)",
    "graphdbg triage myrun",
    "graphdbg minify -o small myrun",
    "graphdbg report small",
)
"""What the reader would type next."""
