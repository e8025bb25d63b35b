"""One graph's table, and data derived from it: positions, users, module paths, shapes, FLOPs, values. Screens and
`show` use it.

Everything is computed on first use and kept; repeated texts are parsed once. It reads no files, and does not parse the
rows of all nodes one by one.

>>> view = GraphView(saved.table)
>>> view.module(6), view.users(6), view.position("addmm")
('up', [7, 8, 14], 6)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, cast

from ..names import levels
from ..sidecar import Table

Shape = list[int]
Formula = Callable[[list[Shape], list[Shape]], "int | None"]
"""Computes FLOPs from the shapes of the results and of the inputs."""


def _product(out: list[Shape], used: list[Shape]) -> int | None:
    """FLOPs of any (batched) matrix product; `used` ends with both factors (or with one, used twice)."""
    factors = [shape for shape in used[-2:] if shape]
    return 2 * prod(out[0]) * factors[0][-1] if out and factors else None


def _linear(out: list[Shape], used: list[Shape]) -> int | None:
    return 2 * prod(out[0]) * used[0][-1] if out and used and used[0] else None


def _convolution(out: list[Shape], used: list[Shape]) -> int | None:
    """FLOPs of a convolution; input and weight come first. A transposed weight begins with the input's channels."""
    if not out or len(used) < 2 or len(used[1]) < 2:
        return None
    image, weight = used[0], used[1]
    transposed = weight[0] != out[0][1] if len(out[0]) > 1 else False
    return 2 * prod(image if transposed else out[0]) * prod(weight[1:])


def _convolution_backward(out: list[Shape], used: list[Shape]) -> int | None:
    """FLOPs of a convolution's backward: those of the forward for each computed gradient, of the input and of the
    weight."""
    if len(used) < 3 or len(used[2]) < 2:
        return None
    gradient, image, weight = used[:3]
    transposed = len(gradient) > 1 and weight[0] != gradient[1]
    wanted = sum(shape in (image, weight) for shape in out)
    return 2 * prod(image if transposed else gradient) * prod(weight[1:]) * wanted


def _attention(out: list[Shape], used: list[Shape]) -> int | None:
    if len(used) < 3 or any(len(shape) < 2 for shape in used[:3]):
        return None
    query, key, value = used[:3]
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _attention_backward(out: list[Shape], used: list[Shape]) -> int | None:
    """FLOPs of an attention's backward: the scores again, two products for the gradients of the scores and of value,
    two for query and key."""
    if len(used) < 4 or any(len(shape) < 2 for shape in used[1:4]):
        return None
    query, key, value = used[1:4]
    return 2 * prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1])


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "addmv", "mv", "_scaled_mm"), _product),
    **dict.fromkeys(("linear", "linear_unary"), _linear),
    **dict.fromkeys(("convolution", "_convolution"), _convolution),
    **{f"conv{turned}{dims}d": _convolution for turned in ("", "_transpose") for dims in (1, 2, 3)},
    "convolution_backward": _convolution_backward,
    "scaled_dot_product_attention": _attention,
}


def formula_of(target: str) -> Formula | None:
    """The formula for a target as written in a graph: "aten.mm.default", "torch.nn.functional.linear", "matmul"."""
    parts = target.split(".")
    name = parts[1] if parts[0] in ("aten", "prims", "mkldnn") and len(parts) > 1 else parts[-1]
    if name.startswith("_scaled_dot_product") or name in ("_flash_attention_forward", "_flash_attention_backward"):
        return _attention_backward if name.endswith("_backward") else _attention
    return FORMULAS.get(name)


def tensors(shape: Any) -> list[list[Any]]:
    """The shapes of the tensors in a value: one for a tensor, several for a multi-output node."""
    if not isinstance(shape, list):
        return []
    items = cast("list[Any]", shape)
    if any(isinstance(item, list) or item is None for item in items):
        return [tensor_shape for item in items for tensor_shape in tensors(item)]
    return [items]


class Users(list[list[int]]):
    """`users(i)` are the positions of the nodes that use node i, in order."""

    def __call__(self, index: int) -> list[int]:
        return self[index]

    def last(self, index: int) -> int:
        """The last user of a node; -1 where it has none."""
        return self[index][-1] if self[index] else -1


def users_of(inputs: Sequence[Sequence[int]]) -> Users:
    """Computes the users of all nodes from their inputs, which are earlier nodes, each listed once."""
    users = Users([] for _ in inputs)
    for user, producers in enumerate(inputs):
        for producer in producers:
            users[producer].append(user)
    return users


class ReplayedValue(NamedTuple):
    """The values that a replay recorded for one node; None: unknown."""

    min: float | None = None
    max: float | None = None
    nan: int | None = None
    inf: int | None = None
    error: float | None = None
    other: float | None = None
    """The error under another rung."""


class GraphView:
    """One graph's table, with derived data."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.text = table.strings
        self.kernels: Mapping[int, str] = {}
        """Position of a node -> the generated kernel that computes it, where recorded."""
        self.values: Mapping[int, ReplayedValue] = {}
        """Position of a node -> the values that a replay recorded."""
        self.nowhere: frozenset[str] = frozenset()
        """The columns among NaN and Inf that are zero for all values."""
        self.rungs: Sequence[str] = ()
        """The rungs of the values: of all but the last column, then of the last."""
        self.known: Mapping[int, str] = {}
        """Position of an input -> the user's name for it: "layers.0.weight"."""
        self._levels: dict[int, tuple[str, ...]] = {}
        self._shapes: dict[int, Any] = {}
        self._distinct: dict[str, list[int]] = {}
        self._formulas: dict[int, Formula | None] = {}
        self._counted: dict[tuple[int, ...], int | None] = {}

    def __len__(self) -> int:
        return len(self.table.name)

    # -- nodes

    @cached_property
    def positions(self) -> dict[str, int]:
        """Name -> position."""
        return {name: index for index, name in enumerate(self.table.name)}

    def position(self, name: str) -> int | None:
        """The position of the node of that name; None where there is none."""
        return self.positions.get(name)

    def inputs(self, index: int) -> list[int]:
        """The positions of a node's inputs."""
        return self.table.inputs[index]

    def users(self, index: int) -> list[int]:
        """The positions of a node's users, in order."""
        return self.user_lists(index)

    @cached_property
    def user_lists(self) -> Users:
        """The users of all nodes."""
        return users_of(self.table.inputs)

    @property
    def has_users(self) -> bool:
        """Whether the users are already computed."""
        return "user_lists" in self.__dict__

    @cached_property
    def lower_names(self) -> list[str]:
        """All names in lower case, to search in; those of inputs together with the user's names for them."""
        names = list(map(str.lower, self.table.name))
        for index, name in self.known.items():
            names[index] += f" {name.lower()}"
        return names

    def take_known(self, names: Mapping[str, str]) -> None:
        """Sets the user's names for inputs."""
        self.known = {at: name for node, name in names.items() if name and (at := self.position(node)) is not None}
        self.__dict__.pop("lower_names", None)

    def op(self, index: int) -> str:
        """The op of a node: call_function, placeholder and so on."""
        return self.text[self.table.op[index]]

    def target(self, index: int) -> str:
        """The target of a call."""
        return self.text[self.table.target[index]]

    @cached_property
    def placeholder(self) -> int:
        """The position of the text "placeholder" in `text`; -1 where no node is one."""
        return next((at for at in self.distinct("op") if self.text[at] == "placeholder"), -1)

    # -- texts that repeat

    def column(self, name: str) -> list[int]:
        """A column whose entries are positions in `text`."""
        return cast("list[int]", getattr(self.table, name))

    def distinct(self, name: str) -> list[int]:
        """The distinct texts of such a column, as positions in `text`."""
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
        """A text of the shape or stride column as a value: [2, "s0"], a list of those, "s0", or None."""
        if text not in self._shapes:
            self._shapes[text] = _parsed(self.text[text])
        return self._shapes[text]

    def strided(self, index: int) -> bool:
        """Whether a node's value (or one of its values) is not contiguous."""
        return strided(self.shape_of(self.table.shape[index]), self.shape_of(self.table.stride[index]))

    # -- numbers

    def flops(self, index: int) -> int | None:
        """Floating-point operations of a matrix product, convolution or attention; None for other nodes and unknown
        sizes. Found once for the same target and shapes."""
        target, shapes = self.table.target[index], self.table.shape
        if target not in self._formulas:
            self._formulas[target] = formula_of(self.text[target])
        formula = self._formulas[target]
        if formula is None:
            return None
        key = (target, shapes[index], *(shapes[used] for used in self.table.inputs[index]))
        if key not in self._counted:
            out, *inputs = (tensors(self.shape_of(shape)) for shape in key[1:])
            used = [shape for of_input in inputs for shape in of_input]
            known = all(isinstance(dim, int) for shape in (*out, *used) for dim in shape)
            self._counted[key] = formula(out, used) if known else None
        return self._counted[key]

    def take_values(self, seen: Mapping[str, Sequence[Any]]) -> None:
        """Sets min, max, nan, inf and error by the names of nodes; names that the graph does not have are left out."""
        at = self.positions
        self.values = {at[name]: ReplayedValue(*numbers) for name, numbers in seen.items() if name in at}
        replayed = self.values.values()
        self.nowhere = frozenset(key for key in ("nan", "inf") if not any(getattr(value, key) for value in replayed))


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
