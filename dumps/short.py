"""Values and names as short texts: for boxes, edges and narrow columns. Every text is one line, free of control
characters.

>>> row_value(saved.table.row(6))
'f32[2, 16]'
"""

from __future__ import annotations

import json
from typing import Any, cast

from .sidecar import NodeRow
from .tables import plain
from .wording import counted

DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
"""Short forms of dtypes, as in torch's own readable graphs."""


def shorten(text: str, longest: int) -> str:
    """The text cut in its middle, so that both ends can be read."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


def base_name(target: str) -> str:
    """The op's own name without namespace and overload: "addmm" of "aten.addmm.default"."""
    parts = target.split(".")
    return parts[-2] if len(parts) >= 3 and parts[0] != "torch" else parts[-1]


def value_of(dtype: str, shape: str) -> str:
    """The columns dtype and shape of a table as one text: "f32[8, s0]", "Sym(s0)", "3 values"; empty for no value."""
    if not dtype or not shape:
        return ""
    dims: Any = json.loads(shape)
    if isinstance(dims, str):
        return plain(f"Sym({dims})")
    if ";" in dtype or (dims and isinstance(cast("list[Any]", dims)[0], list | None)):
        return counted(len(cast("list[Any]", dims)), "value")
    return plain(f"{DTYPES.get(dtype, dtype)}[{', '.join(map(str, cast('list[Any]', dims)))}]")


def row_value(row: NodeRow) -> str:
    """The value of a node as one text."""
    return value_of(row.dtype, row.shape)
