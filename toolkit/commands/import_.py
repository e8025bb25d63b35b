"""`graphdbg import`: graphs that other tools wrote, and an edited graph.py, as case folders; traces as runs."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

import click

from ...dumps.atomic import free_path
from ...dumps.commands.options import json_option
from ...dumps.graph_folder import GRAPH_FILE, PROGRAM_FILE
from ...dumps.output import emit, say
from ...dumps.schema import OF_A_TRACE
from ...dumps.store import resolve_graph
from ...dumps.wording import counted
from ..verdicts.verdict import with_flags
from .options import import_option


@click.command("import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="CASE|RUN",
    type=click.Path(path_type=Path),
    help="New folder. Default: the file's name with -case, of a trace graphdbg-run, numbered.",
)
@click.option(
    "--like",
    metavar="RUN/ID|CASE",
    help="FILE is the graph.py of this graph, edited. Default: the graph beside a graph.py.",
)
@click.option(
    "--trust", is_flag=True, help="Run FILE's own code, in a process of its own; a trace has none that is run."
)
@import_option()
@json_option()
def import_(
    file: Path, output: Path | None, like: str | None, trust: bool, imports: tuple[str, ...], as_json: bool
) -> None:
    """Turn a repro script of torch's own tools, an exported program, or an edited graph.py into a case; a trace
    into a run.

    FILE is a repro.py or minifier_launcher.py of torch._dynamo.config.repro_after, an fx_graph_runnable of a
    structured trace, or a .pt2 of torch.export.save. Its settings come along, and its inputs where they lie beside
    it. Every command takes the folder: graphdbg triage CASE.

    An edited graph.py becomes a case with the settings, the stage and the inputs of its graph, which stays as it
    is: graphdbg diff RUN/ID CASE shows what you changed.

    A structured trace (TORCH_TRACE), a folder of them (one of each rank), or a torch_compile_debug folder becomes a
    run of all its graphs: graphdbg ls RUN. Its text is parsed and never run. It has the layout of inputs, and no
    values.
    """
    from ..capture.importing import import_file
    from ..capture.traces.run import import_trace, imported_line, is_one

    if like is None and is_one(file):
        run = import_trace(file, output or free_path("graphdbg-run"))
        after = f"graphdbg ls {shlex.quote(run.path)}"
        if as_json:
            emit(asdict(run) | {"inputs": OF_A_TRACE}, as_json=True, next=[after])
            return
        for sentence in run.left_out:
            say(f"note: {sentence}")
        say(f"{imported_line(run)}; next: {after}")
        emit(run.path, as_json=False)
        return
    beside = file.name == PROGRAM_FILE and (file.parent / GRAPH_FILE).exists()
    saved = resolve_graph(like or str(file.parent)) if like or beside else None
    imported = import_file(file, output or free_path(f"{file.stem}-case"), trust=trust, imports=imports, like=saved)
    after = with_flags(f"graphdbg triage {shlex.quote(imported.path)}")
    if as_json:
        emit(asdict(imported), as_json=True, next=[after])
        return
    for note in imported.notes:
        say(note)
    size = f"{counted(imported.nodes, 'node')}, {counted(imported.inputs, 'input')}"
    say(f"{imported.kind}: {size}, enters at {imported.stage}; next: {after}")
    emit(imported.path, as_json=False)
