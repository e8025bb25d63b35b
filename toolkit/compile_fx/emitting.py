"""Writes what is known of a compile into a folder: graphs around each stage, code, kernels one by one, tables as JSON.

The folder appears whole or not at all, also when the compile failed; then it holds what came before, and `error.txt`. Must not
import torch.

>>> [file["path"] for file in emitted(Path("out"), work, told)]
['out/compile.json', 'out/forward/after_post_grad.py', ...]
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from ...dumps.atomic import new_folder
from .showing.records import PartRow, Told


def emitted(folder: Path, work: Path, told: Told) -> list[dict[str, Any]]:
    """Writes the folder; what was written, with sizes. `work` holds what the child left. Raises UsageError where it exists."""
    with new_folder(folder) as fresh:
        for source in sorted(work.rglob("*")):
            if source.is_file() and not _of_a_diff(source):
                target = fresh / source.relative_to(work)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        for part in told.parts:
            _tables(fresh / part.part, part)
        if told.error is not None:
            text = told.error.excerpt or told.error.message
            (fresh / "error.txt").write_text(f"{text}\n\n{told.error.traceback}".rstrip() + "\n", encoding="utf-8")
        told.files = [
            {"path": str(folder / path.relative_to(fresh)), "bytes": path.stat().st_size}
            for path in sorted(fresh.rglob("*")) if path.is_file()
        ]  # fmt: skip
        (fresh / "compile.json").write_bytes(msgspec.json.encode(told))
        size = (fresh / "compile.json").stat().st_size
    told.files.insert(0, {"path": str(folder / "compile.json"), "bytes": size})
    return told.files


def source_of(work: Path, told: Told, kernel: str = "") -> str:
    """The generated code of all parts, or of each generated kernel with this in its name, under lines with the part's name."""
    texts: list[str] = []
    for part in told.parts:
        folder = work / part.part
        paths = sorted((folder / "kernels").glob("*")) if kernel else [folder / "output_code.py"]
        for path in paths:
            if path.is_file() and kernel in path.stem:
                texts.append(f"# {told.graph}: {part.part}\n{path.read_text(encoding='utf-8').strip()}\n")
    return "\n\n".join(texts)


def _of_a_diff(path: Path) -> bool:
    return path.suffix == ".json" and path.name.startswith(("before_", "after_"))


def _tables(folder: Path, part: PartRow) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Any] = {"buffers": part.buffers, "compiled": part.compiled, "kernels": part.kernels}
    if part.kernels:
        both = {"node_to_kernel": part.node_to_kernel, "without_kernel": part.without_kernel}
        both["kernel_to_node"] = {row.label: row.nodes for row in part.kernels}
        tables["map"] = both
    for name, table in ({"stages": part.stages} | {name: table for name, table in tables.items() if table}).items():
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(table))
