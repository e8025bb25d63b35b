"""A command to paste, with the flags that the command now running was given: what was found with them is found again.

One place adds them, at the end of making a `next`; who names a command says only what it is about. Imports no torch.

For example:

    with_flags("graphdbg bisect run/0_0/forward")          # under `graphdbg triage run --import my_ops --seed 3`
    # 'graphdbg bisect run/0_0/forward --import my_ops --seed 3'
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ...dumps.errors import GraphdbgError
from ..isolation.imports import option_words, with_trust

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

_IMPORTS = "graphdbg.imports"
_RUNS = ("import", "trust")
_TAKES = {
    **dict.fromkeys(("replay", "bisect"), (*_RUNS, "seed", "device", "rung", "check")),
    **dict.fromkeys(("triage", "check"), (*_RUNS, "seed", "device")),
    **dict.fromkeys(("report",), (*_RUNS, "seed", "rung")),
    "minify": (*_RUNS, "seed", "rung", "check"),
    "kernel": (*_RUNS, "seed"),
    "compile": _RUNS,
}
"""Command -> the flags that it takes of those that decide what is found."""


def with_trust_for(saved: SavedGraph, command: str) -> str:
    """The command with `--trust`, where that brings back what the graph needs of its own program; else "" (there is
    none)."""
    try:
        definitions = saved.record.definitions
    except GraphdbgError:
        return ""
    return (
        f"{command} --trust" if any(definition.program and not definition.missing for definition in definitions) else ""
    )


def remember(imports: Sequence[str]) -> None:
    """Keeps what `--import` came to, for the commands that are suggested."""
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_IMPORTS] = tuple(imports)


def with_flags(command: str, imports: Sequence[str] = ()) -> str:
    """The command with the flags of the command now running that it takes and does not name itself. `imports`: besides
    those typed."""
    words = command.split()
    takes = _TAKES.get(words[1], ()) if len(words) > 1 and words[0] == "graphdbg" else ()
    context = click.get_current_context(silent=True)
    typed = () if context is None else with_trust(context.meta.get(_IMPORTS, ()), bool(context.params.get("trust")))
    known = tuple(dict.fromkeys((*typed, *imports)))
    more = option_words(known) if takes else []
    for name in takes[len(_RUNS) :]:
        if context is not None and context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            value = context.params[name]
            theirs = not isinstance(value, bool) and (words[1] == "minify" or not str(value).startswith("cmd:"))
            more += [f"--{name}", str(value)] if theirs else []
    pairs = [more[at : at + (1 if word == "--trust" else 2)] for at, word in enumerate(more) if word.startswith("--")]
    new = [
        word
        for pair in pairs
        if not (pair[0] in words and (len(pair) == 1 or pair[1] in words or pair[0] != "--import"))
        for word in pair
    ]
    return " ".join([command, shlex.join(new)]).rstrip()
