"""Redacts the records of a run: the only place that knows which of their fields are free text.

Also: takes paths, users, hosts, credentials and the user's source lines out of the texts of one run, and counts what it
took out.

Names that FX and the file system read (nodes, targets, ids, expressions) stay. The given records belong to the store,
and are not changed.

For example: `graph(saved.record, texts, keep=False).strings[0]` gives `'  File "train.py", line 76, in forward\\n'`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from .. import schema
from ..journal import Event
from ..process import ProcessRecord
from ..schema import Arg, GraphBody, GraphRecord
from ..secrets import STAND_IN, Secrets, shareable
from ..walk import contents, map_argument, nodes, rebuilt, tag_of
from .redact import ANY_HOME, COMMON_USERS, Places, is_absolute, public, without_folder

T = TypeVar("T")

_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<file>[^"\n]*)"(?P<rest>.*)$')
_GUARD = re.compile(r"[ \t]+# [^\n]*?(?=[ \t]+# \S+:\d+ in )")
_PLACE = re.compile(r"(?<=# )(?P<file>[^\s:]+)(?=:\d+ in )")
_CONSTANT = re.compile(r"(?<=Variable\(str: )(?:'[^'\n]*'|\"[^\"\n]*\")")
_REPEATS = 10_000
"""Texts up to this length are cached, as they are likely to occur again."""
_COMPARED = re.compile(r"(?<=[=!]= )(?:'[^'\n]*'|\"[^\"\n]*\")")
_ADDRESS = re.compile(r"(?<![\w.])(?!127\.0\.0\.1|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+")
_KEY = re.compile(r"[\w.+~-]+")
_RANDOM = re.compile(r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9_-]{32,}")
_USERS_KERNEL = re.compile(
    r"(?P<head>^[ \t]*# Original path:[^\n]*\n(?:[ \t]*#[^\n]*\n)*[^\n]*async_compile\.triton\([^\n]*?'{3})"
    r"(?P<kernel>.*?)(?P<tail>'{3}, device_str=)",
    re.MULTILINE | re.DOTALL,
)
_TRACES = re.compile(r"Original path:|custom_kernel=True|\.user_autotune\(")
_CODE = re.compile(r"(?P<head>(?:#|//) File: (?P<file>[^\n:]+):\d+ in [^\n,]*)(?P<code>, code: [^\n]*)")
_FILE = re.compile(r"(?<=File: )(?P<file>[^\n:]+)(?=:\d+ in )")
_WORD = r"(?<![A-Za-z0-9_]){}(?![A-Za-z0-9_])"
_ORDINARY = COMMON_USERS | {
    "abs", "add", "all", "any", "cat", "cos", "dim", "exp", "ids", "log", "max", "mean", "min", "mul", "nan", "nodes",
    "run",
    "sin", "std", "sub", "sum", "tan", "torch", "train", "view", "graph", "model", "data", "input", "inputs", "output",
    "localhost", "python", "worker", "node", "host", "server", "linux", "debian", "main", "master", "gpu", "cpu",
    "cuda", "dev",
}  # fmt: skip


class Machine(msgspec.Struct):
    """The names that a run may reveal: home folders, user names, host names, and folders that must not be named."""

    homes: set[str] = msgspec.field(default_factory=set[str])
    users: set[str] = msgspec.field(default_factory=set[str])
    hosts: set[str] = msgspec.field(default_factory=set[str])
    folders: set[str] = msgspec.field(default_factory=set[str])

    def learn(self, text: str) -> None:
        """Notes the home folders in a text and their users."""
        for home in ANY_HOME.findall(text):
            self.homes.add(home)
            self.users.add(home.rpartition("/")[2])

    def distinct(self, names: Iterable[str]) -> list[str]:
        """The user or host names that are no ordinary words of a program and can therefore be searched for."""
        distinct_names = [name for name in names if len(name) >= 3 and name.lower() not in _ORDINARY]
        return sorted(distinct_names, key=lambda name: (-len(name), name))

    def literals(self) -> list[str]:
        """Paths that must not appear, longest first, without the leading slash where the rest is long enough."""
        paths = {path.rstrip("/") for path in self.homes | self.folders}
        shown = {path[1:] if path.count("/") > 1 else path for path in paths if len(path) > 2}
        return sorted(shown, key=lambda path: (-len(path), path))


def pattern(word: str) -> str:
    """A regular expression that matches a name as a whole word."""
    return _WORD.format(re.escape(word))


def path_pattern(path: str) -> str:
    """A regular expression that matches a path, or its subpaths."""
    return ("" if path.startswith("/") else r"(?<![A-Za-z0-9_.-])") + re.escape(path) + r"(?![A-Za-z0-9_-])"


class Texts:
    """Redacts the texts of one run; `changed` counts the replacements by kind. `source` keeps the lines of the user's
    code."""

    def __init__(
        self, places: Places, machine: Machine, *, source: bool = False, secrets: Secrets | None = None
    ) -> None:
        self.secrets = secrets or Secrets()
        self.places = places
        self.machine = machine
        self.source = source
        self.changed: Counter[str] = Counter()
        self.left_out: dict[str, None] = {}
        """Operators and passes of the program whose source is left out, although graphs need them to run."""
        self._hosts = {host: f"<host-{number}>" for number, host in enumerate(sorted(machine.hosts), 1)}
        self._literals = [re.compile(path_pattern(path)) for path in machine.literals()]
        self._users = [re.compile(pattern(user)) for user in machine.distinct(machine.users)]
        hosts = machine.distinct(machine.hosts)
        self._host_words = [(re.compile(pattern(host) + r"(?:\.[a-z][\w.-]*)?"), self._hosts[host]) for host in hosts]
        words = [each.pattern for each in [*self._users, *(each for each, _ in self._host_words)]]
        self._mark = re.compile("|".join([r"[/\\@]", 'File "', "# ", r"Variable\(str", r"\d\.\d+\.\d", *words]))
        self._known: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Redacts any free text: an error, a stack, a remark, a setting."""
        redacted = self._known.get(text)
        if redacted is None:
            redacted = self._text(text) if self._mark.search(text) else self.secrets.text(text)
            if len(text) <= _REPEATS:
                self._known[text] = redacted
            self.changed["texts"] += redacted != text
        return redacted

    def remark(self, text: str) -> str:
        """Redacts a line of a journal or a setting: as `text`, and without the texts that a failed guard compares
        with."""
        return self.text(text) if self.source else _COMPARED.sub("'<text>'", self.text(text))

    def host(self, name: str) -> str:
        """The stand-in for a host name; empty for an empty name."""
        return self._hosts.get(name, "<host>") if name else ""

    def file(self, path: str) -> str:
        """The redacted name of a file."""
        return self.places.name(path) if is_absolute(path) else self.text(path)

    def frame(self, file: str, code: str) -> tuple[str, str]:
        """A frame's redacted file, and its line of code, which is empty unless the code is public or wanted."""
        name = self.file(file)
        return name, self.line(name, code)

    def line(self, name: str, code: str) -> str:
        """A line of code from a file with that redacted name; empty unless public or wanted."""
        if self.source or public(name) or not code.strip():
            return self.text(code)
        self.changed["source lines"] += 1
        return ""

    def command(self, words: Iterable[str]) -> list[str]:
        """Redacts a command line: flags stay; paths, credentials and a program given as text are replaced."""
        shown: list[str] = []
        before = ""
        words = list(words)
        for word, safe in zip(words, self.secrets.command(words), strict=True):
            flag, equals, value = safe.partition("=") if safe.startswith("-") else ("", "", safe)
            if not equals and safe.startswith("-"):
                shown.append(self.text(safe))
            elif before == "-c" and not self.source:
                shown.append("<program>")
            else:
                shown.append(f"{self.text(flag)}{equals}{self._value(value)}")
            self.changed["words of command lines"] += shown[-1] != word
            before = "" if equals else word
        return shown

    def _value(self, word: str) -> str:
        if word == STAND_IN:
            return word
        name, equals, value = word.partition("=")
        if equals and _KEY.fullmatch(name):
            return f"{name}={self._value(value)}"
        if _URL.match(word):
            return "<url>"
        if _RANDOM.fullmatch(word):
            return STAND_IN
        if is_absolute(word):
            return self.places.name(word)
        if ("/" in word or "\\" in word) and " " not in word:
            last = re.split(r"[/\\]", word.rstrip("/\\"))[-1]
            return self.places.ending_in(word.removeprefix("./")) or without_folder(last)
        return self.text(word)

    def generated(self, source: str) -> str | None:
        """Redacts generated code: kernels and calls stay, copies of the user's program are removed. None for a text
        with a user's kernel that cannot be cut out."""
        if not self.source:
            source = _USERS_KERNEL.sub(self._without_kernel, source)
            if _TRACES.search(source):
                return None
            source = _CODE.sub(lambda match: match["head"] + self.line(self.file(match["file"]), match["code"]), source)
        return self.text(_FILE.sub(lambda match: self.file(match["file"]), source))

    def _without_kernel(self, match: re.Match[str]) -> str:
        self.changed["source lines"] += match["kernel"].count("\n")
        return match["head"].replace("Original path:", "A kernel of the user's own, left out:") + match["tail"]

    def _text(self, text: str) -> str:
        text = self.secrets.text(text)
        if 'File "' in text:
            text = self._frames(text)
        if not self.source:
            text = _GUARD.sub(self._dropped_guard, text)
            text = _CONSTANT.sub("'<text>'", text)
        text = _PLACE.sub(lambda match: self._relative(match["file"]), text)
        text = self.places.text(text)
        text = ANY_HOME.sub("<path>", text)
        for literal in self._literals:
            text = literal.sub("<path>", text)
        for word, stand_in in self._host_words:
            text = word.sub(stand_in, text)
        for word in self._users:
            text = word.sub("<user>", text)
        return _ADDRESS.sub("<address>", text)

    def _dropped_guard(self, _: re.Match[str]) -> str:
        self.changed["source lines"] += 1
        return ""

    def _relative(self, file: str) -> str:
        if "/" not in file or is_absolute(file):
            return self.places.name(file)
        return self.places.ending_in(file) or (file if public(file) else file.rpartition("/")[2])

    def _frames(self, text: str) -> str:
        """A stack with redacted file names, without the user's lines and the marks below them."""
        kept: list[str] = []
        dropping = -1
        for line in text.split("\n"):
            frame = _FRAME.match(line)
            if frame:
                name = self.places.name(frame["file"])
                kept.append(f'{frame["indent"]}File "{name}"{frame["rest"]}')
                dropping = -1 if self.source or public(name) else len(frame["indent"])
            elif dropping >= 0 and line.strip() and len(line) - len(line.lstrip()) > dropping:
                self.changed["source lines"] += bool(line.strip(" ~^"))
            else:
                dropping = -1
                kept.append(line)
        return "\n".join(kept)


Keep = Callable[[str], bool]
"""Whether the bytes of the storage of that name are packed."""

_FRAME_LENGTH = 4
_PRESENT = "now"
_KERNEL_SOURCE = "triton_source"


def run(record: schema.RunRecord, texts: Texts) -> schema.RunRecord:
    """Redacts run.json: keeps only listed variables with plain values, and the command without its paths."""
    environment = {name: value for name, value in shareable(record.environment).items() if texts.text(value) == value}
    return replace(
        record,
        command=texts.command(record.command),
        versions=_texts(record.versions, texts),
        environment=environment,
        config=tree(record.config, texts),
        job="",
    )


def process(record: ProcessRecord, texts: Texts, *, gone: bool) -> ProcessRecord:
    """Redacts process.json: the host gets a stand-in, the pid stays; `gone`: the process is known to be dead."""
    return replace(
        record,
        host=texts.host(record.host),
        argv=texts.command(record.argv),
        start_ticks=0,
        where="",
        gone=gone or record.gone,
    )


def event(recorded: Event, texts: Texts) -> Event:
    """A journal line with redacted fields; kind, graph and time stay."""
    return Event(recorded.time, recorded.kind, recorded.graph, cast("dict[str, Any]", tree(recorded.fields, texts)))


def graph(record: GraphRecord, texts: Texts, *, keep: Keep) -> GraphRecord:
    """Redacts graph.json; parameters and constants whose bytes are not kept have only their shapes."""
    programs = set[int]() if texts.source else set(_programs(record.graph))
    strings = ["" if number in programs else texts.text(text) for number, text in enumerate(record.strings)]
    texts.changed["source lines"] += sum(record.strings[number].count("\n") + 1 for number in programs)
    return replace(
        _redacted(record, texts, keep),
        versions=_texts(record.versions, texts),
        shape_env=tree(record.shape_env, texts),
        strings=strings,
        kernels=[_kernel(kernel, texts) for kernel in record.kernels],
        definitions=[_definition(definition, texts) for definition in record.definitions],
        compile_kwargs={texts.text(name): _argument(arg, texts) for name, arg in record.compile_kwargs.items()},
        config={room: _arguments(settings, texts) for room, settings in record.config.items()},
    )


def _kernel(kernel: schema.TritonKernel, texts: Texts) -> schema.TritonKernel:
    """Redacts a user's kernel; its source stays only where source is kept."""
    path, _, line = kernel.file.rpartition(":")
    kernel = replace(
        kernel,
        file=f"{texts.file(path)}:{line}" if path else "",
        missing=[texts.text(text) for text in kernel.missing],
        dropped=[texts.text(text) for text in kernel.dropped],
    )
    if texts.source:
        return kernel
    texts.changed["source lines"] += (kernel.decorators + kernel.program).count("\n")
    return replace(kernel, program="", decorators="")


def _definition(definition: schema.DefinitionRecord, texts: Texts) -> schema.DefinitionRecord:
    """Redacts a definition cut from the user's program; its source stays only where source is kept."""
    texts.changed["source lines"] += 0 if texts.source else definition.program.count("\n")
    missing = [texts.text(text) for text in definition.missing]
    if definition.program and not texts.source:
        passes = [f"{what.removesuffix('()')} ({name.rpartition('.')[2]})" for name, what in definition.values.items()]
        texts.left_out |= dict.fromkeys([*(f"operators of {space}" for space in definition.spaces), *passes])
    return replace(
        definition,
        file=texts.file(definition.file),
        program=definition.program if texts.source else "",
        missing=missing,
        argv=texts.command(definition.argv),
    )


def _programs(body: GraphBody) -> Iterator[int]:
    """The indices of the strings that hold the source of a user's kernel."""
    return (place for node in nodes(body) for place in contents(node.meta.get(_KERNEL_SOURCE), "string"))


def inputs(record: schema.InputsRecord, texts: Texts, *, keep: Keep) -> schema.InputsRecord:
    """Redacts inputs.json: shapes, strides, scalars and statistics stay, values only of tensors that are kept."""
    return _redacted(record, texts, keep)


def tree(value: Any, texts: Texts) -> Any:
    """Any JSON value with all its texts redacted; a list [file, line, function, code] is redacted like a stack's
    frame."""
    if isinstance(value, str):
        return texts.remark(value)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if _is_frame(items):
            file, code = texts.frame(items[0], items[3])
            return [file, items[1], items[2], code]
        return [tree(item, texts) for item in items]
    if isinstance(value, dict):
        return {texts.text(key): _field(key, item, texts) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _field(key: str, value: Any, texts: Texts) -> Any:
    if isinstance(value, str) and key in ("file", "filename", "path", "where"):
        return texts.file(value)
    if isinstance(value, str) and key in ("code", "source_line"):
        return texts.line("", value)
    if key == _PRESENT and isinstance(value, dict) and not texts.source:
        # values of the user's variables, where a guard failed
        held = cast("dict[str, Any]", value)
        return {name: "<text>" if isinstance(item, str) else item for name, item in held.items()}
    return tree(value, texts)


def _is_frame(items: list[Any]) -> bool:
    return len(items) == _FRAME_LENGTH and [type(item) for item in items] == [str, int, str, str]


def _texts(mapping: dict[str, str], texts: Texts) -> dict[str, str]:
    return {key: texts.text(value) for key, value in mapping.items()}


_FREE: dict[type[Any], tuple[str, ...]] = {
    schema.NodeRecord: ("args", "kwargs", "meta"),
    GraphBody: ("meta",),
    schema.ModuleRecord: ("arguments", "repr"),
    schema.InputRecord: ("source",),
    schema.InputsRecord: ("reason",),
    schema.SymbolRecord: ("source",),
    schema.GuardRecord: ("message",),
    schema.ConstValue: ("value",),
    schema.TensorValue: ("context",),
    schema.OpaqueValue: ("type",),
}
"""Record -> its fields that hold free text, or arguments, in which there may be some."""


def _redacted(value: T, texts: Texts, keep: Keep) -> T:
    """A record with its free texts redacted, and those of all records in it; tensors whose bytes are not kept have only
    their shapes."""
    free = _FREE.get(type(value), ())

    def part(name: Any, held: Any) -> Any:
        if name in ("kwargs", "meta", "arguments") and name in free:
            return _arguments(held, texts)
        if name == "storage" and isinstance(value, schema.StoredTensor):
            return held if not held or keep(held) else ""
        return _argument(held, texts) if name in free else _redacted(held, texts, keep)

    return value if value is None or isinstance(value, (str, int, float)) else rebuilt(value, part)


def _arguments(mapping: dict[str, Arg], texts: Texts) -> dict[str, Arg]:
    return {name: _argument(arg, texts) for name, arg in mapping.items()}


def _argument(arg: Arg, texts: Texts) -> Arg:
    """Redacts an encoded argument, except for names by their tag."""
    return map_argument(arg, lambda leaf: _leaf(leaf, texts))


def _leaf(arg: Arg, texts: Texts) -> Arg:
    if isinstance(arg, str):
        return texts.text(arg)
    tag, content = tag_of(arg)
    return {tag: tree(content, texts)} if tag == "opaque" else arg
