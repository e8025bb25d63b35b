"""Writes the view model as text for 80 columns: the most frequent causes first, one block per function, then functions
that were not compiled.

Recompiles of one frame with the same cause become one entry with a count; a graph break is explained once. Prints
nothing. Control characters in texts of a dump are escaped.

"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePath

from ..tables import plain
from ..wording import counted, listed, size_text
from . import frequent, wording
from .model import WRAPPER, Break, Compile, DDPPart, Function, GraphLine, Guard, ProcessWhy, ProgramLine, Symbol, Why

_COUNTED = ("dynamo", "joint", "forward", "backward", "inference")


def outcome(item: Compile) -> str:
    """The outcome of a compile: its graphs with their sizes, or the reason why it has none."""
    if item.parts:
        return f"a graph cut into {counted(len(item.parts), 'part')}"
    final = item.graphs
    attempts = {line.local.partition("/")[0] for line in final}
    if len(attempts) > 1:
        newest = max(attempts, key=lambda name: (len(name), name))
        final = [line for line in final if line.local.startswith(f"{newest}/")]
    parts = [
        f"{line.local.partition('/')[2]} {line.nodes if line.nodes is not None else '?'}"
        for line in final
        if line.stage in _COUNTED
    ]
    bad = [f"{line.stage} {line.status}" for line in final if line.status == "failed"]
    if not final:
        if item.left_out:
            return f"not kept: {item.left_out}"
        if item.nothing:
            return f"left alone: {item.nothing}"
        if item.limit or item.failure is not None:
            return "nothing compiled"
        broke_off = item.breaks and item.breaks[0].then != "frame skipped"
        return "no graph: no operation before the break" if broke_off else "no graph"
    name = final[0].local.partition("/")[0]
    sizes = ", ".join(parts) + (" node" if parts[-1].endswith(" 1") else " nodes") if parts else ids(final)
    return f"{name}: " * (name != item.id) + sizes + (f", {', '.join(bad)}" if bad else "")


def ids(lines: list[GraphLine]) -> str:
    """The compile ids of graphs, with the number of graphs of each."""
    stages = Counter(line.local.partition("/")[0] for line in lines)
    return ", ".join(f"{name} ({count})" for name, count in stages.items())


def names(group: list[Compile]) -> str:
    """The ids of compiles; with more than six, the middle ones are left out."""
    all_of_them = [item.id for item in group]
    return ", ".join(all_of_them) if len(group) <= 6 else f"{all_of_them[0]}, {all_of_them[1]}, ... {all_of_them[-1]}"


def span(symbol: Symbol) -> str:
    """A symbol as text: `x.size()[0] = s77 (3 here, at least 2)`."""
    source = f"{symbol.source} = {symbol.name}" if symbol.source else symbol.name
    low, high = symbol.lower, symbol.upper
    said = [f"{wording.shown(symbol.hint)} here" if symbol.hint is not None else "known only when it runs"]
    if low is not None and high is not None:
        said.append(f"from {low} to {high}")
    elif low is not None:
        said.append(f"at least {low}")
    elif high is not None:
        said.append(f"at most {high}")
    return f"{source} ({', '.join(said)})"


def shown_file(file: str, here: Path) -> str:
    """A path relative to the current folder where the file lies inside, else its last two parts."""
    path = PurePath(file)
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return str(PurePath(*path.parts[-2:])) if len(path.parts) > 3 else file


WIDTH = 80
_FEW = 3
"""So many recompiles of one frame with the same cause, or more, share one entry."""
_CONDITIONS = 6
_VALUES = 8
_SKIPPED = 8
_SET_IN = 9
"""The indentation of the lines about a compile."""


def render(reasons: Why, width: int = WIDTH, *, whole: bool = True) -> str:
    """The whole text; without `whole` that of one compile, without counts. Processes with equal texts share one
    block."""
    same: dict[str, tuple[str, list[ProcessWhy]]] = {}
    for process in reasons.processes:
        text = ProcessText(process, width).text(whole)
        same.setdefault(wording.ADDRESS.sub("", text), (text, []))[1].append(process)
    if len(reasons.processes) <= 1:
        return next((text for text, _ in same.values()), "")
    blocks: list[str] = []
    for text, processes in same.values():
        names = ", ".join(process.name if process.rank is None else f"rank {process.rank}" for process in processes)
        prefixes = ", ".join(process.prefix or "-" for process in processes)
        blocks.append(f"== {names}: ids begin with {prefixes}\n\n{text}")
    return "\n\n".join(blocks)


def of_compile(function: Function, item: Compile, width: int) -> str:
    """Why one compile exists: its own lines alone, with the graph break before it."""
    lines = ProcessText(ProcessWhy("", None, ""), width + _SET_IN).alone(function, item)
    first, *rest = [line.removeprefix(" " * _SET_IN) for line in lines]
    return "\n".join([first.strip().removeprefix(f"{item.id}  "), *rest])


class ProcessText:
    """Writes the block of one process: paragraphs of a fixed width, from top to bottom, with short names of files."""

    def __init__(self, process: ProcessWhy, width: int) -> None:
        self.width = width
        self.lines: list[str] = []
        self.here = Path.cwd()
        self.process = process
        self.explained: dict[tuple[str, int, str], str] = {}
        self.glossed: set[str] = set()
        self.abroad = False

    def text(self, whole: bool = True) -> str:
        """The block of this process."""
        process = self.process
        if not process.known:
            whose = "an older graphdbg recorded them, or they came without Dynamo."
            self.add(0, f"Nothing says why these graphs exist: {whose}")
            return "\n".join(self.lines)
        if whole:
            self._frequent()
        for function in sorted(process.functions, key=lambda function: function.foreign):
            self._function(function)
        if process.others:
            self.title("Without Dynamo (a direct call of the compiler), or its beginning was lost")
            self.add(2, ids(process.others))
        self._skipped()
        if process.lacking:
            self.title(f"Not known with this version of torch: {'; '.join(process.lacking)}.")
        return "\n".join(self.lines).strip("\n")

    def add(self, indent: int, text: str, *, first: str = "", limit: int = 6) -> None:
        """Adds a wrapped paragraph; `first` stands before it, inside the indent."""
        start = " " * (indent - len(first) - 2) + first + "  " if first else " " * indent
        wrapped = textwrap.wrap(
            plain(text),
            self.width,
            initial_indent=start,
            subsequent_indent=" " * (indent + 2 * (not first)),
            break_on_hyphens=False,
            max_lines=limit,
            placeholder=" …",
        )
        self.lines += wrapped or [start.rstrip()]

    def title(self, text: str) -> None:
        """The heading of a block."""
        self.lines.append("")
        self.add(0, text)

    def place(self, place: ProgramLine | None, function: Function | None = None) -> str:
        """The place as `line 12` inside the function's own file, else `file:12`."""
        if place is None:
            return "an unknown line"
        if function is not None and place.file == function.file:
            return f"line {place.line}"
        return f"{shown_file(place.file, self.here)}:{place.line}"

    def alone(self, function: Function, item: Compile) -> list[str]:
        """The lines of one compile alone."""
        self._compile(function, item)
        if item.kind == "resumed":
            breaks = [broken for other in function.compiles for broken in other.breaks if other is not item]
            before = [broken for broken in breaks if any(place.line == item.resumed_at for place in broken.stack[:1])]
            for broken in before[:1]:
                self._break(function, item, broken)
        return self.lines

    def _frequent(self) -> None:
        self.add(0, frequent.headline(self.process))
        causes = frequent.causes(self.process)
        if sum(cause.count for cause in causes) <= 1:
            return
        self.lines.append("")
        self.add(0, "Most frequent first:")
        own = [cause for cause in causes if not cause.foreign] or causes
        often = ([cause for cause in own if cause.count > 1] or own)[: frequent.MOST]
        for cause in often:
            where = f" ({self.place(cause.place)})" if cause.place is not None else ""
            self.add(8, f"{cause.text}{where}", first=f"{cause.count} x", limit=3)
        if len(causes) > len(often):
            self.add(8, f"and {len(causes) - len(often)} more, below")

    def _function(self, function: Function) -> None:
        where = f"  {shown_file(function.file, self.here)}:{function.line}" if function.file else ""
        if function.foreign and not self.abroad:
            self.abroad = True
            self.title("-- in torch and Python themselves, without a graph:")
        wrapper = function.file.endswith(WRAPPER) and "<locals>" in function.name
        name = "torch's wrapper around a compiled module" if wrapper else function.name
        self.title(f"{name}{where}")
        alike: dict[tuple[str, str], list[Compile]] = {}
        for item in function.compiles:
            alike.setdefault(_likeness(item), []).append(item)
        done: set[int] = set()
        for item in function.compiles:
            if id(item) in done:
                continue
            group = alike[_likeness(item)]
            if item.guards and len(group) >= _FEW:
                done.update(map(id, group))
                self._group(function, group)
            else:
                self._compile(function, item)

    def _compile(self, function: Function, item: Compile) -> None:
        self.add(9, f"{self.reason(function, item)} [{outcome(item)}]", first=item.id)
        self._details(function, item)

    def reason(self, function: Function, item: Compile) -> str:
        """The reason for a compile, in one clause."""
        thread = f" on thread {item.thread}" if item.thread else ""
        if item.kind in ("recompile", "limit"):
            of = f" of {item.guards[0].of}" if item.guards and item.guards[0].of else ""
            why = wording.failed(item.guards[0]) if item.guards else "nothing says why"
            return f"recompile{of}{thread}: {why}"
        if item.kind == "resumed":
            return f"goes on at line {item.resumed_at} after the graph break{thread}"
        if item.kind == "again":
            return f"first compile of another copy of this function{thread}"
        if item.kind == "reset":
            return f"first compile after torch._dynamo.reset(){thread}"
        if item.called_from is not None:
            where = self.place(item.called_from, function)
            return f"first compile{thread}, by itself: the caller broke off at {where}, which calls it"
        if item.kind == "observed":
            return f"the program's own graphs (graphdbg.observe){thread}"
        return f"first compile{thread}" if item.kind == "first" else "its beginning was lost"

    def details(self, function: Function, item: Compile) -> str:
        """The paragraphs below the reason."""
        self.lines = []
        self._details(function, item)
        return textwrap.dedent("\n".join(self.lines))

    def _details(self, function: Function, item: Compile, group: Sequence[Compile] = ()) -> None:
        if item.captured:
            self.add(9, f"captured again: {item.captured}")
        if item.guards:
            guard = item.guards[0]
            if guard.place is not None:
                self.add(9, f"needed at {self.place(guard.place, function)}{guard.place.code_text}", limit=2)
            self._gloss(wording.gloss(guard))
        self._also(function, group or [item])
        for restart in item.restarts:
            if restart.error != "SpeculationRestartAnalysis":
                self.add(9, f"started over once {wording.restarted(restart.error, restart.text)}")
        for broken in item.breaks:
            self._break(function, item, broken)
        if item.failure is not None:
            self._failure(function, item, item.failure)
        elif item.error:
            self.add(9, item.error)
        if item.limit:
            self._limit(item)
        for part in item.parts:
            self._part(part)
        if item.parts:
            self._gloss(
                "DDP cuts a graph at its buckets, so that gradients are reduced while the backward still runs "
                "(torch._dynamo.config.optimize_ddp = False turns it off)."
            )
            inside = {name for part in item.parts for name in part.graphs}
            later = [line.id for line in item.graphs if line.id not in inside and line.stage == "backward"]
            if later:
                self.add(9, f"compiled when the backward first ran, in this order: {', '.join(later)}")
        self._shapes(item)

    def _also(self, function: Function, group: Sequence[Compile]) -> None:
        """Adds the guards that failed beside the first one, each once, with its count and the line that needs it."""
        alike: dict[str, list[Guard]] = {}
        for guard in (guard for item in group for guard in item.also):
            alike.setdefault(wording.alike(guard.text), []).append(guard)
        for guards in sorted(alike.values(), key=len, reverse=True):
            place = next((guard.place for guard in guards if guard.place is not None), None)
            often = f" in {len(guards)} of {len(group)}" if len(group) > 1 else ""
            at = f", needed at {self.place(place, function)}{place.code_text}" if place is not None else ""
            self.add(9, f"also{often}: {wording.failed(guards[0])}{at}", limit=2)

    def _part(self, part: DDPPart) -> None:
        size = f"{counted(part.parameters, 'parameter')}, {size_text(part.size_bytes)}"
        first = f": {wording.short(part.names[0])}{' ...' * (part.parameters > 1)}" if part.names else ""
        self.add(9, f"DDP part {part.number} of {part.of} ({size}{first})", limit=2)
        self.add(11, ", ".join(part.graphs) or "no graph")

    def _gloss(self, text: str) -> None:
        if text and text not in self.glossed:
            self.glossed.add(text)
            self.add(9, f"({text})" if not text.startswith("(") else text, limit=5)

    def _break(self, function: Function, item: Compile, broken: Break) -> None:
        self.add(9, f"graph break at {self._path(function, broken)}", limit=3)
        if broken.then == "rest skipped":
            self.add(11, "the rest of the function runs uncompiled: it cannot be resumed there")
        elif broken.then == "frame skipped":
            self.add(11, "the whole function runs uncompiled")
        self._explained(item, broken)

    def _failure(self, function: Function, item: Compile, broken: Break) -> None:
        where = f" at {self._path(function, broken)}" if broken.stack else ""
        what = "ERROR to the caller (fullgraph=True)" if item.error == "Unsupported" else f"FAILED, {item.error}"
        self.add(9, f"{what}{where}", limit=3)
        self._explained(item, broken)

    def _explained(self, item: Compile, broken: Break) -> None:
        inner = wording.innermost(broken.stack)
        key = (inner.file if inner else "", inner.line if inner else 0, broken.title)
        if key in self.explained:
            self.add(11, f"{broken.title} (see {self.explained[key]})", limit=1)
            return
        self.explained[key] = item.id
        others = (at for (_, _, title), at in self.explained.items() if title == broken.title and at != item.id)
        same = next(others, None)
        if same is not None and broken.hints:
            self.add(11, f"{broken.title} (see {same})")
        else:
            self.add(11, f"{broken.title}. {broken.explanation}" if broken.explanation else broken.title)
        if same is None:
            for hint in broken.hints[:2]:
                self.add(11, f"hint: {hint}", limit=4)
            if broken.link:
                self.lines.append(f"           {plain(broken.link)}")

    def _path(self, function: Function, broken: Break) -> str:
        """The frames from the function's own line to the line that broke, and the code there."""
        frames = [frame for frame in broken.stack if not wording.of_torch(frame.file)] or broken.stack
        if not frames:
            return f"{function.name}, line unknown"
        steps = [self.place(frames[0], function)]
        if len(frames) > 1:
            steps.append(f"in {frames[-1].function} ({self.place(frames[-1], function)})")
        inside = broken.stack[-1]
        through = f" [through {shown_file(inside.file, self.here)}:{inside.line}]" if inside is not frames[-1] else ""
        return f"{', '.join(steps)}{through}{frames[-1].code_text}"

    def _shapes(self, item: Compile) -> None:
        new = {symbol.name for symbol in item.became_dynamic}
        fresh = [span(symbol) for symbol in item.symbols if symbol.name in new]
        others = [span(symbol) for symbol in item.symbols if symbol.name not in new]
        if fresh:
            self.add(9, f"dynamic from here on: {', '.join(fresh)}")
        if others:
            self.add(9, f"{'dynamic as before' if fresh else 'dynamic'}: {', '.join(others)}")
        if item.conditions:
            shown = "; ".join(item.conditions[:_CONDITIONS])
            more = f" and {len(item.conditions) - _CONDITIONS} more" if len(item.conditions) > _CONDITIONS else ""
            self.add(9, f"assumed of them: {shown}{more}")

    def _group(self, function: Function, group: list[Compile]) -> None:
        first, refused = group[0], [item for item in group if item.limit]
        count = len(group) - len(refused)
        why = f"{wording.failed(first.guards[0])} [{outcome(first)}]"
        at = "first at" if any(item.also for item in group) else "at"
        self.add(9, f"{counted(count, 'recompile')} {at} one guard: {why}", first=first.id)
        compiled = [item for item in group if not item.limit]
        values = list(dict.fromkeys(value for item in compiled if (value := wording.present(item.guards[0]))))
        if len(values) > 1:
            self.add(9, f"its values: {listed(values, _VALUES)}", limit=3)
        self.add(9, f"the others: {names([item for item in compiled if item is not first])}", limit=3)
        self._details(function, first, compiled)
        for item in refused:
            if item is not first:
                self._limit(item)

    def _limit(self, item: Compile) -> None:
        then = "Calls that fit no compiled version run uncompiled from here on (an error with fullgraph=True)."
        self.add(9, f"GIVEN UP at {item.id}: torch._dynamo.config.{item.limit} is reached. {then}")

    def _skipped(self) -> None:
        if not self.process.skipped:
            return
        self.title("Left alone")
        reasons: dict[str, list[str]] = {}
        for item in self.process.skipped:
            reasons.setdefault(item.reason, []).append(f"{item.name} ({shown_file(item.file, self.here)}:{item.line})")
        for reason, functions in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
            self.add(2, f"{reason}: {listed(functions, _SKIPPED)}")


def _likeness(item: Compile) -> tuple[str, str]:
    frame = item.id.rpartition("_")[0]
    return (frame, wording.alike(item.guards[0].text)) if item.guards and not item.error else (frame, item.id)
