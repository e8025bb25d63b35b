"""What was compiled meanwhile, counted: graph breaks, recompiles, graphs, their nodes, Inductor's kernels.

A recording of its own in a temporary folder, read as `ls --why` reads one; the caches that hide graphs and kernels are
off in it, so that a warm one changes no number. Imports torch only where something else does.

>>> with counting() as counts:
...     y = torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(2))
>>> counts.numbers()
{'breaks': 0, 'recompiles': 0, 'graphs': 1, 'nodes': 4, 'kernels': 0}
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...dumps import kernels, why
from ...dumps.store import Run, open_run
from ...dumps.why import wording
from ...dumps.why.model import Compile, Function, GraphLine, ProgramLine
from .options import Options
from .session import Session, active
from .starting import begin, end

_INNER = ("forward", "backward", "inference")
_STAGES = ("dynamo", *_INNER, "joint_passed")


@dataclass
class Counts:
    """One entry for each: of breaks and recompiles a sentence with the user's line. `graphs` are Dynamo's, `nodes`
    theirs; they and `kernels` are those of first compiles, for a recompile counts by itself. `errors`: what could not
    be recorded; `kept`: whether `run` is to stay."""

    run: Path
    breaks: list[str] = field(default_factory=list[str])
    recompiles: list[str] = field(default_factory=list[str])
    graphs: list[str] = field(default_factory=list[str])
    kernels: list[str] = field(default_factory=list[str])
    nodes: int = 0
    errors: list[str] = field(default_factory=list[str])
    kept: bool = False

    def numbers(self) -> dict[str, int]:
        """The number of each."""
        lists = (self.breaks, self.recompiles, self.graphs, self.kernels)
        breaks, recompiles, graphs, kernels = map(len, lists)
        return {"breaks": breaks, "recompiles": recompiles, "graphs": graphs, "nodes": self.nodes, "kernels": kernels}

    def drop(self) -> None:
        """Deletes the run."""
        shutil.rmtree(self.run.parent, ignore_errors=True)

    def add(self, other: Counts) -> None:
        """Adds the counts of an inner counting."""
        for name in ("breaks", "recompiles", "graphs", "kernels", "errors"):
            getattr(self, name).extend(getattr(other, name))
        self.nodes += other.nodes

    def read(self, run: Run) -> None:
        """Counts the contents of a run."""
        for process in why.from_journals(run):
            for function in process.functions:
                seen: set[tuple[str, str]] = set()
                for item in function.compiles if not function.foreign else ():
                    self._compile(run, function, item, seen)
            self._kernels(run, process.others)

    def _compile(self, run: Run, function: Function, item: Compile, seen: set[tuple[str, str]]) -> None:
        for broken in item.breaks:
            place = wording.innermost(broken.stack) or ProgramLine(function.file, function.line)
            text = f"{_at(place)}{place.code_text}: {broken.title}"
            key = item.id.partition("_")[0], text
            if key not in seen:  # the same break in a recompile is no other one
                seen.add(key)
                self.breaks.append(text + (f". Hint: {broken.hints[0]}" if broken.hints else ""))
        if item.kind in ("recompile", "limit"):
            reason = wording.failed(item.guards[0]) if item.guards else "torch does not say why"
            place = (item.guards[0].place if item.guards else None) or ProgramLine(function.file, function.line)
            self.recompiles.append(f"{function.name}: {reason}; {_at(place)}{place.code_text}")
            return
        compiled = [
            line for line in item.graphs if line.stage == "dynamo" and line.status not in ("captured", "skipped")
        ]
        self.graphs += [
            f"{line.id} of {function.name}, {_at(ProgramLine(function.file, function.line))}" for line in compiled
        ]
        self.nodes += sum(line.nodes or 0 for line in compiled)
        self._kernels(run, item.graphs)

    def _kernels(self, run: Run, lines: list[GraphLine]) -> None:
        """Counts the kernels that the generated code of each graph defines; an inference graph's stands beside two
        stages."""
        inner = [line for line in lines if line.stage in _INNER]
        for line in inner or lines:
            files = run.graph(line.id).code_files()
            self.kernels += [f"{file.stem} of {line.id}" for file in files if file.name != kernels.WHOLE]


class Counting(Session):
    """A recording whose graphs are counted only."""

    def __init__(self, run: Path) -> None:
        super().__init__(Options(str(run), inputs="none", stages=list(_STAGES)), join=False)
        self.counts = Counts(run)


@contextmanager
def counting(*, kept: bool = False) -> Iterator[Counts]:
    """Counts what is compiled inside the block; what it yields is filled in at the end, when the run goes unless it is
    `kept`. A recording around it does not see what is compiled inside, another counting does."""
    folder = Path(tempfile.mkdtemp(prefix="graphdbg-counts-"))
    outer, session = active(), Counting(folder / "run")
    counts = session.counts
    counts.kept = kept
    begin(session)
    try:
        yield counts
    finally:
        end(session, programs=False)
        counts.errors += session.errors
        if counts.run.exists():
            counts.read(open_run(counts.run))
        if isinstance(outer, Counting):
            outer.counts.add(counts)
        if not counts.kept:
            counts.drop()


def _at(place: ProgramLine) -> str:
    if not place.file:
        return "a line that is not known"
    return f"{os.path.relpath(place.file) if Path(place.file).is_relative_to(Path.cwd()) else place.file}:{place.line}"
