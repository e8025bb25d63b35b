"""`print_compile` prints each graph as readable code with shapes, strides and devices, under one line that says which
it is; `draw_graph_compile` draws each into a file of its own. Both return the graph untouched, boxed.

Printing: where to, and in which colours, is the caller's choice: any stream, or a file that is appended to. A stream
that is no terminal gets no colours unless asked.

Drawing: needs no `dot` on PATH. `clear_meta` is functorch's: what the compiler stack noted on the nodes (values,
modules, lines) stays out of the picture; a graph too large to be drawn node by node is drawn by module all the same. An
existing file is left alone: a second graph of one name becomes `fw.1.svg`.

>>> aot_function(lambda x: x.sin(), fw_compiler=print_compile)(torch.zeros(2))
# graphdbg x..., 1 input
class <lambda>(torch.nn.Module):
...
tensor([0., 0.])
>>> aot_function(lambda x: x.sin().cos(), fw_compiler=draw_graph_compile("fw.svg"))(torch.zeros(2))
tensor([1., 1.])
>>> Path("fw.svg").exists()
True
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO

from ...dumps.errors import CannotWriteError, EnvironmentLackError, UsageError
from ...dumps.live import encode
from ...dumps.output import say
from ...dumps.wording import counted
from ..drawing import LARGE, picture, source
from .boxed import Label, boxed_call, by_stage, label, numbered

if TYPE_CHECKING:
    from torch import fx

    from ..drawing.dot import View

Target = TextIO | str | os.PathLike[str]


@dataclass
class PrintCompile:
    """The compiler, and where it prints to: stdout as it is at that moment, unless `to` says otherwise."""

    target: Target | None = None
    graph_id: str = ""
    coloured: bool | None = None
    stage: str | None = None
    _lock: Lock = field(default_factory=Lock)

    def to(self, target: Target, *, graph_id: str = "", coloured: bool | None = None) -> PrintCompile:
        """The same compiler printing to a stream or a file; `graph_id` replaces torch's own name of the graph in the
        header."""
        return PrintCompile(target, graph_id, coloured)

    def __call__(self, fx_g: fx.GraphModule, inps: Sequence[Any]) -> Callable[..., Any]:
        """Prints the graph and returns it, boxed. Raises EnvironmentLackError when a file cannot be written."""
        name = self.graph_id or str(label(fx_g, self.stage))
        with self._lock:
            self._print(f"{header(fx_g, name)}\n{code(fx_g)}\n")
        return boxed_call(fx_g)

    def _print(self, text: str) -> None:
        if self.target is not None and not hasattr(self.target, "write"):
            path = Path(self.target)  # type: ignore[arg-type]
            try:
                with path.open("a", encoding="utf-8") as file:
                    file.write(highlighted(text) if self.coloured else text)
            except OSError as error:
                raise CannotWriteError(f"cannot print graphs to {path}", error.strerror or str(error)) from error
            return
        stream: Any = self.target or sys.stdout
        coloured = wants_colour(stream) if self.coloured is None else self.coloured
        stream.write(highlighted(text) if coloured else text)
        stream.flush()


def header(fx_g: fx.GraphModule, name: str) -> str:
    """One line: which graph, how large, and the sizes that its symbols had when it was traced."""
    inputs = [node.meta.get("val") for node in fx_g.graph.nodes if node.op == "placeholder"]
    known = [value.node for value in inputs if hasattr(value, "node") and value.node.has_hint()]
    symbols = "".join(f", {node.expr} = {node.hint}" for node in known)
    return f"# graphdbg {name}: {counted(len(fx_g.graph.nodes), 'node')}, {counted(len(inputs), 'input')}{symbols}"


def code(fx_g: fx.GraphModule) -> str:
    """The graph and its subgraphs as Python with dtype, shape, stride and device of each value, and the user's
    lines."""
    return fx_g.print_readable(print_output=False, include_stride=True, include_device=True).rstrip("\n")


def wants_colour(stream: Any) -> bool:
    """Whether a stream is a terminal whose user has not switched colours off (NO_COLOR)."""
    return bool(getattr(stream, "isatty", lambda: False)()) and not os.environ.get("NO_COLOR")


def highlighted(text: str) -> str:
    """Python code with the colour codes of a terminal; no line is wrapped or cut."""
    from rich.console import Console
    from rich.syntax import Syntax

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", no_color=False, highlight=False)
    marked = Syntax("", "python", theme="ansi_dark", background_color="default").highlight(text)
    console.print(marked, soft_wrap=True, end="")
    return out.getvalue()


print_compile = PrintCompile()
"""Prints to stdout; `print_compile.to(...)` prints elsewhere."""


def print_arguments(file: Target | None = None, graph_id: str = "", coloured: bool | None = None) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_print`; `file` is a stream or a path."""
    return by_stage(lambda stage: PrintCompile(file, graph_id, coloured, stage))


class DrawGraphCompile:
    """The compiler. `drawn` has one entry for each graph so far; where the stage is known, as of a backend, the graph's
    id is part of the file's name."""

    def __init__(self, name: str | os.PathLike[str], clear_meta: bool, stage: str | None = None) -> None:
        path = Path(name)
        self.path = path if path.suffix else path.with_name(f"{path.name}.svg")
        self.clear_meta = clear_meta
        self.stage = stage
        self.drawn: list[picture.Drawn] = []
        picture.refuse_without_renderer(picture.format_of(self.path))

    def __call__(self, fx_g: fx.GraphModule, inps: Sequence[Any]) -> Callable[..., Any]:
        """Draws the graph and returns it, boxed. A picture that cannot be made is reported on stderr and stops
        nothing."""
        started = time.perf_counter()
        name = label(fx_g, self.stage)
        graph = source.of_record(encode(fx_g, id=str(name), stage=name.stage))
        if self.clear_meta:
            graph = source.without_meta(graph, keep_modules=len(graph.nodes) > LARGE)
        view = picture.view_of(graph, picture.Wanted())
        try:
            self.drawn.append(self._finish(view, name, started))
            say(f"graphdbg: {name} is drawn in {self.drawn[-1].path}")
        except EnvironmentLackError as error:
            say(f"graphdbg: {name} is not drawn: {error.said}")
        return boxed_call(fx_g)

    def _finish(self, view: View, name: Label, started: float) -> picture.Drawn:
        stem = f"{self.path.stem}-{name.name}-{name.stage}" if self.stage else self.path.stem
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for path in numbered(self.path.with_name(stem), self.path.suffix):
            try:
                if not os.path.lexists(path):
                    return picture.finish(view, path, started)
            except UsageError:  # another thread or rank took the name meanwhile
                continue
        raise AssertionError("unreachable: there is always another number")


def draw_graph_compile(name: str | os.PathLike[str], clear_meta: bool = True) -> DrawGraphCompile:
    """A compiler that draws into `name`: .svg (also without a suffix), .png, .pdf or .dot.

    Raises UsageError for another suffix, EnvironmentLackError where nothing here can make that format.

    >>> draw_graph_compile("net.dot")(gm, inputs)(list(inputs))[0].shape
    torch.Size([2, 4])
    """
    return DrawGraphCompile(name, clear_meta)


def draw_arguments(name: str | os.PathLike[str] = "graphdbg.svg", clear_meta: bool = False) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_draw`; the files are called after `name` and the graphs."""
    return by_stage(lambda stage: DrawGraphCompile(name, clear_meta, stage))
