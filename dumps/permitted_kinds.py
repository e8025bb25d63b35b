"""The kinds of values that a setting takes: true or false, numbers of a range, words of a fixed set, plain names, and
lists and tables of these.

Everything takes plain Python values, and none accepts text that could be a path, a command or code.

>>> Number(0, 9).takes(3), Words("on off").takes("./x.sh"), Each(Number(0, 9)).takes([1, 2])
(True, False, True)
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

_PLAIN = re.compile(r"[A-Za-z0-9_.:]{0,120}", re.ASCII)
_MOST = 1000
"""The most items of a list."""


class Switch(NamedTuple):
    """True or false, also as 1 or 0."""

    def takes(self, value: Any) -> bool:
        """Whether a value is one of these."""
        return isinstance(value, (bool, int)) and value in (0, 1)

    def text(self) -> str:
        """The words after "takes"."""
        return "true or false"


class Number(NamedTuple):
    """A number of a range, its ends included."""

    least: float
    most: float
    whole: bool = True

    def takes(self, value: Any) -> bool:
        """Whether a value is such a number; infinity and NaN are not."""
        return isinstance(value, int if self.whole else (int, float)) and self.least <= value <= self.most

    def text(self) -> str:
        """The words after "takes"."""
        return f"{'a whole number' if self.whole else 'a number'} of {self.least:g} to {self.most:g}"


class Words(NamedTuple):
    """One word of a fixed set; `several`: any number of them between commas, in any case; `or_bool`: true and false
    besides."""

    words: str
    several: bool = False
    or_bool: bool = False

    def takes(self, value: Any) -> bool:
        """Whether a value is one of the words."""
        if isinstance(value, bool):
            return self.or_bool
        if not isinstance(value, str) or len(value) > _MOST:
            return False
        if not self.several:
            return value in self.words.split()
        known = self.words.upper().split()
        return not value or all(word.strip(" ").upper() in known for word in value.split(","))

    def text(self) -> str:
        """The words after "takes"."""
        return ", ".join(self.words.split()) + (" between commas" if self.several else "")


class PlainNames(NamedTuple):
    """Names between commas, of letters, digits, `_`, `.` and `:`."""

    def takes(self, value: Any) -> bool:
        """Whether a value consists of plain names."""
        return isinstance(value, str) and len(value) <= _MOST * 10 and all(map(_PLAIN.fullmatch, value.split(",")))

    def text(self) -> str:
        """The words after "takes"."""
        return "plain names"


class Each(NamedTuple):
    """A list or tuple of what `of` takes, `most` at most; `as_text`: numbers between commas."""

    of: Any
    as_text: bool = False
    most: int = _MOST

    def takes(self, value: Any) -> bool:
        """Whether a value is such a list; where lists may stand in a list, a lone value may too."""
        if self.as_text:
            parts = value.split(",") if isinstance(value, str) and len(value) <= _MOST else [""]
            return all(
                re.fullmatch(r" ?-?[0-9]{1,9}", number, re.ASCII) and self.of.takes(int(number)) for number in parts
            )
        if isinstance(self.of, Each) and self.of.of.takes(value):
            return True
        many = cast("list[Any]", list(value)) if isinstance(value, (list, tuple)) else None  # pyright: ignore[reportUnknownArgumentType]
        return many is not None and len(many) <= self.most and all(map(self._inner, many))

    def _inner(self, value: Any) -> bool:
        return self.of.takes(value) or (isinstance(self.of, Each) and self.of.of.takes(value))

    def text(self) -> str:
        """The words after "takes"."""
        return f"{'numbers between commas' if self.as_text else 'a list'}, each {self.of.text()}"


class NumberTable(NamedTuple):
    """A table of plain names with numbers, true and false, or one more such table each."""

    def takes(self, value: Any) -> bool:
        """Whether a value is such a table."""
        return self._table(value, 2)

    def _table(self, value: Any, levels: int) -> bool:
        if not isinstance(value, dict) or not levels:
            return False
        table, number = cast("dict[Any, Any]", value), Number(0, 2**20, whole=False)
        names = len(table) <= _MOST and all(isinstance(name, str) and _PLAIN.fullmatch(name) for name in table)
        return names and all(number.takes(entry) or self._table(entry, levels - 1) for entry in table.values())

    def text(self) -> str:
        """The words after "takes"."""
        return "a table of plain names and numbers"


Kind = Switch | Number | Words | PlainNames | Each | NumberTable


class Alike(NamedTuple):
    """Settings that take the same. `under`: the prefixes of their names; `names`: separated by spaces, with a `?` where
    None is accepted too."""

    kind: Kind
    under: str
    names: str
