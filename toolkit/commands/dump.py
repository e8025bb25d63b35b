"""graphdbg dump: runs a command and records every graph that its compiler stack builds.

For example: `graphdbg dump -o myrun --inputs first -- train.py --steps 3`.
"""

from __future__ import annotations

import difflib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...dumps import held, why
from ...dumps.atomic import free_path, write_file
from ...dumps.commands.options import seconds_option
from ...dumps.errors import CommandLineError, GraphdbgError, UsageError, said
from ...dumps.graph_folder import RUN_FILE, encode
from ...dumps.output import say
from ...dumps.store import open_run
from ...dumps.worst import keep
from ...dumps.writer import RunWriter
from ..isolation import launch
from ..isolation.imports import option_words
from ..recorder import summary
from ..recorder.options import Options, check_stages, checked, parts, size_of
from ..recorder.origin import run_record
from ..recorder.watching import Watcher
from ..replaying import after_failure
from ..verdicts.verdict_words import known
from .options import import_option, trust_option

NAN_LIMIT_S = 60.0
_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command(context_settings=_PASS_ON)
@click.option(
    "-o", "--output", metavar="RUN", help="Folder to record into; it must not exist. Default: graphdbg-run-N."
)
@click.option("--inputs", default="index", metavar="POLICY", help="none, meta, index (default), first, last or all.")
@click.option(
    "--when", default="", metavar="A,B", help="nan, error or both: keep the inputs of the step that went wrong."
)
@click.option(
    "--held-limit", default="4G", show_default=True, metavar="SIZE", help="What --inputs last and --when may hold."
)
@click.option("--max-disk", default="0", metavar="SIZE", help="What the run may take, like 500M; failed graphs stay.")
@click.option("--keep", default=0, metavar="N", help="Keep the newest N compiles of each function.")
@click.option("--only", default="", metavar="REGEX", help="Record graphs that match, in 'ID function file:line'.")
@click.option("--after-step", default=0, metavar="N", help="Record what runs after the optimizer's Nth step.")
@click.option(
    "--compiled-autograd",
    is_flag=True,
    help="Record each backward() as one graph too, of code that is not compiled as well.",
)
@click.option("--stages", default="", metavar="A,B", help="Record these stages only.")
@click.option(
    "--on-failure", metavar="STEPS", help="minify, report or both: done with the failing graph when the command ended."
)
@seconds_option("--on-failure-time", help="Seconds that --on-failure may take.", default=after_failure.LIMIT_S)
@import_option("for --on-failure: ")
@trust_option
@click.option("--keep-cache", is_flag=True, help="Leave torch's compiler caches on, and say which graphs they hid.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] CMD...")
def dump(
    output: str | None,
    on_failure: str | None,
    on_failure_time: float,
    imports: tuple[str, ...],
    command: tuple[str, ...],
    **asked: Any,
) -> int:
    """Run a command and record every graph that its compiler stack builds.

    CMD is `script.py args`, `-m module args`, `python ...` or any program. Its output and exit code are its own.
    """
    steps = after_failure.steps(on_failure) if on_failure is not None else ()
    if imports and not steps:
        what = f"{option_words(imports)[0]} needs --on-failure"
        raise CommandLineError(what, "it limits what --on-failure does", "add --on-failure minify")
    _refuse_misspelled(command)
    options = recording(**asked)
    words = launch.command_line(command)
    run = _make_run(output, options, list(command))
    options.run = str(run.path.absolute())
    with _seen_file() as seen:
        options.seen = str(seen or "")
        signals: list[int] = []
        watcher = Watcher(run.path.absolute(), seen)
        code = launch.run(words, options.environment(), on_signal=signals.append, watcher=watcher)
        try:
            _print_closing(run, words, code, seen, options)
            if steps:
                after_failure.follow(run.path, steps, on_failure_time, signals, imports)
        except (GraphdbgError, OSError) as error:  # the exit code stays the command's own
            say(f"graphdbg: {said(error)}")
    return code


def _refuse_misspelled(command: tuple[str, ...]) -> None:
    """Raises click.NoSuchOption where CMD begins with an option that is not Python's `-m` or `-c`."""
    name = command[0].partition("=")[0] if command else ""
    if name.startswith("-") and name not in ("-m", "-c"):
        mine = [option for parameter in dump.params for option in parameter.opts]
        raise click.NoSuchOption(name, possibilities=difflib.get_close_matches(name, mine))


def recording(*, when: str, held_limit: str, max_disk: str, stages: str, wrapped: bool = True, **plain: Any) -> Options:
    """The recording that the command line asks for; raises UsageError."""
    read = {"held_limit": size_of(held_limit), "max_disk": size_of(max_disk), "stages": check_stages(parts(stages))}
    return checked(Options(run="", wrapped=wrapped, when=parts(when), **read, **plain))


def _print_closing(run: RunWriter, words: list[str], code: int, seen: Path | None, options: Options) -> None:
    traces = summary.read_traces(seen) if seen is not None else []
    try:
        _complete(run)
    except GraphdbgError as error:
        say(f"graphdbg: {error.said}")
    run.unite(programs=not options.max_disk)
    for line in held.keep_run(run.path, run.tensors):
        say(f"graphdbg: {line}")
    if code > 128:
        say(f"graphdbg: the command ended with code {code}: {launch.signal_text(code)}")
    lost = Counter(str(trace["lost"]) for trace in traces if "lost" in trace)
    if code <= 128 and run.path.is_dir():
        _locate_nan(run.path)
    for line in summary.lines(run.path.absolute(), errors=lost, reason=_why_empty(words, traces, options)):
        say(line)


def _locate_nan(path: Path) -> None:
    """Runs in eager the graph in which `--when nan` first saw a NaN, to say where the NaN comes from; keeps the answer
    as the graph's verdict."""
    run = open_run(path)
    places = ((event.process, event.graph) for event in why.first_found(run.processes) if event.what == "nan")
    at = next(places, None)
    row = next((row for row in run.rows if (row.process, row.local) == at), None)
    if row is None:
        return
    from ..replaying.replay import replay

    say(f"graphdbg: looking where the NaN of {row.id} comes from, {NAN_LIMIT_S:.0f} s at most")
    try:
        verdict = replay(run.graph(row.id), "eager", check="nan", outputs=False, limit_s=NAN_LIMIT_S).verdict
    except (GraphdbgError, OSError, KeyboardInterrupt) as error:  # what was recorded is reported all the same
        say(f"graphdbg: where it comes from is not known ({str(error) or 'interrupted'})")
        return
    keep(run, {row.id: known(verdict)})
    alone = "eager gives no NaN on the same inputs: only the compiled program does"
    say(f"graphdbg: {alone if verdict.verdict == 'ok' else known(verdict)[2]}")


@contextmanager
def _seen_file() -> Iterator[Path | None]:
    """A file through which the recorded processes report themselves; None where none can be made."""
    try:
        file = tempfile.NamedTemporaryFile(prefix="graphdbg-seen-")  # noqa: SIM115
    except OSError:
        yield None
        return
    with file:
        yield Path(file.name)


def _make_run(output: str | None, options: Options, command: list[str]) -> RunWriter:
    record = run_record(options, command)
    if output is not None:
        return RunWriter.create(Path(output), record, ours=True)
    while True:
        path = free_path("graphdbg-run", bare=False)
        try:
            return RunWriter.create(path, record, ours=True)
        except UsageError:
            if not path.exists():
                raise  # else another dump took the name meanwhile


def _complete(run: RunWriter) -> None:
    """Adds to run.json what only the recorded process could know: its own versions, and its settings of torch."""
    settings = summary.settings(run.path)
    if settings is not None:
        run.record.versions, run.record.config = settings
        write_file(run.path / RUN_FILE, encode(run.record))


def _why_empty(words: list[str], traces: list[dict[str, Any]], options: Options) -> str:
    disabled = next((str(trace["disabled"]) for trace in traces if trace.get("disabled")), "")
    if disabled:
        return f"{disabled} is set; unset it."
    if traces and options.compiled_autograd:
        return "torch was imported, but nothing was compiled and no backward was recorded; call loss.backward()."
    if traces:
        return "torch was imported, but nothing was compiled; wrap the model in torch.compile(model)."
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading graphdbg; unset it."
    python = launch.python_of(words)
    lacking = launch.lacks(python).split() if python is not None else []
    if "torch" in lacking:
        return f"{python} has no torch; run the command with the Python that has torch and graphdbg."
    if "graphdbg" in lacking:
        return f"{python} has no graphdbg; install it there: {python} -m pip install graphdbg."
    if "plug-in" in lacking:
        return f"{python} finds graphdbg, which is not installed there, so torch does not load it; " + (
            f"install it: {python} -m pip install graphdbg."
        )
    return "The command never imported torch."
