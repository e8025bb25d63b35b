"""Converts arguments of nodes and metadata to and from JSON values with one-key tags (dumps.arguments).

Encoding never fails: a value without a saved form becomes {"opaque": [type, text]}. Decoding refuses opaque values by
name, and gives FX only plain values and inert text, since FX and Inductor print them into code that is run.

For example:

    ArgumentWriter(symbols, values).encode((1, slice(None, 2)))  # -> {'tuple': [1, {'slice': [None, 2, None]}]}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import msgspec
import torch
from torch.utils.checkpoint import CheckpointPolicy

from .. import inert
from ..arguments import KINDS
from ..arguments.kind import OTHER, Kind
from ..errors import DamagedError, NameRefusedError, RefusedError, TorchLacksError
from ..inert import InertTexts
from ..schema import Arg, Value
from . import targets

if TYPE_CHECKING:
    from .values import ValueReader, ValueWriter

T = TypeVar("T")

MAX_DEPTH = 60


def named(kind: type[T], name: str, where: str) -> T:
    """Torch's object of that name and kind (such as torch.dtype or torch.layout); EnvironmentLackError when this torch
    has none."""
    value = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(value, kind):
        raise TorchLacksError(where, f"this torch has no {kind.__name__} {name!r}")
    return value


def dtype_of(name: str, where: str) -> torch.dtype:
    """The dtype of that name ("float32")."""
    return named(torch.dtype, name, where)


def device_of(name: str, where: str) -> torch.device:
    """The device of a name ("cuda:0"), whether or not this machine has it."""
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise NameRefusedError(where, f"{name[:40]!r} is not a device") from error


class ArgumentWriter:
    """Encodes arguments. `keep_tensor` stores a tensor among the arguments and returns its name. `originals`: inert
    text -> the original in the record that the graph was loaded from."""

    def __init__(
        self,
        values: ValueWriter,
        keep_tensor: Callable[[torch.Tensor], str] | None = None,
        originals: Mapping[str, str] | None = None,
    ) -> None:
        self.values = values
        self.originals = originals or {}
        self.symbols = values.symbols
        self.keep_tensor = keep_tensor
        self.opaque = 0
        self.functions: set[str] = set()

    def encode(self, value: Any) -> Arg:
        """The JSON form of an argument."""
        kind = cast(type[Any], type(value))
        if value is None or kind is bool or kind is int:
            return value
        if kind is str:
            return self.originals.get(value, value)
        if kind is float and math.isfinite(value):
            return value
        if isinstance(value, list):
            items = cast(list[Any], value)
            return [self.encode(item) for item in items]
        contents = ((row.tag, row.encode(value, self)) for row in _kinds_of(kind))
        return next({tag: content} for tag, content in contents if content is not OTHER)

    def metadata(self, value: torch.Tensor) -> Any:
        """The recorded metadata of a tensor whose bytes are not stored."""
        return msgspec.to_builtins(self.values.value(value))

    def function(self, value: Any) -> str:
        """The name that a callable has in the saved form; empty where it has none."""
        name = targets.name_of(value)
        if name.startswith(targets.OPAQUE):
            return ""
        self.functions.add(name)
        return name


@lru_cache(maxsize=512)
def _kinds_of(of: type) -> tuple[Kind, ...]:
    """The kinds that may encode values of a type, in the order in which to try them."""
    return tuple(row for row, types in _typed() if (of in types if row.exact else issubclass(of, types)))


@cache
def _typed() -> list[tuple[Kind, tuple[type, ...]]]:
    places = {row: [name.rpartition(".") for name in row.types.split()] for row in KINDS.values()}
    typed = [(row, tuple(getattr(import_module(home), name) for home, _, name in places[row])) for row in places]
    return sorted(typed, key=lambda item: item[0].order)


class ArgumentReader:
    """Decodes arguments. `reader` builds symbolic values, `texts` makes text inert."""

    def __init__(
        self,
        reader: ValueReader,
        strings: list[str],
        texts: InertTexts | None = None,
        tensors: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.reader = reader
        self.texts = InertTexts() if texts is None else texts
        self.strings = strings
        self.tensors = tensors or {}
        self.nodes: dict[str, torch.fx.Node] = {}
        self.options = False

    def decode(self, arg: Arg, where: str, depth: int = 0) -> Any:
        """The value of an argument; raises RefusedError, UnreadableError or EnvironmentLackError naming `where`."""
        if arg is None or isinstance(arg, (bool, int, float)):
            return arg
        if isinstance(arg, str):
            return self.texts(arg)
        if depth > MAX_DEPTH:
            raise DamagedError(where, f"its arguments are nested more than {MAX_DEPTH} deep")
        if isinstance(arg, list):
            items = cast(list[Any], arg)
            return [self.decode(item, where, depth + 1) for item in items]
        if not isinstance(arg, dict) or len(items_of := cast(dict[Any, Any], arg)) != 1:
            raise DamagedError(where, "an argument is not a value, a list, or an object with one key")
        ((tag, body),) = items_of.items()
        if tag not in KINDS:
            raise DamagedError(where, f"an argument has the unknown kind {tag!r}")
        try:
            return KINDS[tag].decode(body, self, where, depth + 1)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, msgspec.ValidationError) as error:
            raise DamagedError(where, f"an argument of kind {tag!r} is malformed ({error})") from error

    def option(self, arg: Arg, where: str, depth: int) -> Any:
        """Decodes a key or a value of a dict: text among the options of kernels is made inert as an option, since it
        becomes code."""
        words = cast(Any, self.strings[arg["string"]] if isinstance(arg, dict) and [*arg] == ["string"] else arg)
        if self.options and isinstance(words, str):
            return self.texts.kept(inert.option(words), words)
        return self.decode(arg, where, depth)

    def refuse(self, where: str, why: str) -> NoReturn:
        """Raises RefusedError."""
        raise RefusedError(where, why)

    def node(self, name: str, where: str) -> torch.fx.Node:
        """The node of that name; UnreadableError where it is not defined before."""
        if name not in self.nodes:
            raise DamagedError(where, f"it uses the node {name!r}, which is not defined before it")
        return self.nodes[name]

    def metadata(self, body: Any, where: str) -> Any:
        """The fake value for recorded metadata."""
        return self.reader.value(msgspec.convert(body, Value), where)

    def size(self, items: list[Any]) -> torch.Size:
        """A torch.Size of these items."""
        return torch.Size(items)

    def of_torch(self, tag: str, name: str, where: str) -> Any:
        """Torch's object for a tag and a name; EnvironmentLackError when this torch has none."""
        if tag == "device":
            return device_of(name, where)
        return CheckpointPolicy[name] if tag == "policy" else named(getattr(torch, tag), name, where)

    def function(self, name: str, where: str) -> Any:
        """The function of that name; raises RefusedError where a graph may not call it."""
        return targets.resolve(name, where)
