"""Which settings, compiler arguments and values of them a dump may set: by a list, everything else is refused.

Paths, commands, flags, libraries, callbacks and names that nobody has looked at are shown, and put in force only where
the user trusts the dump. Values are plain ones (`walk.plain`). Imports no torch, and does not ask what torch would
accept.

>>> refusal("inductor", "cpp.cxx", [None, "./x.sh"]), refusal("inductor", "max_autotune", True)
('it names commands', '')
>>> refusal("inductor", "cpp.threads", 10**9)
'it takes a whole number of -1 to 1024'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, cast

from .permitted_names import REFUSED, ROWS

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


_COUNT, _OPTIONAL = Number(0, 2**31), "?"
ARGUMENTS: dict[str, Kind] = {
    **dict.fromkeys(("is_backward", "is_inference", "cpp_wrapper", "fx_wrapper", "layout_opt", "cudagraphs",
        "aot_mode"),
                    Switch()),
    **dict.fromkeys(("graph_id", "num_fwd_outputs", "num_example_inputs", "num_orig_model_outputs",
                     "num_mutated_inp_runtime_indices", "boxed_forward_device_index"), _COUNT),
    **dict.fromkeys(("static_input_idxs", "static_input_indices", "static_lifetime_input_indices", "bw_donated_idxs",
                     "user_visible_output_idxs"), Each(_COUNT, most=2**20)),
}  # fmt: skip
"""Arguments of the compilers that a graph was given to, and notes of its outputs beside them; others reach none."""

_OF_THE_PROCESS = (
    "compile_threads",
    "worker_",
    "trace.",
    "fx_graph_cache",
    "fx_graph_remote_cache",
    "enable_autograd_cache",
    "enable_remote_autograd_cache",
    "force_disable_caches",
    "bundled_autograd_cache",
    "caching_precompile",
    "repro_",
    "debug_dir_root",
    "verbose",
    "suppress_errors",
    "fresh_cache",
)
_SHOWN, _MOST_SHOWN = 60, 8


def of_the_process(name: str) -> bool:
    """Whether a setting affects how a process works or what it writes, not what a graph becomes: a replay ignores
    it."""
    return name.startswith(_OF_THE_PROCESS)


@cache
def known() -> dict[str, tuple[Kind, bool]]:
    """`room.name` -> what it takes, and whether None is taken too."""
    return {
        f"{under}.{name.removesuffix(_OPTIONAL)}": (row.kind, name.endswith(_OPTIONAL))
        for row in ROWS
        for under in row.under.split()
        for name in row.names.split()
    }


def refused_by_name(room: str, name: str) -> str:
    """The kind of thing a setting on no list names ("commands"), by its name; empty where the name does not say."""
    return next((what for what, pattern in REFUSED.items() if re.search(pattern, f"{room}.{name}")), "")


def refusal(room: str, name: str, value: Any) -> str:
    """Why a dump may not set a setting to a value, as half a sentence; empty where it may."""
    kind, optional = known().get(f"{room}.{name}", (None, False))
    if kind is None:
        what = refused_by_name(room, name)
        return f"it names {what}" if what else "this graphdbg does not know it"
    return "" if (value is None and optional) or kind.takes(value) else f"it takes {kind.text()}"


def argument_refusal(name: str, value: Any) -> str:
    """The same for an argument of a compiler."""
    kind = ARGUMENTS.get(name)
    return "" if kind is None or value is None or kind.takes(value) else f"it takes {kind.text()}"


def without(refused: Mapping[str, tuple[Any, str]]) -> str:
    """The sentence on settings that were not put in force: name -> (value, why not). Empty where there are none."""
    if not refused:
        return ""
    few = dict(list(refused.items())[:_MOST_SHOWN])
    more = f" and {len(refused) - len(few)} more" if len(refused) > len(few) else ""
    reasons = ", ".join(f"{name} = {_short(value)} ({why})" for name, (value, why) in few.items())
    return f"{JUDGED_WITHOUT} {', '.join(few)}{more}{_BY_ITSELF}: {reasons}. --trust puts them in force"


JUDGED_WITHOUT, _BY_ITSELF = "judged without", ", which a dump does not set by itself"
"""The beginning of the sentence, and what follows the names in it."""


def names_of(sentence: str) -> str:
    """The beginning of that sentence, which only names the settings: for a verdict."""
    return sentence.partition(_BY_ITSELF)[0]


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
