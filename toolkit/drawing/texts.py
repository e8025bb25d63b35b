"""Values and arguments as short texts for boxes and edges. Every text is one line, free of control characters.

>>> value_text(TensorValue("bfloat16", [8, "s0"]))
'bf16[8, s0]'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dumps.schema import ConstValue, SequenceValue, SymValue, TensorValue, Value
from ...dumps.sidecar import references
from ...dumps.tables import plain

SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64", "complex128": "c128", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}  # fmt: skip
"""How dtypes are written on edges, as in torch's own readable graphs."""

_LONGEST_VALUE, _LONGEST_ARGUMENTS = 34, 80


def value_text(value: Value | None, longest: int = _LONGEST_VALUE) -> str:
    """A value on an edge: "f32[8, s0]", "Sym(s0)", "3 values"; "" for none."""
    text = ""
    if isinstance(value, TensorValue):
        text = f"{SHORT.get(value.dtype, value.dtype)}[{', '.join(map(str, value.shape))}]"
    elif isinstance(value, SymValue):
        text = f"Sym({value.expr})"
    elif isinstance(value, SequenceValue):
        text = value_text(value.items[0]) if len(value.items) == 1 else f"{len(value.items)} values"
    elif isinstance(value, ConstValue) and isinstance(value.value, int | float | str):
        text = str(value.value)
    return shorten(plain(text), longest)


def shorten(text: str, longest: int) -> str:
    """The text cut in its middle, so that both ends can be read."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


def arguments_text(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The arguments that are no nodes, as they would be typed; lists that hold nodes are left out."""
    texts = [_argument(arg) for arg in args]
    texts += [f"{key}={text}" for key, value in kwargs.items() if (text := _argument(value))]
    return shorten(plain(", ".join(filter(None, texts))), _LONGEST_ARGUMENTS)


def _argument(arg: Any) -> str:
    if isinstance(arg, list):
        texts = [_argument(item) for item in arg]
        if not any(texts):
            return ""
        named = [text or next(references(item), "None") for text, item in zip(texts, arg, strict=True)]
        return f"[{', '.join(named)}]"
    if isinstance(arg, dict):
        tag, body = next(iter(arg.items()), ("", ""))
        if tag in ("dtype", "device", "layout", "memory_format"):
            return SHORT.get(str(body), str(body))
        if tag in ("tuple", "size"):
            return _argument(body)
        return {"float": str(body), "ellipsis": "..."}.get(tag, "")
    if isinstance(arg, float):
        return f"{arg:.4g}"
    return "" if arg is None or arg == [] else str(arg)
