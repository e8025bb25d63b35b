"""Every operation of Inductor's Triton code, every library function that it may call: interpreted, beside eager."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
from torch._inductor.codegen.triton import TritonKernelOverrides
from torch._inductor.ops_handler import OpsHandler

from graphdbg.toolkit.triton.interpreting import builder, libdevice

from .interpreted import agree
from .ops_table import ELSEWHERE, FLOATS, NO_HALF, NOT_THERE, OTHERS, PAIRS, pairs, values

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LOOSE = {torch.float16: (4e-3, 2e-3), torch.bfloat16: (3e-2, 2e-2)}
"""Relative and absolute: eager rounds between the steps of what it is built of, a kernel at its end."""


def rows(dtype: torch.dtype) -> Iterator[tuple[str, Any, tuple[torch.Tensor, ...]]]:
    for table, given in ((FLOATS, (values(dtype),)), (PAIRS, pairs(dtype))):
        for name, function in table.items():
            if (name, dtype) not in NOT_THERE and not (dtype.itemsize == 2 and name in NO_HALF):
                yield name, function, given


@pytest.mark.long
def test_every_operation_in_one_kernel_is_eagers() -> None:
    for chosen in (FLOATS, PAIRS):
        results = [(name, function) for name, function, _ in rows(torch.float32) if name in chosen]
        given = values(torch.float32), *pairs(torch.float32)
        operands = 1 if chosen is FLOATS else 2

        def together(*inputs: torch.Tensor, results: Any = results) -> list[torch.Tensor]:
            built = [function(*inputs) for _, function in results]
            return [item for row in built for item in (row if isinstance(row, list) else [row])]

        agree(together, *(given[:1] if operands == 1 else given[1:]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_an_operation_alone_is_eagers(dtype: torch.dtype) -> None:
    wrong: list[str] = []
    for name, function, given in rows(dtype):
        try:
            agree(function, *given, **dict(zip(("rtol", "atol"), LOOSE.get(dtype, ()), strict=False)))  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001  told by name, all of them
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", OTHERS)
def test_an_operation_with_inputs_of_its_own_is_eagers(name: str) -> None:
    function, given = OTHERS[name]
    agree(function, *given)


def test_no_operation_is_left_out() -> None:
    own = {name for item in TritonKernelOverrides.__mro__ if item.__name__.startswith("Triton") for name in vars(item)}
    asked = {name for name in own | set(vars(OpsHandler)) if not name.startswith("_")}
    missing = asked - set(FLOATS) - set(PAIRS) - set(OTHERS) - set(ELSEWHERE)
    assert not missing, f"Inductor writes operations into Triton code that no row tries: {', '.join(sorted(missing))}"


def test_every_library_function_that_inductor_may_call_is_in_the_table() -> None:
    inductor = Path(torch.__file__).parent / "_inductor"
    source = "\n".join(path.read_text() for path in inductor.rglob("*.py"))
    called = set(re.findall(r"libdevice\.([a-z][a-z0-9_]+)", source)) - {"is_file", "fast_tanhf"}  # of AMD alone
    assert len(called) > 40
    known = symbols()
    wrong = [f"libdevice.{name}: Triton has no such function" for name in called - set(known)]
    for name in sorted(called & set(known)):
        for symbol in known[name]:
            try:
                libdevice.function(symbol)
            except libdevice.MissingFunction as error:
                wrong.append(f"libdevice.{name}: {error}")
    assert not wrong, "\n".join(wrong)


def symbols() -> dict[str, list[str]]:
    """Function of Triton's library -> its symbols."""
    tree = ast.parse((Path(triton.__file__).parent / "language" / "extra" / "cuda" / "libdevice.py").read_text())
    return {
        item.name: [
            node.value
            for node in ast.walk(item)
            if isinstance(node, ast.Constant) and str(node.value).startswith("__nv")
        ]
        for item in tree.body
        if isinstance(item, ast.FunctionDef)
    }


def test_a_missing_library_function_is_named() -> None:
    with pytest.raises(libdevice.MissingFunction, match="__nv_byte_perm"):
        libdevice.function("__nv_byte_perm")


def test_inline_assembly_of_inductor_is_in_the_table_and_other_is_refused_by_its_text() -> None:
    source = (Path(torch.__file__).parent / "_inductor" / "codegen" / "triton.py").read_text()
    emitted = re.findall(r'"([a-z0-9.]+ \$0, \$1[^"]*;)"', source)
    for text in emitted:
        builder.function(text)
    for text in (
        "cvt.rn.bf16x2.f32 $0, $1, $2;",
        "{ add.f32 $0, $1, $2; }",
        "fma.rz.f32 $0, $1, $2, $3;",
        "sub.f32 $0, $2, $1;",
    ):
        with pytest.raises(builder.MissingInstruction, match=re.escape(text.split()[0])):
            builder.function(text)
