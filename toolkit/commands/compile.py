"""`graphdbg compile`: a saved graph through every stage of the compile path, watched, stopped, skipped, compared and
written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...dumps.atomic import check_folder
from ...dumps.commands.options import json_option
from ...dumps.errors import CommandLineError
from ...dumps.store import resolve_graph
from .options import device_option, import_option, limit_option, trust_option


class _StagesHelp(click.Command):
    """Ends the help with the stages, which are read where they are listed."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..compile_fx.stage import STAGES

        with formatter.section("Stages"):
            formatter.write_dl([(name, stage.does) for name, stage in STAGES.items()])
        super().format_epilog(ctx, formatter)


@click.command(cls=_StagesHelp)
@click.argument("graph", metavar="RUN/ID")
@click.option("--until", metavar="STAGE", help="Stop after this stage.")
@click.option(
    "--skip",
    multiple=True,
    metavar="PASS",
    help="Leave out a pass or stage, NAME or STAGE.NAME; `list` lists them; commas; can be repeated.",
)
@click.option(
    "--diff", metavar="STAGE", help="The graph before this stage beside the graph after it; runs until there."
)
@click.option(
    "--emit",
    metavar="KINDS",
    help="Print generated code, or write it with -o: source, and of Triton kernels "
    "ttir, ttgir, llir, ptx, cubin; commas. Runs until codegen.",
)
@click.option(
    "--target",
    metavar="GPU",
    help="Compile for this GPU, which need not be here: cuda:80, cuda:90. With --emit of "
    "a kernel's form the default is the GPU of the recording, else cuda:90.",
)
@click.option(
    "--kernel", metavar="NAME", help="With --emit: this kernel alone, or those whose names have this in them."
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write graphs around each stage, code, kernels and tables to a new folder.",
)
@click.option(
    "--package",
    type=click.Path(path_type=Path),
    metavar="FILE.pt2",
    help="Compile ahead of time, from the first stage on, to a new file that torch loads by itself.",
)
@device_option
@limit_option("Seconds that the compile may take.")
@import_option()
@trust_option
@json_option("Print one JSON document, also when the compile fails.")
def compile(
    graph: str,
    until: str | None,
    skip: tuple[str, ...],
    diff: str | None,
    emit: str | None,
    target: str | None,
    kernel: str | None,
    folder: Path | None,
    package: Path | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Compile a saved graph again and show every stage: nodes in and out, time, what changed, and the kernels that
    come of it.

    The graph enters at the stage where it was recorded, in a process of its own. Nothing is run, no real inputs are
    needed, and your compile caches are neither read nor written. With --package it is compiled ahead of time, for
    torch._inductor.aoti_load_package.

    A stage can be replaced from Python: graphdbg.toolkit.compile_fx.compile_fx(gm, inputs, replace={"joint":
    mine}).
    """
    from ..compile_fx.passes import listing
    from ..compile_fx.showing import asking
    from ..compile_fx.showing.asking import Request
    from ..compile_fx.showing.showing import ShowOptions, shown

    names = [name for given in skip for name in given.split(",") if name]
    if "list" in names:
        from ...dumps.output import emit as print_data

        print_data(listing(), as_json=False)
        return 0
    kinds = [kind.strip() for kind in (emit or "").split(",") if kind.strip()]
    forms = asking.check_emit(kinds, target, device=how["device"], folder=folder)
    if kernel is not None and not kinds:
        fix = "add --emit source, or another form such as ptx"
        raise CommandLineError("--kernel needs --emit", "it chooses among the emitted kernels", fix)
    saved = resolve_graph(graph)
    if forms or target:
        target = asking.target_for(saved, target)
    if package is not None:
        beside = {"--until": until, "--skip": skip, "--diff": diff, "--emit": emit, "--target": target}
        asking.check_package(package, beside)
    asking.entry_of(saved)
    if folder is not None:
        check_folder(folder)
    if until is not None:
        asking.check_stage(saved, until, "--until")
    if diff is not None:
        asking.check_diff(saved, diff, until)
    asking.check_skip(saved, names)
    if emit and until is not None:
        asking.check_code(until, emit)
    stop = until or diff or ("codegen" if emit or target else None)
    how |= {"source": bool(emit) or folder is not None, "graphs": folder is not None, "forms": forms}
    how |= {"target": target or "", "package": str(package.absolute()) if package else ""}
    request = Request(stop, names, diff or "", **how)
    return shown(saved, request, ShowOptions(graph, folder, bool(emit), as_json, tuple(kinds), kernel or ""))
