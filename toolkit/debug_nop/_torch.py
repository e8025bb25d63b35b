"""The private names of torch that the metadata checker needs, each with the public alternative that is missing.

Read on torch 2.13.0. Importing this module imports torch, not Inductor.

>>> is_alias_of(x, x.view(-1))
True
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket  # torch.ops gives instances only (2.13.0)
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # no public fake tensors (2.13.0)
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # for sizes that depend on data; not public (2.13.0)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree  # no public module flattens nested values, or follows a key path (2.13.0)

__all__ = [
    "FakeTensor", "HigherOrderOperator", "OpOverload", "OpOverloadPacket", "StorageWeakRef", "aliases_only_warned",
    "alone_mode", "is_alias_of",
    "key_get", "layout_guard", "quietly", "storage_key", "tree_leaves", "tree_map",
]  # fmt: skip

tree_leaves = pytree.tree_leaves
tree_map = pytree.tree_map


def _share_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    return storage_key(one) == storage_key(other)


is_alias_of: Callable[[torch.Tensor, torch.Tensor], bool] = getattr(torch._C, "_is_alias_of", _share_storage)
"""Whether two tensors share one storage, in a seventh of a microsecond; comparing `untyped_storage()` is public and slower."""


def aliases_only_warned() -> contextlib.AbstractContextManager[None]:
    """AOTAutograd warns of a custom op that returns its input, and raises where CI is set in the environment: inside it warns.

    So the checker can say which. No public setting (2.13.0).
    """
    import torch._functorch.config as functorch_config

    if not getattr(functorch_config, "error_on_custom_op_aliasing", False):
        return contextlib.nullcontext()
    return functorch_config.patch(error_on_custom_op_aliasing=False)


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share one storage; fake and meta tensors have no data_ptr to compare (2.13.0)."""
    return tensor.untyped_storage()._cdata


def layout_guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """A function that says in one call whether tensors have the sizes, strides, dtypes and devices of these; it keeps none
    of them.

    Dynamo's own guards on inputs: a third of the time of one comparison in Python. They also look at dispatch keys and
    `requires_grad`, so what they refuse has to be looked at again. Where this torch lacks them, Python compares. No public
    call (2.13.0).
    """
    made = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    try:
        sizes, strides = [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors]
        return made.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check  # type: ignore[union-attr]
    except (AttributeError, RuntimeError, TypeError, ValueError):
        known = [_layout(one) for one in tensors]
        return lambda *given: [_layout(one) for one in given] == known


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def key_get(value: Any, path: Any) -> Any:
    """What lies at a key path of `meta["unbacked_bindings"]` in a node's value: a size, or an item of it (2.13.0)."""
    return pytree.key_get(value, tuple(path))


def alone_mode() -> FakeTensorMode:
    """A fake mode with numbers for sizes, in which an op of data-dependent size gets a symbol."""
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True)


@contextlib.contextmanager
def quietly(graph: fx.Graph) -> Iterator[FakeTensorMode | None]:
    """The fake mode of a graph's recorded values with no guard added to its shapes; None when the values are of none (2.13.0)."""
    values = (leaf for node in graph.nodes for leaf in tree_leaves(node.meta.get("val", node.meta.get("example_value"))))
    mode = next((leaf.fake_mode for leaf in values if isinstance(leaf, FakeTensor)), None)
    if mode is None or mode.shape_env is None:
        yield mode
        return
    env = mode.shape_env
    with env.suppress_guards(), env.ignore_fresh_unbacked_symbols(), mode:
        yield mode
