"""From journals to the view model: events in their order, joined with the graphs of the same journal.

A compile id may occur twice in one process (torch._dynamo.reset restarts the count), so a graph belongs to the last
frame of that id that began before it. Damaged, missing or unknown fields leave gaps, never an exception.

>>> of_run(open_run("myrun")).processes[0].functions[0].name
'Model.forward'
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from ..errors import GraphdbgError
from ..index import ListedGraph
from ..journal import Event
from ..schema import GraphRecord, GuardRecord
from ..store import Run
from . import wording
from .model import Compile, DDPPart, Function, GraphLine, Guard, ProcessWhy, ProgramLine, Restart, Skipped, Symbol, Why

if TYPE_CHECKING:
    from ..browse.listing import Following

RESUME = re.compile(r"(?:torch_dynamo_resume_in_)+(?P<name>.+?)(?:_at_(?P<line>\d+))+$")
"""The name that Dynamo gives to the function that runs after a graph break."""


def items(value: Any) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def words(fields: dict[str, Any], key: str) -> str:
    """The value of a field if it is text, else ""."""
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def whole(value: Any) -> int:
    """The value if it is a whole number, else 0."""
    return value if isinstance(value, int) else 0


def places(value: Any) -> list[ProgramLine]:
    """The frames of a stack, with the program's own names for functions."""
    program_lines: list[ProgramLine] = []
    for item in items(value):
        frame = items(item)
        if len(frame) == 4:
            file, line, function, code = frame
            resumed = RESUME.fullmatch(str(function))
            program_lines.append(
                ProgramLine(str(file), whole(line), resumed["name"] if resumed else str(function), str(code))
            )
    return program_lines


def symbol(value: Any) -> Symbol | None:
    """A symbol written as [name, source, hint, lower, upper]; None for anything else."""
    fields = items(value)
    if len(fields) != 5 or not all(isinstance(field, (str, int, float, type(None))) for field in fields):
        return None
    name, source, *numbers = fields
    hint, lower, upper = (n if isinstance(n, (int, float)) else None for n in numbers)
    return Symbol(str(name), wording.short(str(source)), hint, lower, upper)


_ATTEMPT = re.compile(r"_a(\d+)$")


def of_run(run: Run, *, compile_id: str | None = None, process: str | None = None) -> Why:
    """The reasons for the graphs of a run, or of one compile of one process. Conditions on symbols come from records
    (see `_add_conditions`)."""
    reasons = Why([item for item in from_journals(run, process) if item.functions or item.skipped or item.others])
    if compile_id is not None:
        _narrow(reasons, compile_id)
    _add_conditions(reasons, run)
    return reasons


def from_journals(run: Run | Following, process: str | None = None) -> list[ProcessWhy]:
    """The reasons that the journals give, by process: no record is opened."""
    processes: list[ProcessWhy] = []
    for recorded_process in run.processes:
        if process is not None and recorded_process.name != process:
            continue
        rows = [row for row in run.rows if row.process == recorded_process.name]
        reader = Reader(recorded_process.name, recorded_process.rank, rows)
        for event in run.events(recorded_process):
            reader.take(event)
        processes.append(reader.finish())
    return processes


def _narrow(reasons: Why, compile_id: str) -> None:
    for item in reasons.processes:
        for function in item.functions:
            function.compiles = [compiled for compiled in function.compiles if compiled.id == compile_id]
        item.functions = [function for function in item.functions if function.compiles]
        item.skipped = []
        item.others = [line for line in item.others if base(line.local.partition("/")[0])[0] == compile_id]


def base(compile_name: str) -> tuple[str, int]:
    """A compile name split into the name without attempt, and the attempt: "0_0_a1" gives ("0_0", 1)."""
    attempt = _ATTEMPT.search(compile_name)
    return (compile_name[: attempt.start()], int(attempt[1])) if attempt else (compile_name, 0)


class Reader:
    """Builds the reasons of one process from its events, in order."""

    def __init__(self, name: str, rank: int | None, rows: list[ListedGraph]) -> None:
        self.rows = {row.local: row for row in rows}
        prefix = rows[0].id[: len(rows[0].id) - len(rows[0].local)] if rows else ""
        self.why = ProcessWhy(name, rank, prefix)
        self.current: dict[str, Compile] = {}
        self.texts: dict[int, str] = {}
        self.part: DDPPart | None = None
        self.seen: set[str] = set()
        self.dynamic: dict[str, set[str]] = {}
        self.captured: dict[str, str] = {}
        self.before_reset: set[tuple[str, str, int]] = set()
        self.now = 0.0

    def take(self, event: Event) -> None:
        """Takes one event of the journal, of any kind."""
        if event.graph is not None and event.graph not in self.seen and event.graph in self.rows:
            self.seen.add(event.graph)
            self._graph(event.graph)
        elif event.kind == "left_out" and event.graph is not None:
            limited = self.current.get(base(event.graph.partition("/")[0])[0])
            if limited is not None:
                limited.left_out = words(event.fields, "reason") or "a limit"
        if event.kind != "why":
            return
        self.why.known = True
        self.now = event.time
        fields = event.fields
        number = fields.get("text_id")
        if isinstance(number, int) and isinstance(fields.get("text"), str):
            self.texts[number] = fields["text"]
        handle = _HANDLERS.get(str(fields.get("what")))
        if handle is not None:
            handle(self, fields)

    def finish(self) -> ProcessWhy:
        """Returns the process, after all events."""
        self.why.others += [_line(row) for local, row in self.rows.items() if local not in self.seen]
        return self.why

    def _graph(self, local: str) -> None:
        row = self.rows[local]
        compile_ = self.current.get(base(local.partition("/")[0])[0])
        if compile_ is None:
            self.why.others.append(_line(row))
            return
        compile_.graphs.append(_line(row))
        if self.part is not None:
            self.part.graphs.append(row.id)

    def _of(self, fields: dict[str, Any]) -> Compile:
        """The compile that an event names; a new compile of kind "unknown" where its beginning was lost."""
        name = base(str(fields.get("compile") or ""))[0]
        if name not in self.current:
            self.current[name] = Compile(name, "unknown")
            self._function("(unknown)", "", 0).compiles.append(self.current[name])
        return self.current[name]

    def _text(self, fields: dict[str, Any]) -> str:
        number = fields.get("text_id")
        return self.texts.get(number, "") if isinstance(number, int) else ""

    def begin(self, fields: dict[str, Any]) -> None:
        self.why.lacking = [str(name) for name in items(fields.get("missing"))]

    def frame(self, fields: dict[str, Any]) -> None:
        name, file, line = words(fields, "function"), words(fields, "file"), whole(fields.get("line"))
        item = Compile(words(fields, "compile"), "first", name, file, line, self.now, words(fields, "thread"))
        item.cached = whole(fields.get("cached"))
        if item.id in self.current:
            self.before_reset = {(known.name, known.file, known.line) for known in self.why.functions}
            self.current.clear()
            self.dynamic.clear()
        if fields.get("observed") is True:
            item.kind = "observed"
        before, dot, last = name.rpartition(".")
        resumed = RESUME.fullmatch(last)
        if resumed:
            item.kind, item.resumed_at = "resumed", int(resumed["line"])
            function = self._resumed(f"{before}{dot}{resumed['name']}", file, item.resumed_at)
        else:
            function = self._function(words(fields, "of") or name, file, line)
            item.called_from = self._caller(item)
        if item.cached:
            item.kind = "recompile"
        elif item.kind == "first" and (function.name, function.file, function.line) in self.before_reset:
            item.kind = "reset"
        elif item.kind == "first" and any(known.kind == "first" for known in function.compiles):
            item.kind = "again"
        item.captured = self.captured.pop(item.id.partition("_")[0], "")
        function.compiles.append(item)
        self.before_reset.discard((function.name, function.file, function.line))
        self.current[item.id] = item
        self.part = None

    def capture(self, fields: dict[str, Any]) -> None:
        sizes = fields.get("sizes")
        origins = cast("dict[str, Any]", sizes) if isinstance(sizes, dict) else {}
        reasons = [wording.captured(str(reason), origins) for reason in items(fields.get("reasons"))]
        self.captured[words(fields, "compile")] = "; ".join(filter(None, reasons))

    def _function(self, name: str, file: str, line: int) -> Function:
        for function in self.why.functions:
            if (function.name, function.file, function.line) == (name, file, line):
                return function
        self.why.functions.append(Function(name, file, line))
        return self.why.functions[-1]

    def _resumed(self, name: str, file: str, line: int) -> Function:
        """The function that a resume function continues: the nearest of that name that begins above the line."""
        above = (known for known in self.why.functions if known.file == file and known.line <= line)
        alike = [known for known in above if known.name.rpartition(".")[2] == name.rpartition(".")[2]]
        return max(alike, key=lambda known: known.line) if alike else self._function(name, file, line)

    def _caller(self, item: Compile) -> ProgramLine | None:
        """The line at which an earlier compile broke off while calling this function."""
        for function in reversed(self.why.functions):
            for earlier in reversed(function.compiles):
                for broken in earlier.breaks:
                    for caller, called in zip(broken.stack, broken.stack[1:], strict=False):
                        if called.file == item.file and called.function == item.function.rpartition(".")[2]:
                            return caller
        return None

    def recompile(self, fields: dict[str, Any]) -> None:
        item = self._of(fields)
        item.kind = "recompile"
        error = words(fields, "error")
        item.guards = [wording.guard(str(text)) for text in items(fields.get("reasons")) or wording.raised(error)]
        for guard in item.guards:
            if guard.place is not None and item.file.endswith(guard.place.file):
                guard.place.file = item.file  # Dynamo shortens a path to its end
        now = fields.get("now")
        if item.guards and isinstance(now, dict):
            item.guards[0].now = cast("dict[str, Any]", now)
        item.also = list(filter(None, (_also(items(pair), item.guards) for pair in items(fields.get("also")))))
        item.error = "an error to the caller: torch._dynamo.config.error_on_recompile is set" if error else ""

    def limit(self, fields: dict[str, Any]) -> None:
        value = fields.get("value")
        item = self._of(fields)
        item.kind = "limit"
        item.limit = words(fields, "limit") or "recompile_limit"
        item.limit += f" = {value}" if value is not None else ""

    def broke(self, fields: dict[str, Any]) -> None:
        then = words(fields, "then") or "resumed"
        item = self._of(fields)
        item.breaks.append(wording.graph_break(self._text(fields), then, places(fields.get("stack"))))

    def restart(self, fields: dict[str, Any]) -> None:
        attempt = base(words(fields, "compile"))[1]
        self._of(fields).restarts.append(Restart(attempt, words(fields, "error"), self._text(fields)))

    def failed(self, fields: dict[str, Any]) -> None:
        item = self._of(fields)
        item.error = words(fields, "error") or "an error"
        item.failure = wording.graph_break(self._text(fields), "error", places(fields.get("stack")))

    def symbols(self, fields: dict[str, Any]) -> None:
        item = self._of(fields)
        item.symbols = list(filter(None, map(symbol, items(fields.get("symbols")))))
        before = self.dynamic.setdefault(item.id.rpartition("_")[0], set())
        if item.kind == "recompile":
            item.became_dynamic = item.dynamic_since(before)
        before.update(symbol.source for symbol in item.symbols if symbol.source)

    def part_begin(self, fields: dict[str, Any]) -> None:
        names = [str(name) for name in items(fields.get("names"))]
        number, of, parameters, size = (whole(fields.get(key)) for key in ("part", "of", "parameters", "bytes"))
        self.part = DDPPart(number, of, parameters, size, names)
        self._of(fields).parts.append(self.part)

    def part_end(self, fields: dict[str, Any]) -> None:
        self.part = None

    def skip(self, fields: dict[str, Any]) -> None:
        name, file, line = words(fields, "function"), words(fields, "file"), whole(fields.get("line"))
        reason = wording.nothing(words(fields, "reason").partition("\n")[0])
        begun = [item for item in self.current.values() if (item.function, item.file, item.line) == (name, file, line)]
        if begun and not begun[0].graphs:
            begun[0].nothing = reason
        elif RESUME.fullmatch(name.rpartition(".")[2]) is None:
            self.why.skipped.append(Skipped(name, file, line, reason))


def _also(pair: list[Any], guards: list[Guard]) -> Guard | None:
    """A further guard that failed, from [text, present value], with the line of the same guard in an older version."""
    if len(pair) != 2 or not isinstance(pair[0], str):
        return None
    text = pair[0]
    alike = next((guard for guard in guards if wording.alike(guard.text) == wording.alike(text)), None)
    return Guard(text, place=alike.place if alike else None, now={text.partition(" == ")[0]: pair[1]})


_HANDLERS = {
    "begin": Reader.begin,
    "frame": Reader.frame,
    "recompile": Reader.recompile,
    "limit": Reader.limit,
    "break": Reader.broke,
    "restart": Reader.restart,
    "failed": Reader.failed,
    "symbols": Reader.symbols,
    "part": Reader.part_begin,
    "part end": Reader.part_end,
    "skip": Reader.skip,
    "capture": Reader.capture,
}


def _line(row: ListedGraph) -> GraphLine:
    return GraphLine(row.id, row.stage, row.nodes, row.status, row.local)


MOST_RECORDS = 60
_PLACE = re.compile(r"# \S*?([^/\s]+:\d+) in \S+$")
_ORDER = ("inference", "forward", "joint", "pre_grad", "dynamo")


def _add_conditions(reasons: Why, run: Run) -> None:
    """Fills `conditions`, and `symbols` with their final ranges. A graph that cannot be read adds only a remark."""
    compiles = [item for process in reasons.processes for function in process.functions for item in function.compiles]
    wanted = [(item, line) for item in compiles if (line := _best(item)) is not None]
    seen: dict[tuple[str, ...], set[str]] = {}
    for item, line in wanted[:MOST_RECORDS]:
        try:
            record = run.graph(line.id).record
        except GraphdbgError as error:
            item.conditions = [f"(not readable: {error})"]
            continue
        has_symbols = bool(item.symbols)
        _fill(item, record)
        frame = (line.id[: len(line.id) - len(line.local)], item.function, item.file, item.id.rpartition("_")[0])
        before = seen.setdefault(frame, set())
        if not has_symbols and item.kind == "recompile":
            # The journal's symbols come from Dynamo's own graphs, which were not recorded.
            item.became_dynamic = item.dynamic_since(before)
        before.update(symbol.source for symbol in item.symbols)


def _best(item: Compile) -> GraphLine | None:
    """The graph to read; none where the journal says that nothing is dynamic."""
    if not item.symbols and any(line.stage == "dynamo" for line in item.graphs):
        return None
    return next((line for stage in _ORDER for line in reversed(item.graphs) if line.stage == stage), None)


def _fill(item: Compile, record: GraphRecord) -> None:
    known = {symbol.name for symbol in item.symbols}
    final = {symbol.name: symbol for symbol in record.symbols}
    for symbol in item.symbols:
        last = final.get(symbol.name)
        if last is not None:
            symbol.lower, symbol.upper = last.lower, last.upper
            if last.replacement:
                item.conditions.append(f"{symbol.name} is {last.replacement}")
    item.symbols += [
        Symbol(last.name, wording.short(last.source), last.hint, last.lower, last.upper)
        for last in record.symbols
        if last.name not in known
    ]
    item.conditions += dict.fromkeys(map(_condition, record.guards))


def _condition(guard: GuardRecord) -> str:
    if guard.kind == "divisible":
        return f"{guard.expr} == 0"
    place = _PLACE.search(guard.message) if guard.kind == "guard" else None
    return f"{guard.expr} ({place[1]})" if place else guard.expr
