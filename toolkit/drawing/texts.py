"""Values and arguments as short texts for boxes and edges. Every text is one line, free of control characters.

>>> value_text(TensorValue("bfloat16", [8, "s0"]))
'bf16[8, s0]'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dumps.browse.short import DTYPES, shorten
from ...dumps.schema import ConstValue, SequenceValue, SymValue, TensorValue, Value
from ...dumps.tables import plain
from ...dumps.walk import references, tag_of
from ...dumps.wording import counted

_LONGEST_VALUE, _LONGEST_ARGUMENTS = 34, 80


def value_text(value: Value | None, longest: int = _LONGEST_VALUE) -> str:
    """A value on an edge: "f32[8, s0]", "Sym(s0)", "3 values"; "" for none."""
    text = ""
    if isinstance(value, TensorValue):
        text = f"{DTYPES.get(value.dtype, value.dtype)}[{', '.join(map(str, value.shape))}]"
    elif isinstance(value, SymValue):
        text = f"Sym({value.expr})"
    elif isinstance(value, SequenceValue):
        text = value_text(value.items[0]) if len(value.items) == 1 else counted(len(value.items), "value")
    elif isinstance(value, ConstValue) and isinstance(value.value, int | float | str):
        text = str(value.value)
    return shorten(plain(text), longest)


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
    tag, content = tag_of(arg)
    if tag in ("dtype", "device", "layout", "memory_format"):
        return DTYPES.get(str(content), str(content))
    if tag:
        return _argument(content) if tag in ("tuple", "size") else {"float": str(content), "ellipsis": "..."}.get(tag, "")
    if isinstance(arg, float):
        return f"{arg:.4g}"
    return "" if arg is None or arg == [] else str(arg)
