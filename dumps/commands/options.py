"""Options shared by the commands of all packages, declared once.

>>> @click.command()
... @json_option()
... def ls(as_json): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..answers import keep_full

Declared = Callable[[Callable[..., Any]], Callable[..., Any]]
"""A decorator of a command's function."""


def json_option(help: str = "Print one JSON document.") -> Declared:
    """Adds `--json`, passed to the command as `as_json`, and `--full`, which `emit` reads."""
    of_full = "With --json: all of it, where it has more than 6 kB."
    whole = click.option("--full", is_flag=True, expose_value=False, callback=keep_full, help=of_full)
    return lambda command: click.option("--json", "as_json", is_flag=True, help=help)(whole(command))


def seconds_option(*names: str, help: str, default: float | None = None) -> Declared:
    """An option for a positive number of seconds; without a default it may be None."""
    shown = default is not None
    return click.option(
        *names, type=click.FloatRange(min=0, min_open=True), default=default, show_default=shown, metavar="S", help=help
    )
