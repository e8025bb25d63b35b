"""`graphdbg triage`: the ladder table of a graph, the ranking of a run, or a program's calls beside eager."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ...dumps.answers import found as keep_found
from ...dumps.commands.options import json_option, seconds_option
from ...dumps.errors import BadValueError, CommandLineError, NotRegisteredError, OptionsExcludeError, WrongKindError
from ...dumps.output import emit, say
from ...dumps.store import Run, SavedGraph, is_script, resolve
from ...dumps.tables import Column, on_terminal, one_line, render
from ...dumps.why.times import table as times_table
from ...dumps.wording import shown_path, size_text
from ...dumps.worst import keep, no_graphs
from ..isolation.imports import option_words
from ..rungs import NAMES
from ..rungs import known as known_rung
from ..verdicts.ladder_records import RungResult, Triage, inputs_given, number
from ..verdicts.ladder_words import address, run_address
from ..verdicts.verdict import NO_TIME, NOT_JUDGED, Verdict, unloadable, with_flags, with_trust_for
from ..verdicts.verdict_words import all_known, around, first_line, known, said, word
from .options import WithCommand, command_of, device_option, import_option, limit_option, seed_option, trust_option

if TYPE_CHECKING:
    from ..program.concluding import ProgramTriage
    from ..triage.ranking import GraphRow, RunTriage


_SYMPTOMS = ("wrong", "nan", "slow", "hangs", "recompiles", "memory", "crash", "ranks")


class _Command(WithCommand):
    """Refuses a script that is given without `--` before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args and (at := self._first_name(args)) < len(args):
            _refuse_script(args[:at], args[at:])
        return super().parse_args(ctx, args)

    def _first_name(self, args: Sequence[str]) -> int:
        """The place of the first word that is neither an option nor the value of one."""
        options = [option for option in self.params if isinstance(option, click.Option) and not option.is_flag]
        takes_one = {name for option in options for name in option.opts}
        place = 0
        while place < len(args) and args[place].startswith("-"):
            place += 2 if args[place] in takes_one else 1
        return place


def _refuse_script(options: Sequence[str], words: Sequence[str]) -> None:
    """Raises UsageError where the words are those of a command, with the line that triages it."""
    if is_script(words[0]):
        python = ["python"] if words[0].endswith(".py") else []
        command = [*python, words[0] if python or "/" in words[0] else f"./{words[0]}", *words[1:]]
        what = f"{words[0]} is a script"
    elif len(words) > 1 and is_script(words[1]):  # python train.py
        command, what = [*words], f"{words[0]} {words[1]} is a command"
    else:
        return
    line = shlex.join(["graphdbg", "triage", *options, "--", *command])
    raise CommandLineError(what, "a command needs -- before it", f"run `{line}`")


@click.command(cls=_Command)
@click.option("--all", "go_on", is_flag=True, help="Every rung, and on after the first that fails.")
@seed_option
@device_option
@limit_option("Seconds that one rung (default 300), or one rung of a program's call, may take.", default=None)
@seconds_option(
    "--max-time",
    "max_time_s",
    help="Seconds in all: by default 600 for a run; calls of a command: 3600. What is left out is said; a rung of a "
    "command's call that is still at work then is ended. The graphs of a call that departs, and its repro, have a "
    "minute each all the same.",
)
@import_option()
@trust_option
@click.option(
    "-o", "--output", metavar="DIR", help="For a command: the folder of what is found. Default: graphdbg-triage-N."
)
@click.option(
    "--calls",
    metavar="N|A:B",
    help="For a command: the first N calls of each function, or its calls A to B-1, from 0. Default: the first 3, "
    "and each that recompiles, up to the first that departs.",
)
@click.option(
    "--symptom", type=click.Choice(_SYMPTOMS), help="What to look into; by default what the run's journals tell of."
)
@click.option(
    "--workaround", is_flag=True, help="Look for what makes the failure go away, however many compiles that takes."
)
@click.option("--rungs", metavar="A,B,...", help="Only these rungs; by default those that the run used.")
@json_option()
@click.option(
    "--json-lines", "as_lines", is_flag=True, help="Print a JSON object a line as rungs end (docs/json-lines.md)."
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="RUN[/ID] | -- CMD...")
@click.pass_context
def triage(
    ctx: click.Context,
    words: tuple[str, ...],
    as_json: bool,
    as_lines: bool,
    output: str | None,
    calls: str | None,
    **options: Any,
) -> None:
    """Say which way of running a graph is the first to go wrong, and so which layer is to blame.

    \b
    RUN/ID  runs a graph under each rung of the ladder, from eager to Inductor,
            each in a process of its own. Errors are relative to a float64 run;
            eager's own stands beside them.
    RUN     judges every compile once, by its widest saved graph (Dynamo's, where
            that was recorded), then the worst ones under each rung of the ladder.
    -- CMD  runs a program once, and each call of what it gave to torch.compile
            beside eager and under each backend.

    --symptom says what a RUN suffers from. Without it the run's journals say: a NaN that --when nan caught, a graph
    that failed or was in flight when its process died, several ranks, a recompile limit. The first line of the
    answer says which symptom it is, and where that was seen.

    \b
      wrong       every graph beside eager and float64
      nan         the same, and the first node of eager's own that computes a NaN
                  (record with dump --when nan)
      slow        recompiles, seconds of compiling, steps beside eager's
      hangs       the graph in flight at the end, ranks that wait, every graph
                  within --limit (where only --max-time is given, a quarter)
      recompiles  the guard that fails most often, and its line
      memory      every graph: what compile and first run need beside eager's own
      crash       every graph: what failed first; how the processes ended
      ranks       the first graph in which ranks differ, then every graph
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was found is reported
    script = command_of(ctx)
    if script is not None:
        why = "a command was given"
        if as_lines or options["rungs"]:
            raise OptionsExcludeError("--json-lines and --rungs are for a saved graph or run", why, "use --json")
        if words:
            what = f"both {words[0]} and a command are given"
            raise OptionsExcludeError(what, "triage takes one of them", f"leave {words[0]} out")
        if options["symptom"]:
            raise WrongKindError("--symptom is for a saved run", why, "record it: graphdbg dump -- CMD")
        raise SystemExit(_program(script, as_json, output, calls, options))
    if calls:
        raise CommandLineError("--calls is for a command", "no command is given", "put the command after --")
    if not words:
        raise CommandLineError("nothing to triage", "", "name a graph (RUN/ID), a run, or a command after --")
    if len(words) != 1:
        what, fix = f"{len(words)} names are given", "a command to run comes after --"
        raise CommandLineError(what, "triage takes one graph or run", fix)
    (name,) = words
    target = resolve(name)
    if isinstance(target, SavedGraph):
        if (symptom := options["symptom"]) is not None:
            run = target.run
            whole = "a run" if run is None else f"graphdbg triage {run_address(run)} --symptom {symptom}"
            raise WrongKindError("--symptom is for a whole run", f"{name} is one graph", f"name its run: {whole}")
        raise SystemExit(_one(target, name, as_json, as_lines, options))
    raise SystemExit(_run(target, name, as_json, as_lines, options))


def _one(saved: SavedGraph, name: str, as_json: bool, as_lines: bool, options: dict[str, Any]) -> int:
    from ..triage.ladder import chosen as climbed
    from ..triage.ladder import triage as climb

    rungs = chosen(options["rungs"])
    if as_lines:
        asked = climbed(saved, rungs, all=options["go_on"])
        start = {"event": "start", "graph": address(saved), "rungs": asked, "inputs": inputs_given(saved)}
        emit(start, as_json=True)
    try:
        triaged = climb(
            saved,
            **_how(options),
            max_time_s=options["max_time_s"],
            rungs=rungs,
            report=(lambda row: emit(row.event(), as_json=True)) if as_lines else _print_row,
            begun=(lambda name: emit({"event": "running", "rung": name}, as_json=True)) if as_lines else None,
        )
    except NotRegisteredError as error:
        record = unloadable(error, saved.path).then(with_trust_for(saved, f"graphdbg triage {address(saved)}"))
        triaged = Triage([], graph=address(saved), summary=f"Nothing was judged: {record.reason}.", verdict=record)
    if not options["rungs"]:
        keep(saved.run, {saved.id: known(triaged.verdict)})
    _end(triaged, [ladder_table(triaged)], as_json, as_lines)
    events = [*(row.event() for row in triaged.rows), triaged.event()]
    keep_found(name, triaged.graph, events, triaged.verdict.exit_code)
    return triaged.verdict.exit_code


def _how(options: dict[str, Any]) -> dict[str, Any]:
    """The options that triage of a graph and triage of a run have in common."""
    from ..triage.ladder import DEFAULT_LIMIT_S

    plain = {name: options[name] for name in ("seed", "device", "imports", "workaround")}
    return {**plain, "limit_s": options["limit_s"] or DEFAULT_LIMIT_S, "all": options["go_on"]}


def chosen(text: str | None) -> tuple[str, ...]:
    """The rungs that `--rungs` names, none without it. Raises UsageError for a name that is none."""
    if text is None:
        return ()
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        known_rung(name)
    if not names:
        raise BadValueError("--rungs is empty", "", f"choose among {', '.join(NAMES)}")
    return tuple(names)


def _run(run: Run, name: str, as_json: bool, as_lines: bool, options: dict[str, Any]) -> int:
    from ..triage.run import DEFAULT_TIME_S
    from ..triage.symptoms import SYMPTOMS, Noticed, hang_limit_s, noticed, triage_symptom
    from ..verdicts.own_passes import left_out

    asked = options["symptom"]
    symptom, found_by = Noticed(asked, "asked for") if asked else noticed(run)
    if not run.graphs() and (not asked or not SYMPTOMS[asked].before):
        raise no_graphs(run)
    say(f"symptom: {symptom} ({found_by})")
    lost, flags = ("", "") if options["imports"] or (asked and not SYMPTOMS[asked].graphs) else left_out(run)
    if lost:
        again = with_flags(shlex.join(["graphdbg", "triage", run_address(run), *flags.split()]))
        say(f"without {flags} the graphs are compiled without {lost}: {again}")
    how, max_time_s = _how(options), options["max_time_s"] or DEFAULT_TIME_S
    if symptom == "hangs" and options["max_time_s"] and not options["limit_s"]:
        how["limit_s"] = hang_limit_s(max_time_s)
    triaged = triage_symptom(
        run,
        symptom,
        found_by,
        asked=bool(asked),
        **how,
        max_time_s=max_time_s,
        report=say,
        heard=(lambda graph, row: emit(row.event(graph), as_json=True)) if as_lines else lambda graph, row: None,
        rungs=chosen(options["rungs"]),
    )
    judged = [row for row in triaged.graphs if row.verdict.detail not in (NOT_JUDGED, NO_TIME)]
    at = triaged.verdict.where.graph if triaged.verdict.where is not None else ""
    rows = sorted(judged, key=lambda row: row.address != at)
    keep(run, all_known(run, [(row.id, row.verdict) for row in rows]))
    both = zip(triaged.ladders, triaged.boundaries, strict=True)
    climbed = [f"{ladder.graph}: {boundary}\n{ladder_table(ladder)}" for ladder, boundary in both]
    tables = [times_table(triaged.times)] if triaged.times else []
    tables += [run_table(triaged)] if triaged.graphs else []
    _end(triaged, [*tables, *climbed], as_json, as_lines, run)
    code = 130 if triaged.interrupted else triaged.verdict.exit_code
    rungs = [row.event(ladder.graph) for ladder in triaged.ladders for row in ladder.rows]
    keep_found(name, triaged.run, [*(row.event() for row in judged), *rungs, triaged.event()], code)
    return code


def _end(
    triaged: Triage | RunTriage, tables: list[str], as_json: bool, as_lines: bool, about: Run | None = None
) -> None:
    if as_lines or as_json:
        emit(triaged.event() if as_lines else triaged.plain() | (about.inputs_json if about else {}), as_json=True)
    else:
        emit("\n\n".join([triaged.first_line, *tables, closing(triaged.summary, triaged.verdict)]), as_json=False)


def run_table(triaged: RunTriage) -> str:
    """The table of a run's graphs, in the order in which to look at them. Columns that are empty for all graphs are
    left out; a reason that several graphs share is printed at the first."""
    columns = [Column("id", style="bold"), *_JUDGED, Column("fidelity", expendable=1), Column("", fold=True)]
    cells: list[tuple[str, ...]] = []
    first = dict[str, str]()
    for row in triaged.graphs:
        text = one_line(row.reason + (f"; also {', '.join(row.also)}" if row.also else ""), 120)
        alike = first.setdefault(text, row.id)
        text = text if alike == row.id or len(text) < len(f"as {alike}") else f"as {alike}"
        cells.append((row.id, *_judged(row, ran=bool(row.seconds)), row.fidelity, text))
    filled = [at for at in range(len(columns)) if any(row[at] for row in cells)]
    return render([columns[at] for at in filled], [[row[at] for at in filled] for row in cells], terminal=on_terminal())


def _program(command: list[str], as_json: bool, output: str | None, calls: str | None, options: dict[str, Any]) -> int:
    from pathlib import Path

    from ..program.run import triage_program

    given = [f"--{name}" for name in ("seed", "device") if options[name]]
    given += [word for word in option_words(options["imports"]) if word.startswith("--")]
    if given:
        what = f"{given[0]} does not apply to a command"
        raise OptionsExcludeError(what, "the command runs unchanged", f"leave {given[0]} out")
    triaged = triage_program(
        command,
        calls=calls,
        all=options["go_on"],
        output=Path(output) if output else None,
        limit_s=options["limit_s"],
        max_time_s=options["max_time_s"],
        quiet=as_json,
        report=say,
    )
    if as_json:
        emit(triaged.plain(), as_json=True)
    else:
        emit("\n\n".join(part for part in (first_line(triaged.verdict), program_table(triaged)) if part), as_json=False)
        notes = [*(triaged.drift.lines if triaged.drift else []), *(f"note: {note}" for note in triaged.notes)]
        emit("\n".join(["", *notes, closing(triaged.summary, triaged.verdict)]), as_json=False)
        emit(f"What was found: {shown_path(Path(triaged.folder))}", as_json=False)
    return 130 if triaged.interrupted else triaged.verdict.exit_code


def program_table(triaged: ProgramTriage) -> str:
    """The table of a program: each rung of the call that departs, else each call that was looked at."""
    from ..program.concluding import table_rows

    of_call, of_all = ("difference", "tolerance", "where"), ("call", "line", "largest difference")
    names = ("rung" if triaged.at else "function", "verdict", *(of_call if triaged.at else of_all), "")
    columns = [Column(name, style="bold" if not at else "", fold=at == 4) for at, name in enumerate(names)]
    rows = table_rows(triaged)
    return render(columns, rows, terminal=on_terminal()) if rows else ""


def closing(summary: str, verdict: Verdict) -> str:
    """The finding, and what to do next."""
    lines = verdict.workaround or ""
    said = "\n    ".join([f"\n{around(lines)}", *lines.splitlines()]) if lines else ""
    return summary + said + "".join(f"\nNext: {command}" for command in verdict.next)


def ladder_table(triaged: Triage) -> str:
    """The rows of a ladder as a table, and below it the notes that all rows have."""
    columns, cells, common = ladder_cells(triaged)
    return "\n".join([render(columns, cells, terminal=on_terminal()), *(f"note: {note}" for note in common)])


def ladder_cells(triaged: Triage) -> tuple[list[Column], list[tuple[str, ...]], list[str]]:
    """The columns and the cells of a ladder's table, and the notes that all its rows have."""
    columns = [Column("rung", style="bold"), *_JUDGED, Column("peak", right=True, expendable=1), Column("", fold=True)]
    cells: list[tuple[str, ...]] = []
    run = [row for row in triaged.rows if row.notes]
    common = [note for note in run[0].notes if all(note in row.notes for row in run)] if len(run) > 1 else []
    for row in triaged.rows:
        peak = size_text(row.peak_bytes) if row.peak_bytes else ""
        notes = [note for note in row.notes if note not in common]
        said_of = one_line("; ".join([part for part in (said(row.verdict, row.reason), *notes) if part]), 160)
        cells.append((row.rung, *_judged(row, ran=bool(peak)), peak, said_of))
    return columns, cells, common


_JUDGED = (Column("verdict"), Column("error", right=True), Column("eager's", right=True), Column("seconds", right=True))


def _judged(row: RungResult | GraphRow, *, ran: bool) -> tuple[str, ...]:
    """The cells of a judged row."""
    return word(row.verdict), number(row.error), number(row.eager_error), f"{row.seconds:.2f}" if ran else ""


def _print_row(row: RungResult) -> None:
    if row.peak_bytes:
        say(f"{row.rung}: {word(row.verdict)}{f' ({one_line(row.reason, 100)})' if row.reason else ''}")
