"""`graphdbg minify`: shrinks a failing graph, its inputs and their shapes to the smallest case that fails the same
way."""

from __future__ import annotations

import math
import shlex
import signal
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ...dumps.atomic import free_path
from ...dumps.commands.options import json_option, seconds_option
from ...dumps.errors import BadValueError, CommandLineError, GraphdbgError, OptionsExcludeError
from ...dumps.output import emit, say
from ...dumps.wording import shown_path
from ...toolkit.commands.options import (
    WithCommand,
    command_of,
    import_option,
    rung_option,
    search_here,
    seed_option,
    trust_option,
)
from ...toolkit.isolation.imports import TRUST, run_line
from ...toolkit.recorder.options import size_of
from ...toolkit.verdicts.verdict import with_flags
from ..events import STEPS, Stepped
from ..log import Life, refuse_taken
from ..options import CHECKS, EXECUTORS, HANG_LIMIT_S, MinifyOptions
from ..search.problem import CannotJudgeError, NothingToReduceError
from ..starting import again as go_on
from ..starting import resumed
from ..steering import known_step

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph
    from ...toolkit.isolation import ForkServer
    from ..minified import Minified
    from ..report.issue import Report


def seconds_of(text: str) -> float:
    """Parses the seconds of --hangs. Its value may be left out, so the text may be the graph's name: raises UsageError
    then."""
    try:
        return float(text)
    except ValueError as error:
        fix = "name the graph before --hangs, or write --hangs=60"
        raise BadValueError(f"{text} is not a number", "--hangs takes a number of seconds", fix) from error


def checked_steps(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of --without; raises UsageError for one that is no step."""
    return tuple(known_step(name) for name in names)


@click.command(cls=WithCommand)
@click.argument("graph", metavar="RUN[/ID] | -- CMD...", required=False)
@click.option(
    "-o", "--output", "out", metavar="OUT", help="Folder for the result; default: minified-<stage> here, numbered."
)
@rung_option
@click.option(
    "--check",
    default="auto",
    show_default=True,
    metavar="CHECK",
    help=f"What counts as failing: {', '.join(CHECKS)}, or 'cmd: COMMAND {{case}}' (see above).",
)
@click.option("--match", metavar="REGEX", help="The failure's text must match this, in place of its signature.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Queries at the same time; a search asks mostly one after the other, hence 1.",
)
@seed_option
@import_option()
@trust_option
@click.option(
    "--hangs",
    type=seconds_of,
    is_flag=False,
    flag_value=HANG_LIMIT_S,
    metavar="[S]",
    help=f"It fails where it has not ended after S seconds (default {HANG_LIMIT_S:g}).",
)
@seconds_option(
    "--slower-than",
    help="It fails where compile and first run take longer, from an empty code cache, one query at a time; what "
    "is near S is measured three times, and the best counts.",
)
@click.option(
    "--memory-over",
    type=size_of,
    metavar="SIZE",
    help="It fails where compile and first run need more memory on top of what the process had: resident memory, on "
    "CUDA what torch allocates there. Like 500MB, 2G, 2e9.",
)
@seconds_option(
    "--time-limit", help="What a query may take. Default: 600 s at first, then ten times what the original took."
)
@click.option(
    "--memory-limit", type=size_of, metavar="SIZE", help="What a query may use. Default: what the machine has, over -j."
)
@seconds_option(
    "--max-time",
    help="Stop after this many seconds; one run of the original is always done, and what was found is verified.",
)
@click.option("--max-queries", type=click.IntRange(1), metavar="N", help="Stop after this many queries.")
@click.option(
    "--without",
    multiple=True,
    metavar="STEP",
    callback=checked_steps,
    help=f"Leave a step of the search out: {', '.join(STEPS)}; can be repeated. See graphdbg steer.",
)
@click.option(
    "--anyway", is_flag=True, help="Also where what fails here is not the run's program, and the run did not fail so."
)
@click.option(
    "--resume", is_flag=True, help="Go on with an unfinished OUT; nothing that its journal knows is asked again."
)
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    default="local",
    show_default=True,
    help="Where queries run: on this machine, or by -j workers on the Ray cluster of RAY_ADDRESS (without it, a local "
    "one). Needs pip install 'graphdbg[ray]', and graphdbg on every machine of the cluster.",
)
@json_option("Print JSON objects, one a line: start and done; with --full all events (docs/minify-events.md).")
def minify(
    graph: str | None, out: str | None, resume: bool, as_json: bool, imports: tuple[str, ...], **asked: Any
) -> None:
    """Shrink a failing graph to the smallest case that fails the same way.

    Each query runs in a process of its own, so a segfault or a hang is a verdict. OUT receives case/ (the result),
    repro.py, issue.md, also/ (other failures that it met, as cases), passes/ (the nearest case that does not fail)
    and journal.jsonl. Ctrl-C keeps the best case so far. After that, or after a kill, graphdbg minify --resume -o
    OUT goes on and repeats nothing; say a command of --check and modules of --import again with it.

    --check 'cmd: ./test.sh {case}' asks a command of yours, run by sh where you are; {case} is the folder of a
    candidate (graph.json, graph.py, tensors/). It alone decides: exit code 0 passes, 1 fails, 2 is ignored. Another
    code, or a signal (128 + its number), is a failure of its own kind: it counts where the original ended so too.
    126 and 127 (the command does not run) stop the search. A command that does not end is killed with all that it
    started. What it prints is in OUT/output/.

    -- CMD runs a program beside eager, as triage does. Where a call departs and no graph of it fails, a program
    that shows it with torch alone is cut (OUT/repro.py, and OUT/issue.md about it); where a graph fails, that graph
    is minified into OUT/minified. --max-time counts from the program's start; what is to blame is looked
    for in its first half alone. The program itself runs to its end, unless a rung
    of a call is still at work after S seconds.

    repro.py enters through torch.compile, else through Inductor's inner compiler, else where the graph was
    recorded. It is also run with --without-fault, where it has to end with 0.
    """
    options = MinifyOptions(imports=imports, **asked).checked()  # before a program is run, which takes minutes
    if command := command_of(click.get_current_context()):
        from ..program.command import graph_of

        if graph or resume:
            what = "both a graph and a command are given"
            raise OptionsExcludeError(what, "minify takes one of them", "leave one of them out")
        graph, out, left_s = graph_of(command, out, options.max_time, as_json=as_json)
        options = replace(options, max_time=left_s)
    directory, named = "", graph
    if resume:
        if out is None:
            why = "it goes on with the unfinished minification in that folder"
            raise CommandLineError("--resume needs -o", why, "add -o OUT")
        known, options, directory = resumed(Path(out), options, _typed())
        graph, named, options = graph or known, graph or shown_path(Path(known)), options.checked()
    if graph is None:
        why = "minify needs a RUN, RUN/ID or a case folder"
        raise CommandLineError("no graph is named", why, "list them with graphdbg ls")
    if out is not None:
        refuse_taken(Path(out), resume=resume)  # before the graphs of a run are judged, which takes minutes
    search_here(options.imports)
    began = time.monotonic()
    try:
        saved, address = _graph(graph, options)
    except NothingToReduceError as error:
        raise SystemExit(_nothing(error, as_json)) from error
    until = began + (options.max_time or math.inf)
    if options.max_time is not None:
        left_s = options.max_time - round(time.monotonic() - began)
        options = replace(options, max_time=max(left_s, 1.0))
    folder = Path(out) if out else free_path(f"minified-{saved.stage}", first=2)
    where = {"out": folder, "named": (named or graph) if resume else address, "directory": directory, "resume": resume}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was found is kept, nothing is left
    while True:
        try:
            with Life(folder, resume=resume, complain=say) as life, _beginning(saved, options) as bare:
                code = _run(saved, folder, options, where | {"life": life}, as_json, bare, until)
            break
        except CannotJudgeError as error:
            if not error.wider or where["named"] == graph:  # the user named it
                raise SystemExit(_nothing(error, as_json)) from error
            saved, where["named"] = _graph(error.wider, options)
            say(f"{error.what}: {error.why.partition(chr(10))[0]}; minifying {error.wider}, which it was made from")
    raise SystemExit(code)


def _beginning(saved: SavedGraph, options: MinifyOptions) -> AbstractContextManager[ForkServer | None]:
    """The processes that will run repro.py; they import torch while the search goes on."""
    from ..report.trying import beginning

    return nullcontext() if options.command is not None else beginning(saved, TRUST in options.imports)


def _typed() -> set[str]:
    """The parameters that stand on the command line."""
    context = click.get_current_context()
    return {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


def _graph(name: str, options: MinifyOptions) -> tuple[SavedGraph, str]:
    """The named graph and its address; for a run, its failing graph, which is reported with the reason."""
    from ...dumps.store import Run, resolve
    from ...toolkit.verdicts.ladder_words import address
    from ..failing import failing_graph

    resolved = resolve(name)
    if not isinstance(resolved, Run):
        return resolved, name
    saved, why = failing_graph(resolved, options, report=say)
    say(f"minifying {address(saved)} ({why})")
    return saved, address(saved)


def _run(
    saved: Any,
    out: Path,
    options: MinifyOptions,
    where: dict[str, Any],
    as_json: bool,
    bare: ForkServer | None,
    until: float,
) -> int:
    from ...toolkit.replaying.after_failure import unlike_the_record
    from ..minified import Interrupted
    from ..minify import minify_saved
    from ..progress.outcome import sentences, summary
    from ..progress.plain import following

    code, life = 0, where["life"]
    again = go_on(out, options)
    try:
        with following(life.log.story, as_json) as (tell, narrate):
            result = minify_saved(saved, options=options, narrate=narrate, tell=tell, **where)
    except CannotJudgeError:
        raise
    except NothingToReduceError as error:
        return _nothing(error, as_json)
    except Interrupted as interrupted:
        result, code = interrupted.minified, 130
    except KeyboardInterrupt:
        kept = "; a smaller case was found" if life.log.story.best else " before anything was found"
        if (out / "case").is_dir():
            kept = f"; a smaller case that fails is in {out / 'case'}"
        say(f"graphdbg: interrupted{kept}; go on with: {again}")
        return 130
    if saved.status == "failed" and result.signature is not None:
        result.notes += [unlike] if (unlike := unlike_the_record(saved.error, result.signature.text())) else []
    report = None
    if not code:
        life.log.tell(Stepped("report", result.queries))
        try:
            report = _report(result, out, options, bare, until)
        except KeyboardInterrupt:
            code = 130
    about: dict[str, Any] = {"repro": "none", "repro_path": None, "issue": None}
    if report is not None:
        result.verdict = result.verdict.in_layer(report.verdict.layer)
        about = {"repro": report.says, "repro_path": str(report.repro) if report.repro else None}
        about |= {"issue": str(report.issue), "report_rate": report.rate}
        about |= {"without_fault": report.without, "repro_told": report.sentence}
    shows = about["repro"] == "shows" or (report is not None and report.unsure)
    case = shlex.join(["graphdbg", "replay", str(out / "case"), "--rung", options.rung])
    tried = run_line(about["repro_path"], options.imports) if shows else with_flags(case, options.imports)
    reported = shlex.join(["graphdbg", "report", str(out)])
    blamed = result.verdict.fault == "compiler" and options.command is None
    why = shlex.join(["graphdbg", "bisect", str(out)]) if blamed else ""
    more = again if result.stopped else ""
    after = (again, reported) if code else (tried, more, why, reported if shows else "")
    result.verdict = result.verdict.then(*after)
    done = summary(result, about)
    life.log.write(done)
    ended = code or (1 if report is None else report.exit_code)
    if as_json:
        emit(done, as_json=True)
        return ended
    lines = sentences(done)
    if code:
        lines.append(f"interrupted; the best case so far is kept. Go on with: {again}")
        lines.append(f"or write a repro of it with: {reported}")
    else:
        first, *rest = result.verdict.next
        lines.append(f"try it: {tried}" if shows else f"it fails, and no repro shows it; the case does: {first}")
        lines += [f"next: {command}" for command in rest]
    for line in lines:
        say(line)
    emit(str(result.path), as_json=False)
    return ended


def _nothing(error: NothingToReduceError, as_json: bool) -> int:
    """Reports that there is no failure to reduce; returns the exit code."""
    if as_json:
        reason = {"reason": error.verdict.reason or str(error), "code": error.code}
        emit({"event": "done", "repro": "none", **error.verdict.flat(), **reason}, as_json=True)
    say(f"graphdbg: {error.said}")
    return error.exit_code


def _report(
    result: Minified, out: Path, options: MinifyOptions, bare: ForkServer | None, until: float
) -> Report | None:
    """Writes repro.py and issue.md beside the case; where that fails, prints why and returns None."""
    from ...dumps.store import load_graph
    from ..report.bundle import emit_report, write_report

    assert result.path is not None and result.signature is not None
    if options.command is not None:
        shown, times = result.verified
        return write_report(load_graph(result.path), out, options.command, result.signature, shown=shown, times=times)
    about: dict[str, Any] = {"signature": result.signature, "rung": options.rung, "imports": options.imports}
    try:
        case, original = load_graph(result.path), result.original[0]
        return emit_report(case, out, **about, original=original, bare=bare, trusted=True, until=until)
    except GraphdbgError as error:
        say(f"no report was written: {error.said}")
        return None
