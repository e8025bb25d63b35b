"""Dtypes: replaces rare dtypes by common ones (float32, int64, complex64), then complex64 by float32.

A dtype is replaced everywhere: in inputs, constants, parameters and graphs inside, in dtype arguments, `.half()`-like
methods. Autocast regions keep theirs (`switches` tries to turn them off). What eager refuses, or what then has other
shapes, is not proposed.

>>> propose(Live(torch.fx.symbolic_trace(lambda x: x.sin()), [torch.ones(2, dtype=torch.float16)]))
[['dtypes float16 float32']]
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from ...toolkit import torch_private as t
from ...toolkit.cutting.atoms import target_name
from ...toolkit.live.case import Live
from ...toolkit.live.eager import attribute, clone_inputs, copy_graph, set_attribute
from . import Pass
from .forms import fitting, run
from .symbolic import renewed

_FLOAT8 = [f"float8_{form}" for form in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")]
_RARE = {
    "float32": ("float64", "float16", "bfloat16", *_FLOAT8),
    "complex64": ("complex128", "complex32"),
    "int64": ("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"),
}
PLAIN = {rare: plain for plain, others in _RARE.items() for rare in others}
REAL = {"complex64": "float32"}
METHODS = {
    "half": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
_MODES = ("_enter_autocast", "_exit_autocast", "wrap_with_autocast")


def propose(case: Live) -> list[list[str]]:
    """A round to the plain dtype of each kind, and one without complex numbers."""
    present = {str(dtype).removeprefix("torch.") for dtype in dtypes_in(case.gm, case.inputs)}
    rounds = [[f"dtypes {old} {new}" for old, new in plainer.items() if old in present] for plainer in (PLAIN, REAL)]
    return fitting(case, rounds, apply, lambda changed: _shapes(changed) == _shapes(case))


def apply(case: Live, edit: str) -> Live:
    """The case with one dtype replaced everywhere; tensors that share memory still do."""
    _, old_name, new_name = edit.split(" ")
    old, new = getattr(torch, old_name), getattr(torch, new_name)
    inputs = clone_inputs(case.inputs, lambda flat: _converted(flat, old, new))
    return renewed(case, _graph(case.gm, old, new), inputs)


def dtypes_in(gm: fx.GraphModule, inputs: list[Any]) -> Iterator[torch.dtype]:
    """Every dtype that a graph's inputs, tensors or arguments have."""
    yield from (value.dtype for value in inputs if isinstance(value, torch.Tensor))
    for node in gm.graph.nodes:
        if target_name(node) in _MODES:
            continue
        if node.op == "get_attr":
            value = attribute(gm, str(node.target))
            if isinstance(value, fx.GraphModule):
                yield from dtypes_in(value, [])
            elif isinstance(value, torch.Tensor):
                yield value.dtype
        elif node.op == "call_module":
            module = attribute(gm, str(node.target))
            yield from (value.dtype for value in (*module.parameters(), *module.buffers()))
        elif node.op == "call_method" and node.target in METHODS:
            yield getattr(torch, METHODS[node.target])
        yield from (value for value in t.tree_leaves((node.args, node.kwargs)) if isinstance(value, torch.dtype))


def _converted(tensor: torch.Tensor, old: torch.dtype, new: torch.dtype) -> torch.Tensor:
    """A copy; complex numbers that become real ones lose their imaginary part."""
    if tensor.dtype is not old:
        return tensor.clone()
    plain = tensor.real if old.is_complex and not new.is_complex else tensor
    return plain.to(new, copy=True)


def _graph(gm: fx.GraphModule, old: torch.dtype, new: torch.dtype) -> fx.GraphModule:
    out = copy_graph(gm)
    renamed: dict[str, str] = {}
    names = {value: name for name, value in METHODS.items()}

    def replaced(value: Any) -> Any:
        return new if value is old else value

    for node in out.graph.nodes:
        if target_name(node) in _MODES:
            continue
        node.args, node.kwargs = map_aggregate(node.args, replaced), map_aggregate(node.kwargs, replaced)
        if node.op == "call_method" and METHODS.get(node.target) == str(old).removeprefix("torch."):
            node.target = names[str(new).removeprefix("torch.")]
        if node.op not in ("get_attr", "call_module"):
            continue
        path = str(node.target)
        if path not in renamed:
            renamed[path] = _attribute(out, path, old, new)
        node.target = renamed[path]
    out.recompile()
    return out


def _attribute(out: fx.GraphModule, path: str, old: torch.dtype, new: torch.dtype) -> str:
    """The path of a converted copy of what lies at `path`, which the original graph shares."""
    value: Any = attribute(out, path)
    if isinstance(value, fx.GraphModule):
        set_attribute(out, path, _graph(value, old, new))  # a graph inside is the copy's own
        return path
    if isinstance(value, torch.nn.Module):
        value = copy.deepcopy(value)
        for owner in value.modules():
            for name, held in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
                setattr(owner, name, _tensor(held, old, new))
    elif isinstance(value, torch.Tensor) and value.dtype is old:
        value = _tensor(value, old, new)
    else:
        return path
    name = f"{path.replace('.', '_')}_{str(new).removeprefix('torch.')}"
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        out.register_buffer(name, value)
    else:
        setattr(out, name, value)
    return name


def _tensor(value: torch.Tensor, old: torch.dtype, new: torch.dtype) -> torch.Tensor:
    converted = _converted(value.detach(), old, new)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(converted, requires_grad=value.requires_grad)
    return converted


def _shapes(case: Live) -> list[Any]:
    return [tuple(value.shape) if isinstance(value, torch.Tensor) else None for value in t.tree_leaves(run(case))]


PASS = Pass(order=80, words="plainer dtypes", edits={"dtypes * *": "{1} made {2}"}, runs_eager=True, is_plainer=True)
