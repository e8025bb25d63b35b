"""`graphdbg.assert_graphs`: a test that a function compiles to what it should: no graph breaks, no recompiles, one
graph.

For example: `graphdbg.assert_graphs(model, batch, then=[(longer_batch,)], recompiles=1)`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...dumps import kernels, why
from ...dumps.store import Run, open_run
from ...dumps.why import wording
from ...dumps.why.model import Compile, Function, GraphLine, ProgramLine
from ...dumps.wording import counted
from .options import Options
from .session import Session, active
from .starting import begin, end

_INNER = ("forward", "backward", "inference")
_STAGES = ("dynamo", *_INNER, "joint_passed")


@dataclass
class Counts:
    """What was compiled: each list has one entry per item. `breaks`, `recompiles`: sentences with the user's line;
    `graphs`: Dynamo's, with their `nodes`; these and `kernels` are of first compiles only, since a recompile is counted
    as such; `errors`: what could not be recorded; `kept`: whether the folder `run` stays."""

    run: Path
    breaks: list[str] = field(default_factory=list[str])
    recompiles: list[str] = field(default_factory=list[str])
    graphs: list[str] = field(default_factory=list[str])
    kernels: list[str] = field(default_factory=list[str])
    nodes: int = 0
    errors: list[str] = field(default_factory=list[str])
    kept: bool = False

    def numbers(self) -> dict[str, int]:
        """The number of breaks, recompiles, graphs, nodes and kernels."""
        lists = (self.breaks, self.recompiles, self.graphs, self.kernels)
        breaks, recompiles, graphs, kernels = map(len, lists)
        return {"breaks": breaks, "recompiles": recompiles, "graphs": graphs, "nodes": self.nodes, "kernels": kernels}

    def drop(self) -> None:
        """Deletes the run."""
        shutil.rmtree(self.run.parent, ignore_errors=True)

    def add(self, other: Counts) -> None:
        """Adds the counts of a nested `counting` block."""
        for name in (*_NAMES, "errors"):
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
            if key not in seen:  # in a recompile the same break is not counted twice
                seen.add(key)
                self.breaks.append(text + (f". Hint: {broken.hints[0]}" if broken.hints else ""))
        if item.kind in ("recompile", "limit"):
            reason = wording.failed(item.guards[0]) if item.guards else "torch does not say why"
            place = (item.guards[0].place if item.guards else None) or ProgramLine(function.file, function.line)
            self.recompiles.append(f"{function.name}: {reason}; {_at(place)}{place.code_text}")
            return
        dynamos = [line for line in item.graphs if line.stage == "dynamo"]
        compiled = [line for line in dynamos if line.status not in ("captured", "skipped")]
        where = _at(ProgramLine(function.file, function.line))
        self.graphs += [f"{line.id} of {function.name}, {where}" for line in compiled]
        self.nodes += sum(line.nodes or 0 for line in compiled)
        self._kernels(run, item.graphs)

    def _kernels(self, run: Run, lines: list[GraphLine]) -> None:
        """Counts the kernels in the generated code of each graph. An inference graph's code is saved beside two stages
        and counts once."""
        inner = [line for line in lines if line.stage in _INNER]
        for line in inner or lines:
            files = run.graph(line.id).code_files()
            self.kernels += [f"{file.stem} of {line.id}" for file in files if file.name != kernels.WHOLE]


class Counting(Session):
    """A recording of which only the counts are used."""

    def __init__(self, run: Path) -> None:
        super().__init__(Options(str(run), inputs="none", stages=list(_STAGES)), join=False)
        self.counts = Counts(run)


@contextmanager
def counting(*, kept: bool = False) -> Iterator[Counts]:
    """Counts what is compiled inside the block. The yielded Counts are filled in when the block ends, and the run is
    then deleted unless `kept`. An outer recording does not see these compiles; an outer `counting` does."""
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


_MOST = 5
_NAMES = {"breaks": "graph break", "recompiles": "recompile", "graphs": "graph", "kernels": "kernel"}
_COMPILED = ("_torchdynamo_orig_callable", "_orig_mod", "_compiled_call_impl")


class GraphsDifferError(AssertionError):
    """What was compiled differs from what a test or a baseline expects. The program need not be wrong: no repro can
    show it."""


def assert_graphs(
    fn: Callable[..., Any],
    *args: Any,
    breaks: int | None = 0,
    recompiles: int | None = 0,
    graphs: int | None = 1,
    kernels: int | None = None,
    then: Sequence[tuple[Any, ...]] = (),
    as_is: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls `fn(*args, **kwargs)` compiled, then with each tuple of arguments of `then`; returns the first result.

    `fn` is given to torch.compile unless it was before, or `as_is` says that it compiles inside, as a training step
    does. What was compiled before counts for nothing: it begins with torch.compiler.reset(), and caches on disk are
    ignored.

    `breaks`, `recompiles`: of all calls. `graphs` and `kernels` (that Inductor generated, each once; calls of libraries
    are none): of all compiles that are no recompile. None: not checked. A backward counts if `fn` runs it.

    Raises AssertionError with each number that differs, where it comes from, and what to do next; what `fn` raises as
    it is.

    >>> compiled = torch.compile(torch.relu, backend="eager")
    >>> assert_graphs(compiled, torch.ones(3), graphs=1, breaks=0)
    tensor([1., 1., 1.])
    """
    import torch

    __tracebackhide__ = True  # for pytest
    torch.compiler.reset()
    compiled = as_is or any(getattr(fn, name, None) is not None for name in _COMPILED)
    call: Any = fn if compiled else torch.compile(fn)
    outer = active()
    with counting(kept=True) as counts:
        try:
            result = call(*args, **kwargs)
            for more in then:
                call(*more, **kwargs)
        except BaseException:
            counts.kept = False
            raise
    if outer is not None and not isinstance(outer, Counting):
        torch.compiler.reset()  # so that an outer recording sees a later call compile again
    wanted = {"breaks": breaks, "recompiles": recompiles, "graphs": graphs, "kernels": kernels}
    differing = {name: number for name, number in counts.numbers().items() if wanted.get(name) not in (None, number)}
    if not differing and not counts.errors:
        counts.drop()
        return result
    raise GraphsDifferError(_message(getattr(fn, "__qualname__", None) or type(fn).__name__, counts, differing, wanted))


def _message(name: str, counts: Counts, differing: dict[str, int], wanted: dict[str, int | None]) -> str:
    if not differing:
        return f"{name}: what it compiles could not be counted: {counts.errors[0]}"
    parts = [f"{counted(number, _NAMES[what])}, not {wanted[what]}" for what, number in differing.items()]
    lines = [f"{name} compiled to {'; '.join(parts)}"]
    for what in differing:
        entries: list[str] = getattr(counts, what)
        lines += [f"  {_NAMES[what]}: {entry}" for entry in entries[:_MOST]]
        lines += [f"  and {len(entries) - _MOST} more"] if len(entries) > _MOST else []
    lines.append(
        f"why: graphdbg ls {shlex.quote(str(counts.run))} --why" if counts.run.exists() else "nothing was compiled"
    )
    lines.append("if this is intended: " + ", ".join(f"{what}={number}" for what, number in differing.items()))
    return "\n".join(lines)
