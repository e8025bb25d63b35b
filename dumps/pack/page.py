"""The page: all of a redacted run in one HTML file that needs no server, no network and, but for its node tables, no
script.

Also: the graphs of a page as columns of numbers that point into one list of texts, so that fifty graphs fit into a
megabyte.

Everything on the page comes from the copy that `making` redacted, or through its `Texts`. HTML is only written by
`dumps.markup`. Parts that would make it larger than `MOST_BYTES` are cut, and the page names the command that shows
them in full.

>>> text, rows = page(run, "myrun", verdicts={})
>>> text[:15], rows[0][0]
('<!doctype html>', 'rows of nodes')
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from .. import deaths, why
from ..browse.columns import CELLS
from ..browse.kernels import kernel_column
from ..browse.table import GraphView
from ..errors import GraphdbgError
from ..index import ListedGraph
from ..journal import IN_FLIGHT
from ..kernels import WHOLE
from ..markup import Markup, data, joined, tag
from ..short import row_value
from ..sidecar import Intern, dims_text
from ..sources import Sources
from ..store import Run, SavedGraph
from ..tables import visible
from ..why import frequent, times, wording
from ..why.model import Compile, Function, Guard, ProcessWhy, ProgramLine, Skipped
from ..why.show import Compiled
from ..why.text import ProcessText
from ..why.times import CompileTime, Span
from ..wording import counted
from ..worst import Told

COLUMNS = ("name", "op", "value", "module", "where", "kernel", "code")


class PageGraph(NamedTuple):
    """One graph: the texts of its first nodes by column, the inputs of each node, its generated code."""

    id: str
    total: int
    rows: list[tuple[str, ...]]
    inputs: list[list[int]]
    code: str


class PageCut(NamedTuple):
    """`document` is the data for the page's script; `nodes` and `lines` (of generated code): how many are in it, and
    how many are not."""

    document: dict[str, Any]
    nodes: tuple[int, int]
    lines: tuple[int, int]


def read(run: Run, most_nodes: int) -> list[PageGraph]:
    """The graphs of a run that can be read; `making` has already listed the others."""
    page_graphs: list[PageGraph] = []
    for saved in run.graphs():
        with contextlib.suppress(GraphdbgError):
            page_graphs.append(graph(saved, most_nodes))
    return page_graphs


def graph(saved: SavedGraph, most_nodes: int) -> PageGraph:
    """The data of one graph. Raises GraphdbgError where it cannot be read."""
    view = GraphView(saved.table)
    view.kernels = kernel_column(saved, view)
    code = next((file.read_text() for file in saved.code_files() if file.name == WHOLE), "")
    shown = range(min(len(view), most_nodes))
    rows = [_texts(view, index) for index in shown]
    return PageGraph(saved.id, len(view), rows, [view.table.inputs[index] for index in shown], visible(code))


def _texts(view: GraphView, index: int) -> tuple[str, ...]:
    row = view.table.row(index)
    value = row_value(row) + (f" stride {dims_text(row.stride)}" if view.strided(index) else "")
    op, kernel = CELLS["op"](view, index), view.kernels.get(index, "")
    return row.name, op, value, view.module(index), row.where, kernel, row.code


def cut(graphs: Iterable[PageGraph], most_nodes: int, most_code: int) -> PageCut:
    """Builds the document, with at most so many nodes, and letters of code, of each graph."""
    texts: Intern[str] = Intern({"": 0})
    documents: list[dict[str, Any]] = []
    nodes = total = lines = left = 0
    for page_graph in graphs:
        rows = page_graph.rows[:most_nodes]
        code = page_graph.code[:most_code].rpartition("\n")[0] if len(page_graph.code) > most_code else page_graph.code
        missing = page_graph.code.count("\n") - code.count("\n")
        columns = {name: [texts(row[at]) for row in rows] for at, name in enumerate(COLUMNS)}
        documents.append(
            {
                "id": page_graph.id,
                "total": page_graph.total,
                **{name: column for name, column in columns.items() if any(column)},
                "inputs": page_graph.inputs[:most_nodes],
                "code_text": code,
                "code_left": missing,
            }
        )
        nodes, total = nodes + len(rows), total + page_graph.total
        lines, left = lines + code.count("\n"), left + missing
    document = {"texts": [visible(text) for text in texts], "columns": COLUMNS, "graphs": documents}
    return PageCut(document, (nodes, total - nodes), (lines, left))


MOST_BYTES = 2_900_000
SUFFIXES = (".html", ".htm")
_FILES = ("look.css", "page.css", "page.js")
"""The first file is also used by notebook displays."""
_WIDTH = 110
_MOST_TIMES_HALVED = 12
_NODES, _CODE, _COMPILES, _SOURCE, _ERROR, _ROWS = 6000, 300_000, 2000, 600_000, 20_000, 200
"""Limits: nodes of a graph, letters of its code, compiles of the run, letters of all sources and of one error, rows of
other tables; all are halved until the page fits."""

_MARKS = {0: ("✓", "ok"), 1: ("✗", "bad"), 4: ("?", "doubt")}
"""Exit code of a verdict -> its sign and CSS class."""
_PHASES = {"dynamo": "Dynamo", "aot": "AOTAutograd", "inductor": "backend, forward", "backward": "backend, backward"}
"""Field of CompileTime -> its name on the page; the backend may be another than Inductor."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; img-src data:; base-uri 'none'"
_HEAD = (
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" '
    'content="light dark">'
    '<link rel="icon" href="data:,"><meta http-equiv="Content-Security-Policy" content="{}">'
)
_KEYS = (("/", "search"), ("j", ""), ("k", "rows"), ("Enter", "opens"), ("Esc", "closes"))


class CompileLine(NamedTuple):
    """One compile; `item`: Dynamo's record of it, if any; `began`: in seconds since 1970, 0 if unknown."""

    id: str
    process: ProcessWhy
    graphs: Compiled
    reason: str
    details: str = ""
    item: Compile | None = None
    time: CompileTime | None = None
    began: float = 0.0


def page(run: Run, name: str, verdicts: Mapping[str, Told]) -> tuple[str, list[tuple[str, int, int, int]]]:
    """Returns the HTML, and rows as in `Packed` on what is in it and what was cut. `run`: the redacted copy; `name`:
    the run's name in commands."""
    processes, graphs = why.of_run(run).processes, read(run, _NODES)
    entries = list(_entries(run, processes, {entry.id: entry for entry in times.of_run(run)}))
    written = "", list[tuple[str, int, int, int]]()
    for halved in range(_MOST_TIMES_HALVED):
        written = _Writing(run, name, verdicts, processes, entries, graphs, 0.5**halved).page()
        if len(written[0].encode()) <= MOST_BYTES:
            break
    return written


def _entries(run: Run, processes: Iterable[ProcessWhy], known: Mapping[str, CompileTime]) -> Iterator[CompileLine]:
    """Yields the compiles in order of their beginning, process by process; then the graphs that came without Dynamo."""
    rows = {row.id: row for row in run.rows}
    for process in processes:
        writer = ProcessText(process, _WIDTH)
        lines_of_process: list[CompileLine] = []
        for function, item in [(of, item) for of in process.functions for item in of.compiles]:
            name, place = f"{process.prefix}{item.id}", _line(function) if function.file else ""
            mine = [rows[line.id] for line in item.graphs if line.id in rows]
            compiled = Compiled(name, mine, function.name, place)
            timed = next((known[row.id] for row in mine if row.id in known), None)
            why_there = writer.reason(function, item), writer.details(function, item)
            lines_of_process.append(CompileLine(name, process, compiled, *why_there, item, timed, item.began))
        yield from sorted(lines_of_process, key=lambda line: line.began)
        others: dict[str, list[ListedGraph]] = {}
        for row in (rows[line.id] for line in process.others if line.id in rows):
            others.setdefault(row.id.partition("/")[0], []).append(row)
        for name, mine in others.items():
            reason = "without Dynamo (a direct call of the compiler), or its beginning was lost"
            yield CompileLine(name, process, Compiled(name, mine), reason)


class _Writing:
    """Writes one page, with `part` of the usual limits."""

    def __init__(
        self,
        run: Run,
        name: str,
        verdicts: Mapping[str, Told],
        processes: list[ProcessWhy],
        entries: list[CompileLine],
        graphs: list[PageGraph],
        part: float,
    ) -> None:
        self.run, self.name, self.typed = run, name, shlex.quote(name)
        self.verdicts, self.processes, self.entries, self.part = verdicts, processes, entries, part
        self.graphs, self.there = cut(graphs, int(_NODES * part), int(_CODE * part)), {entry.id for entry in graphs}
        self.timed = [entry.time for entry in entries if entry.time is not None]
        moments = [at for entry in self.timed for _, *both in entry.spans for at in both]
        moments += [entry.began for entry in entries if entry.began]
        self.start, self.end = min(moments, default=0.0), max(moments, default=0.0)
        self.total = sum(entry.compile_s for entry in self.timed)

    def page(self) -> tuple[str, list[tuple[str, int, int, int]]]:
        """The whole document."""
        look, style, script = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in _FILES)
        policy = _POLICY.format(base64.b64encode(hashlib.sha256(script.encode()).digest()).decode())
        title = tag("title", f"{self.name}: graphs of torch.compile")
        head = tag("head", Markup(_HEAD.format(policy)), title, tag("style", Markup(look + style)))
        body = tag(
            "body",
            self._top(),
            self._compiles(),
            self._causes(),
            self._times(),
            self._ranks(),
            self._left_alone(),
            self._sources(),
            self._settings(),
            tag("dialog", tag("header"), tag("div", class_="scroll", tabindex="-1"), tag("footer"), id="graph"),
            tag("script", data({"run": self.typed, **self.graphs.document}), type="application/json", id="data"),
            tag("script", Markup(script)),
        )
        counts = (("rows of nodes", self.graphs.nodes), ("lines of generated code", self.graphs.lines))
        rows = [(what, here, 0, left) for what, (here, left) in counts]
        return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n", rows

    # -- what there is

    def _top(self) -> Markup:
        items = [entry.item for entry in self.entries if entry.item]
        numbers = " · ".join(
            (
                counted(len(self.entries), "compile"),
                counted(len(self.run.rows), "graph"),
                counted(len(self.run.processes), "process"),
                f"{self.total:.1f} s of compiling",
                counted(sum(len(item.breaks) for item in items), "graph break"),
                counted(sum(item.kind == "recompile" for item in items), "recompile"),
            )
        )
        states = Counter(word for _, kind, word in map(self._state, self.entries) if kind == "bad")
        bad = [joined(" · ", tag("span", f"✗ {count} {word}", class_="bad")) for word, count in states.most_common()]
        record = self.run.record
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.started)) if 0 < record.started < 1e11 else ""
        known = [key for key in ("torch", "python", "triton") if key in record.versions]
        facts = [when, *(f"{key} {record.versions[key]}" for key in known)]
        first = why.first_found(self.run.processes)
        errors = [f"{entry.message}; where: graphdbg triage {self.typed}" for entry in first]
        return joined(
            tag(
                "header",
                tag("h1", self.name),
                tag("p", shlex.join(record.command), class_="mono"),
                tag("p", " · ".join(filter(None, facts)), class_="dim"),
                class_="top",
            ),
            tag("p", numbers, *bad, class_="sum"),
            *(tag("p", line, class_="bad") for line in (*deaths.lines(self.run.processes), *errors)),
            tag(
                "noscript",
                tag("p", "Node tables and search need a script: ", tag("code", f"graphdbg show {self.typed}/ID")),
            ),
            tag(
                "nav",
                tag(
                    "input", id="q", type="search", placeholder="search functions, reasons, nodes", aria_label="search"
                ),
                tag("span", *(joined(tag("kbd", key), f" {does} ") for key, does in _KEYS), class_="keys"),
                hidden=True,
            ),
            tag("div", id="hits", hidden=True),
        )

    def _compiles(self) -> Markup:
        if not self.entries:
            return tag("p", f"Nothing was compiled, or the recorder was not active: graphdbg ls {self.typed} --why")
        most = int(_COMPILES * self.part)
        left = len(self.entries) - most
        titles = ("compile", "state", "function", "why it was compiled", "seconds", "cache")
        axis = tag("span", tag("span", "0 s"), tag("span", f"{self.end - self.start:.0f} s"), class_="axis")
        heads = tag("div", *(tag("span", title) for title in titles), axis, class_="row heads", aria_hidden="true")
        rest = self._cut(f"{counted(left, 'more compile')} left out here", "ls {run} --why") if left > 0 else ""
        return _section("Compiles", heads, *map(self._compile, self.entries[:most]), rest)

    def _compile(self, compiled: CompileLine) -> Markup:
        seconds = compiled.time.compile_s if compiled.time else compiled.graphs.seconds
        glyph, kind, word = self._state(compiled)
        row = tag(
            "summary",
            tag("span", compiled.id, class_="mono"),
            tag("span", f"{glyph} {word}".strip(), class_=kind),
            tag("span", compiled.graphs.name or "?", " ", tag("small", compiled.graphs.place), class_="mono"),
            tag("span", compiled.reason),
            tag("span", "" if seconds is None else f"{seconds:.2f}", class_="num"),
            tag("span", compiled.time.cache if compiled.time else ""),
            tag("span", *map(self._bar, _drawn(compiled)), class_="line"),
            class_="row dim" if kind == "dim" else "row",
        )
        stages = tag("table", *map(self._graph, compiled.graphs.rows), class_="stages") if compiled.graphs.rows else ""
        errors = dict.fromkeys(row.error for row in compiled.graphs.rows if row.error)
        details = tag("pre", compiled.details, class_="wrap") if compiled.details else ""
        parts = (stages, *map(self._error, errors), details, _guards(compiled))
        return tag("details", row, *parts, id=f"c-{compiled.id}", open=kind == "bad")

    def _state(self, compiled: CompileLine) -> tuple[str, str, str]:
        """Glyph, class and word for a compile: its failure in the run, else the worst known verdict, else the worst
        status."""
        if not compiled.graphs.rows:
            item = compiled.item or Compile("")
            failed = item.limit or item.failure or item.error
            return ("✗", "bad", "given up" if item.limit else "failed") if failed else ("", "dim", "no graph")
        worst = compiled.graphs.worst
        if compiled.graphs.bad:
            return "✗", "bad", f"{worst.status}{', died' if worst.died else ''}"
        known = [self.verdicts[row.id] for row in compiled.graphs.rows if row.id in self.verdicts]
        if known:
            code, word, _ = min(known, key=lambda verdict: (1, 4, 0).index(verdict[0]) if verdict[0] in _MARKS else 3)
            return *_MARKS.get(code, ("", "")), word
        return ("?", "doubt", worst.status) if worst.status in IN_FLIGHT else ("", "", worst.status)

    def _graph(self, row: ListedGraph) -> Markup:
        code, *said = self.verdicts.get(row.id, (-1, "", ""))
        glyph, kind = _MARKS.get(code, ("", ""))
        link = tag("a", row.id, href=f"#{row.id}", class_="open")
        return tag(
            "tr",
            tag("td", link if row.id in self.there else f"{row.id} (its nodes are not here)", class_="mono"),
            tag("td", "" if row.nodes is None else counted(row.nodes, "node", form=","), class_="num"),
            tag("td", row.status),
            tag("td", "" if row.seconds is None else f"{row.seconds:.2f} s", class_="num"),
            tag("td", f"{glyph} {': '.join(filter(None, said))}".strip(), class_=kind),
        )

    def _causes(self) -> Markup:
        rows: list[Markup] = []
        for process in self.processes:
            for cause in frequent.causes(process):
                ids = [f"{process.prefix}{name}" for name in dict.fromkeys(cause.ids)]
                links = [joined(tag("a", name, href=f"#c-{name}"), " ") for name in ids[:8]]
                compiles = tag("span", *links, f"and {len(ids) - 8} more" if len(ids) > 8 else "", class_="mono")
                rows.append(_row(f"{cause.count} ×", cause.text, _line(cause.place), compiles))
        heads = ("", "cause", "line", "compiles")
        return self._table("Graph breaks and recompiles", heads, rows, "--why") if rows else Markup()

    # -- where the time went

    def _times(self) -> Markup:
        if not self.total:
            return Markup()
        phases, functions = _by_phase(self.timed), dict[str, list[CompileTime]]()
        for timed in self.timed:
            functions.setdefault(timed.function, []).append(timed)
        spent = {name: sum(timed.compile_s for timed in mine) for name, mine in functions.items()}
        rows = [
            _row(tag("span", name, class_="mono"), str(len(mine)), f"{spent[name]:.1f}", self._phases(_by_phase(mine)))
            for name, mine in sorted(functions.items(), key=lambda item: (spent[item[0]], item[0]), reverse=True)
        ]
        legend = [
            tag("span", tag("i", class_=phase), f" {_PHASES[phase]} {seconds:.1f} s, {seconds / self.total:.0%}")
            for phase, seconds in phases.items()
        ]
        caches = Counter(timed.cache for timed in self.timed)
        cached = "compiler caches: " + ", ".join(f"{name} {count}" for name, count in caches.most_common())
        if "off" in caches:
            cached += "; off: caches hide graphs and are bypassed while recording, unless with --keep-cache"
        head = (self._phases(phases), tag("p", *legend, class_="legend"), tag("p", cached))
        heads = ("function", "compiles", "seconds", "")
        return self._table("Where the compile time went", heads, rows, "--time", *head)

    def _phases(self, phases: Mapping[str, float]) -> Markup:
        bars = [tag("i", class_=phase, style=f"width:{spent / self.total:.3%}") for phase, spent in phases.items()]
        return tag("div", *bars, class_="phases")

    def _bar(self, span: Span) -> Markup:
        phase, start, end = span
        whole = max(self.end - self.start, 1e-9)
        place = f"left:min({(start - self.start) / whole:.3%}, 100% - 2px);width:{(end - start) / whole:.3%}"
        title = f"{_PHASES.get(phase, 'Dynamo began')}: {end - start:.2f} s, from {start - self.start:.2f} s on"
        return tag("i", class_=phase or "began", style=place, title=title)

    # -- the rest

    def _ranks(self) -> Markup:
        if len(self.processes) < 2:
            return Markup()
        by_id, rows = {entry.id: entry for entry in self.entries}, list[Markup]()
        for name in dict.fromkeys(entry.id.removeprefix(entry.process.prefix) for entry in self.entries):
            here = [by_id.get(f"{process.prefix}{name}") for process in self.processes]
            differs = len(set(map(_sizes, here))) > 1
            links = [tag("a", _sizes(entry), href=f"#c-{entry.id}") if entry else "–" for entry in here]
            function = next(entry.graphs.name for entry in here if entry)
            said, look = ("✗ differ", "bad") if differs else ("same sizes", None)
            rows.append(_row(name, function, said, *links, class_=look))
        names = [process.name if process.rank is None else f"rank {process.rank}" for process in self.processes]
        return self._table("Ranks side by side", ("compile", "function", "", *names), rows, "")

    def _left_alone(self) -> Markup:
        skipped = [skip for process in self.processes for skip in process.skipped]
        lines = dict.fromkeys(f"{skip.name}, {_line(skip)}: {skip.reason}" for skip in skipped)
        return _folded(f"Left alone by Dynamo ({len(lines)})", "\n".join(lines)) if lines else Markup()

    def _sources(self) -> Markup:
        room, by_file = int(_SOURCE * self.part), dict[str, Markup]()
        for sources in (Sources(process.path) for process in self.run.processes):
            for file in (file for file in sources.records if file not in by_file):
                text = sources.text(file) or ""
                room -= len(text)
                lines = tag("ol", *(tag("li", line) for line in text.splitlines()))
                shown = lines if room >= 0 else self._cut("left out here", "tui {run}")
                name = tag("summary", file, class_="mono")
                by_file[file] = tag("details", name, shown, class_="source", data_file=PurePath(file).name)
        return _section("Sources", *by_file.values()) if by_file else Markup()

    def _settings(self) -> Markup:
        record = self.run.record
        lines = [f"{name} = {value}" for name, value in (record.versions | record.environment).items()]
        for room, settings in record.config.items():
            lines += [f"{room}.{name} = {value}" for name, value in settings.items()]
        footer = f"Made by graphdbg {record.versions.get('graphdbg', '')}: redacted, searched for what should be gone."
        return joined(_folded("Versions and settings", "\n".join(lines)), tag("p", footer, class_="dim"))

    def _error(self, text: str) -> Markup:
        most = int(_ERROR * self.part)
        rest = self._cut(f"{len(text) - most} more letters", "ls {run} --json") if len(text) > most else ""
        return joined(tag("pre", text[:most], class_="wrap bad"), rest)

    def _table(self, title: str, titles: Sequence[str], rows: Sequence[Markup], option: str, *before: str) -> Markup:
        most = max(1, int(_ROWS * self.part))
        heads = tag("thead", tag("tr", *(tag("th", title_text) for title_text in titles)))
        rest = self._cut(f"{len(rows) - most} more left out here", f"ls {{run}} {option}") if len(rows) > most else ""
        table = tag("table", heads, tag("tbody", *rows[:most]))
        return _section(title, *before, tag("div", table, class_="scroll"), rest)

    def _cut(self, what: str, words: str) -> Markup:
        return tag("p", f"{what}: ", tag("code", f"graphdbg {words.format(run=self.typed)}".strip()), class_="dim")


def _drawn(compiled: CompileLine) -> list[Span]:
    """The spans of a compile, inner ones last so that they are drawn on top; without spans, its beginning."""
    order = list(_PHASES)
    spans = compiled.time.spans if compiled.time else [("", compiled.began, compiled.began)] if compiled.began else []
    return sorted(spans, key=lambda span: order.index(span[0]) if span[0] in order else 0)


def _by_phase(times: Sequence[CompileTime]) -> dict[str, float]:
    return {phase: sum(getattr(timed, f"{phase}_s") or 0.0 for timed in times) for phase in _PHASES}


def _guards(compiled: CompileLine) -> Markup:
    """The failed guards, and the guards assumed for its sizes, each with a link to itself."""
    if compiled.item is None or not (compiled.item.guards or compiled.item.conditions):
        return Markup()
    guards = [("failed", _guard(guard)) for guard in compiled.item.guards]
    guards += [("assumed", text) for text in compiled.item.conditions]
    rows = [
        tag("li", tag("a", "#", href=f"#{name}"), " ", tag("b", kind), " ", tag("code", text), id=name)
        for number, (kind, text) in enumerate(guards, 1)
        for name in [f"g-{compiled.id}-{number}"]
    ]
    return joined(tag("h3", "Guards"), tag("ul", *rows, class_="guards"))


def _guard(guard: Guard) -> str:
    place = f", needed at {_line(guard.place)}{guard.place.code_text}" if guard.place else ""
    return f"{wording.failed(guard)}{f', of {guard.of}' if guard.of else ''}{place}"


def _line(place: ProgramLine | Function | Skipped | None) -> str:
    return f"{PurePath(place.file).name}:{place.line}" if place else ""


def _sizes(compiled: CompileLine | None) -> str:
    """What should be equal for a compile on all ranks: the number of nodes by stage."""
    rows = compiled.graphs.rows if compiled else []
    nodes = [f"{row.stage} {row.nodes}" for row in rows if row.stage in ("dynamo", "forward", "backward", "inference")]
    return ", ".join(nodes) or ("no graph" if compiled else "")


def _section(title: str, *inside: str) -> Markup:
    return tag("section", tag("h2", title), *inside, id=title.lower().replace(" ", "-"))


def _folded(title: str, text: str) -> Markup:
    return tag("details", tag("summary", title), tag("pre", text, class_="wrap"), class_="fold")


def _row(*cells: str, class_: str | None = None) -> Markup:
    return tag("tr", *(tag("td", cell) for cell in cells), class_=class_)
