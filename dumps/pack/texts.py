"""Takes paths, people, hosts, credentials and the user's source lines out of the texts of one run, and counts what it
took.

A text keeps its shape: stacks keep their frames, errors their words. Names that FX or the file system reads (nodes,
targets, ids) are not given to it: they stay, and the search at the end reports what one of them reveals.

>>> texts = Texts(Places(["/home/ann/gpt/train.py"]), Machine(homes={"/home/ann"}, users={"ann"}, hosts={"node17"}))
>>> text = '  File "/home/ann/gpt/train.py", line 3, in f\\n    loss = f(secret)\\nOSError: no node17:/data/ann/x.csv'
>>> texts.text(text)
'  File "train.py", line 3, in f\\nOSError: no <host-1>:<path>.csv'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from ..secrets import STAND_IN, Secrets
from .redact import ANY_HOME, COMMON_USERS, Places, is_absolute, public, without_folder

_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<file>[^"\n]*)"(?P<rest>.*)$')
_GUARD = re.compile(r"[ \t]+# [^\n]*?(?=[ \t]+# \S+:\d+ in )")
_PLACE = re.compile(r"(?<=# )(?P<file>[^\s:]+)(?=:\d+ in )")
_CONSTANT = re.compile(r"(?<=Variable\(str: )(?:'[^'\n]*'|\"[^\"\n]*\")")
_REPEATS = 10_000
"""The length up to which texts are likely to occur again."""
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
    """What a run may reveal: home folders, user names, host names, and folders that are not to be named."""

    homes: set[str] = msgspec.field(default_factory=set[str])
    users: set[str] = msgspec.field(default_factory=set[str])
    hosts: set[str] = msgspec.field(default_factory=set[str])
    folders: set[str] = msgspec.field(default_factory=set[str])

    def learn(self, text: str) -> None:
        """Notes the homes in a text and the users that they belong to."""
        for home in ANY_HOME.findall(text):
            self.homes.add(home)
            self.users.add(home.rpartition("/")[2])

    def distinct(self, names: Iterable[str]) -> list[str]:
        """The user or host names that are no ordinary words of a program and can therefore be searched for."""
        distinct_names = [name for name in names if len(name) >= 3 and name.lower() not in _ORDINARY]
        return sorted(distinct_names, key=lambda name: (-len(name), name))

    def literals(self) -> list[str]:
        """Paths that must not appear, longest first, without the slash at the beginning where enough is left."""
        paths = {path.rstrip("/") for path in self.homes | self.folders}
        shown = {path[1:] if path.count("/") > 1 else path for path in paths if len(path) > 2}
        return sorted(shown, key=lambda path: (-len(path), path))


def pattern(word: str) -> str:
    """A regular expression for a name as a word of its own."""
    return _WORD.format(re.escape(word))


def path_pattern(path: str) -> str:
    """A regular expression for a path or its beginning."""
    return ("" if path.startswith("/") else r"(?<![A-Za-z0-9_.-])") + re.escape(path) + r"(?![A-Za-z0-9_-])"


class Texts:
    """Redacts the texts of one run; `changed` counts by kind what was replaced. `source` keeps the lines of the user's
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
        """What graphs need to run whose source stays out: operators and passes of the program."""
        self._hosts = {host: f"<host-{number}>" for number, host in enumerate(sorted(machine.hosts), 1)}
        self._literals = [re.compile(path_pattern(path)) for path in machine.literals()]
        self._users = [re.compile(pattern(user)) for user in machine.distinct(machine.users)]
        hosts = machine.distinct(machine.hosts)
        self._host_words = [(re.compile(pattern(host) + r"(?:\.[a-z][\w.-]*)?"), self._hosts[host]) for host in hosts]
        words = [each.pattern for each in [*self._users, *(each for each, _ in self._host_words)]]
        self._mark = re.compile("|".join([r"[/\\@]", 'File "', "# ", r"Variable\(str", r"\d\.\d+\.\d", *words]))
        self._known: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Any free text, redacted: an error, a stack, a remark, a setting."""
        redacted = self._known.get(text)
        if redacted is None:
            redacted = self._text(text) if self._mark.search(text) else self.secrets.text(text)
            if len(text) <= _REPEATS:
                self._known[text] = redacted
            self.changed["texts"] += redacted != text
        return redacted

    def remark(self, text: str) -> str:
        """A line of a journal or a setting: as `text`, and without the texts that a failed guard compares with."""
        return self.text(text) if self.source else _COMPARED.sub("'<text>'", self.text(text))

    def host(self, name: str) -> str:
        """The stand-in for a host's whole name; empty for an empty one."""
        return self._hosts.get(name, "<host>") if name else ""

    def file(self, path: str) -> str:
        """The name of a file."""
        return self.places.name(path) if is_absolute(path) else self.text(path)

    def frame(self, file: str, code: str) -> tuple[str, str]:
        """A frame's file and its line of code, which is empty unless it is public or wanted."""
        name = self.file(file)
        return name, self.line(name, code)

    def line(self, name: str, code: str) -> str:
        """A line of code of a file of that name."""
        if self.source or public(name) or not code.strip():
            return self.text(code)
        self.changed["source lines"] += 1
        return ""

    def command(self, words: Iterable[str]) -> list[str]:
        """A command line: flags stay, paths and credentials go, and so does a program that is given as text."""
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
        if "/" in word or "\\" in word:
            last = re.split(r"[/\\]", word.rstrip("/\\"))[-1]
            return (
                self.text(word)
                if " " in word
                else self.places.ending_in(word.removeprefix("./")) or without_folder(last)
            )
        return self.text(word)

    def generated(self, source: str) -> str | None:
        """Generated code: kernels and calls stay, what a compiler copied into them of the user's program goes. None for
        a text that holds a kernel of the user's own which cannot be cut out."""
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
        """A stack whose files have their names, without the user's lines and the marks below them."""
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
