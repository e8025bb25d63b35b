"""The page: all of a redacted run in one HTML file that needs no server, no network and, but for its node tables, no script.

Everything it tells comes from the copy that `making` redacted, or through its `Texts`. HTML is made by `dumps.markup` alone. What
would make it larger than `MOST_BYTES` is cut, and said, with the command that shows all of it.

>>> made = page(copy, "myrun", verdicts={}, measured=run)
>>> made.text[:15], made.rows
('<!doctype html>', [('rows of nodes', 1520, 0, 0), ('lines of generated code', 800, 0, 0)])
"""

from __future__ import annotations

import base64
import hashlib
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from .. import deaths, times, why
from ..compiles import Compiled
from ..index import Row
from ..journal import IN_FLIGHT
from ..markup import Markup, data, joined, tag
from ..sources import Sources
from ..store import Run
from ..times import CompileTime, Span
from ..why import frequent, wording
from ..why.model import Compile, Function, Guard, ProcessWhy
from ..why.text import Writer
from ..wording import counted
from ..worst import Told
from .page_data import Cut, Graph, cut, read

MOST_BYTES = 2_900_000
SUFFIXES = (".html", ".htm")
_WIDTH = 110
_MOST_TIMES_HALVED = 12
_NODES, _CODE, _COMPILES, _SOURCE, _ERROR = 6000, 300_000, 2000, 600_000, 20_000
"""Of one graph, of one graph's code in letters, of the run, of all sources and of one error in letters: halved until all fits."""

_MARKS = {0: ("✓", "ok"), 1: ("✗", "bad"), 4: ("?", "doubt")}
"""What a verdict's exit code is shown as."""
_PHASES = {"dynamo": "Dynamo", "aot": "AOTAutograd", "inductor": "backend, forward", "backward": "backend, backward"}
"""By the name of the field of CompileTime; the backend may be another than Inductor."""


class Page(NamedTuple):
    """The HTML, and rows as `Packed` has them for what is in it and what was cut."""

    text: str
    rows: list[tuple[str, int, int, int]]


class Entry(NamedTuple):
    """One compile; `function` and `item` where Dynamo told of it."""

    id: str
    process: ProcessWhy
    function: Function | None
    item: Compile | None
    graphs: Compiled
    time: CompileTime | None
    reason: str
    details: str


def page(run: Run, name: str, *, verdicts: Mapping[str, Told], measured: Run) -> Page:
    """`run`: the redacted copy; `name`: what commands call the run; `measured`: the run itself, whose executions were timed."""
    told = why.of_run(run).processes
    entries = list(_entries(run, told, {one.id: one for one in times.of_run(run, measured)}))
    graphs, made = read(run, _NODES), Page("", [])
    for halved in range(_MOST_TIMES_HALVED):
        made = _Writing(run, name, verdicts, told, entries, graphs, 0.5**halved).page()
        if len(made.text.encode()) <= MOST_BYTES:
            break
    return made


def _entries(run: Run, told: Iterable[ProcessWhy], known: Mapping[str, CompileTime]) -> Iterator[Entry]:
    """The compiles in the order in which they began, process by process; then the graphs that came without Dynamo."""
    rows = {row.id: row for row in run.rows}
    for process in told:
        writer = Writer(process, _WIDTH)
        pairs = [(function, item) for function in process.functions for item in function.compiles]
        found: list[Entry] = []
        for function, item in pairs:
            graphs = [rows[line.id] for line in item.graphs if line.id in rows]
            timed = next((known[row.id] for row in graphs if row.id in known), None)
            place = f"{PurePath(function.file).name}:{function.line}" if function.file else ""
            compiled = Compiled(f"{process.prefix}{item.id}", graphs, function.name, place)
            reason, details = writer.reason(function, item), writer.details(function, item)
            found.append(Entry(compiled.id, process, function, item, compiled, timed, reason, details))
        yield from sorted(found, key=lambda one: one.item.began if one.item else 0.0)
        others: dict[str, list[Row]] = {}
        for row in (rows[line.id] for line in process.others if line.id in rows):
            others.setdefault(row.id.partition("/")[0], []).append(row)
        for name, graphs in others.items():
            reason = "without Dynamo (a direct call of the compiler), or its beginning was lost"
            yield Entry(name, process, None, None, Compiled(name, graphs), None, reason, "")


class _Writing:
    """One page with limits of so large a part of the usual ones."""

    def __init__(
        self, run: Run, name: str, verdicts: Mapping[str, Told], told: Sequence[ProcessWhy], entries: list[Entry],
        graphs: list[Graph], part: float,
    ) -> None:  # fmt: skip
        self.run, self.name, self.typed, self.verdicts, self.told, self.part = run, name, shlex.quote(name), verdicts, told, part
        self.graphs: Cut = cut(graphs, int(_NODES * part), int(_CODE * part))
        self.there = {one.id for one in graphs}
        self.all, self.entries = entries, entries[: int(_COMPILES * part)]
        self.timed = [one.time for one in entries if one.time is not None]
        moments = [at for one in self.timed for _, *both in one.spans for at in both]
        moments += [one.item.began for one in entries if one.item and one.item.began]
        self.start, self.end = min(moments, default=0.0), max(moments, default=0.0)
        self.total = sum(one.compile_s for one in self.timed)

    def page(self) -> Page:
        """The whole document."""
        style, script = (Path(__file__).with_name(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
        document = {"run": self.typed, **self.graphs.document}
        body = [self._head(), self._compiles(), self._causes(), self._times(), self._ranks(), self._left_alone()]
        body += [self._sources(), self._settings()]
        head = joined(
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            Markup('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
            tag("title", f"{self.name}: graphs of torch.compile"), tag("style", Markup(style)),
        )  # fmt: skip
        dialog = tag("dialog", tag("header"), tag("div", class_="scroll", tabindex="-1"), tag("footer"), id="graph")
        scripts = joined(tag("script", data(document), type="application/json", id="data"), tag("script", Markup(script)))
        text = f"<!doctype html>\n{tag('html', tag('head', head), tag('body', *body, dialog, scripts), lang='en')}\n"
        return Page(text, [
            ("rows of nodes", self.graphs.nodes[0], 0, self.graphs.nodes[1]),
            ("lines of generated code", self.graphs.lines[0], 0, self.graphs.lines[1]),
        ])  # fmt: skip

    # -- what there is

    def _head(self) -> Markup:
        items = [one.item for one in self.all if one.item]
        states = Counter(word for _, kind, word in map(self._state, self.all) if kind == "bad")
        bad = [joined(" · ", tag("span", f"✗ {count} {word}", class_="bad")) for word, count in states.most_common()]
        numbers = [
            counted(len(self.all), "compile"), counted(len(self.run.rows), "graph"), counted(len(self.told), "process"),
            f"{self.total:.1f} s of compiling", counted(sum(len(item.breaks) for item in items), "graph break"),
            counted(sum(item.kind == "recompile" for item in items), "recompile"),
        ]  # fmt: skip
        record = self.run.record
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.started)) if 0 < record.started < 1e11 else ""
        facts = [when, *(f"{key} {record.versions[key]}" for key in ("torch", "python", "triton") if key in record.versions)]
        found = [f"{one.message}; where: graphdbg triage {self.typed}" for one in why.first_found(self.run.processes)]
        troubles = [tag("p", line, class_="bad") for line in (*deaths.lines(self.run.processes), *found)]
        keys = joined(*(joined(tag("kbd", key), f" {does} ") for key, does in _KEYS))
        search = tag("input", id="q", type="search", placeholder="search functions, reasons, nodes", aria_label="search")
        noscript = "Node tables, generated code and search need a script, which this browser does not run. The command: "
        return joined(
            tag("header", tag("h1", self.name), tag("p", shlex.join(record.command), class_="mono"),
                tag("p", " · ".join(filter(None, facts)), class_="dim"), class_="top"),
            tag("p", " · ".join(numbers), *bad, class_="sum"), *troubles,
            tag("noscript", tag("p", noscript, tag("code", f"graphdbg show {self.typed}/ID"))),
            tag("nav", search, tag("span", keys, class_="keys"), hidden=True), tag("div", id="hits", hidden=True),
        )  # fmt: skip

    def _compiles(self) -> Markup:
        left = len(self.all) - len(self.entries)
        cut = [self._cut(f"{counted(left, 'more compile')} left out here", "ls {run} --why")] if left else []
        titles = ("compile", "state", "function", "why it was compiled", "seconds", "cache")
        axis = tag("span", tag("span", "0 s"), tag("span", f"{self.end - self.start:.0f} s"), class_="axis")
        heads = tag("div", *(tag("span", title) for title in titles), axis, class_="row heads", aria_hidden="true")
        return _section("Compiles", heads, *map(self._compile, self.entries), *cut) if self.all else joined(
            tag("p", f"Nothing was compiled, or the recorder was not active: graphdbg ls {self.typed} --why"),
        )  # fmt: skip

    def _compile(self, one: Entry) -> Markup:
        seconds = one.time.compile_s if one.time else one.graphs.seconds if one.graphs.rows else None
        glyph, kind, word = self._state(one)
        cells = [
            tag("span", one.id, class_="mono"), tag("span", f"{glyph} {word}".strip(), class_=kind),
            tag("span", one.graphs.name or "?", " ", tag("small", one.graphs.place), class_="mono"), tag("span", one.reason),
            tag("span", "" if seconds is None else f"{seconds:.2f}", class_="num"),
            tag("span", one.time.cache if one.time else ""),
            tag("span", *map(self._bar, _drawn(one)), class_="line"),
        ]  # fmt: skip
        errors = dict.fromkeys(row.error for row in one.graphs.rows if row.error)
        parts = [
            tag("table", *(self._graph(row) for row in one.graphs.rows), class_="stages") if one.graphs.rows else "",
            *(self._long(error, int(_ERROR * self.part)) for error in errors),
            tag("pre", one.details, class_="wrap") if one.details else "", self._guards(one),
        ]  # fmt: skip
        row = tag("summary", *cells, class_="row dim" if kind == "dim" else "row")
        return tag("details", row, *parts, id=f"c-{one.id}", open=kind == "bad")

    def _state(self, one: Entry) -> tuple[str, str, str]:
        """Glyph, class and word: the worst verdict that is known, else the worst status."""
        rows, item = one.graphs.rows, one.item
        if not rows:
            bad = item is not None and (item.failure is not None or bool(item.error or item.limit))
            return ("✗", "bad", "given up" if item and item.limit else "failed") if bad else ("", "dim", "no graph")
        known = [self.verdicts[row.id] for row in rows if row.id in self.verdicts]
        worst = one.graphs.worst
        if one.graphs.bad:
            return "✗", "bad", f"{worst.status}{', died' if worst.died else ''}"
        if known:
            code, word, _ = min(known, key=lambda told: (1, 4, 0).index(told[0]) if told[0] in _MARKS else 3)
            return *_MARKS.get(code, ("", "")), word
        return ("?", "doubt", worst.status) if worst.status in IN_FLIGHT else ("", "", worst.status)

    def _graph(self, row: Row) -> Markup:
        code, word, reason = self.verdicts.get(row.id, (-1, "", ""))
        glyph, kind = _MARKS.get(code, ("", ""))
        there = row.id in self.there
        name = tag("a", row.id, href=f"#{row.id}", class_="open") if there else tag("span", f"{row.id} (not saved)", class_="dim")
        nodes = "" if row.nodes is None else counted(row.nodes, "node", form=",")
        cells = [
            tag("td", name, class_="mono"), tag("td", nodes, class_="num"), tag("td", row.status),
            tag("td", "" if row.seconds is None else f"{row.seconds:.2f} s", class_="num"),
            tag("td", f"{glyph} {word}{': ' if reason else ''}{reason}".strip(), class_=kind),
        ]  # fmt: skip
        return tag("tr", *cells)

    def _guards(self, one: Entry) -> Markup:
        if one.item is None:
            return Markup()
        failed = [("failed", _guard(guard)) for guard in one.item.guards]
        assumed = [("assumed", text) for text in one.item.conditions]
        rows = [
            tag("li", tag("a", "#", href=f"#{name}"), " ", tag("b", kind), " ", tag("code", text), id=name)
            for number, (kind, text) in enumerate((*failed, *assumed), 1) for name in [f"g-{one.id}-{number}"]
        ]  # fmt: skip
        return joined(tag("h3", "Guards"), tag("ul", *rows, class_="guards")) if rows else Markup()

    def _causes(self) -> Markup:
        rows: list[Markup] = []
        for process in self.told:
            for cause in frequent.causes(process)[: int(200 * self.part)]:
                ids = [f"{process.prefix}{name}" for name in dict.fromkeys(cause.ids)]
                links = [joined(tag("a", name, href=f"#c-{name}"), " ") for name in ids[:8]]
                more = f"and {len(ids) - 8} more" if len(ids) > 8 else ""
                place = f"{PurePath(cause.place.file).name}:{cause.place.line}" if cause.place else ""
                cells = (f"{cause.count} ×", cause.text, place)
                rows.append(tag("tr", *(tag("td", cell) for cell in cells), tag("td", *links, more, class_="mono")))
        return _table("Graph breaks and recompiles", ("", "cause", "line", "compiles"), rows) if rows else Markup()

    # -- where the time went

    def _times(self) -> Markup:
        if not self.total:
            return Markup()
        phases = _by_phase(self.timed)
        legend = [
            tag("span", tag("i", class_=phase), f" {_PHASES[phase]} {spent:.1f} s, {spent / self.total:.0%}")
            for phase, spent in phases.items()
        ]  # fmt: skip
        functions: dict[str, list[CompileTime]] = {}
        for one in self.timed:
            functions.setdefault(one.function, []).append(one)
        spent = sorted(((sum(one.compile_s for one in all_), name, all_) for name, all_ in functions.items()), reverse=True)
        rows = [
            tag("tr", tag("td", name, class_="mono"), tag("td", str(len(all_)), class_="num"),
                tag("td", f"{seconds:.1f}", class_="num"), tag("td", _measured(all_)),
                tag("td", self._phases(_by_phase(all_)), class_="share"))
            for seconds, name, all_ in spent[: int(100 * self.part) + 1]
        ]  # fmt: skip
        caches = Counter(one.cache for one in self.timed)
        cached = ", ".join(f"{name} {count}" for name, count in caches.most_common())
        off = "; off: caches hide graphs and are bypassed while recording, unless with --keep-cache" if "off" in caches else ""
        head = (self._phases(phases), tag("p", *legend, class_="legend"), tag("p", f"compiler caches: {cached}{off}"))
        measured = "one execution / eager's" if any(one.run_s for one in self.timed) else ""
        titles = ("function", "compiles", "seconds", measured, "")
        return _table("Where the compile time went", titles, rows, *head)

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
        if len(self.told) < 2:
            return Markup()
        by_id = {one.id: one for one in self.all}
        names = dict.fromkeys(one.id.removeprefix(one.process.prefix) for one in self.all)
        rows: list[Markup] = []
        for name in list(names)[: len(self.entries)]:
            here = [by_id.get(f"{process.prefix}{name}") for process in self.told]
            cells = [_alike(one) for one in here]
            differs = len(set(cells)) > 1
            first = next(one for one in here if one is not None)
            links = [tag("a", text, href=f"#c-{one.id}") if one else "–" for one, text in zip(here, cells, strict=True)]
            told = (tag("span", name, class_="mono"), first.graphs.name, "✗ differ" if differs else "equal", *links)
            rows.append(tag("tr", *(tag("td", cell) for cell in told), class_="bad" if differs else None))
        titles = [process.name if process.rank is None else f"rank {process.rank}" for process in self.told]
        return _table("Ranks side by side", ("compile", "function", "", *titles), rows)

    def _left_alone(self) -> Markup:
        lines = dict.fromkeys(
            f"{one.name}, {PurePath(one.file).name}:{one.line}: {one.reason}" for process in self.told for one in process.skipped
        )  # fmt: skip
        return _folded(f"Left alone by Dynamo ({len(lines)})", tag("pre", "\n".join(lines), class_="wrap")) if lines else Markup()

    def _sources(self) -> Markup:
        found: dict[str, str] = {}
        for process in self.run.processes:
            sources = Sources(process.path)
            for file in sources.records:
                if file not in found and (text := sources.text(file)):
                    found[file] = text
        room, made = int(_SOURCE * self.part), list[Markup]()
        for file, text in found.items():
            room -= len(text)
            lines = tag("ol", *(tag("li", line) for line in text.splitlines()))
            shown = lines if room >= 0 else self._cut("left out here", "tui {run}")
            name = tag("summary", file, class_="mono")
            made.append(tag("details", name, shown, class_="source", data_file=PurePath(file).name))
        return _section("Sources", *made) if made else Markup()

    def _settings(self) -> Markup:
        record = self.run.record
        lines = [f"{name} = {value}" for name, value in (record.versions | record.environment).items()]
        lines += [f"{room}.{name} = {value}" for room, settings in record.config.items() for name, value in settings.items()]
        made = f"Made by graphdbg {record.versions.get('graphdbg', '')}: redacted, searched for what should be gone."
        return joined(_folded("Versions and settings", tag("pre", "\n".join(lines), class_="wrap")), tag("p", made, class_="dim"))

    def _long(self, text: str, most: int) -> Markup:
        left = len(text) - most
        cut = self._cut(f"{left} more letters", "ls {run} --json") if left > 0 else ""
        return joined(tag("pre", text[:most], class_="wrap bad"), cut)

    def _cut(self, what: str, words: str) -> Markup:
        return tag("p", f"{what}: ", tag("code", f"graphdbg {words.format(run=self.typed)}"), class_="dim")


_KEYS = (("/", "search"), ("j", ""), ("k", "rows"), ("Enter", "opens"), ("Esc", "closes"))


def _drawn(one: Entry) -> list[Span]:
    """Its spans, of which those within another are drawn over it; when it began, where there are none."""
    order, began = list(_PHASES), one.item.began if one.item else 0.0
    spans = one.time.spans if one.time else [("", began, began)] if began else []
    return sorted(spans, key=lambda span: order.index(span[0]) if span[0] in order else 0)


def _by_phase(found: Sequence[CompileTime]) -> dict[str, float]:
    return {phase: sum(getattr(one, f"{phase}_s") or 0.0 for one in found) for phase in _PHASES}


def _guard(guard: Guard) -> str:
    place = f", needed at {PurePath(guard.place.file).name}:{guard.place.line}" if guard.place else ""
    return f"{wording.failed(guard)}{f', of {guard.of}' if guard.of else ''}{place}{guard.place.told if guard.place else ''}"


def _alike(one: Entry | None) -> str:
    """What of a compile should be the same on all ranks."""
    if one is None:
        return ""
    nodes = [f"{row.stage} {row.nodes}" for row in one.graphs.rows if row.stage in ("dynamo", "forward", "backward", "inference")]
    return ", ".join(nodes) or "no graph"


def _measured(found: Iterable[CompileTime]) -> str:
    told = [(one.run_s, one.eager_s) for one in found if one.run_s is not None and one.eager_s is not None]
    return "; ".join(f"{run_s * 1000:.2f} / {eager_s * 1000:.2f} ms" for run_s, eager_s in told[:3])


def _section(title: str, *inside: str) -> Markup:
    return tag("section", tag("h2", title), *inside, id=title.lower().replace(" ", "-"))


def _folded(title: str, *inside: str) -> Markup:
    return tag("details", tag("summary", title), *inside, class_="fold")


def _table(title: str, titles: Sequence[str], rows: Iterable[Markup], *before: str) -> Markup:
    heads = tag("thead", tag("tr", *(tag("th", one) for one in titles)))
    return _section(title, *before, tag("div", tag("table", heads, tag("tbody", *rows)), class_="scroll"))
