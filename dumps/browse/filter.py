"""The filter language of the node table: from what a user types to terms. All terms must hold.

    op:mm  shape:*,1024  dtype:bf16  users>3  module:layers.3  -op:view  bytes>=1M  nan  "some text"

`key:text`, `key>number` (also >= < <= = !=), a bare word (in the name or the target), `-` before a term for its
opposite, quotes around blanks, `a|b` for either. `matching.py` applies it to a graph.

>>> [(term.key, term.relation, term.value) for term in parse("op:mm users>3")]
[('op', ':', 'mm'), ('users', '>', '3')]
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from ..errors import UsageError

TEXT_KEYS = ("op", "name", "dtype", "shape", "stride", "device", "module", "file", "code", "kernel")
NUMBER_KEYS = ("users", "inputs", "bytes", "flops", "index", "seq")
VALUE_KEYS = ("min", "max", "nan", "inf", "error")
KEYS = (*TEXT_KEYS, *NUMBER_KEYS, *VALUE_KEYS)
ALSO = {
    "target": "op",
    "line": "file",
    "size": "bytes",
    "seq_nr": "seq",
    "#": "index",
    "type": "dtype",
    "mod": "module",
}
ANYWHERE = ""
"""The key of a bare word."""

SEEN = ("nan", "inf")
"""Bare words that ask what a replay saw."""

_KEYED = re.compile(r"([A-Za-z_#]+)(>=|<=|!=|>|<|=|:)")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)([kmgt]?)(i?b)?", re.IGNORECASE)
HELP = "op:mm  shape:*,1024  dtype:bf16  users>3  module:layers.3  -op:view  bytes>1M  nan  word"


@dataclass(frozen=True)
class Term:
    """One condition; `start` and `end` are its place in the text that was typed."""

    key: str
    relation: str
    value: str
    negated: bool = False
    start: int = 0
    end: int = 0
    quoted: bool = False

    @property
    def alternatives(self) -> list[str]:
        """The values of which one must hold."""
        return [self.value] if self.quoted else [part for part in self.value.split("|") if part]


class FilterError(UsageError):
    """A filter cannot be parsed; `start` and `end` are the place of the wrong word."""

    def __init__(self, why: str, fix: str = "", *, start: int = 0, end: int = 0) -> None:
        self.start, self.end = start, end
        super().__init__(f"cannot read the filter at character {start + 1}", why, fix)


def parse(text: str) -> tuple[Term, ...]:
    """The terms of a filter, none for an empty text. Raises FilterError with the place, and the nearest word that
    exists."""
    terms: list[Term] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        end, word, quoted_from = _word(text, at)
        terms.append(_term(word, at, end, quoted_from))
        at = end
    return tuple(terms)


def _word(text: str, start: int) -> tuple[int, str, int]:
    """The word that begins there: its end, itself without quotes, and where in it the first quoted letter is (-1:
    none)."""
    letters: list[str] = []
    quote, quoted_from, opened, at = "", -1, start, start
    while at < len(text) and (quote or not text[at].isspace()):
        letter = text[at]
        if quote:
            if letter == quote:
                quote = ""
            else:
                letters.append(letter)
        elif letter in "\"'" and (not letters or letters[-1] in ":=<>-!|"):
            quote, opened = letter, at
            quoted_from = len(letters) if quoted_from < 0 else quoted_from
        else:
            letters.append(letter)
        at += 1
    if quote:
        raise FilterError("the quote is not closed", f"add {quote} at the end", start=opened, end=len(text))
    return at, "".join(letters), quoted_from


def _term(word: str, start: int, end: int, quoted_from: int) -> Term:
    negated = len(word) > 1 and word[0] in "-!" and quoted_from != 0
    body = word[1:] if negated else word
    quoted_from -= negated
    if not body:
        raise FilterError("the word is empty", "leave it out", start=start, end=end)
    keyed = _KEYED.match(body)
    if keyed is None or 0 <= quoted_from < keyed.end(1):
        quoted = quoted_from >= 0
        if not quoted and body in SEEN:
            return Term(body, ">", "0", negated, start, end)
        return Term(ANYWHERE, ":", body, negated, start, end, quoted)
    key, relation, value = _key(keyed[1], start + negated), keyed[2], body[keyed.end() :]
    at = start + negated + keyed.end()
    if not value:
        example = EXAMPLES.get(key, f"{key}:1")
        raise FilterError(f"{keyed[0]} has nothing behind it", f"for example {example}", start=start, end=end)
    if key in TEXT_KEYS:
        if relation not in (":", "=", "!="):
            why = f"{key} is a text, {relation} needs a number"
            raise FilterError(why, f"write {key}:{value}", start=at - len(relation), end=at)
        return Term(key, ":", value, negated ^ (relation == "!="), start, end, quoted_from >= 0)
    relation = "=" if relation == ":" else relation
    for part in value.split("|"):
        number(part, key, at, end)
    return Term(key, relation, value, negated, start, end)


def finished(terms: tuple[Term, ...], text: str) -> tuple[Term, ...]:
    """The terms without a last word that may still become the name of a column while it is typed: "us" of "users>3".

    >>> finished(parse("op:mm us"), "op:mm us") == parse("op:mm")
    True
    """
    last = terms[-1] if terms else None
    if last is None or last.key != ANYWHERE or last.quoted or last.negated or last.end < len(text):
        return terms
    return terms[:-1] if any(key.startswith(last.value) for key in (*KEYS, *ALSO)) else terms


EXAMPLES = {
    "op": "op:mm",
    "name": "name:view_1",
    "dtype": "dtype:bf16",
    "shape": "shape:*,1024",
    "stride": "stride:noncontiguous",
    "device": "device:cuda",
    "module": "module:layers.3",
    "file": "file:model.py:12",
    "code": "code:relu",
    "users": "users>3",
    "bytes": "bytes>1M",
    "flops": "flops>1e9",
    "error": "error>1e-3",
    "kernel": "kernel:fused",
}


def _key(word: str, start: int) -> str:
    key = word.lower()
    key = ALSO.get(key, key)
    if key in KEYS:
        return key
    near = difflib.get_close_matches(key, [*KEYS, *ALSO], n=1, cutoff=0.5)
    fix = f"did you mean {near[0]}" if near else f'put it in quotes if it is a text: "{word}"'
    raise FilterError(f"there is no {word!r}; there are {', '.join(KEYS)}", fix, start=start, end=start + len(word))


def number(text: str, key: str, start: int = 0, end: int = 0) -> float:
    """The number of a term: units of 1024 for bytes, of 1000 for all else. Raises FilterError."""
    if text.lower() in ("nan", "inf", "-inf"):
        return float(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise FilterError(
            f"{text!r} is no number", f"for example {EXAMPLES.get(key, f'{key}>3')}", start=start, end=end
        )
    unit = match[2].lower()
    return float(match[1]) * (_UNITS[unit] if key == "bytes" else 1000 ** list(_UNITS).index(unit))


def pointed(text: str, error: FilterError) -> str:
    """The text with a line of carets under what is wrong."""
    return f"{text}\n{' ' * error.start}{'^' * max(1, min(error.end, len(text)) - error.start)}"
