# pyright: basic
"""Arguments of nodes and metadata <-> JSON values with one-key tags (schema.ARGUMENT_TAGS).

Encoding never fails: what has no saved form becomes {"opaque": [type, text]}. Decoding refuses opaque values by name,
and gives FX only plain values and inert text, since FX and Inductor print them into code that is run.

For example:

    ArgumentWriter(symbols, values).encode((1, slice(None, 2)))  # -> {'tuple': [1, {'slice': [None, 2, None]}]}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import torch
from torch.utils.checkpoint import CheckpointPolicy

from .. import inert
from ..errors import EnvironmentLackError, RefusedError, UnreadableError
from ..inert import Texts
from ..schema import ARGUMENT_TAGS, Arg, Value
from . import targets
from .symbols import is_symbolic

if TYPE_CHECKING:
    from .values import ValueReader, ValueWriter

T = TypeVar("T")

MAX_DEPTH = 60
_OPAQUE_TEXT = 200


def named(kind: type[T], name: str, where: str) -> T:
    """What torch has by a name, of a kind such as torch.dtype or torch.layout; EnvironmentLackError when this torch has
    none."""
    found = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(found, kind):
        raise EnvironmentLackError(where, f"this torch has no {kind.__name__} {name!r}")
    return found


def dtype_of(name: str, where: str) -> torch.dtype:
    """The dtype of a name."""
    return named(torch.dtype, name, where)


def device_of(name: str, where: str) -> torch.device:
    """The device of a name ("cuda:0"), whether or not this machine has it."""
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise RefusedError(where, f"{name[:40]!r} is no device") from error


class ArgumentWriter:
    """Encodes arguments. `keep_tensor` stores a tensor met in the arguments and returns the name to refer to it by.
    `originals`: inert text -> what it was in the record that the graph came from."""

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
        kind = type(value)
        if value is None or kind is bool or kind is int:
            return value
        if kind is str:
            return self.originals.get(value, value)
        if isinstance(value, torch.fx.Node):
            return {"node": value.name}
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind is complex:
            return {"complex": [self.encode(value.real), self.encode(value.imag)]}
        if isinstance(value, torch.Size):
            return {"size": [self.encode(item) for item in value]}
        if isinstance(value, tuple):
            return {"tuple": [self.encode(item) for item in value]}
        if isinstance(value, list):
            return [self.encode(item) for item in value]
        if isinstance(value, dict):
            return {"dict": [[self.encode(key), self.encode(item)] for key, item in value.items()]}
        if is_symbolic(value):
            record = self.symbols.sym(value)
            return {"sym": [record.kind, record.expr]}
        if isinstance(value, slice):
            return {"slice": [self.encode(part) for part in (value.start, value.stop, value.step)]}
        if isinstance(value, range):
            return {"range": [value.start, value.stop, value.step]}
        if value is Ellipsis:
            return {"ellipsis": True}
        return self._torch_value(value)

    def _torch_value(self, value: Any) -> Arg:
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        if isinstance(value, CheckpointPolicy):
            return {"policy": value.name}
        if isinstance(value, torch.Tensor):
            if self.keep_tensor is not None:
                return {"tensor": self.keep_tensor(value)}
            return {"value": msgspec.to_builtins(self.values.value(value))}
        if callable(value):
            name = targets.name_of(value)
            if not name.startswith(targets.OPAQUE):
                self.functions.add(name)
                return {"function": name}
        self.opaque += 1
        try:
            text = repr(value)
        except Exception as error:  # noqa: BLE001 (a user's repr may raise anything; what is shown is all that is lost)
            text = f"<repr failed: {type(error).__name__}>"
        return {"opaque": [f"{type(value).__module__}.{type(value).__qualname__}", text[:_OPAQUE_TEXT]]}


class ArgumentReader:
    """Decodes arguments. `reader` makes symbolic values, `texts` makes text inert."""

    def __init__(
        self,
        reader: ValueReader,
        strings: list[str],
        texts: Texts | None = None,
        tensors: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.reader = reader
        self.texts = Texts() if texts is None else texts
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
            raise UnreadableError(where, f"its arguments are nested more than {MAX_DEPTH} deep")
        if isinstance(arg, list):
            return [self.decode(item, where, depth + 1) for item in arg]
        if not isinstance(arg, dict) or len(arg) != 1:
            raise UnreadableError(where, "an argument is not a value, a list, or an object with one key")
        ((tag, body),) = arg.items()
        if tag not in ARGUMENT_TAGS:
            raise UnreadableError(where, f"an argument has the unknown kind {tag!r}")
        try:
            return self._tagged(tag, body, where, depth + 1)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, msgspec.ValidationError) as error:
            raise UnreadableError(where, f"an argument of kind {tag!r} is malformed ({error})") from error

    def _tagged(self, tag: str, body: Any, where: str, depth: int) -> Any:
        if tag == "node":
            if body not in self.nodes:
                raise UnreadableError(where, f"it uses the node {body!r}, which is not defined before it")
            return self.nodes[body]
        if tag in ("tuple", "size"):
            items = [self.decode(item, where, depth) for item in _list(body)]
            return tuple(items) if tag == "tuple" else torch.Size(items)
        if tag == "dict":
            return {self._option(key, where, depth): self._option(item, where, depth) for key, item in _list(body)}
        if tag in ("slice", "range"):
            parts = [self.decode(part, where, depth) for part in _list(body)]
            return (slice if tag == "slice" else range)(*parts)
        if tag == "float":
            if body not in ("nan", "inf", "-inf"):
                raise ValueError(f"{body!r} is no float")
            return float(body)
        if tag == "complex":
            real, imaginary = (self.decode(part, where, depth) for part in _list(body))
            return complex(float(real), float(imaginary))
        if tag == "sym":
            kind, text = _list(body)
            return self.reader.symbols.sym(kind, text)
        if tag == "ellipsis":
            return Ellipsis
        if tag == "function":
            return targets.resolve(body, where)
        if tag == "tensor":
            return self.tensors[body]
        if tag == "value":
            return self.reader.value(msgspec.convert(body, Value), where)
        if tag == "string":
            return self.texts(self.strings[body])
        if tag == "opaque":
            raise RefusedError(where, f"an argument of type {body[0]} has no saved form")
        return self._torch_value(tag, body, where)

    def _option(self, arg: Arg, where: str, depth: int) -> Any:
        """A key or a value of a dict: texts of those are options of kernels, which become code as they are."""
        words = self.strings[arg["string"]] if isinstance(arg, dict) and [*arg] == ["string"] else arg
        if self.options and isinstance(words, str):
            return self.texts.kept(inert.option(words), words)
        return self.decode(arg, where, depth)

    def _torch_value(self, tag: str, body: str, where: str) -> Any:
        if tag == "device":
            return device_of(body, where)
        return CheckpointPolicy[body] if tag == "policy" else named(getattr(torch, tag), body, where)


def _list(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise TypeError("a list is wanted")
    return body
