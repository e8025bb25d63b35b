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
"""The width of the table where it is piped."""
_RECORD = "graphdbg dump train.py"
_LEAST = 16
"""The letters that a function gets in any case."""


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
        raise OptionsExcludeError(
            f"--stages and {option} cannot be used together", f"{option} has rows of its own", "leave one out"
        )
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

    if as_json or words or explain:
        option = "--json" if as_json else "--filter" if words else "--why"
        why_not = (
            "a JSON document needs the whole run, and a followed run still grows"
            if as_json
            else "it needs the whole run"
        )
        instead = f"leave --follow out: graphdbg ls {shlex.quote(text)} {option}"
        raise OptionsExcludeError(f"--follow and {option} cannot be used together", why_not, instead)
    if Path(text).is_file():
        raise WrongKindError(
            f"cannot follow {text}", "a packed run does not grow", f"list it: graphdbg ls {shlex.quote(text)}"
        )
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
        say(f"{text} has ended: {counted(len(run.rows), 'graph')}; next: graphdbg ls {shlex.quote(text)}")


def _list_run(text: str, run: Run, words: str | None, as_json: bool, *, stages: bool) -> None:
    wanted = (words or "").lower().split()
    rows = run.rows
    compiles = [] if as_json or stages else of_rows(run)
    if wanted:
        from ..browse.listing import matches

        rows = [
            row for row in rows if matches(f"{row.id} {row.stage} {_status(row)} {row.error or ''}".lower(), wanted)
        ]
        shown = [
            compiled
            for compiled in compiles
            if matches(f"{compiled.words()} {_status(compiled.worst)}".lower(), wanted)
        ]
        counts = f"{len(shown)} of {counted(len(compiles), 'compile')}"
        say(counts if compiles else f"{len(rows)} of {counted(len(run.rows), 'graph')}")
        compiles = shown
    for sentence in run.damage:
        say(f"note: {sentence}")
    if as_json:
        ends = [ending.fixed() for ending in deaths.endings(run.processes)]
        left = dict(index.left_out(run.processes))
        emit(
            {
                "run": text,
                "graphs": [row.fixed() for row in rows],
                "processes": ends,
                "left_out": left,
                **run.inputs_json,
            },
            as_json=True,
            next=next_of(text, run),
        )
        return
    if compiles:
        emit(compile_table(compiles), as_json=False)
    elif rows and stages:
        emit(graph_table(rows), as_json=False)
    left_out = index.left_out_text(index.left_out(run.processes))
    first_errors = [_first_seen_text(text, run, compiled) for compiled in why.first_found(run.processes)]
    for line in filter(
        None, (run.of_a_trace, *deaths.lines(run.processes), *first_errors, left_out, why.hint(text, run.processes))
    ):
        say(line)
    say(_summary(text, run))


def compile_table(compiles: list[Compiled]) -> str:
    """One line per compile, and below it, indented, what failed, died or hangs."""
    width = shutil.get_terminal_size().columns if on_terminal() else _WIDTH
    columns = [
        Column("compile", style="bold"),
        Column("status", style=STATUS_STYLE),
        Column("stages"),
        Column("nodes", right=True),
        Column("seconds", right=True),
        Column("function", style="green"),
    ]
    cells = [
        [
            compiled.id,
            _status(compiled.worst),
            compiled.stages,
            "" if compiled.nodes is None else str(compiled.nodes),
            "" if compiled.seconds is None else f"{compiled.seconds:.2f}",
            "",
        ]
        for compiled in compiles
    ]
    gap = 3 if on_terminal() else 2
    taken = sum(
        max(map(len, (column.title, *texts))) + gap for column, *texts in zip(columns[:-1], *cells, strict=False)
    )
    for row, compiled in zip(cells, compiles, strict=True):
        row[-1] = compiled.function(max(_LEAST, width - taken))
    styles = ["red" if compiled.bad else "" for compiled in compiles]
    lines = render(columns, cells, terminal=on_terminal(), styles=styles).rstrip("\n").split("\n")
    head = len(lines) - len(cells)
    table_lines = lines[:head]
    for line, compiled in zip(lines[head:], compiles, strict=True):
        table_lines.append(line)
        table_lines += [f"  {cut(plain(said), width - 2, 'end')}" for said in compiled.trouble()]
    return "\n".join(table_lines)


def _list_times(text: str, run: Run, as_json: bool) -> None:
    compiles, slow = of_run(run), shlex.join(["graphdbg", "triage", text, "--symptom", "slow"])
    if as_json:
        emit(
            {"run": text, "compiles": [msgspec.to_builtins(compiled) for compiled in compiles], **run.inputs_json},
            as_json=True,
            next=[slow] if compiles else [shlex.join(["graphdbg", "ls", text, "--why"])],
        )
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
    """What `--when` saw first, and where it comes from if that is known."""
    name = next((row.id for row in run.rows if (row.process, row.local) == (first.process, first.graph)), "")
    code, _, reason = last_verdicts(run).get(name, (0, "", ""))
    return (
        f"{first.message}{f': {reason}' if code == 1 and reason else f'; where: graphdbg triage {shlex.quote(text)}'}"
    )


def graph_table(rows: list[index.ListedGraph]) -> str:
    """One line per graph."""
    return render(*graph_cells(rows), terminal=on_terminal())


def graph_cells(rows: list[index.ListedGraph]) -> tuple[list[Column], list[tuple[str, ...]]]:
    """The columns and the cells of a table with one line per graph."""
    columns = [
        Column("id", style="bold"),
        Column("stage"),
        Column("nodes", right=True),
        Column("status", style=STATUS_STYLE),
        Column("seconds", right=True),
        Column("error", style="red", fold=True),
    ]
    cells = [
        (
            row.id,
            f"{row.stage} ({one_line(row.word, 40)})" if row.word not in ("", row.stage) else row.stage,
            "" if row.nodes is None else str(row.nodes),
            _status(row),
            "" if row.seconds is None else f"{row.seconds:.2f}",
            one_line(row.error or ""),
        )
        for row in rows
    ]
    return columns, cells


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
    failed = [row for row in rows if row.status == "failed"]
    lost = [row for row in rows if row.lost]
    compiles = len({row.id.partition("/")[0] for row in rows})
    parts = [
        f"{counted(len(rows), 'graph')} in {counted(compiles, 'compile')} of {counted(len(run.processes), 'process')}"
    ]
    if failed:
        parts.append(f"{len(failed)} failed")
    if lost:
        parts.append(f"{len(lost)} in flight when the process died")
    return "; next: ".join([", ".join(parts), *next_of(text, run)])


def _list_graph(text: str, graph: SavedGraph, as_json: bool) -> None:
    row: dict[str, Any] = {
        "id": graph.id,
        "process": graph.process,
        "rank": graph.rank,
        "stage": graph.stage,
        "nodes": len(graph.table),
        "status": graph.status,
        "error": graph.error,
        "seconds": graph.seconds,
    }
    if as_json:
        name = graph.run.name if graph.run else text
        emit(
            {"run": name, "graphs": [row]} | (graph.run.inputs_json if graph.run else {}),
            as_json=True,
            next=[shlex.join(["graphdbg", "show", text])],
        )
        return
    columns = [Column(title) for title in ("id", "stage", "nodes", "status")]
    emit(render(columns, [[str(row[column.title]) for column in columns]], terminal=on_terminal()), as_json=False)
    known = next((listed for listed in graph.run.rows if listed.id == graph.id), None) if graph.run else None
    if known is not None and known.stack:
        emit(
            "\n".join([f"{_status(known)}; its stack, innermost last:", *(f"  {listed}" for listed in known.stack)]),
            as_json=False,
        )


def _list_runs(as_json: bool) -> None:
    listed: list[dict[str, Any]] = []
    for path in index.runs(Path()):
        try:
            listed.append(_run_row(path))
        except GraphdbgError as error:
            say(f"note: {error.said}")
    if as_json:
        named = [
            listed_run["run"]
            for listed_run in sorted(listed, key=lambda listed_run: listed_run["failed"], reverse=True)
        ]
        emit(
            {"runs": listed},
            as_json=True,
            next=[shlex.join(["graphdbg", "ls", listed_run]) for listed_run in named[:1]] or [_RECORD],
        )
        return
    if not listed:
        say(f"no runs here: record one with `{_RECORD}`, or name one: graphdbg ls RUN")
        return
    columns = [
        Column("run", style="bold"),
        Column("started"),
        Column("processes", right=True),
        Column("graphs", right=True),
        Column("failed", right=True, style="red"),
        Column("command"),
    ]
    cells = [
        (
            row["run"],
            _when(row["started"]),
            str(row["processes"]),
            str(row["graphs"]),
            str(row["failed"]),
            one_line(" ".join(row["command"]), 60),
        )
        for row in listed
    ]
    emit(render(columns, cells, terminal=on_terminal()), as_json=False)


def _run_row(path: Path) -> dict[str, Any]:
    run = open_run(path)
    bad = sum(row.status == "failed" or row.lost for row in run.rows)
    return {
        "run": str(path),
        "started": run.record.started,
        "processes": len(run.processes),
        "graphs": len(run.rows),
        "failed": bad,
        "command": run.record.command,
    }


def _when(started: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started)) if started else ""
    except (OverflowError, ValueError, OSError):
        return ""
