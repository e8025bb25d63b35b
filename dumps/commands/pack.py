"""`graphdbg pack`: one redacted file of a run, for somebody else to look into."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import temporary
from ..errors import WrongKindError
from ..output import emit, say
from ..store import Run, resolve
from ..tables import on_terminal
from ..wording import counted, size_text
from .options import json_option

if TYPE_CHECKING:
    from ..pack.making import Packed

LEAK_EXIT = 1
_MOST = 12


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The file to write: a zip, or a page, FILE.html; it must not exist. Default: RUN.graphdbg.zip.",
)
@click.option("--tensors", is_flag=True, help="Keep the stored tensors: weights, inputs and indices as they were.")
@click.option("--source", is_flag=True, help="Keep the lines of your source that stacks and generated code show.")
@click.option("--preview", is_flag=True, help="Say what would be packed, and which words look random; write nothing.")
@json_option()
def pack(run: str, output: str | None, tensors: bool, source: bool, preview: bool, as_json: bool) -> int:
    """Write one redacted file of a run, to send to somebody who knows compilers.

    Unzipped it is a run for ls, show, diff, replay and minify. With -o FILE.html it is one page for a browser,
    which needs no network: why each graph exists, verdicts, nodes, generated code, where the compile time went,
    ranks side by side; what would make it larger than 3 MB is cut.

    Taken out are absolute paths, user and host names, credentials (values of variables and arguments with such a
    name, known forms of tokens) and environment variables; tensors and your source lines are left out. Names of
    your modules, functions and variables, shapes, constants, statistics and the words of errors stay. The finished
    file is searched for what should be gone.
    """
    folder_of_run = _resolved(run)
    out = Path(output) if output else Path(f"{folder_of_run.name}.graphdbg.zip")
    from ..pack import making

    with temporary.folder("graphdbg-preview-") if preview else nullcontext(out.parent) as folder:
        packed = making.pack(folder_of_run, folder / out.name, tensors=tensors, source=source)
        packed.file = out
        _warn(packed)
        if not preview:
            _say_packed(packed)
        again = ["graphdbg", "pack", run, "-o", str(out)] if preview else ["graphdbg", "ls", str(out)]
        after = [] if packed.is_page and not preview else [shlex.join(again)]
        table = making.table(packed.rows, terminal=on_terminal())
        emit(_document(packed) if as_json else table, as_json=as_json, next=after)
    if not (preview or as_json):
        emit(str(out), as_json=False)
    return LEAK_EXIT if packed.leaks else 0


def _resolved(text: str) -> Path:
    """The folder of the run, even if its run.json is damaged."""
    path = Path(text)
    if (path / "run.json").is_file():
        return path.resolve() if path.name in ("", "..") else path
    target = resolve(text)
    if not isinstance(target, Run):
        fix = f"for one graph: graphdbg report {shlex.quote(text)}"
        raise WrongKindError(f"{text} is one graph", "pack takes a whole run", fix)
    return target.path


def _warn(packed: Packed) -> None:
    for sentence in packed.unreadable[:_MOST]:
        say(f"left out, because it cannot be read: {sentence}")
    if len(packed.unreadable) > _MOST:
        say(f"and {len(packed.unreadable) - _MOST} more that cannot be read; --json lists them")
    if packed.not_searched:
        names = ", ".join(packed.not_searched)
        say(f"not searched for: {names}: names of your users or machines that are ordinary words or too short")
    for leak in packed.leaks[:_MOST]:
        say(f"STILL THERE: {leak.what} {leak.text!r} in {leak.member}")
    if packed.leaks:
        traces = counted(len(packed.leaks), "trace is", "traces are")
        say(f"{traces} left in {packed.file}: look there before you send it")
    for word in packed.random[:_MOST]:
        say(f"looks random, make sure that it is not a credential: {word}")


_HOLDS = (
    "It holds names of your modules, functions and variables, shapes, constants, statistics of tensors, generated "
    "code, and what errors say"
)


def _say_packed(packed: Packed) -> None:
    graphs, size = counted(packed.graphs, "graph"), size_text(packed.file.stat().st_size)
    if packed.is_page:
        say(f"{packed.file}: {size}, {graphs}; open it with a browser. {_HOLDS}: read it before you send it.")
        return
    left = next(row[3] for row in packed.rows if row[0] == "tensors")
    if left:
        kept_out = counted(left, "tensor is", "tensors are")
        command = shlex.join(["graphdbg", "replay", str(packed.file)])
        say(f"{kept_out} left out: whether a failure still shows, `{command}` tells")
    if packed.own:
        say(f"graphs cannot be run from it with {', '.join(packed.own)}: --source keeps the source of these")
    say(f"{packed.file}: {size}, {graphs}. {_HOLDS}:")
    say("unzip it and read the journals and graph.py files before you send it.")


def _document(packed: Packed) -> dict[str, object]:
    plain = {name: getattr(packed, name) for name in ("graphs", "unreadable", "not_searched", "random")}
    rows = [dict(zip(("what", "kept", "changed", "left_out"), row, strict=True)) for row in packed.rows]
    leaks = [{"member": leak.member, "what": leak.what, "text": leak.text} for leak in packed.leaks]
    return {"file": str(packed.file), **plain, "rows": rows, "leaks": leaks}
