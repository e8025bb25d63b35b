"""`graphdbg ls`: the compiles or the graphs of a run from its journals, or the runs of this folder. Opens no
graph.json."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from .. import deaths, index, why
from ..errors import CommandLineError, GraphdbgError, OptionsExcludeError, UnreadableError, WrongKindError
from ..journal import IN_FLIGHT
from ..output import emit, say
from ..store import Run, SavedGraph, open_run, resolve
from ..tables import Column, cut, on_terminal, one_line, plain, render
from ..why.show import Compiled, next_of, of_rows, show
from ..why.times import of_run, table
from ..wording import counted
from ..worst import last_verdicts, why_none
from .options import json_option

STATUS_STYLE = "cyan"
_WIDTH = 80
"""The width of the table when piped."""
_RECORD = "graphdbg dump train.py"
_LEAST = 16
"""The least letters that a function gets."""


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--why", "explain", is_flag=True, help="Why each graph exists: graph breaks, failed guards, dynamic sizes."
)
@click.option(
    "--time", "times", is_flag=True, help="Where the time went: each compile by phase, cause, cache and breaks."
)
@click.option("--stages", is_flag=True, help="A row for each graph: what every stage of a compile made.")
@click.option(
    "--filter",
    "words",
    metavar="TEXT",
    help="Only rows with these words in id, function, file, stages, status, error; -word hides.",
)
@click.option(
    "--follow", is_flag=True, help="Print a line whenever a graph gets on, until RUN ends; it may not be there yet."
)
@json_option()
def ls(
    run: str | None, explain: bool, times: bool, stages: bool, words: str | None, follow: bool, as_json: bool
) -> None:
    """List the compiles of a run, one row each, or without RUN the runs in this folder.

    A row stands for all graphs of one compile: the worst STATUS of them, the STAGES that it came to, the NODES of
    its first graph, the SECONDS of compiling, the FUNCTION with its line. What failed or died stands below, by the
    name that commands take. --stages, and --json, have a row for each graph.

    STATUS is the last thing the journal knows of a graph: captured, compiling, compiled, failed, running, ran,
    skipped. A graph that was compiling or running when its process died says so. A process that did not end well
    has a line of its own: killed, failed, or gone without a word.
    """
    if run is None:
        if explain or times or follow or words or stages:
            given = {"--why": explain, "--time": times, "--follow": follow, "--filter": words, "--stages": stages}
            option = next(name for name, value in given.items() if value)
            raise CommandLineError(f"{option} needs a run", "", f"name one: graphdbg ls RUN {option}")
        _list_runs(as_json)
        return
    if stages and (explain or times or follow):
        option = "--why" if explain else "--time" if times else "--follow"
        what = f"--stages and {option} cannot be used together"
        raise OptionsExcludeError(what, f"{option} has rows of its own", "leave one out")
    if follow:
        _follow(run, words, explain=explain, as_json=as_json)
        return
    target = resolve(run)
    if times and isinstance(target, Run):
        _list_times(run, target, as_json)
    elif explain:
        show(run, target, as_json)
    elif isinstance(target, SavedGraph):
        _list_graph(run, target, as_json)
    else:
        _list_run(run, target, words, as_json, stages=stages)


def _follow(text: str, words: str | None, *, explain: bool, as_json: bool) -> None:
    from ..browse.listing import Following, lines_until_end

    listing = f"graphdbg ls {shlex.quote(text)}"
    if as_json or words or explain:
        option, why_not = "--filter" if words else "--why", "it needs the whole run"
        if as_json:
            option, why_not = "--json", "a JSON document needs the whole run, and a followed run still grows"
        instead = f"leave --follow out: {listing} {option}"
        raise OptionsExcludeError(f"--follow and {option} cannot be used together", why_not, instead)
    if Path(text).is_file():
        raise WrongKindError(f"cannot follow {text}", "a packed run does not grow", f"list it: {listing}")
    run = Following(Path(text))
    try:
        for line in lines_until_end(run, time.sleep):
            emit(line, as_json=False) if run.state != "waiting" else say(line)
    except KeyboardInterrupt:
        say("no longer followed; the run goes on")
    if run.state == "unreadable":
        raise UnreadableError(f"cannot follow {text}", run.trouble)
    if run.state == "vanished":
        raise UnreadableError(f"cannot follow {text}", "the folder is gone")
    if run.state == "ended":
        say(f"{text} has ended: {counted(len(run.rows), 'graph')}; next: {listing}")


def _list_run(text: str, run: Run, words: str | None, as_json: bool, *, stages: bool) -> None:
    wanted = (words or "").lower().split()
    rows = run.rows
    compiles = [] if as_json or stages else of_rows(run)
    if wanted:
        from ..browse.listing import matches

        texts = [f"{row.id} {row.stage} {_status(row)} {row.error or ''}".lower() for row in rows]
        rows = [row for row, said in zip(rows, texts, strict=True) if matches(said, wanted)]
        texts = [f"{compiled.words()} {_status(compiled.worst)}".lower() for compiled in compiles]
        shown = [compiled for compiled, said in zip(compiles, texts, strict=True) if matches(said, wanted)]
        counts = f"{len(shown)} of {counted(len(compiles), 'compile')}"
        say(counts if compiles else f"{len(rows)} of {counted(len(run.rows), 'graph')}")
        compiles = shown
    for sentence in run.damage:
        say(f"note: {sentence}")
    if as_json:
        ends, left = [end.fixed() for end in deaths.endings(run.processes)], dict(index.left_out(run.processes))
        facts = {"run": text, "graphs": [row.fixed() for row in rows], "processes": ends, "left_out": left}
        emit(facts | run.inputs_json, as_json=True, next=next_of(text, run))
        return
    if compiles:
        emit(compile_table(compiles), as_json=False)
    elif rows and stages:
        emit(render(*graph_cells(rows), terminal=on_terminal()), as_json=False)
    left_out = index.left_out_text(index.left_out(run.processes))
    first_errors = [_first_seen_text(text, run, compiled) for compiled in why.first_found(run.processes)]
    lines = [run.of_a_trace, *deaths.lines(run.processes), *first_errors, left_out, why.hint(text, run.processes)]
    for line in filter(None, lines):
        say(line)
    say(_summary(text, run))


def compile_table(compiles: list[Compiled]) -> str:
    """One line per compile, and below it, indented, its graphs that failed, died or hang."""
    width = shutil.get_terminal_size().columns if on_terminal() else _WIDTH
    columns = [Column("compile", style="bold"), Column("status", style=STATUS_STYLE), Column("stages")]
    columns += [Column("nodes", right=True), Column("seconds", right=True)]
    cells = [
        (row.id, _status(row.worst), row.stages, _number(row.nodes), _number(row.seconds, ".2f")) for row in compiles
    ]
    gap = 3 if on_terminal() else 2
    taken = sum(max(map(len, (column.title, *texts))) + gap for column, *texts in zip(columns, *cells, strict=True))
    functions = [compiled.function(max(_LEAST, width - taken)) for compiled in compiles]
    rows = [(*row, function) for row, function in zip(cells, functions, strict=True)]
    styles = ["red" if compiled.bad else "" for compiled in compiles]
    columns.append(Column("function", style="green"))
    lines = render(columns, rows, terminal=on_terminal(), styles=styles).rstrip("\n").split("\n")
    head = len(lines) - len(cells)
    table_lines = lines[:head]
    for line, compiled in zip(lines[head:], compiles, strict=True):
        table_lines.append(line)
        table_lines += [f"  {cut(plain(said), width - 2, 'end')}" for said in compiled.trouble()]
    return "\n".join(table_lines)


def _number(value: float | None, form: str = "") -> str:
    return "" if value is None else f"{value:{form}}"


def _list_times(text: str, run: Run, as_json: bool) -> None:
    compiles, slow = of_run(run), shlex.join(["graphdbg", "triage", text, "--symptom", "slow"])
    if as_json:
        after = slow if compiles else shlex.join(["graphdbg", "ls", text, "--why"])
        emit({"run": text, "compiles": msgspec.to_builtins(compiles), **run.inputs_json}, as_json=True, next=[after])
        return
    if not compiles:
        say(f"no compile of {text} gave a graph; why: graphdbg ls {shlex.quote(text)} --why")
        return
    emit(table(compiles), as_json=False)
    total = sum(compiled.compile_s for compiled in compiles)
    say(f"{total:.1f} s in {counted(len(compiles), 'compile')} that gave a graph, by the clock of the recorded run")
    if not any(compiled.run_s for compiled in compiles):
        say(f"seconds of a run beside eager's: {slow}")


def _first_seen_text(text: str, run: Run, first: why.FirstSeen) -> str:
    """What `--when` saw first, and its cause if known."""
    name = next((row.id for row in run.rows if (row.process, row.local) == (first.process, first.graph)), "")
    code, _, reason = last_verdicts(run).get(name, (0, "", ""))
    known = code == 1 and reason
    return f"{first.message}: {reason}" if known else f"{first.message}; where: graphdbg triage {shlex.quote(text)}"


def graph_cells(rows: list[index.ListedGraph]) -> tuple[list[Column], list[tuple[str, ...]]]:
    """The columns and the cells of a table with one line per graph."""
    columns = [Column("id", style="bold"), Column("stage"), Column("nodes", right=True)]
    columns += [Column("status", style=STATUS_STYLE), Column("seconds", right=True)]
    cells: list[tuple[str, ...]] = []
    for row in rows:
        stage = f"{row.stage} ({one_line(row.word, 40)})" if row.word not in ("", row.stage) else row.stage
        numbers = _number(row.nodes), _status(row), _number(row.seconds, ".2f")
        cells.append((row.id, stage, *numbers, one_line(row.error or "")))
    return [*columns, Column("error", style="red", fold=True)], cells


def _status(row: index.ListedGraph) -> str:
    at = f" in {row.at}" if row.at else ""
    if row.lost:
        return f"{row.status}{at}, {'died' if row.died else 'ended'}"
    if row.status in IN_FLIGHT and row.since:
        return f"{row.status} for {max(0.0, time.time() - row.since):.0f} s{at}"
    return row.status


def _summary(text: str, run: Run) -> str:
    rows = run.rows
    if not rows:
        return f"{text} holds no graphs: {why_none(run.processes)}"
    failed, lost = sum(row.status == "failed" for row in rows), sum(row.lost for row in rows)
    compiles = counted(len({row.id.partition("/")[0] for row in rows}), "compile")
    parts = [f"{counted(len(rows), 'graph')} in {compiles} of {counted(len(run.processes), 'process')}"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{lost} in flight when the process died"] if lost else []
    return "; next: ".join([", ".join(parts), *next_of(text, run)])


def _list_graph(text: str, graph: SavedGraph, as_json: bool) -> None:
    names = ("id", "process", "rank", "stage", "nodes", "status", "error", "seconds")
    row = {name: len(graph.table) if name == "nodes" else getattr(graph, name) for name in names}
    run = graph.run
    if as_json:
        facts = {"run": run.name if run else text, "graphs": [row]} | (run.inputs_json if run else {})
        emit(facts, as_json=True, next=[shlex.join(["graphdbg", "show", text])])
        return
    columns = [Column(title) for title in ("id", "stage", "nodes", "status")]
    emit(render(columns, [[str(row[column.title]) for column in columns]], terminal=on_terminal()), as_json=False)
    known = next((listed for listed in run.rows if listed.id == graph.id), None) if run else None
    if known is not None and known.stack:
        lines = [f"{_status(known)}; its stack, innermost last:", *(f"  {line}" for line in known.stack)]
        emit("\n".join(lines), as_json=False)


def _list_runs(as_json: bool) -> None:
    listed: list[dict[str, Any]] = []
    for path in index.runs(Path()):
        try:
            listed.append(_run_row(path))
        except GraphdbgError as error:
            say(f"note: {error.said}")
    if as_json:
        worst = sorted(listed, key=lambda row: row["failed"], reverse=True)[:1]
        look = [shlex.join(["graphdbg", "ls", row["run"]]) for row in worst]
        emit({"runs": listed}, as_json=True, next=look or [_RECORD])
        return
    if not listed:
        say(f"no runs here: record one with `{_RECORD}`, or name one: graphdbg ls RUN")
        return
    columns = [Column("run", style="bold"), Column("started"), Column("processes", right=True)]
    columns += [Column("graphs", right=True), Column("failed", right=True, style="red"), Column("command")]
    cells = [
        {**row, "started": _when(row["started"]), "command": one_line(" ".join(row["command"]), 60)} for row in listed
    ]
    emit(render(columns, [[*map(str, row.values())] for row in cells], terminal=on_terminal()), as_json=False)


def _run_row(path: Path) -> dict[str, Any]:
    run = open_run(path)
    bad, record = sum(row.status == "failed" or row.lost for row in run.rows), run.record
    counts = {"processes": len(run.processes), "graphs": len(run.rows), "failed": bad}
    return {"run": str(path), "started": record.started, **counts, "command": record.command}


def _when(started: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started)) if started else ""
    except (OverflowError, ValueError, OSError):
        return ""
