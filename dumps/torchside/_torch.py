# pyright: basic
"""Private torch names of `dumps`, each with the public alternative that was missing; run on torch 2.11.0 to 2.15.0.

The rest of the room imports them from here. Where a version may lack a name there is a getattr with a stated fallback.

>>> from ._torch import FakeTensorMode
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch._higher_order_ops  # registers the higher-order ops; no public module does (2.13.0)
import torch._ops as _ops
from torch._dynamo.source import ConstantSource  # the smallest Source: a name; ShapeEnv keeps Sources only (2.13.0)
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # no public fake tensors (2.13.0)
from torch.fx.experimental import symbolic_shapes as shapes
from torch.fx.experimental.sym_node import SymNode  # a SymBool or constant SymInt has no public constructor (2.13.0)
from torch.fx.experimental.symbolic_shapes import RuntimeAssert, ShapeEnv  # no public ShapeEnv (2.13.0)
from torch.fx.passes.shape_prop import _extract_tensor_metadata as tensor_metadata  # what tracing writes (2.13.0)
from torch.utils import _pytree as pytree  # key paths of unbacked symbols are made of its keys (2.13.0)
from torch.utils._python_dispatch import _disable_current_modes  # observing must not run in the user's modes (2.13.0)
from torch.utils._sympy import functions as sympy_functions  # FloorDiv, Mod, ... have no public home (2.13.0)
from torch.utils._sympy.numbers import int_oo  # the integer infinity of ranges (2.13.0)
from torch.utils._sympy.value_ranges import ValueRanges  # what var_to_range holds (2.13.0)
from torch.utils._traceback import CapturedTraceback  # RuntimeAssert demands one (2.13.0)

ShapeGuard: Any = shapes.ShapeGuard  # pyright: ignore  # what ShapeEnv.guards holds; exported nowhere (2.13.0)
OpOverload = _ops.OpOverload  # torch.ops gives instances only (2.13.0)
OpOverloadPacket = _ops.OpOverloadPacket
HigherOrderOperator = _ops.HigherOrderOperator

__all__ = [
    "CapturedTraceback", "ConstantSource", "FakeTensor", "FakeTensorMode", "HigherOrderOperator", "OpOverload",
    "OpOverloadPacket", "RuntimeAssert", "ShapeEnv", "ShapeGuard", "SymNode", "ValueRanges", "add_triton_constants",
    "add_triton_kernel", "backed_hints",
    "descriptor_module", "disable_current_modes", "fake_script_object", "higher_order_ops", "int_oo", "is_wrapped", "neg_view",
    "node_source", "op_schemas", "original_assumptions", "per_channel_quantized", "per_tensor_quantized",
    "pytree_keys", "raw_expr", "resolve_process_group", "shapes", "storage_key", "sympy_functions",
    "tensor_metadata", "triton_constants", "triton_kernel",
]  # fmt: skip

disable_current_modes = _disable_current_modes
neg_view: Any = torch._neg_view  # pyright: ignore  # torch.resolve_neg is public, setting the bit is not (2.13.0)
# public calls quantise floats; these two take the integers (2.13.0)
per_channel_quantized: Any = getattr(torch, "_make_per_channel_quantized_tensor", None)
per_tensor_quantized: Any = getattr(torch, "_make_per_tensor_quantized_tensor", None)


def higher_order_ops() -> dict[str, Any]:
    """Name -> operator of all registered higher-order ops. No public registry (2.13.0)."""
    return getattr(_ops, "_higher_order_ops", {})


def op_schemas(qualified_name: str) -> list[Any]:
    """The schemas registered under "aten::sin", [] if there are none. No public query that does not import (2.13.0)."""
    return torch._C._jit_get_schemas_for_operator(qualified_name)


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share one storage; fake and meta tensors have no data_ptr to compare (2.13.0)."""
    return tensor.untyped_storage()._cdata


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of vmap's or grad's wrappers, which have a shape but no storage of their own (2.13.0)."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore


def inside_transform() -> bool:
    """Whether a vmap or grad is being traced into now, where tensors cannot be made leaves (2.13.0)."""
    return torch._C._functorch.maybe_current_level() is not None  # pyright: ignore


def backed_hints(env: Any) -> dict[Any, Any]:
    """Symbol -> hint of a ShapeEnv: `backed_var_to_val` on 2.13, `var_to_val` before."""
    found = getattr(env, "backed_var_to_val", None)
    return env.var_to_val if found is None else found


def raw_expr(value: Any) -> Any:
    """The expression that a symbolic value was made with, before replacements; `node.expr` is after them (2.13.0)."""
    return getattr(value.node, "_expr", value.node.expr)


def original_assumptions(symbol: Any) -> dict[str, Any]:
    """What a sympy symbol was created with (integer, positive, ...); sympy has no public accessor (1.13, 1.14)."""
    return dict(getattr(symbol, "_assumptions_orig", None) or {})


def node_source(chain: list[str]) -> list[Any]:
    """A `from_node` chain from names, nearest first. NodeSource's constructor wants live nodes (2.13.0); absent: []."""
    from torch.fx import traceback

    source = getattr(traceback, "NodeSource", None)
    if source is None or not hasattr(source, "_from_dict") or not chain:
        return []
    entry: dict[str, Any] | None = None
    for name in reversed(chain):
        entry = {"name": name, "target": "", "graph_id": 0, "pass_name": "", "action": "create",
                 "from_node": [entry] if entry else []}  # fmt: skip
    return [source._from_dict(entry)]


def descriptor_module() -> Any:
    """The module of AOTAutograd's descriptors (2.13.0); an empty namespace where a torch has none."""
    try:
        from torch._functorch._aot_autograd import descriptors
    except ImportError:
        return object
    return descriptors


def fake_script_object(real: Any) -> Any:
    """What tracing makes of an input that is no tensor and no number; it has no public constructor (2.13.0)."""
    from torch._library.fake_class_registry import FakeScriptObject

    return FakeScriptObject(object(), type(real).__name__, real)


def resolve_process_group(name: str) -> Any:
    """The process group of a name that functional collectives use; None when there is none. No public look-up (2.13.0)."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    try:
        return distributed.distributed_c10d._resolve_process_group(name)
    except (RuntimeError, ValueError):
        return None


def triton_kernel(index: Any) -> Any:
    """The user's Triton kernel that a wrapper node calls by index; None when there is none. No public table (2.13.0)."""
    return _from_table("get_kernel", index)


def triton_constants(index: Any) -> Any:
    """The arguments that a wrapper node holds outside of the graph, by name; None for none. No public table (2.13.0)."""
    return _from_table("get_constant_args", index)


def _from_table(getter: str, index: Any) -> Any:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    try:
        return getattr(kernel_side_table, getter)(index)
    except (AssertionError, KeyError, TypeError):
        return None


def add_triton_kernel(kernel: Any) -> int:
    """The index of a kernel in the table that wrapper nodes look into, put there where it is new. No public table (2.13.0)."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    return kernel_side_table.add_kernel(kernel)


def add_triton_constants(constants: dict[str, Any]) -> int:
    """The same for the arguments outside of the graph."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    return kernel_side_table.add_constant_args(constants)


def pytree_keys() -> dict[str, Any]:
    """Name -> class of the keys that lead to an unbacked symbol inside a value. No public home (2.13.0)."""
    names = ("SequenceKey", "MappingKey", "GetAttrKey")
    found = {name: getattr(pytree, name) for name in names if hasattr(pytree, name)}
    own = ("ConvertIntKey", "CallMethodKey", "InnerTensorKey", "DivideByKey")
    return found | {name: getattr(shapes, name) for name in own if hasattr(shapes, name)}
