"""Searches a finished archive or page, unpacked to the last layer, for what should not be in it: the proof of `pack`'s
promise.

Knows nothing of how the archive was made, so that a mistake there does not repeat here. What it finds is named by
member and kind, never quoted in full. Ordinary words cannot be looked for; `not_searched` says which names those are.

For example: `search(Path("bug.zip"), machine, secrets)` gives `[Leak(member='bug/run.json', what='home folder', ...)]`.
"""

from __future__ import annotations

import html
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..errors import UnreadableError
from ..reading import unpacked
from ..secrets import RULES, Secrets
from .places import Places
from .texts import Machine, path_pattern, pattern

_TENSORS = "/tensors/"
_JSON = re.compile(r"<script type=\"application/json\"[^>]*>(.*?)</script>", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Leak(msgspec.Struct, frozen=True, order=True):
    """Something that should not be in a member of the archive, or in the page."""

    member: str
    what: str
    text: str


def search(path: Path, machine: Machine, known: Secrets) -> list[Leak]:
    """What is left in the file, each kind once per member; names of members are searched too."""
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
    """Name and layers of all that is in an archive; a page is one member, without the escapes of HTML and of JSON."""
    if not zipfile.is_zipfile(path):
        text = path.read_text(encoding="utf-8")
        words = (json.loads(word) for document in _JSON.findall(text) for word in _STRING.findall(document))
        yield (
            "the page",
            [layer.encode(errors="replace") for layer in (html.unescape(_JSON.sub("", text)), "\n".join(words))],
        )
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name, [name.encode(), *_layers(name, archive.read(name))]


def not_searched(machine: Machine) -> list[str]:
    """User and host names that are ordinary words, and were taken out of paths and fields of their own only."""
    names = {name for name in machine.users | machine.hosts if name}
    return sorted(names - set(machine.distinct(names)))


def _patterns(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """What is searched for: its kind, a text without which it cannot occur, and its expression."""
    homes = {home.strip("/") for home in machine.homes}
    for path in machine.literals():
        yield (
            "home folder" if path.strip("/") in homes else "folder of the run or of its sources",
            path,
            path_pattern(path),
        )
    for what, names in (("user name", machine.users), ("host name", machine.hosts)):
        for name in machine.distinct(names):
            yield what, name, pattern(name)


def _layers(name: str, data: bytes) -> Iterator[bytes]:
    """The bytes as they lie there, without their compression, and for packed records as text."""
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
