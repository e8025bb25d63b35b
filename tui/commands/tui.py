"""`graphdbg tui`: the terminal workbench."""

from __future__ import annotations

import gc
import os
import sys

import click

from ...dumps.errors import CommandLineError, ScreenError


@click.command()
@click.argument("target", required=False, metavar="[RUN[/ID]|OUT]")
@click.option("--follow", is_flag=True, help="Show graphs as a training run records them; RUN may not be there yet.")
@click.option("--web", is_flag=True, help="Serve the same on localhost, for a browser; prints an address with a token.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8765, show_default=True, help="For --web: the port to serve on."
)
def tui(target: str | None, follow: bool, web: bool, port: int) -> None:
    """Open the terminal workbench: runs, graphs, replays, minifications and reports.

    \b
    RUN     its graphs; without it the runs in this folder
    RUN/ID  one graph, or a case folder
    OUT     a minification: one that runs is followed, also when another
            terminal started it

    Keys: ? help, ctrl+p every action by name, @ the command line of what you see, q quit.
    """
    if follow and target is None:
        raise CommandLineError(
            "--follow needs RUN", "it shows the graphs of a run as they come", "add the folder of dump -o"
        )
    if web:
        from ..web import serve

        serve(target, follow=follow, port=port)
        return
    served = "TEXTUAL_DRIVER" in os.environ  # a page of --web: textual-serve is at the other end of the pipes
    if not served and not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        why = "this is not a terminal"
        raise ScreenError("the workbench cannot be shown", why, "use --web, or ls, show, diff and the other commands")
    gc.disable()  # a fifth of the start; from then on `responsive` decides
    from .. import _terminal
    from ..app import Workbench
    from ..room import first_room

    app = Workbench(first_room(target, follow=follow), None if served else _terminal.colours())
    app.run()
    raise SystemExit(app.return_code or 0)
