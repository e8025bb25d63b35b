"""`debug_compile`: saves the graph as a folder that runs by itself, says how to shrink it, runs it, and compiles it.

Called as a compiler it saves into a new folder `graphdbg-debug-N` of the current directory; `to` names the folder,
where the graphs of one program (forward, backward, recompiles) get numbered subfolders. What exists is never written
into or over.

>>> aot_function(lambda x: x.sin().cos(), fw_compiler=debug_compile.to("broken"))(torch.zeros(2))
graphdbg x...: 4 nodes, saved in broken/1_inference
  run it:    python broken/1_inference/graph.py
  shrink it: graphdbg minify broken/1_inference --rung torchscript
  it runs: 1 output
tensor([1., 1.])
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

import torch
from torch import fx

from ...dumps import live
from ...dumps.atomic import free_path
from ...dumps.errors import CannotWriteError
from ...dumps.live import save_graph
from ...dumps.wording import counted
from .. import torch_private as t
from ..live.eager import clone_inputs
from .boxed import Compiler, label, taken
from .ts_compile import ts_compile

_RUNGS = {"ts_compile": "torchscript", "simple_ts_compile": "torchscript", "nop": "nop", "debug_nop": "debug_nop"}
"""Compiler -> the rung by which `graphdbg minify` runs candidates; Inductor for any other."""


@dataclass
class DebugCompile:
    """The compiler: where it saves, what it compiles with, and where it prints."""

    folder: Path | None = None
    compiler: Compiler = ts_compile
    stream: TextIO | None = None
    _count: int = 0
    _lock: Lock = field(default_factory=Lock)

    def to(
        self, folder: str | os.PathLike[str], *, compiler: Compiler = ts_compile, stream: TextIO | None = None
    ) -> DebugCompile:
        """The same, saving into numbered subfolders of a new folder. Raises UsageError when it exists."""
        if Path(folder).exists():
            raise taken(f"cannot save graphs in {folder}")
        return DebugCompile(Path(folder), compiler, stream)

    def __call__(self, fx_g: fx.GraphModule, inps: Sequence[Any], path: str | os.PathLike[str] | None = None) -> Any:
        """Saves the graph (into `path` itself, when given), prints where, runs it, and returns the compiled graph.

        Fake inputs are replaced by synthesised ones, which are saved too. The folder is there already when the run or
        the compiler raises something.
        """
        name = label(fx_g)
        with t.modes_off():
            inputs = _real(fx_g, inps, str(name), name.stage)
            case = save_graph(fx_g, inputs, self._place(name.stage) if path is None else Path(path), stage=name.stage)
            place = shlex.quote(str(case))
            rung = _RUNGS.get(getattr(self.compiler, "__name__", ""), "inductor")
            self._tell(
                f"graphdbg {name}: {counted(len(fx_g.graph.nodes), 'node')}, saved in {place}\n"
                f"  run it:    python {place}/graph.py\n  shrink it: graphdbg minify {place} --rung {rung}\n"
            )
            self._tell(f"  it runs: {counted(_run(fx_g, inputs), 'output')}\n")
        return self.compiler(fx_g, inps)

    def _place(self, stage: str) -> Path:
        """A folder that is not there yet."""
        with self._lock:
            if self.folder is None:
                return free_path("graphdbg-debug", bare=False)
            if not self._count:
                try:
                    self.folder.mkdir(parents=True)
                except OSError as error:
                    what, why = f"cannot save graphs in {self.folder}", error.strerror or str(error)
                    there = isinstance(error, FileExistsError)
                    raise (taken(what) if there else CannotWriteError(what, why)) from error
            self._count += 1
            return self.folder / f"{self._count}_{stage}"

    def _tell(self, text: str) -> None:
        stream = self.stream or sys.stdout
        stream.write(text)
        stream.flush()


def _real(fx_g: fx.GraphModule, inps: Sequence[Any], id: str, stage: str) -> list[Any]:
    """The inputs, or ones synthesised from the graph's metadata where some are fake."""
    if not any(isinstance(value, (t.FakeTensor, torch.SymInt)) for value in inps):
        return list(inps)
    return live.inputs(live.encode(fx_g, id=id, stage=stage), None, None)


def _run(fx_g: fx.GraphModule, inputs: Sequence[Any]) -> int:
    """Runs the graph on copies of its inputs; gives the number of outputs. The program's random numbers stay as they
    are."""
    with torch.random.fork_rng(), torch.no_grad():
        outputs = fx_g(*clone_inputs(inputs))
    return len(outputs) if isinstance(outputs, (list, tuple)) else 1


debug_compile = DebugCompile()
"""Saves into a new folder of the current directory; `debug_compile.to(folder)` names one."""
