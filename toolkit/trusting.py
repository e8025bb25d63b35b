"""The option `--trust` of every command that loads graphs, declared once.

It is handed on as one more module to import (see `triton.trusted`), so no command has anything else to do with it.

>>> @click.command()
... @click.option("--import", "imports", multiple=True)
... @trust_option
... def replay(imports): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

TRUST = "graphdbg.toolkit.triton.trusted"
"""The module that stands for the user's word."""


def trust_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--trust` to a command that has `imports`."""

    @click.option("--trust", is_flag=True, help="Run the graph's own Triton kernels, whose source is in the dump: read it first.")
    @functools.wraps(command)
    def ready(*args: Any, trust: bool, imports: tuple[str, ...], **named: Any) -> Any:
        return command(*args, imports=with_trust(imports, trust), **named)

    return ready


def with_trust(imports: Sequence[str], trust: bool) -> tuple[str, ...]:
    """The modules to import, and the one that says that the user trusts the dump."""
    return (*(one for one in imports if one != TRUST), *([TRUST] if trust or TRUST in imports else []))


def without_trust(imports: Sequence[str]) -> tuple[str, ...]:
    """The modules that the user named."""
    return tuple(one for one in imports if one != TRUST)


def option_words(imports: Sequence[str]) -> list[str]:
    """What a command line says for it: ["--import", "my_ops", "--trust"]."""
    words = [word for name in without_trust(imports) for word in ("--import", name)]
    return [*words, *(["--trust"] if TRUST in imports else [])]
