"""`graphdbg kernel`: one generated kernel alone on a GPU, with saved arguments: compared, timed, placed under the
roofline; with --check each access of the kernels, on the CPU."""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import click

from ...dumps import temporary
from ...dumps.commands.options import json_option
from ...dumps.errors import (
    BadValueError,
    DeviceMissingError,
    ExistsAlreadyError,
    NeedsTrustError,
    OptionsExcludeError,
    UsageError,
    WrongKindError,
)
from ...dumps.output import emit, say
from ...dumps.store import resolve_graph
from ...dumps.wording import counted
from ..isolation import ForkServer, opened
from ..isolation.imports import with_trust
from ..launching import asking
from ..launching.launches import Launch, Launches, is_launches, open_launches, unknown
from ..live.how import How
from ..triton.needs import require_interpreter
from ..triton.targets import target_of
from .options import import_option, limit_option, seed_option


class KernelRequest(NamedTuple):
    """What to do with the launches. `name`: "" for the list of kernels."""

    name: str
    every: bool
    check: bool
    interpret: bool
    save: Path | None
    target: str | None
    trust: bool
    seed: int
    imports: tuple[str, ...]
    limit_s: float
    as_json: bool

    @property
    def lists(self) -> bool:
        """Whether kernels are only listed."""
        return not (self.name or self.every or self.save)

    @property
    def how(self) -> How:
        """How kernels are interpreted: seed, time limit, imports."""
        return How(self.seed, limit_s=self.limit_s, imports=self.imports)


@click.command()
@click.argument("graph", metavar="RUN/ID|DIR")
@click.argument("name", required=False, default="", metavar="[NAME[#N]]")
@click.option("--all", "every", is_flag=True, help="Every launch of every kernel.")
@click.option(
    "--check", is_flag=True, help="No GPU: hold each access of the kernels (or of NAME) against the real storage."
)
@click.option("--interpret", is_flag=True, help="No GPU: the interpreter's results against eager's.")
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="DIR", help="Write the launches to a new folder; needs no GPU."
)
@click.option(
    "--target", metavar="DEVICE", help="The GPU that kernels are written for. Default: the one here, else cuda:90."
)
@click.option(
    "--trust", is_flag=True, help="Run the sources that a folder, or a graph with kernels of a user's own, brings."
)
@seed_option
@limit_option("Seconds for the interpretation, and for each launch.")
@import_option()
@json_option()
def kernel(graph: str, imports: tuple[str, ...], trust: bool, **options: Any) -> int:
    """List a graph's Triton kernels, check them without a GPU, or run one alone on it: is its result right, and how
    fast is it?

    \b
    RUN/ID              lists the kernels: launches, grid, configuration
    RUN/ID NAME         that kernel on the GPU (NAME#2: its second launch)
    RUN/ID --check      each access of each kernel, on the CPU
    RUN/ID --save DIR   writes launches to a folder; needs no GPU
    DIR [NAME] --trust  the same from such a folder, on another machine

    The graph's kernels are interpreted on the CPU, which gives every launch its arguments and results. On the GPU a
    kernel gets the same arguments, in a process of its own, so that an illegal access ends that process alone. Its
    results are compared with the interpreter's and with eager's value of the node, its time with what the GPU can
    do at most, measured on the spot.

    With --check an interpreter runs the kernels and looks at every access: out of bounds of the real storage,
    memory that nothing wrote, two programs at one place, an index that overflowed, where a NaN or infinity first
    appears, an assertion that failed. Where results are wrong, it names the first kernel that departs from eager.
    Library calls are not checked.
    """
    asked = KernelRequest(imports=with_trust(imports, trust), trust=trust, **options)
    if asked.name and asked.every:
        what = "a kernel's name and --all cannot be used together"
        raise OptionsExcludeError(what, "--all takes every kernel", "leave one out")
    if asked.check:
        return _check(graph, asked)
    return _of_folder(Path(graph), asked) if is_launches(Path(graph)) else _of_graph(graph, asked)


def _check(graph: str, asked: KernelRequest) -> int:
    from ..kernel_checks.showing import shown

    if asked.interpret or asked.save is not None or asked.target is not None:
        why = "it interprets the kernels on the CPU and keeps nothing"
        raise OptionsExcludeError("--check cannot be used with --interpret, --save or --target", why, "leave them out")
    if is_launches(Path(graph)):
        raise WrongKindError("--check needs the graph", f"{graph} is a folder of launches", "name the graph: RUN/ID")
    if "#" in asked.name:
        why, fix = f"{asked.name} is a single launch", f"give {asked.name.split('#')[0]}"
        raise OptionsExcludeError("--check looks at every launch of a kernel", why, fix)
    return shown(resolve_graph(graph), asked.name or None, asked.how, as_json=asked.as_json)


def _of_folder(folder: Path, asked: KernelRequest) -> int:
    if asked.save is not None or asked.target is not None:
        raise WrongKindError(
            f"--save and --target need a graph, not {folder}",
            "it holds launches that are saved already, for one target",
            "name a graph: RUN/ID",
        )
    known = open_launches(folder)
    if asked.lists:
        return _listed(known, asked)
    chosen = known.named(asked.name) if asked.name else known.launches
    if not asked.interpret and not asked.trust:
        raise NeedsTrustError(
            f"running the kernels of {folder} runs source code in it",
            "the code may come from somebody else",
            f"read it, then run graphdbg kernel {folder} {asked.name or '--all'} --trust",
        )
    with _children() as children:
        hardware = {} if asked.interpret else _require_gpu(children, known.index.target)
        return _judge(known, chosen, asked, children, hardware)


def _children() -> AbstractContextManager[ForkServer]:
    """A fork server for the tasks of `kernel`. Raises EnvironmentLackError without Triton or NumPy."""
    require_interpreter()
    return opened(None, "inductor", *asking.TASKS)


def _of_graph(graph: str, asked: KernelRequest) -> int:
    saved = resolve_graph(graph)
    if asked.save is not None and asked.save.exists():
        raise ExistsAlreadyError(f"{asked.save} exists already", "launches go to a new folder", "name another folder")
    target = target_of(asked.target).name if asked.target else None
    with _children() as children, temporary.folder("graphdbg-launches-") as scratch:
        launched = not (asked.lists or asked.interpret or asked.save)
        hardware = _require_gpu(children, target) if launched else {} if target else asking.gpu(children)
        names = [asked.name] if asked.name else None
        into, gpu_name = asked.save or scratch / "launches", target or target_of(asking.target_here(hardware)).name
        known = asking.launches_of(saved, into, gpu_name, children, names, asked.how)
        if asked.name and not known.launches:
            raise _unknown(known, asked, saved, children, Path(scratch))
        if asked.lists or (asked.save is not None and not asked.interpret):
            return _listed(known, asked)
        return _judge(known, known.launches, asked, children, hardware)


def _unknown(known: Launches, asked: KernelRequest, saved: Any, children: ForkServer, scratch: Path) -> UsageError:
    """The error that lists the kernels of the graph, known by saving the launches of all of them; removes the empty
    output folder."""
    import shutil

    if asked.save is not None:
        shutil.rmtree(asked.save)
    every = asking.launches_of(saved, scratch / "every", known.index.target, children, how=asked.how)
    return unknown(asked.name, every.launches)


def _require_gpu(children: ForkServer, target: str | None) -> dict[str, Any]:
    """The properties of the GPU here. Raises DeviceMissingError where there is none, BadValueError where it is not the
    target."""
    hardware = asking.gpu(children)
    if not hardware:
        raise DeviceMissingError(
            "there is no GPU here",
            "a kernel is run and timed on a GPU",
            "add --interpret to compare on the CPU, or --save DIR and on a GPU machine: graphdbg kernel DIR --trust",
        )
    if target is not None and target != asking.target_here(hardware):
        raise BadValueError(
            f"kernels for {target} cannot run here",
            f"{hardware['name']} is a {asking.target_here(hardware)}",
            f"save them again with --target {asking.target_here(hardware)}",
        )
    return hardware


def _listed(known: Launches, asked: KernelRequest) -> int:
    saved = str(asked.save) if asked.save is not None else None
    there = [shlex.join(["graphdbg", "kernel", saved, "--all", "--trust"])] if saved and known.launches else []
    if asked.as_json:
        emit({**asking.listed(known), "folder": saved}, as_json=True, next=there)
        return 0
    emit(asking.table(known.launches) if known.launches else "no kernel was launched", as_json=False)
    for note in known.index.notes:
        say(f"note: {note}")
    if there:
        launches = counted(len(known.launches), "launch is", "launches are")
        say(f"{launches} in {saved}; on a GPU machine: {there[0]}")
    return 0


def _judge(
    known: Launches, chosen: list[Launch], asked: KernelRequest, children: ForkServer, hardware: dict[str, Any]
) -> int:
    if not chosen and not asked.as_json:
        say("no Triton kernel was launched: there is none in this graph")
    limits = None
    judged: list[asking.JudgedLaunch] = []
    if asked.interpret:
        judged = asking.interpreted(known, chosen, children, asked.limit_s)
    else:
        measured = asking.ceilings(children)
        if isinstance(measured, str):
            say(f"note: the ceilings could not be measured, so nothing is timed: {measured}")
        else:
            limits = measured
    for place, launch in enumerate(chosen):
        if not asked.interpret:
            judged.append(asking.alone(known, launch, children, limits, asked.limit_s))
        if not asked.as_json:
            emit(("\n" if place else "") + asking.report(judged[place], limits), as_json=False)
    if asked.as_json:
        emit(asking.document(known, judged, limits, hardware.get("name", "interpreter")), as_json=True)
    else:
        for note in known.index.notes:
            say(f"note: {note}")
        if len(judged) > 1:
            bad = [judged_launch for judged_launch in judged if not judged_launch.ok]
            named = f": {', '.join(judged_launch.kernel for judged_launch in bad[:8])}" if bad else ""
            say(f"{counted(len(judged), 'launch')}, {len(bad)} not right{named}")
    return 0 if all(judged_launch.ok for judged_launch in judged) else 1
