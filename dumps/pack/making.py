"""Writes the packed file: first gathers the names that a run holds of people and machines, then reads, redacts and
writes each part.

The run's own writer writes the redacted run into a temporary folder, which is zipped and then deleted. Parts that
cannot be read are listed and left out. It does not change the run, and does not wait for a process that still records
into it.

>>> packed = pack(Path("myrun"), Path("myrun.graphdbg.zip"))
>>> packed.leaks
[]
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from ... import __version__
from .. import journal, temporary
from ..archive import write_searched, zip_folder
from ..atomic import write_file
from ..errors import ExistsAlreadyError, GraphdbgError, OptionsExcludeError, UnreadableError
from ..graph_folder import JOURNAL_FILE, encode
from ..index import ListedGraph, Process, exit_record
from ..process import EXIT_FILE, host_name
from ..process import FILE as PROCESS_FILE
from ..reading import unpacked
from ..schema import FORMAT, RunRecord
from ..secrets import RULES, Secrets, random_looking
from ..sources import Sources
from ..store import Run, SavedGraph, open_run
from ..tables import Column, render
from ..worst import last_verdicts
from ..writer import ProcessWriter, RunWriter
from . import page, records
from .records import Machine, Texts, path_pattern, pattern
from .redact import Places, is_absolute, user_name

_TENSORS = "/tensors/"
_JSON = re.compile(r"<script type=\"application/json\"[^>]*>(.*?)</script>", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Leak(msgspec.Struct, frozen=True, order=True):
    """Something that should not be in a member of the archive, or in the page."""

    member: str
    what: str
    text: str


def search(path: Path, machine: Machine, known: Secrets) -> list[Leak]:
    """The leaks in the file, each kind once per member; names of members are searched too."""
    looked_for = [(what, word.encode(), re.compile(text.encode())) for what, word, text in _patterns(machine)]
    secrets = [("credential", b"", re.compile(rule.pattern.pattern.encode())) for rule in RULES]
    secrets += [("credential", value.encode(), re.compile(re.escape(value.encode()))) for value in known.values]
    places = Places([])
    leaks: set[Leak] = set()
    for name, layers in _members(path):
        kinds = looked_for if _TENSORS in name else [*looked_for, *secrets]
        for what, word, each in kinds:
            hit = next((match for layer in layers if word in layer and (match := each.search(layer))), None)
            if hit is not None:
                leaks.add(Leak(name, what, "..." if what == "credential" else hit[0].decode(errors="replace")))
        if _TENSORS not in name:
            texts = (layer.decode(errors="replace") for layer in layers if layer[:2] != b"\x1f\x8b")
            leaks |= {Leak(name, "absolute path", path) for text in texts for path in places.left(text)}
    return sorted(leaks)


def _members(path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Yields the name and the layers of each member of an archive; a page is one member, without escapes of HTML and
    JSON."""
    if not zipfile.is_zipfile(path):
        text = path.read_text(encoding="utf-8")
        words = (json.loads(word) for document in _JSON.findall(text) for word in _STRING.findall(document))
        layers = html.unescape(_JSON.sub("", text)), "\n".join(words)
        yield "the page", [layer.encode(errors="replace") for layer in layers]
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name, [name.encode(), *_layers(name, archive.read(name))]


def not_searched(machine: Machine) -> list[str]:
    """User and host names that are ordinary words, and were therefore removed only from paths and their own fields."""
    names = {name for name in machine.users | machine.hosts if name}
    return sorted(names - set(machine.distinct(names)))


def _patterns(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Yields what is searched for: its kind, a text without which it cannot occur, and its regular expression."""
    homes = {home.strip("/") for home in machine.homes}
    for path in machine.literals():
        what = "home folder" if path.strip("/") in homes else "folder of the run or of its sources"
        yield what, path, path_pattern(path)
    for what, names in (("user name", machine.users), ("host name", machine.hosts)):
        for name in machine.distinct(names):
            yield what, name, pattern(name)


def _layers(name: str, data: bytes) -> Iterator[bytes]:
    """Yields the bytes as stored, without compression, and packed records as text."""
    yield data
    if data[:2] == b"\x1f\x8b":
        try:
            data = unpacked(data, name)
        except UnreadableError:
            return
        yield data
    if ".msgpack" in name:
        try:
            yield msgspec.json.encode(msgspec.msgpack.decode(data))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return


_FILE = re.compile(r'File "((?:/|[A-Za-z]:[\\/]|\\\\)[^"\n]+)"')
_CACHE_USER = re.compile(r"/torchinductor_([A-Za-z0-9][\w.-]*)/")
_SCRIPTS = (".py", ".ipynb")
_NOT_OF_PAGES = ("lines of journals", "files of generated code")
"""Rows on parts of an archive that a page shows in another form."""


def secrets_of(run: Run | None) -> Secrets:
    """The secrets of a run: from its command lines, its variables, and the variables of this process."""
    if run is None:
        return Secrets(os.environ)
    secrets = Secrets(os.environ, run.record.environment)
    for words in (run.record.command, *(process.record.argv for process in run.processes)):
        secrets.learn(words)
    return secrets


def texts_of(saved: SavedGraph, secrets: Secrets) -> Texts:
    """Returns a redactor for the texts of one graph, which keeps source: for a report."""
    record = saved.record
    machine, places = _machine_and_places([*record.strings, *_leaves([record.compile_kwargs, record.config])])
    if saved.run is not None:
        machine.hosts.update(process.record.host for process in saved.run.processes if process.record.host)
    return Texts(places, machine, source=True, secrets=secrets)


def gather(run: Run) -> tuple[Machine, Places]:
    """Gathers the names that the run holds of its machine, and names for its source files."""
    machine, places = _machine_and_places(_texts(run))
    machine.hosts.update(process.record.host for process in run.processes if process.record.host)
    for path in (run.path.absolute(), run.path.resolve()):
        machine.folders |= {str(path), str(path.parent)}
    machine.folders |= set(places.roots)
    machine.folders = {folder for folder in machine.folders if folder.count("/") > 1}
    return machine, places


def _machine_and_places(texts: Iterable[str]) -> tuple[Machine, Places]:
    machine = Machine({str(Path.home())}, set(filter(None, [user_name()])), set(filter(None, [host_name()])))
    files: dict[str, None] = {}
    for text in texts:
        machine.learn(text)
        machine.users.update(_CACHE_USER.findall(text))
        if is_absolute(text) and text.endswith(_SCRIPTS):
            files[text] = None
        else:
            files.update(dict.fromkeys(_FILE.findall(text)))
    return machine, Places(files)


def _texts(run: Run) -> Iterator[str]:
    """Yields all texts that may name a file or a home folder; those that name the main program come first."""
    for process in run.processes:
        yield from process.record.argv
    yield from run.record.command
    yield from _leaves([run.record.environment, run.record.config])
    seen: set[str] = set()
    for process in run.processes:
        with contextlib.suppress(GraphdbgError):
            for event in journal.read(process.path / JOURNAL_FILE).events:
                yield from _leaves(event.fields)
    for row in run.rows:
        if not row.saved:
            continue
        saved = SavedGraph(row.path, run, row)  # one at a time: a run may hold a gigabyte of records
        with contextlib.suppress(GraphdbgError, OSError):
            fresh = [text for text in saved.record.strings if text not in seen]
            seen.update(fresh)
            yield from fresh
            yield from _leaves([saved.record.compile_kwargs, saved.record.config])
            for file in saved.code_files():
                yield from _lines_with_paths(file.read_text())


def _lines_with_paths(text: str) -> Iterable[str]:
    marks = ("/torchinductor_", "File: /", "/home/", "/Users/", "\\Users\\")
    return (line for line in text.splitlines() if any(mark in line for mark in marks))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        held = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        for item in held:
            yield from _leaves(item)


T = TypeVar("T")

NOTE_FILE = "packed.txt"
_NOTE = """A run of torch.compile graphs, packed and redacted by graphdbg {version}.

graphdbg ls {file}             which graphs there are, and which one failed; unzipped: graphdbg ls {folder}
graphdbg show {file}/ID        one of them; diff, replay and minify take it too
graphdbg replay {file}/ID      what is not in it of the inputs is synthesised from their shapes and statistics

{table}
"""


class Packed(msgspec.Struct):
    """The result of a packing. `rows` are (what, kept, changed, left out); `unreadable` has a sentence for each part
    that was left out."""

    file: Path
    graphs: int
    rows: list[tuple[str, int, int, int]]
    unreadable: list[str]
    leaks: list[Leak]
    not_searched: list[str]
    random: list[str]
    """Words in command lines and errors that look randomly generated, with the place of each."""
    own: list[str] = []
    """Operators and passes of the program whose source was left out, so that graphs with them cannot run elsewhere."""

    @property
    def is_page(self) -> bool:
        """Whether the file is a page for a browser."""
        return self.file.suffix.lower() in page.SUFFIXES


def pack(path: Path, out: Path, *, tensors: bool = False, source: bool = False) -> Packed:
    """Writes the archive or, where its name ends in .html, the page `out`. Raises UsageError when `path` is no run or
    `out` exists, EnvironmentLackError when the disk refuses."""
    if out.exists():
        raise ExistsAlreadyError(f"cannot write {out}", "it exists already", "choose another name with -o")
    as_page = out.suffix.lower() in page.SUFFIXES
    if as_page and tensors:
        fix = "leave --tensors out, or name a .zip with -o"
        raise OptionsExcludeError("a page holds no tensors", "a browser cannot show them", fix)
    unreadable: list[str] = []
    run = _opened(path, unreadable)
    machine, places = gather(run)
    secrets = secrets_of(run)
    texts = Texts(places, machine, source=source, secrets=secrets)
    with temporary.folder("graphdbg-pack-") as folder:
        work = _Packing(run, texts, folder / (out.name.partition(".")[0] or "run"), unreadable, tensors=tensors)
        work.whole()
        rows = work.rows()
        if as_page:
            text, shown = work.page()
            rows = [row for row in rows if row[0] not in _NOT_OF_PAGES] + shown
            write = partial(write_file, data=text.encode())
        else:
            note = _NOTE.format(version=__version__, file=out.name, folder=work.out.path.name, table=table(rows))
            write_file(work.out.path / NOTE_FILE, note.encode())
            write = partial(zip_folder, work.out.path)
        leaks_left = write_searched(out, write, lambda temporary: search(temporary, machine, secrets))
    random = [f"{word!r} in {where}" for word, where in work.random.items()]
    own, words = [*texts.left_out], not_searched(machine)
    return Packed(out, work.counts["graphs"], rows, unreadable, leaks_left, words, random, own)


def table(rows: list[tuple[str, int, int, int]], *, terminal: bool = False) -> str:
    """The rows as a text table."""
    columns = [Column("what"), *(Column(title, right=True) for title in ("kept", "changed", "left out"))]
    cells = [[what, *(str(count) if count else "-" for count in counts)] for what, *counts in rows]
    return render(columns, cells, terminal=terminal)


class _Headless(Run):
    """A run without a readable run.json; its processes and graphs can be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = RunRecord(format=FORMAT, command=[])


def _opened(path: Path, unreadable: list[str]) -> Run:
    try:
        return open_run(path)
    except UnreadableError as error:
        unreadable.append(str(error))
        return _Headless(path)


class _Packing:
    """One packing: the run to read, the run to write, and counts of what was kept, changed and left out."""

    def __init__(self, run: Run, texts: Texts, out: Path, unreadable: list[str], *, tensors: bool) -> None:
        self.run = run
        self.texts = texts
        self.unreadable = unreadable
        self.tensors = tensors
        self.counts: Counter[str] = Counter()
        self.storages: dict[str, bool] = {}
        self.random: dict[str, str] = {}
        self.out = RunWriter.create(out, records.run(run.record, texts))

    def whole(self) -> None:
        """Packs all processes of the run."""
        given = self.run.record.environment
        self.counts["variables kept"] = len(self.out.record.environment)
        self.counts["variables left"] = len(given) - len(self.out.record.environment)
        self._look("the command", self.out.record.command)
        for process in self.run.processes:
            self._process(process)
        ended = exit_record(self.run.path, self.unreadable)
        if ended is not None:
            write_file(self.out.path / EXIT_FILE, encode(ended))
        self.unreadable += [sentence for sentence in self.run.damage if sentence not in self.unreadable]

    def page(self) -> tuple[str, list[tuple[str, int, int, int]]]:
        """The page of the redacted copy. Verdicts on graphs are in the cache folder, under the original run, and are
        redacted here."""
        verdicts_of, remark = last_verdicts(self.run), self.texts.remark
        verdicts = {name: (code, word, remark(said)) for name, (code, word, said) in verdicts_of.items()}
        name = self.texts.text(self.run.path.resolve().name)
        return page.page(open_run(self.out.path), name, verdicts)

    def _process(self, process: Process) -> None:
        writer = self.out.process(process.name, process.rank, process.record.restart)
        events = journal.read(process.path / JOURNAL_FILE).events
        for row in self.run.rows:
            if row.process == process.name and row.saved:
                self._graph(writer, row)
        self._sources(writer, process)
        writer.write_programs()
        writer.journal.close()
        redacted = [records.event(event, self.texts) for event in events]
        for line in redacted:
            if line.kind == "failed":
                self._look(f"what {line.graph} failed with", _leaves(line.fields))
        self.counts["lines"] += len(redacted)
        self.counts["lines changed"] += sum(before != after for before, after in zip(events, redacted, strict=True))
        write_file(writer.path / JOURNAL_FILE, b"".join(map(journal.line, redacted)))
        described = records.process(process.record, self.texts, gone=process.liveness == "dead")
        self._look(f"the command of {process.name}", described.argv)
        write_file(writer.path / PROCESS_FILE, encode(described))
        if process.exit is not None:
            write_file(writer.path / EXIT_FILE, encode(process.exit))

    def _look(self, where: str, texts: Iterable[str]) -> None:
        """Notes words that look randomly generated in packed texts."""
        for word in (word for text in texts for word in random_looking(text)):
            self.random.setdefault(word, where)

    def _graph(self, writer: ProcessWriter, row: ListedGraph) -> None:
        saved = SavedGraph(row.path, self.run, row)
        record = self._read(f"graph {row.id}", lambda: saved.record)
        if record is None:
            self.counts["graphs left"] += 1
            return
        redacted = records.graph(record, self.texts, keep=self._keep(saved))
        writer.save_graph(redacted, saved.tensors)
        self.counts["graphs"] += 1
        self.counts["graphs changed"] += redacted != record
        self._inputs(writer, saved, row)
        self._code(writer, saved, row)

    def _sources(self, writer: ProcessWriter, process: Process) -> None:
        """Packs the copies of the user's files: left out unless wanted, like the lines of stacks."""
        sources = Sources(process.path)
        for file in sources.records:
            text = None
            if self.texts.source:
                text = self._read(f"the copy of {self.texts.file(file)}", lambda file=file: sources.text(file))
            if text is None:
                self.counts["sources left"] += 1
                continue
            redacted = self.texts.text(text)
            self.counts["sources"] += writer.sources.keep(self.texts.file(file), redacted)
            self.counts["sources changed"] += redacted != text

    def _inputs(self, writer: ProcessWriter, saved: SavedGraph, row: ListedGraph) -> None:
        seen = self._read(f"the inputs of graph {row.id}", lambda: saved.own_inputs_record)
        if seen is not None:
            writer.save_inputs(row.local, records.inputs(seen, self.texts, keep=self._keep(saved)), saved.tensors)

    def _code(self, writer: ProcessWriter, saved: SavedGraph, row: ListedGraph) -> None:
        files: dict[str, str] = {}
        for file in self._read(f"the code of graph {row.id}", saved.code_files) or []:
            text = self._read(f"{file.name} of graph {row.id}", file.read_text)
            redacted = None if text is None else self.texts.generated(text)
            if redacted is None:
                self.counts["files left"] += 1
                continue
            files[file.name] = redacted
            self.counts["files changed"] += redacted != text
        self.counts["files"] += len(files)
        if files:
            writer.save_code(row.local, files)

    def _keep(self, saved: SavedGraph) -> records.Keep:
        """A function that decides whether the bytes of a storage are packed, and counts each storage once."""

        def keep(name: str) -> bool:
            if name not in self.storages:
                wanted = self.tensors and self._read(f"tensor {name[:8]}", lambda: saved.tensors.get(name)) is not None
                self.storages[name] = wanted
            return self.storages[name]

        return keep

    def _read(self, what: str, read: Callable[[], T]) -> T | None:
        """The result of `read`; None, with a sentence in `unreadable`, when it cannot be read."""
        try:
            return read()
        except (GraphdbgError, OSError) as error:
            self.unreadable.append(f"{what}: {error}")
            return None

    def rows(self) -> list[tuple[str, int, int, int]]:
        """Rows on what was kept, changed and left out."""
        counts, changed = self.counts, self.texts.changed
        kept = sum(self.storages.values())
        words = len(self.out.record.command) + sum(len(process.record.argv) for process in self.run.processes)
        return [
            ("graphs", counts["graphs"], counts["graphs changed"], counts["graphs left"]),
            ("lines of journals", counts["lines"], counts["lines changed"], 0),
            ("texts (stacks, errors, settings)", 0, changed["texts"], 0),
            ("lines of your source", 0, 0, changed["source lines"]),
            ("copies of your source files", counts["sources"], counts["sources changed"], counts["sources left"]),
            ("files of generated code", counts["files"], counts["files changed"], counts["files left"]),
            ("tensors", kept, 0, len(self.storages) - kept),
            ("words of command lines", words, changed["words of command lines"], 0),
            ("environment variables", counts["variables kept"], 0, counts["variables left"]),
        ]
