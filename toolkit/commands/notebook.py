"""Notebooks: `%load_ext graphdbg`, then `%%graphdbg [-o RUN] ...` records what a cell compiles. Also: how notebooks
show verdicts.

The cell itself runs as it would without us: its first line begins the recording, which ends with the cell. Imports no
torch, and IPython only where it is running.

    %%graphdbg -o myrun --inputs first
    train(model)
"""

from __future__ import annotations

import os
import shlex
from importlib import import_module
from typing import Any

import click

from ...dumps.atomic import free_path
from ...dumps.commands.display import code, commands, in_cell, lines, shown, table
from ...dumps.errors import GraphdbgError
from ...dumps.tables import Column
from ..recorder.options import Options
from ..recorder.session import Session
from ..recorder.starting import begin_block, end, print_summary
from ..verdicts.ladder_records import Triage
from ..verdicts.outcome import Outcome
from ..verdicts.verdict import Verdict
from ..verdicts.verdict_words import around, first_line, tone

_NAME = "graphdbg"
_EMPTY = (
    "Either the cell calls nothing compiled, or what it calls was compiled by an earlier cell: put "
    "%%graphdbg on that one, or "
    "call torch.compiler.reset() in this one."
)


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext graphdbg` calls."""
    if shell.find_line_magic(_NAME) is None:
        cells = Cells(shell)
        shell.register_magic_function(cells.begin, "line_cell", _NAME)
        shell.input_transformers_cleanup.append(_first_line_alone)
        shell.events.register("post_run_cell", cells.end)


def _first_line_alone(cell: list[str]) -> list[str]:
    """Makes `%%graphdbg` a magic of its line alone, so that the cell keeps its line numbers, errors and `await`."""
    return [cell[0][1:], *cell[1:]] if cell and cell[0].split()[:1] == [f"%%{_NAME}"] else cell


_first_line_alone.has_side_effects = True  # pyright: ignore[reportFunctionMemberAccess]
"""So that a terminal, which asks whether the cell is complete, sees the magic of a cell and waits for the rest of
it."""


class Cells:
    """The recordings of one IPython, one at a time."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.session: Session | None = None

    def begin(self, line: str, cell: str | None = None) -> None:
        """Record every graph that this cell compiles, as `graphdbg dump` does: %%graphdbg [-o RUN] [--inputs POLICY]
        ...

        The run is a new folder (default: graphdbg-run-N); %%graphdbg --help names the options.
        """
        refused = import_module("IPython.core.error").UsageError
        try:
            options = _options(line)
            self.end(None)
            self.session = begin_block(options)
        except click.exceptions.Exit:
            raise refused("this was the help of %%graphdbg; the cell was not run") from None
        except (click.ClickException, GraphdbgError) as error:
            said = error.format_message() if isinstance(error, click.ClickException) else error.said
            raise refused(f"{said} (the cell was not run)") from None
        if cell is not None:
            self.shell.run_cell(cell)

    def end(self, result: Any) -> None:
        """Ends the recording of a cell: says where the run is and how to go on."""
        session, self.session = self.session, None
        if session is None:
            return
        error = getattr(result, "error_in_exec", None)
        if session.holder is not None and isinstance(error, Exception):
            session.holder.uncaught(error)
        end(session)
        print_summary(session, in_block=True, reason=_EMPTY, typed=in_cell)


def _options(line: str) -> Options:
    """The recording that the first line asks for, in the words of `graphdbg dump`."""
    from .dump import dump, recording

    names = ("output", *Options.__struct_fields__)
    taken = [parameter for parameter in dump.params if parameter.name in names]
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise click.UsageError(f"cannot read {line!r}: {error}") from error
    command = click.Command(f"%%{_NAME}", params=taken, help="Record every graph that this cell compiles.")
    given = command.make_context(command.name, words).params
    output = given.pop("output")
    options = recording(**given, wrapped=False)
    options.run = output or os.fspath(free_path("graphdbg-run", bare=False))
    return options


def _of_verdict(verdict: Verdict, *inside: str) -> str:
    said = lines([around(verdict.workaround)]) if verdict.workaround else ""
    return shown(
        first_line(verdict), tone(verdict), *inside, said, code(verdict.workaround or ""), commands(verdict.next)
    )


def of_outcome(outcome: Outcome) -> str:
    """The notebook's view of a replay: what `graphdbg replay` prints."""
    from .replay import facts

    return _of_verdict(outcome.verdict, table([Column("under"), Column(outcome.rung)], facts(outcome)))


def of_triage(triaged: Triage) -> str:
    """The notebook's view of a triage: what `graphdbg triage` prints."""
    from .triage import ladder_cells

    columns, cells, notes = ladder_cells(triaged)
    return _of_verdict(
        triaged.verdict, table(columns, cells), lines([*(f"note: {note}" for note in notes), triaged.summary])
    )
