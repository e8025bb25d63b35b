"""`draw_graph_compile` draws each graph into a file of its own and returns it untouched, boxed.

Needs no `dot` on PATH. `clear_meta` is functorch's: what the compiler stack noted on the nodes (values, modules, lines)
stays out of the picture; a graph too large to be drawn node by node is drawn by module all the same. An existing file
is left alone: a second graph of one name becomes `fw.1.svg`. functorch's compiler also prints the graph's code: here
print_compile does that.

>>> forward = draw_graph_compile("fw.svg")
>>> aot_function(lambda x: x.sin().cos(), fw_compiler=forward)(torch.zeros(2))
tensor([1., 1.])
>>> Path("fw.svg").exists()
True
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dumps.errors import EnvironmentLackError, UsageError
from ...dumps.live import encode
from ...dumps.output import say
from ..drawing import LARGE, picture, render, source
from .boxed import BoxedCallable, boxed_call, by_stage
from .label import Label, label

if TYPE_CHECKING:
    from torch import fx

    from ..drawing.dot import View


class DrawGraphCompile:
    """The compiler. `drawn` has one entry for each graph so far; `labelled` puts the graph's id into the file's
    name."""

    def __init__(
        self, name: str | os.PathLike[str], clear_meta: bool, *, stage: str | None = None, labelled: bool = False
    ) -> None:
        path = Path(name)
        self.path = path if path.suffix else path.with_name(f"{path.name}.svg")
        self.clear_meta = clear_meta
        self.stage = stage
        self.labelled = labelled
        self.drawn: list[picture.Drawn] = []
        render.refuse_without_renderer(render.format_of(self.path))

    def __call__(self, fx_g: fx.GraphModule, inps: Sequence[Any]) -> BoxedCallable:
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
        for path in self._names(name):
            if os.path.lexists(path):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return picture.finish(view, path, started)
            except UsageError:  # another thread or rank took the name meanwhile
                continue
        raise AssertionError("unreachable: there is always another number")

    def _names(self, name: Label) -> Iterator[Path]:
        stem = f"{self.path.stem}-{name.name}-{name.stage}" if self.labelled else self.path.stem
        for number in count():
            yield self.path.with_name(f"{stem}{f'.{number}' if number else ''}{self.path.suffix}")


def draw_graph_compile(name: str | os.PathLike[str], clear_meta: bool = True) -> DrawGraphCompile:
    """A compiler that draws into `name`: .svg (also without a suffix), .png, .pdf or .dot.

    Raises UsageError for another suffix, EnvironmentLackError where nothing here can make that format.

    >>> draw_graph_compile("net.dot")(gm, inputs)(list(inputs))[0].shape
    torch.Size([2, 4])
    """
    return DrawGraphCompile(name, clear_meta)


def draw_arguments(name: str | os.PathLike[str] = "graphdbg.svg", clear_meta: bool = False) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_draw`; the files are called after `name` and the graphs."""
    return by_stage(lambda stage: DrawGraphCompile(name, clear_meta, stage=stage, labelled=True))
