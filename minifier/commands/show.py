"""`graphdbg show`: one graph's nodes, generated code, kernels or statistics; nodes of it as a case of their own.

Nodes and statistics come from the sidecar. This module is in this room because `--save` cuts a graph as the minifier
does; only `--save` starts a process.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ...dumps import errors, statistics, user_kernels
from ...dumps.browse import captured_backward
from ...dumps.browse.recorded import Recorded
from ...dumps.commands.options import json_option
from ...dumps.commands.show_node import show_node
from ...dumps.commands.show_rows import RowOptions, chosen_names, node_json, show_rows
from ...dumps.graph_folder import PROGRAM_FILE
from ...dumps.kernels import WHOLE
from ...dumps.names import OutputRole, inputs_of, outputs_of
from ...dumps.output import emit, say
from ...dumps.sidecar import NodeRow, Table, dims_text
from ...dumps.store import CodeFile, SavedGraph, resolve_graph
from ...dumps.tables import Column, on_terminal, one_line, painted, render, visible
from ...dumps.user_kernels import UserKernel, UserSource
from ...dumps.wording import counted, size_text
from ...toolkit.commands.options import import_option, seed_option, trust_option
from ...toolkit.verdicts.verdict import with_flags

ALL_KERNELS = "*"


@click.command()
@click.argument("graph", metavar="RUN/ID")
@click.option("--code", is_flag=True, help="The generated code; the graph as Python where none was generated.")
@click.option(
    "--kernel",
    is_flag=False,
    flag_value=ALL_KERNELS,
    metavar="[NAME]",
    help="One kernel, generated or your own Triton kernel; without NAME, which there are.",
)
@click.option("--stats", is_flag=True, help="How many nodes of which kind, and how many bytes.")
@click.option("--node", metavar="NAME", help="One node: all that is recorded of it; with --code its kernels.")
@click.option(
    "--hops", type=click.IntRange(1, 9), metavar="N", help="With --node: draw what lies so many steps around it."
)
@click.option(
    "--filter", metavar="TEXT", help="Only nodes that fit, as on the screen: op:mm shape:*,1024 users>3 -op:view."
)
@click.option(
    "--find", metavar="TEXT", help="Only nodes with this text in name, target, module, file:line or else their code."
)
@click.option("--sort", metavar="COLUMN", help="By a column; bytes:up or bytes:down says which way.")
@click.option("--columns", metavar="A,B", help="These columns; an unknown one is answered with all there are.")
@click.option("--fold", type=click.IntRange(0, 99), metavar="DEPTH", help="One row per module; 0: the outermost ones.")
@click.option("--nodes", metavar="A..B", help="Only the nodes from A to B, in graph order; or A, or A,B..C.")
@click.option("--save", metavar="CASE", help="Write the nodes of --nodes, --filter or --find as a case, a new folder.")
@seed_option
@import_option("With --save: ")
@trust_option
@json_option()
def show(
    graph: str,
    code: bool,
    kernel: str | None,
    stats: bool,
    node: str | None,
    hops: int | None,
    save: str | None,
    seed: int,
    imports: tuple[str, ...],
    as_json: bool,
    **rows: Any,
) -> None:
    """Show a graph: its nodes with dtype, shape, stride and the user's line.

    RUN/ID names a graph of a run (graphdbg ls lists them) or a case folder.

    With --save the nodes become a case, which replay, triage and minify take: what they read from other nodes is an
    input of it, with the value that eager computes from the graph's inputs; what other nodes read of them is an
    output. Nothing is overwritten.
    """
    if code + stats + (kernel is not None) > 1:
        what = "--code, --kernel and --stats cannot be used together"
        raise errors.OptionsExcludeError(what, "each is a view of its own", "leave all but one out")
    if hops is not None and node is None:
        raise errors.CommandLineError("--hops needs --node", "it counts steps from that node", "add --node NAME")
    saved = resolve_graph(graph)
    options = RowOptions(**rows)
    if options.any and (code or stats or kernel is not None or node is not None):
        why = "--nodes, --filter, --find, --sort, --columns and --fold list nodes"
        raise errors.OptionsExcludeError("two different views are asked for", why, "leave one out")
    if save is not None:
        _save(saved, options, Path(save), seed, imports, as_json)
    elif node is not None:
        if stats or kernel is not None or (code and hops is not None):
            why = "--node shows one node, the others the whole graph"
            raise errors.OptionsExcludeError("--node cannot be used with --stats or --kernel", why, "leave one out")
        show_node(saved, node, head=_head(saved), hops=hops, code=code, as_json=as_json)
    elif code:
        _show_files(graph, _code(saved), as_json)
    elif kernel is not None:
        _show_kernel(graph, saved, kernel, as_json)
    elif stats:
        counts = statistics.of(saved.table)
        plain = {**_head(saved), "stats": msgspec.to_builtins(counts)}
        emit(plain if as_json else statistics.text(counts), as_json=as_json)
    elif options.any:
        show_rows(saved, options, head=_head(saved), as_json=as_json)
    else:
        _show_nodes(saved, as_json)


def _save(
    saved: SavedGraph, options: RowOptions, out: Path, seed: int, imports: tuple[str, ...], as_json: bool
) -> None:
    if not (options.nodes or options.filter or options.find):
        raise errors.CommandLineError("--save needs to know which nodes", "", "add --nodes A..B, --filter or --find")
    from ..asking import cut

    cut_out = cut(saved, chosen_names(saved, options), out, seed=seed, imports=imports)
    if as_json:
        emit(msgspec.to_builtins(cut_out, enc_hook=str), as_json=True, next=_next(str(cut_out.case)))
        return
    parts: list[str] = []
    for origin, what in (("graph", "of the graph"), ("node", "computed by eager")):
        if names := ", ".join(name for name, of in cut_out.inputs if of == origin):
            parts.append(f"{one_line(names, 200)} ({what})")
    size = f"{counted(cut_out.kept, 'node')} of {cut_out.of}, {size_text(cut_out.input_bytes)} of inputs"
    lines = [f"{cut_out.case}: {size}", f"inputs   {'; '.join(parts) or 'none'}"]
    lines.append(f"outputs  {one_line(', '.join(cut_out.outputs), 200) or 'none'}")
    if came := cut_out.came:
        lines.append(f"note     with them {'comes' if len(came) == 1 else 'come'} {', '.join(came)}")
    lines += [f"note     {note}" for note in cut_out.notes]
    emit("\n".join([*lines, f"next     {_next(str(cut_out.case))[0]}"]), as_json=False)


def _head(saved: SavedGraph) -> dict[str, Any]:
    names = ("id", "process", "rank", "stage", "status", "error", "seconds")
    plain = {"run": saved.run.name if saved.run else None, **{name: getattr(saved, name) for name in names}}
    return {**plain, **(saved.run.inputs_json if saved.run else {}), "next": _next(saved.name)}


def _next(text: str) -> list[str]:
    return [with_flags(f"graphdbg triage {shlex.quote(text)}")]


def _show_nodes(saved: SavedGraph, as_json: bool) -> None:
    table = saved.table
    roles, outputs = _roles(saved)
    if as_json:
        nodes = [node_json(row, table) for row in table.rows()]
        for node in nodes:
            node |= {"role": roles[node["name"]]} if node["name"] in roles else {}
        origins = [{"index": row.index, "name": row.name, "kind": row.kind, "of": row.of} for row in outputs]
        more: dict[str, Any] = {"outputs": origins} if origins else {}
        if captured_backward.has(saved):
            captured_backward.extend(nodes, saved.record)
            more |= {"hooks": hooks} if (hooks := captured_backward.hooks(saved.record)) else {}
        emit({**_head(saved), "nodes": nodes, **more}, as_json=True)
        return
    say(f"{saved.id}: stage {saved.stage}, {counted(len(table), 'node')}, {saved.status}")
    if saved.run and saved.run.of_a_trace:
        say(saved.run.of_a_trace)
    if saved.error:
        say(f"error: {one_line(saved.error, 300)}")
    columns = [Column("#", right=True, style="dim"), Column("name", style="bold"), Column("target", style="cyan")]
    columns += [Column("inputs", expendable=2), Column("dtype"), Column("shape"), Column("stride", expendable=1)]
    columns += [Column("line", style="green"), Column("code", style="dim", expendable=3)]
    rows = [_cells(row, table, roles) for row in table.rows()]
    if captured_backward.has(saved):
        origins = captured_backward.origins(saved.record)
        columns.append(Column("autograd node, hook", expendable=0))
        rows = [(*cells, one_line(origins.get(cells[1], ""), 100)) for cells in rows]
        for line in captured_backward.sentences(saved.record):
            say(line)
    text = render(columns, rows, terminal=on_terminal())
    if outputs:
        columns = [Column("output", right=True, style="dim"), Column("node", style="bold"), Column("what it is")]
        cells = [(str(output.index), output.name, output.text()) for output in outputs]
        text += "\n\n" + render(columns, cells, terminal=on_terminal())
    emit(text, as_json=False)


def _roles(saved: SavedGraph) -> tuple[dict[str, str], list[OutputRole]]:
    """The roles of inputs and of outputs; both empty where graph.json cannot be read."""
    recorded = Recorded(saved)
    last = saved.table.name[-1] if len(saved.table) else ""
    try:
        if saved.stage == "compiled_autograd":
            return inputs_of(recorded), captured_backward.outputs(saved.record)
        return inputs_of(recorded), outputs_of(recorded, last)
    except errors.UnreadableError as error:
        say(f"what inputs and outputs are for is not shown: {one_line(str(error), 200)}")
        return {}, []


def _cells(row: NodeRow, table: Table, roles: dict[str, str]) -> tuple[str, ...]:
    target = row.target if row.op in ("call_function", "output") else f"{row.op} {row.target}"
    target = roles.get(row.name, target) if row.op == "placeholder" else target
    more = f" +{len(row.inputs) - 4}" if len(row.inputs) > 4 else ""
    inputs = " ".join(table.name[i] for i in row.inputs[:4]) + more
    form = row.dtype, dims_text(row.shape), dims_text(row.stride)
    return (str(row.index), row.name, target, inputs, *form, row.where, one_line(row.code, 60))


def _code(saved: SavedGraph) -> list[tuple[str, str]]:
    """Names and texts of the files to show."""
    files = saved.code_files()
    if files:
        return _texts([file for file in files if file.name == WHOLE] or files)
    try:
        program = saved.program()
    except errors.RefusedError as error:
        what = f"{saved.id} has neither generated code nor graph.py"
        raise errors.NotStoredError(what, "its compile did not reach code generation") from error
    place = f", {saved.program_path}" if saved.program_path.exists() else ""
    say(f"{saved.id} has no generated code; this is the graph itself{place}")
    return [(PROGRAM_FILE, program)]


def _texts(files: Sequence[CodeFile | UserKernel | UserSource]) -> list[tuple[str, str]]:
    return [(file.name, file.read_text()) for file in files]


def _show_kernel(text: str, saved: SavedGraph, kernel: str, as_json: bool) -> None:
    generated = saved.code_files()
    own = user_kernels.of(saved)
    files = [*([path for path in generated if path.name != WHOLE] or ([] if own else generated)), *own]
    if not files:
        raise errors.NoSuchNodeError(
            f"{saved.id} has no kernels", f"no code was generated for a graph of stage {saved.stage}"
        )
    if kernel == ALL_KERNELS:
        names = [path.name for path in files]
        extra = {"user_kernels": [path.name for path in own]} if own else {}
        lines = [path.name for path in files if path not in own] + [path.line() for path in own]
        emit({**_head(saved), "kernels": names, **extra} if as_json else "\n".join(lines), as_json=as_json)
        return
    exact = [path for path in files if kernel in (path.name, path.stem)]
    chosen = exact or [path for path in files if path.name.startswith(kernel)]
    chosen = chosen or [path for path in files if kernel in path.name]
    if len(chosen) != 1:
        listed = ", ".join(path.name for path in (chosen or files)[:12])
        what = f"{saved.id} has {'several kernels' if chosen else 'no kernel'} {kernel!r}"
        raise errors.NoSuchNodeError(what, f"there are {listed}")
    _show_files(text, _texts(chosen), as_json)


def _show_files(text: str, texts: list[tuple[str, str]], as_json: bool) -> None:
    if as_json:
        files = [{"name": name, "text": body} for name, body in texts]
        emit({"graph": text, "files": files}, as_json=True, next=_next(text))
        return
    shown = [body if len(texts) == 1 else f"# {'-' * 10} {name} {'-' * 10}\n{body.rstrip()}\n" for name, body in texts]
    emit(_coloured("\n".join(shown)) if on_terminal() else "\n".join(shown), as_json=False)


def _coloured(source: str) -> str:
    from rich.syntax import Syntax

    shown = painted(Syntax(visible(source), "python", background_color="default"), width=200)
    return "\n".join(line.rstrip() for line in shown.split("\n"))
