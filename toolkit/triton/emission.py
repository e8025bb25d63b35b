# pyright: basic
"""Every Triton kernel of a generated wrapper in the forms that were asked for, as files and as rows of a table.

Works on the text of the wrapper, so on one that was recorded as well as on one that was just written. Must run in a child: the
sources are programs.

>>> rows = emitted_kernels(wrapper, target_of("cuda:90"), ["ptx"], folder, recorded={})
>>> rows[0].name, rows[0].registers
('triton_poi_fused_relu_0', 16)
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...dumps import kernels as generated
from ..compile_fx.showing.records import CompiledRow
from .stages import Compiled, kernel_stages
from .targets import Target

SUFFIXES = ("ttir", "ttgir", "llir", "ptx", "cubin")
"""Form of code and suffix of its file, from Triton's first intermediate form to machine code."""


def emitted_kernels(
    wrapper: str, target: Target, forms: Sequence[str], folder: Path, recorded: Mapping[str, str]
) -> list[CompiledRow]:
    """Compiles every candidate of every kernel and writes its forms into `folder`: `NAME.ptx`, of the second one `NAME.1.ptx`.

    `recorded`: kernel -> its recorded source, for the column that says whether this is that kernel; empty where none was. Needs
    `pretending(target)`.
    """
    rows: list[CompiledRow] = []
    with tempfile.TemporaryDirectory(prefix="graphdbg-kernels-") as sources:
        for name, source in triton_sources(wrapper).items():
            rows += _kernel(name, source, target, forms, folder, recorded, Path(sources))
    return rows


def _kernel(
    name: str, source: str, target: Target, forms: Sequence[str], folder: Path, recorded: Mapping[str, str], sources: Path
) -> list[CompiledRow]:
    try:
        made = kernel_stages(name, source, target, sources)
    except Exception as error:  # noqa: BLE001  a kernel that cannot be loaded is a row, and the others go on
        said = str(error).strip() or type(error).__name__
        return [CompiledRow(name, error=f"{type(error).__name__}: {said.splitlines()[0]}")]
    rows = [_row(one, place, len(made)) for place, one in enumerate(made)]
    for row, one in zip(rows, made, strict=True):
        row.recorded = _as_recorded(name, source, recorded)
        row.files = _written(one, row, forms, folder)
    return rows


def triton_sources(wrapper: str) -> dict[str, str]:
    """Kernel -> source, in the order of the wrapper."""
    files = generated.split(wrapper)
    return {name.removesuffix(".py"): text for name, text in files.items() if name != generated.WHOLE and name.endswith(".py")}


def _row(made: Compiled, place: int, count: int) -> CompiledRow:
    row = CompiledRow(made.kernel, made.config_text(), place, count, error=made.error)
    row.dynamic_shared = int(made.launch.get("shared", 0))
    if made.resources is not None:
        found = made.resources
        row.registers, row.stack, row.shared = found.registers, found.stack, found.shared
        row.spill_stores, row.spill_loads = found.spill_stores, found.spill_loads
    row.report = made.report.strip()
    return row


def _written(made: Compiled, row: CompiledRow, forms: Sequence[str], folder: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    folder.mkdir(parents=True, exist_ok=True)
    stem = made.kernel if not row.place else f"{made.kernel}.{row.place}"
    for form in forms:
        if form in made.forms:
            data = made.forms[form]
            path = folder / f"{stem}.{form}"
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
            files[form] = path.name
    return files


_VARYING = re.compile(r"'backend_hash': (?:'[^']*'|None)|# kernel path: .*|filename=[^,]*,")


def same_source(one: str, other: str) -> bool:
    """Whether two sources are one kernel: comments, empty lines and what names a machine or a cache apart."""
    return _bare(one) == _bare(other)


def _bare(source: str) -> list[str]:
    lines: Iterable[str] = (_VARYING.sub("", line).strip() for line in source.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _as_recorded(name: str, source: str, recorded: Mapping[str, str]) -> str:
    if not recorded:
        return ""
    if name not in recorded:
        return "not recorded"
    return "as recorded" if same_source(source, recorded[name]) else "differs"
