"""Amounts as they are typed on a command line.

>>> SIZE.convert("500MB", None, None)
524288000
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...dumps.errors import UsageError
from ...toolkit.recorder.options import size_of

if TYPE_CHECKING:
    _Amount = click.ParamType[object]
else:
    _Amount = click.ParamType


class Size(_Amount):
    """Bytes, written like 500MB, 2G or 2e9; raises the UsageError of `size_of`."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        return value if isinstance(value, int) else size_of(str(value))


class Seconds(_Amount):
    """Seconds of an option whose value may be left out: what follows such a flag may be the graph."""

    name = "seconds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds; raises UsageError."""
        try:
            return float(str(value))
        except ValueError as error:
            flag = param.opts[0] if param is not None else "this flag"
            why = f"what follows {flag} is its number of seconds"
            raise UsageError(f"{value} is no number", why, f"name the graph before {flag}, or write {flag}=60") from error


SIZE, SECONDS = Size(), Seconds()
