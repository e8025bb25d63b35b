"""Options of the commands that run graphs, declared once. `--json` is declared in `dumps`.

>>> @click.command()
... @rung_option
... @seed_option
... @import_option()
... def replay(rung, seed, imports): ...
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ...dumps.commands.options import Declared, seconds_option
from ...dumps.output import say
from ..isolation.heartbeat import beating
from ..isolation.imports import checked, with_trust
from ..rungs import NAMES, nearest_to
from ..verdicts.verdict import remember


class WithCommand(click.Command):
    """Keeps the words after `--` apart for `command_of`: they are a command's, also where they look like options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["graphdbg.command"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def command_of(ctx: click.Context) -> list[str] | None:
    """The words after `--`; None where there is none."""
    return ctx.meta.get("graphdbg.command")


class RungName(click.Choice[str]):
    """The name of a rung. Where it is the name of a torch backend instead, the error names the nearest rung."""

    def __init__(self) -> None:
        super().__init__(NAMES)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if near := nearest_to(str(value)):
            self.fail(f"no rung is called {value!r}. For {near}", param, ctx)
        return super().convert(value, param, ctx)


rung_option = click.option(
    "--rung",
    metavar="RUNG",
    type=RungName(),
    default="inductor",
    show_default=True,
    help=f"How the graph is run: {', '.join(NAMES)}.",
)

check_option = click.option(
    "--check",
    default="auto",
    show_default=True,
    help="What counts as failing.",
    type=click.Choice(["auto", "crash", "accuracy", "nan", "metadata", "missing-error", "rounding", "hang", "memory"]),
)

seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="For inputs that were not stored, and random ops."
)

device_option = click.option("--device", metavar="DEVICE", help="Move graph and inputs there first, for instance cpu.")


def limit_option(help: str, default: float | None = 600.0) -> Declared:
    """Adds `--limit`, the seconds that one child may take, as `limit_s`. While the command waits, it prints a line on
    stderr now and then."""

    def declared(command: Callable[..., Any]) -> Callable[..., Any]:
        @seconds_option("--limit", "limit_s", help=help, default=default)
        @functools.wraps(command)
        def ready(*args: Any, **named: Any) -> Any:
            with beating(say):
                return command(*args, **named)

        return ready

    return declared


def import_option(before: str = "") -> Declared:
    """`--import`, which the command gets as `imports`; modules are also looked for where the command was typed."""
    text = f"{before}import a module first, for the custom ops that it registers; can be repeated."
    option = click.option("--import", "imports", multiple=True, metavar="MODULE|FILE", help=text[0].upper() + text[1:])

    def declared(command: Callable[..., Any]) -> Callable[..., Any]:
        @option
        @functools.wraps(command)
        def ready(*args: Any, imports: tuple[str, ...], **named: Any) -> Any:
            search_here(imports)
            words = named.get("graph") or named.get("words") or ""
            imports = checked(imports, words if isinstance(words, str) else words[0])
            remember(imports)
            return command(*args, imports=imports, **named)

        return ready

    return declared


def trust_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--trust` to a command that has `imports`."""
    text = (
        "Run the program's own Triton kernels, ops and passes, whose source is in the dump, and put in force settings "
    )
    text += "that name commands or paths: read it first."

    @click.option("--trust", is_flag=True, help=text)
    @functools.wraps(command)
    def ready(*args: Any, trust: bool, imports: tuple[str, ...], **named: Any) -> Any:
        return command(*args, imports=with_trust(imports, trust), **named)

    return ready


def search_here(imports: Sequence[str]) -> None:
    """Lets modules be found in the current folder: the fork server searches where we search."""
    here = str(Path.cwd())
    if imports and here not in sys.path:
        sys.path.append(here)
