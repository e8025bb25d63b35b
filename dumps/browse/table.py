"""One graph's table and what is read off it: positions, users, module paths, shapes, FLOPs, values. Screens and `show`
read it.

Everything is found when it is first asked for and kept; texts that repeat are looked at once each. It reads no files
(`loading.py` does), and does not parse the rows of all nodes one by one.

>>> view = GraphView(saved.table)
>>> view.module(6), view.users(6), view.position("addmm")
('up', [7, 8, 14], 6)
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, cast

from ..levels import levels
from ..sidecar import Table
from .flops import Flops, tensors
from .slices import Steps, finish, spans

NODES = 4096


class Users:
    """`users(i)` are the positions of the nodes that use node i, in order."""

    def __init__(self, starts: array[int], items: array[int]) -> None:
        self._starts = starts
        self._items = items

    def __call__(self, index: int) -> list[int]:
        return self._items[self._starts[index] : self._starts[index + 1]].tolist()

    def last(self, index: int) -> int:
        """The last user; -1 where there is none."""
        start, end = self._starts[index], self._starts[index + 1]
        return self._items[end - 1] if end > start else -1


def users_of(inputs: Sequence[Sequence[int]]) -> Steps[Users]:
    """The users of all nodes, from their inputs, which are earlier nodes, each named once."""
    count = len(inputs)
    ends = array("I", bytes(4 * (count + 1)))
    for start, end in spans(count, NODES):
        for used in inputs[start:end]:
            for producer in used:
                ends[producer + 1] += 1
        yield
    ends = array("I", accumulate(ends))
    yield
    items = array("I", bytes(4 * ends[-1]))
    free = array("I", ends)
    for start, end in spans(count, NODES):
        for user in range(start, end):
            for producer in inputs[user]:
                items[free[producer]] = user
                free[producer] += 1
        yield
    return Users(ends, items)


class ReplayedValue(NamedTuple):
    """What a replay recorded of one node's value; None: not known."""

    min: float | None = None
    max: float | None = None
    nan: int | None = None
    inf: int | None = None
    error: float | None = None
    other: float | None = None
    """The error under another rung."""


class GraphView:
    """One graph's table. `table.inputs`, `code` and `seq_nr` may still be missing while `whole` is False."""

    def __init__(self, table: Table, *, whole: bool = True) -> None:
        self.table = table
        self.text = table.strings
        self.whole = whole
        self.kernels: Mapping[int, str] = {}
        """Position of a node -> the generated kernel it went into, where that was recorded."""
        self.values: Mapping[int, ReplayedValue] = {}
        """Position of a node -> what a replay recorded."""
        self.nowhere: frozenset[str] = frozenset()
        """The columns among NaN and Inf that are zero for all values."""
        self.rungs: Sequence[str] = ()
        """The rungs of those values: of all but the last column, then of the last."""
        self.known: Mapping[int, str] = {}
        """Position of an input -> the name by which users know it: "layers.0.weight"."""
        self._levels: dict[int, tuple[str, ...]] = {}
        self._shapes: dict[int, Any] = {}
        self._distinct: dict[str, list[int]] = {}
        self._users: Users | None = None
        self._counted: dict[tuple[int, ...], int | None] = {}

    def __len__(self) -> int:
        return len(self.table.name)

    # -- nodes

    @cached_property
    def positions(self) -> dict[str, int]:
        """Name -> position."""
        return {name: index for index, name in enumerate(self.table.name)}

    def position(self, name: str) -> int | None:
        """The position of the node of that name."""
        return self.positions.get(name)

    def inputs(self, index: int) -> list[int]:
        """The nodes that a node uses; none while they are not read yet."""
        return self.table.inputs[index] if self.whole else []

    def users(self, index: int) -> list[int]:
        """The nodes that use a node, in order."""
        return self.user_lists(index) if self.whole else []

    @property
    def user_lists(self) -> Users:
        """The users of all nodes; found at once where `finding_users` was not run before."""
        if self._users is None:
            finish(self.finding_users())
        assert self._users is not None
        return self._users

    @property
    def has_users(self) -> bool:
        """Whether the users are found, so that asking for some takes no time."""
        return self._users is not None

    def finding_users(self) -> Steps[None]:
        """Finds the users of all nodes in slices."""
        if self._users is None and self.whole:
            self._users = yield from users_of(self.table.inputs)

    @cached_property
    def lower_names(self) -> list[str]:
        """All names in lower case, to find text in them; those of inputs with the names that users know."""
        names = list(map(str.lower, self.table.name))
        for index, name in self.known.items():
            names[index] += f" {name.lower()}"
        return names

    def take_known(self, names: Mapping[str, str]) -> None:
        """Sets the names by which users know inputs."""
        self.known = {at: name for node, name in names.items() if name and (at := self.position(node)) is not None}
        self.__dict__.pop("lower_names", None)

    def op(self, index: int) -> str:
        """call_function, placeholder and so on."""
        return self.text[self.table.op[index]]

    def target(self, index: int) -> str:
        """The target of a call."""
        return self.text[self.table.target[index]]

    @cached_property
    def placeholder(self) -> int:
        """The position of the text "placeholder" among the strings; -1 where no node is one."""
        return next((at for at in self.distinct("op") if self.text[at] == "placeholder"), -1)

    # -- texts that repeat

    def column(self, name: str) -> list[int]:
        """A column of positions in `text`."""
        return cast("list[int]", getattr(self.table, name))

    def distinct(self, name: str) -> list[int]:
        """The different texts of such a column, as positions."""
        if name not in self._distinct:
            self._distinct[name] = sorted(set(self.column(name)))
        return self._distinct[name]

    def levels(self, text: int) -> tuple[str, ...]:
        """The modules that a text of the module column names, the outermost first."""
        if text not in self._levels:
            self._levels[text] = tuple(level.path for level in levels(self.text[text]))
        return self._levels[text]

    def module(self, index: int) -> str:
        """The innermost module of a node; empty where it has none."""
        modules = self.levels(self.table.module[index])
        return modules[-1] if modules else ""

    def shape_of(self, text: int) -> Any:
        """The value of a text of the shape or stride column: [2, "s0"], a list of those, "s0", or None."""
        if text not in self._shapes:
            self._shapes[text] = _parsed(self.text[text])
        return self._shapes[text]

    def strided(self, index: int) -> bool:
        """Whether a node's value (or one of them) is not contiguous."""
        return strided(self.shape_of(self.table.shape[index]), self.shape_of(self.table.stride[index]))

    # -- numbers

    @cached_property
    def _flops(self) -> Flops:
        return Flops(self.text)

    def flops(self, index: int) -> int | None:
        """Floating-point operations of a matrix product, convolution or attention; None for other nodes and unknown
        sizes."""
        table = self.table
        if not self.whole or not self._flops.counts(table.target[index]):
            return None
        shapes = table.shape
        key = (table.target[index], shapes[index], *(shapes[used] for used in table.inputs[index]))
        if key not in self._counted:
            self._counted[key] = self._flops(key[0], self.shape_of(key[1]), [self.shape_of(used) for used in key[2:]])
        return self._counted[key]

    def take_values(self, seen: Mapping[str, Sequence[float | None]]) -> None:
        """Sets min, max, nan, inf and error by the names of nodes; names that the graph does not have are left out."""
        by_index: dict[int, ReplayedValue] = {}
        for name, numbers in seen.items():
            index = self.position(name)
            if index is not None:
                low, high, nan, inf, *errors = (*numbers, *[None] * 6)[:6]
                by_index[index] = ReplayedValue(
                    low, high, None if nan is None else int(nan), None if inf is None else int(inf), *errors
                )
        self.values = by_index
        self.nowhere = frozenset(
            key for key in ("nan", "inf") if not any(getattr(replayed, key) for replayed in by_index.values())
        )


def _parsed(text: str) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a table is derived and may be damaged: the text itself is shown then
        return text


def strided(shape: Any, stride: Any) -> bool:
    """Whether a tensor of that shape and stride is not contiguous; False where symbols leave it open.

    >>> strided([4, 8], [1, 4]), strided([4, 1, 8], [8, 99, 1])
    (True, False)
    """
    return any(_is_strided(*pair) for pair in zip(tensors(shape), tensors(stride), strict=False))


def _is_strided(shape: list[Any], stride: list[Any]) -> bool:
    if len(shape) != len(stride) or 0 in shape:
        return False
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size == 1:
            continue
        if isinstance(step, int) and step != expected:
            return True
        if not isinstance(size, int) or not isinstance(step, int):
            return False
        expected *= size
    return False
