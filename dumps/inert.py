"""Makes text of a dump inert where it ends up in generated source: the one module between a record's words and a
compiler.

Inductor writes names, metadata, messages and string arguments into C++, Python and Triton source: into literals, raw
and triple quoted ones, comments and templates, sometimes nested, and mostly unescaped. So everything that could end any
of these is removed, however often the text is unescaped; the text stays readable. `dumps.torchside` applies it to all
text that it gives FX, `ReplaySpec.of` to settings, and `record` to a program that is compiled. Under `--trust` text
stays as recorded. Imports no torch.

>>> text('say "hi" */ \\\\ \\n')
'say ``hi`` * / / <0x0a>'
>>> name("torch.nn.functional.gelu"), name("x(); system(1)")
('gelu', 'x____system_1_')
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, cast

from . import trust
from .schema import GraphRecord
from .walk import rebuilt

T = TypeVar("T")

_WORDS = str.maketrans({"'": "`", '"': "``", "\\": "/", "{": "(", "}": ")"})
_UNSAFE = re.compile(r"""['"\\{}]|\*/|/\*|\?\?|<[A-Z_]""")
_PAIRS = re.compile(r"\*(?=/)|/(?=\*)|\?(?=\?)|<(?=[A-Z_])")
"""Ends and starts of C comments, trigraphs, and the marks that Inductor's templates fill in."""
_FRAME = re.compile(r'(\s*File )"([^"]*)"(, line \d+, in )(.*)')
_DOTTED = re.compile(r"\w+(?:\.\w+)*", re.ASCII)
_OPTION = re.compile(r"(\w*|'\w+')", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_LONGEST_NAME = 100
_PROGRAMS = ("kernels", "definitions")
"""Fields of a record that hold source, which is loaded under `--trust` only."""


def text(words: str) -> str:
    """Returns the text as one line without quotes, backslashes, braces, control characters and comment marks.
    Idempotent."""
    if trust.given() or (words.isprintable() and not _UNSAFE.search(words)):
        return words
    shown = "".join(c if c.isprintable() else f"<0x{ord(c):02x}>" for c in words.translate(_WORDS))
    return _PAIRS.sub(r"\g<0> ", shown)


def name(words: str) -> str:
    """The last part of a dotted name as an identifier, for names of kernels."""
    if trust.given():
        return words
    last = words.rpartition(".")[2] if _DOTTED.fullmatch(words) else words
    return _NOT_IN_NAMES.sub("_", last)[:_LONGEST_NAME]


def option(words: str) -> str:
    """Makes a word, maybe in quotes, inert: a key or text among a kernel's options, which Inductor writes into Triton
    source as code."""
    return words if trust.given() or _OPTION.fullmatch(words) else f"{_NOT_IN_NAMES.sub('_', words)[:_LONGEST_NAME]}_"


def lines(words: str) -> str:
    """Makes a text of several lines, such as a stack trace, inert line by line. Inductor puts it into R"(...)" with its
    line breaks. The quotes around a frame's file stay, because torch and graphdbg recognise a frame by them."""
    return "\n".join(map(_line, words.split("\n")))


def _line(words: str) -> str:
    frame = _FRAME.fullmatch(words)
    if frame is None or trust.given():
        return text(words)
    before, file, between, function = frame.groups()
    return f'{text(before)}"{text(file).rstrip(")")}"{between}{text(function)}'


def value(held: T) -> T:
    """Returns the value with all text in it inert: in lists, tuples, dicts (keys too) and records. Changed containers
    are copies."""
    if isinstance(held, str):
        return cast("T", text(held))
    if isinstance(held, dict):
        held = cast("T", {value(key): item for key, item in cast("dict[Any, Any]", held).items()})
    return rebuilt(held, lambda _, part: value(part))


def record(saved: GraphRecord) -> GraphRecord:
    """A graph's record with inert text in every field, for a program that will be compiled."""
    kept = {"strings": [lines(string) for string in saved.strings]} | {name: getattr(saved, name) for name in _PROGRAMS}
    return rebuilt(saved, lambda field, part: kept[field] if field in kept else value(part))


class InertTexts(dict[str, str]):
    """Inert text -> the original, for one record, so that a graph is saved again with the user's own words."""

    def __call__(self, words: str) -> str:
        """Returns the inert text, and keeps its original."""
        return self.kept(text(words), words)

    def kept(self, safe: str, words: str) -> str:
        """Returns the inert text `safe`, and keeps `words` as its original."""
        if safe != words:
            self.setdefault(safe, words)
        return safe
