# pyright: basic
"""Case folders: a graph with its inputs, outside any run.

>>> save(gm, inputs, Path("case"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from ..atomic import new_folder
from ..graph_folder import TENSORS_FOLDER, write_graph_folder
from ..schema import Ambient, ConstValue, GraphRecord
from ..tensors import TensorStore
from . import torch_private as t
from .encode import CARRY, encode
from .exported import is_program, parts
from .make_inputs import observe


def save(
    gm: Any, inputs: Sequence[Any], path: Path, *, like: GraphRecord | None, stage: str | None,
    compile_kwargs: Mapping[str, Any] | None, ambient: Ambient | None,
) -> Path:  # fmt: skip
    """Writes the folder; it appears whole or not at all. `gm` may be an exported program."""
    if is_program(gm):
        gm, inputs, roles = parts(gm, inputs)
        gm.meta[CARRY] = {"inputs": roles}
        stage = stage or "inference"
    with new_folder(path) as folder:
        store = TensorStore(folder / TENSORS_FOLDER)
        record = describe(gm, like=like, stage=stage, compile_kwargs=compile_kwargs, ambient=ambient, sink=store)
        seen = observe(record, inputs, "all", store)
        for node, item in zip((n for n in record.graph.nodes if n.op == "placeholder"), seen.inputs, strict=True):
            node.value = node.value or item.value or ConstValue(value=item.scalar)
        write_graph_folder(folder / "graph", record, seen)
        for entry in (folder / "graph").iterdir():
            entry.rename(folder / entry.name)
        (folder / "graph").rmdir()
    return path


def describe(
    gm: GraphModule, *, like: GraphRecord | None, stage: str | None, compile_kwargs: Mapping[str, Any] | None,
    ambient: Ambient | None, sink: Any,
) -> GraphRecord:  # fmt: skip
    """The record of a case: what is not said comes from `like`, then from the record that the module was loaded from."""
    carry: dict[str, Any] = getattr(gm, "meta", {}).get(CARRY, {})
    if like is not None:
        names = ("id", "stage", "compile_id", "compile_kwargs", "ambient", "config", "inputs")
        carry = {name: getattr(like, name) for name in names}
    stage = str(stage or carry.get("stage") or guess_stage(gm))
    roles = {item.name: (item.role, item.source) for item in carry.get("inputs", ())}
    record = encode(
        gm, id=carry.get("id", f"case/{stage}"), stage=stage, compile_id=carry.get("compile_id"),
        compile_kwargs=compile_kwargs, ambient=ambient or carry.get("ambient"), input_roles=roles, sink=sink,
    )  # fmt: skip
    if compile_kwargs is None:
        record.compile_kwargs = dict(carry.get("compile_kwargs", {}))
    record.config = dict(carry.get("config", {}))
    return record


def guess_stage(gm: GraphModule) -> str:
    """`inference` for a graph of registered ops alone, else `dynamo`."""
    for node in gm.graph.nodes:
        low_level = isinstance(node.target, (t.OpOverload, t.HigherOrderOperator))
        low_level = low_level or getattr(node.target, "__module__", "") == "_operator"
        if node.op in ("call_method", "call_module") or (node.op == "call_function" and not low_level):
            return "dynamo"
    return "inference"
