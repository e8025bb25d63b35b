"""What runs graphs: the fork server, a compile of three nodes in a child of it, and a picture that is really drawn.

Each has a time limit, and its end is reported.

For example: `isolation().found` gives `'a forked child answered in 10 ms'`.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import time
from typing import TYPE_CHECKING, Any

from .finding import HealthCheck, one_line, row
from .machine import NEEDS_INDUCTOR, WITHOUT_INDUCTOR, compiler_name

if TYPE_CHECKING:
    from ..isolation import Answer

COMPILE_LIMIT_S = 120.0
START_LIMIT_S = 400.0
"""The first start on a machine compiles the toolchain probes, for which the server itself has 300 s."""
DRAW_LIMIT_S = 20.0


@row("isolation", essential=True)
def isolation() -> HealthCheck:
    """Checks that a child of a bare fork server answers."""
    from ...dumps.errors import GraphdbgError
    from ..isolation import ask, fork_server

    fix = "graphdbg isolates each replay in a forked child; it needs Linux or macOS, and room for one more process"
    if not hasattr(os, "fork"):
        return HealthCheck("isolation", False, True, f"no fork on {platform.system()}", fix)
    try:
        with fork_server("nothing", ()) as server:
            answer = ask("builtins:dict", {"alive": True}, 30, server=server).answer(60)
    except (OSError, TimeoutError, GraphdbgError) as error:
        return HealthCheck("isolation", False, True, one_line(error), fix)
    ok = answer.status == "done" and answer.value == {"alive": True}
    seen = f"a forked child answered in {answer.seconds * 1000:.0f} ms" if ok else _trouble(answer)
    return HealthCheck("isolation", ok, True, seen, fix)


@row("wall", essential=False)
def wall() -> HealthCheck:
    """Checks the mechanisms that keep the code of other people's dumps from doing harm."""
    from ...dumps.errors import GraphdbgError
    from ..isolation import fork_server
    from ..isolation.wall import PARTS

    fix = (
        "Linux 6.12 with Landlock closes all, and bubblewrap much where namespaces are refused; or open only "
        "what you trust"
    )
    lost = ("nothing; what others recorded is judged all the same", "every command")
    try:
        with fork_server("nothing", (), wall=PARTS) as server:
            built_of, is_open = server.wall()
    except (OSError, GraphdbgError) as error:
        return HealthCheck("wall", False, False, one_line(error), fix, *lost)
    seen = f"built of {', '.join(built_of)}" if built_of else "there is none"
    could = ", ".join([*is_open, "read your files"])
    return HealthCheck(
        "wall", not is_open, False, f"{seen}; code that breaks out of what others recorded could {could}", fix, *lost
    )


@row("compile", essential=False)
def compiling() -> HealthCheck:
    """Compiles three nodes with Inductor in a forked child, for the CPU and a GPU where there is one, and compares with
    eager."""
    import torch

    from ..isolation import ask, fork_server

    devices = ["cpu"] if compiler_name() is not None else []
    devices += ["cuda"] if torch.cuda.is_available() else []
    lost = ("see the rows of torch, the C++ compiler and triton", NEEDS_INDUCTOR, WITHOUT_INDUCTOR)
    if not devices:
        return HealthCheck("compile", False, False, "not tried: there is no C++ compiler, see its row")
    began = time.monotonic()
    task = f"{__name__}:three_nodes"
    with fork_server(preload=(__name__,), threads=1) as server:
        waiting = {device: ask(task, {"device": device}, COMPILE_LIMIT_S, server=server) for device in devices}
        try:
            answers = {device: job.answer(START_LIMIT_S) for device, job in waiting.items()}
        except TimeoutError:
            return HealthCheck(
                "compile", False, False, f"no answer after {time.monotonic() - began:.0f} s, so it was ended", *lost
            )
        notes = server.notes
    said = [f"{device} {_compiled(answer)}" for device, answer in answers.items()]
    ok = all(answer.status == "done" and answer.value["same"] for answer in answers.values())
    return HealthCheck("compile", ok, False, "; ".join([f"three nodes by Inductor: {', '.join(said)}", *notes]), *lost)


def three_nodes(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: three nodes under eager and under Inductor. `seconds` are those of the compile and its
    first run."""
    import torch
    from torch import fx

    graph = fx.Graph()
    x = graph.placeholder("x")
    summed = graph.call_function(
        torch.sum, (graph.call_function(torch.add, (graph.call_function(torch.relu, (x,)), 1.0)),)
    )
    graph.output(summed)
    gm = fx.GraphModule(torch.nn.Module(), graph)
    value = torch.linspace(-1.0, 1.0, 64, device=payload["device"])
    began = time.monotonic()
    compiled = torch.compile(gm, fullgraph=True)(value)
    seconds = time.monotonic() - began
    return {"same": torch.allclose(compiled, gm(value)), "seconds": seconds}


def _compiled(answer: Answer) -> str:
    if answer.status != "done":
        return _trouble(answer)
    return f"in {answer.value['seconds']:.1f} s" + (
        ", as eager" if answer.value["same"] else ", and the result is not eager's"
    )


def _trouble(answer: Answer) -> str:
    """What happened to a child that did not answer, in words."""
    if answer.status == "timeout":
        return f"had not ended after {answer.seconds:.0f} s"
    if answer.error is not None and answer.status == "exception":
        return f"failed: {one_line(answer.error.type.rpartition('.')[2])}: {one_line(answer.error.message)}"
    last = [line for line in answer.output.splitlines() if line.strip()]
    words = {"signal": f"died by {answer.signal}", "memory": "ran out of memory", "lost": "lost its fork server"}
    return words.get(answer.status, answer.status) + (f": {one_line(last[-1])}" if last else "")


@row("graphviz", essential=False)
def drawing() -> HealthCheck:
    """Checks that a picture can be drawn."""
    from ...dumps.errors import GraphdbgError
    from ..drawing import render

    fix = "pip install pygraphviz, or install Graphviz"
    lost = (fix, "draw -o of svg, png and pdf", "draw -o of a .dot file and all other commands")
    try:
        _, renderer = render.rendered("digraph { a -> b }", "svg", DRAW_LIMIT_S)
    except GraphdbgError as error:
        return HealthCheck("graphviz", False, False, error.why or str(error), *lost)
    if renderer == "dot":
        return HealthCheck("graphviz", True, False, shutil.which("dot") or renderer)
    try:
        return HealthCheck("graphviz", True, False, f"that of {renderer} {importlib.metadata.version(renderer)}")
    except importlib.metadata.PackageNotFoundError:
        return HealthCheck("graphviz", True, False, f"that of {renderer}")
