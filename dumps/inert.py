"""Text of a dump that ends up in generated source, made inert: the one function between a record's words and a
compiler.

Inductor writes names, metadata, messages and string arguments into C++, Python and Triton source: into literals, raw
and triple quoted ones, comments and templates, some of them one inside the other, and most of them unescaped. So
nothing that could end any of these is left, in any number of unescapings; what a person reads stays readable.
`dumps.torchside` calls it for all that it gives FX, `ReplaySpec.of` for settings, and `record` for a program that is
compiled. Under `--trust` text stays as recorded. Imports no torch.

>>> text('say "hi" */ \\\\ \\n')
'say ``hi`` * / / <0x0a>'
>>> name("torch.nn.functional.gelu"), name("x(); system(1)")
('gelu', 'x____system_1_')
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, cast

import msgspec

from . import trust
from .schema import GraphRecord

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
"""Fields of a record that are source, and come in under `--trust` only."""


def text(words: str) -> str:
    """One line without quotes, backslashes, braces, control characters and ends of comments; applied twice it changes
    nothing more."""
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
    """A word, maybe in quotes, for keys and texts of the options of kernels, which Inductor writes into Triton source
    as code."""
    return words if trust.given() or _OPTION.fullmatch(words) else f"{_NOT_IN_NAMES.sub('_', words)[:_LONGEST_NAME]}_"


def lines(words: str) -> str:
    """A text of several lines, such as a stack trace, line by line. Inductor puts it into R"(...)" with its line
    breaks; the quotes of a frame's file stay, by which torch and we know a frame."""
    return "\n".join(map(_line, words.split("\n")))


def _line(words: str) -> str:
    frame = _FRAME.fullmatch(words)
    if frame is None or trust.given():
        return text(words)
    before, file, between, function = frame.groups()
    return f'{text(before)}"{text(file).rstrip(")")}"{between}{text(function)}'


def value(held: T) -> T:
    """The value with all text in it inert: lists, tuples, dicts with their keys, records. What changes is a copy."""
    if isinstance(held, str):
        return cast("T", text(held))
    if isinstance(held, (list, tuple)):
        items = cast("list[Any]", held)
        return cast("T", type(items)(value(item) for item in items))
    if isinstance(held, dict):
        pairs = cast("dict[Any, Any]", held)
        return cast("T", {value(key): value(item) for key, item in pairs.items()})
    if isinstance(held, msgspec.Struct):
        fields = {field: value(getattr(held, field)) for field in held.__struct_fields__}
        return cast("T", msgspec.structs.replace(held, **fields))
    return held


def record(saved: GraphRecord) -> GraphRecord:
    """A graph's record with inert text in every field, for a program that a compiler will read."""
    kept = (*_PROGRAMS, "strings")
    fields = {field: value(getattr(saved, field)) for field in saved.__struct_fields__ if field not in kept}
    return msgspec.structs.replace(saved, **fields, strings=[lines(string) for string in saved.strings])


class InertTexts(dict[str, str]):
    """Inert texts of one record -> what they were, so that a graph is saved again with the user's own words."""

    def __call__(self, words: str) -> str:
        """The inert text, whose original is kept."""
        return self.kept(text(words), words)

    def kept(self, safe: str, words: str) -> str:
        """Keeps the original of an inert text."""
        if safe != words:
            self.setdefault(safe, words)
        return safe
