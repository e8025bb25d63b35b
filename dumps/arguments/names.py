"""Kinds of arguments that name an object of torch: dtypes, devices, layouts, functions.

>>> KINDS[0].drawn("float32", str)
'float32'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .kind import OTHER, AsItIs, Inside

if TYPE_CHECKING:
    from ..diff.facts import NodeColumns
    from ..program.text import Writer
    from ..schema import Arg
    from ..torchside.live_values import ArgumentReader
    from ..torchside.values import ArgumentWriter
    from ..validate import Checker

WORD = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)
DEVICE = re.compile(r"[a-z_][a-z0-9_]*(?::\d+)?", re.ASCII)
FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.<>:\[\]-]*", re.ASCII)


class Name(AsItIs):
    """{"memory_format": "channels_last"}: an object of torch, by name."""

    pattern = WORD

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        if not isinstance(body, str):
            checker.fail(place, f"{checker.short(body)} is not a {self.tag}")
        checker.name(body, place, self.pattern, f"a {self.tag}")

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return str(value).removeprefix("torch.")

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        return decoder.of_torch(self.tag, body, where)


class Attribute(Name):
    """A name that is an attribute of the module torch."""

    def written(self, body: Any, writer: Writer) -> str:
        return f"torch.{writer.word(body)}"


class Plain(Attribute):
    """A name that is shown bare: a layout, a memory format."""

    def drawn(self, body: Any, inner: Callable[[Arg], str]) -> str:
        return str(body)

    def plain(self, body: Any, inner: Callable[[Arg], Any]) -> Any:
        return body


class Dtype(Plain):
    """{"dtype": "float32"}."""

    def written(self, body: Any, writer: Writer) -> str:
        return writer.dtype(writer.word(body))

    def number(self, body: Any, facts: NodeColumns) -> Any:
        return facts.device(body)


class Device(Plain):
    """{"device": "cuda:0"}; the corresponding device of another graph may have another name."""

    pattern = DEVICE

    def written(self, body: Any, writer: Writer) -> str:
        return writer.device(body)

    def compared(self, body: Any, facts: NodeColumns) -> Any:
        return self.tag, facts.device(body)

    def number(self, body: Any, facts: NodeColumns) -> Any:
        return facts.device(body)


class Policy(Name):
    """{"policy": "MUST_SAVE"}: a member of torch.utils.checkpoint.CheckpointPolicy."""

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return value.name


class CallTarget(Name):
    """{"function": "aten.add.Tensor"}: a target used as an argument."""

    pattern = FUNCTION

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return encoder.function(value) or OTHER

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        return decoder.function(body, where)

    def written(self, body: Any, writer: Writer) -> str:
        return writer.function_name(body)


KINDS = (
    Dtype("dtype", "float32", "torch.dtype", schema="ScalarType"),
    Device("device", "cuda:0", "torch.device", schema="Device"),
    Plain("layout", "strided", "torch.layout", schema="Layout"),
    Plain("memory_format", "preserve_format", "torch.memory_format", schema="MemoryFormat"),
    Attribute("qscheme", "per_tensor_affine", "torch.qscheme"),
    Policy("policy", "MUST_SAVE", "torch.utils.checkpoint.CheckpointPolicy"),
    CallTarget("function", "aten.add.Tensor", "collections.abc.Callable", order=8),
)
