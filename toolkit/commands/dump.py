"""graphdbg dump: runs a command and records every graph that its compiler stack builds.

>>> graphdbg dump -o myrun --inputs first -- train.py --steps 3
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import click

from ...dumps.atomic import write_file
from ...dumps.errors import UsageError
from ...dumps.output import say
from ...dumps.schema import FORMAT, RunRecord
from ...dumps.writer import RUN_FILE, RunWriter, encode
from .. import after_failure
from ..recorder import launch, summary
from ..recorder.options import Options, check_stages, checked
from ..recorder.origin import environment, versions

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command(context_settings=_PASS_ON)
@click.option("-o", "--output", metavar="RUN", help="Folder to record into; it must not exist. Default: graphdbg-run-N.")
@click.option("--inputs", default="index", metavar="POLICY", help="none, meta, index (default), first or all.")
@click.option("--when", metavar="WHEN", help="Not built yet.")
@click.option("--stages", default="", metavar="A,B", help="Record these stages only.")
@click.option("--on-failure", metavar="STEPS", help="minify, report or both: done with the failing graph when the command ended.")
@click.option(
    "--on-failure-time", type=click.FloatRange(min=0, min_open=True), default=after_failure.LIMIT_S, show_default=True,
    metavar="S", help="Seconds that --on-failure may take.",
)  # fmt: skip
@click.option("--keep-cache", is_flag=True, help="Leave torch's compiler caches on, and say which graphs they hid.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] CMD...")
def dump(
    output: str | None, inputs: str, when: str | None, stages: str, on_failure: str | None, on_failure_time: float,
    keep_cache: bool, command: tuple[str, ...],
) -> int:  # fmt: skip
    """Run a command and record every graph that its compiler stack builds.

    CMD is `script.py args`, `-m module args`, `python ...` or any program. Its output and exit code are its own.
    """
    if when is not None:
        raise UsageError("--when is not built yet", "", "leave --when out")
    steps = after_failure.steps(on_failure) if on_failure is not None else ()
    asked = [stage.strip() for stage in stages.split(",") if stage.strip()]
    options = checked(Options(run="", inputs=inputs, stages=check_stages(asked), keep_cache=keep_cache, wrapped=True))
    words = launch.command_line(command)
    run = _make_run(output, options, list(command))
    options.run = str(run.path.absolute())
    with tempfile.NamedTemporaryFile(prefix="graphdbg-seen-") as seen:
        options.seen = seen.name
        signals: list[int] = []
        code = launch.run(words, options.environment(), told=signals.append)
        reason = _why_empty(words, Path(seen.name))
    _complete(run)
    if code > 128:
        say(f"graphdbg: the command ended with code {code}: {launch.signal_text(code)}")
    for line in summary.lines(run.path.absolute(), reason=reason):
        say(line)
    if steps:
        after_failure.follow(run.path, steps, on_failure_time, signals)
    return code


def _make_run(output: str | None, options: Options, command: list[str]) -> RunWriter:
    record = RunRecord(
        format=FORMAT, command=command, versions=versions(), environment=environment(), started=time.time(),
        world_size=int(os.environ.get("WORLD_SIZE") or 1), inputs_policy=options.inputs, stages=options.stages,
    )  # fmt: skip
    if output is not None:
        return RunWriter.create(Path(output), record)
    number = 1
    while True:
        path = Path(f"graphdbg-run-{number}")
        number += 1
        if path.exists():
            continue
        try:
            return RunWriter.create(path, record)
        except UsageError:  # another dump took the name meanwhile
            continue


def _complete(run: RunWriter) -> None:
    """Adds to run.json what only the recorded process could know: its own versions, and its settings of torch."""
    told = summary.settings(run.path)
    if told is not None:
        run.record.versions, run.record.config = told
        write_file(run.path / RUN_FILE, encode(run.record))


def _why_empty(words: list[str], seen: Path) -> str:
    traces = summary.read_traces(seen)
    disabled = next((str(trace["disabled"]) for trace in traces if trace.get("disabled")), "")
    if disabled:
        return f"{disabled} is set; unset it."
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
    return "The command never imported torch."
