# pyright: basic
"""Runs one interpreted kernel over its grid, program after program.

Also: programs that wait for each other (cooperative reductions): each in a thread of its own, of which one runs at a
time.

Tensors become addresses of a fresh Memory; numbers become what the signature says. Runs inside `interpreted()` only.

For example: `run(function, {"in_ptr0": x, "out_ptr0": y, "xnumel": 8, "XBLOCK": 8}, {"XBLOCK"}, (1, 1, 1), Memory())`.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import triton.language as tl

from ...live.rung import CannotRun
from ._triton import Handle, implicit, numpy_type, type_of
from .builder import BUILDER, alone
from .language import MARK, Programs, functions_of, rewritten
from .memory import Memory


def run(
    function: Any,
    arguments: Mapping[str, Any],
    constants: Sequence[str] | set[str],
    grid: tuple[int, int, int],
    memory: Memory,
    signature: Mapping[str, str] | None = None,
) -> None:
    """Runs `function`, the kernel's Python function, once for each program. `constants`: names passed as they are.

    `signature`: name -> Triton's type ("*fp32", "i32"), where it is known. Raises KernelError from what the kernel
    raises (`memory.Fault` for an access out of bounds).
    """
    function = rewritten(function)
    given = {
        name: value if name in constants else _passed(value, (signature or {}).get(name, ""), memory, name)
        for name, value in arguments.items()
    }
    grid = (int(grid[0]), int(grid[1]), int(grid[2]))
    BUILDER.memory = memory
    memory.again = lambda: function(**given)
    BUILDER.set_grid_dim(*grid)
    deep = sys.getrecursionlimit()
    sys.setrecursionlimit(max(deep, 10_000))

    def resumed(number: int) -> None:
        rest, x = divmod(number, grid[0])
        BUILDER.grid_idx = (x, rest % grid[1], rest // grid[1])
        BUILDER.asked = 0

    def start(number: int) -> None:
        function(**given)
        memory.watch.ended(number)

    count = grid[0] * grid[1] * grid[2]
    try:
        with functions_of(function.__globals__), located(function):
            if MARK in getattr(function, "__code__", start.__code__).co_names:
                together = Programs(start, resumed)
                BUILDER.wait = together.wait
                together.run(count)
            else:
                for number in range(count):
                    resumed(number)
                    start(number)
    finally:
        sys.setrecursionlimit(deep)
        BUILDER.memory, BUILDER.wait = Memory(), alone
        memory.again = None


class KernelError(RuntimeError):
    """What went wrong inside a kernel, with its name and line."""


@contextlib.contextmanager
def located(function: Any) -> Iterator[None]:
    """Adds the kernel's name and source line to errors inside it. CannotRun reasons pass unchanged."""
    try:
        yield
    except CannotRun:
        raise
    except Exception as error:
        code = function.__code__
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
        where = f"kernel {code.co_name}"
        if lines and lines[-1] is not None:
            text = " ".join(linecache.getline(code.co_filename, lines[-1]).split())
            where += f", line {lines[-1]}: {text}"
        what = str(error) or type(error).__name__
        raise KernelError(f"{what} ({where})") from error


def _passed(value: Any, kind: str, memory: Memory, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        zone = memory.zone_of(value)
        zone.names.setdefault("argument", name)
        pointer: Any = tl.str_to_ty(kind if kind.startswith("*") else type_of(value), None)
        address = np.array([memory.address(value)], np.uint64)
        return tl.tensor(Handle(address, pointer), pointer)
    if isinstance(value, (bool, int, float)) and kind in _SCALARS:
        scalar: Any = tl.str_to_ty(kind, None)
        return tl.tensor(Handle(np.array([value], numpy_type(scalar)), scalar), scalar)
    return implicit(value)


_SCALARS = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "fp32", "fp64")
