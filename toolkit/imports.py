"""Imports the modules that a user names with `--import`, in the child that replays a graph: they register ops, or change torch.
`--trust` is handed on as one more of them.

Must not import what a dump says, only what the user asked for.

>>> import_modules(["my_ops"])
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from ..dumps.errors import UsageError


def import_modules(names: Sequence[str]) -> None:
    """Imports them in order, and lets Inductor look again at tables of its own that they may have changed. Raises UsageError."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            fix = "give the name of a module that Python finds from here"
            raise UsageError(f"cannot import {name}", str(error), fix) from error
    if names:
        from .isolation.warming import forget_copied_tables

        forget_copied_tables()


def homes_of(names: Sequence[str]) -> list[str]:
    """The folders that another process needs on its path to find these modules. Imports none of them."""
    found: list[str] = []
    for name in names:
        spec = importlib.util.find_spec(name.partition(".")[0])
        places = [] if spec is None else [*(spec.submodule_search_locations or ()), *filter(None, [spec.origin])]
        found += [str(Path(place).parent) for place in places[:1] if Path(place).exists()]
    return list(dict.fromkeys(found))


TRUST = "graphdbg.toolkit.triton.trusted"
"""The module that stands for the user's word `--trust` (see `triton.trusted`), so no command has anything else to do with it."""


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
