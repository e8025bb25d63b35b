"""Traceable wrapper subclasses, tensors that hold other tensors: takes them apart, and puts them together again.

A class is never imported by a name from a dump: it has to be defined in this process, or be one of torch's own on the
allow-list. A nested tensor's ragged size stands for its offsets, which have no saved form, so it stays opaque.

For example:

    parts(TwoTensor(a, b))  # -> {'a': a, 'b': b}
    like(TwoTensor(a, b), {"a": a + 1, "b": b + 1})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch

from .. import allowlist
from ..errors import DamagedError, NotRegisteredError
from . import torch_private as t

MOST_DENSE = 1 << 26
"""Of a sparse tensor with more elements than this only the values are compared."""


def is_wrapper(value: object) -> bool:
    """Whether a value is a wrapper tensor."""
    plain = not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter)
    return not plain and t.is_wrapper(value)


def parts(tensor: Any) -> dict[str, torch.Tensor]:
    """The inner tensors of a wrapper tensor, by attribute."""
    return {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}


def like(tensor: Any, held: Mapping[str, Any]) -> Any:
    """A tensor of the same class over other inner tensors; it requires grad where `tensor` does, as a leaf."""
    _, context = tensor.__tensor_flatten__()
    tensor_like: Any = cast(Any, type(tensor)).__tensor_unflatten__(dict(held), context, tensor.size(), tensor.stride())
    if isinstance(tensor, torch.nn.Parameter):
        tensor_like = torch.nn.Parameter(tensor_like.detach(), tensor.requires_grad)
    needs: bool = cast(Any, tensor).requires_grad
    return tensor_like.requires_grad_(True) if needs and not tensor_like.requires_grad else tensor_like


def whole(value: Any) -> Any:
    """A plain tensor with all numbers in a wrapper or sparse tensor, to compare two of them; other values as they
    are."""
    if not is_wrapper(value):
        if not isinstance(value, torch.Tensor) or value.layout == torch.strided:
            return value
        many = value.numel() > MOST_DENSE
        return value.to_dense() if not many else (value.coalesce() if value.is_sparse else value).values()
    held = [whole(part.detach()).to(value.device) for part in parts(value).values()]  # they may be on several devices
    if len({(part.shape, part.dtype) for part in held}) == 1:
        return torch.stack(held)
    flat = [part.reshape(-1) for part in held]  # float8 has no type promotion
    return torch.cat([part.float() if part.is_floating_point() and part.itemsize == 1 else part for part in flat])


def type_name(value: object) -> str:
    """The name that a class is saved by."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def rebuilt(name: str, held: dict[str, Any], context: Any, size: Any, stride: Any, where: str) -> Any:
    """Rebuilds a wrapper tensor by the saved name of its class. Raises EnvironmentLackError where the class is not
    known here, UnreadableError where it cannot be built from these parts."""
    kind = _class(name)
    if kind is None:
        home = name.rpartition(".")[0]
        fix = f"name the module that defines it with --import {home}"
        if home.partition(".")[0] == "__main__":
            fix = "put the class into a module of its own, record again, and name that module with --import MODULE"
        raise NotRegisteredError(where, f"the tensor class {name!r} is not defined in this process", fix)
    try:
        return kind.__tensor_unflatten__(held, context, torch.Size(size), tuple(stride))
    except Exception as error:  # the class is the user's or a library's
        why = f"{name} cannot be rebuilt from what was recorded ({type(error).__name__}: {error})"
        raise DamagedError(where, why) from error


def _class(name: str) -> Any:
    home = allowlist.WRAPPER_HOMES.get(name)
    if home is not None:
        __import__(home)
    return next((kind for kind in _below(torch.Tensor) if f"{kind.__module__}.{kind.__qualname__}" == name), None)


def _below(kind: type) -> Iterator[Any]:
    for subclass in type.__subclasses__(kind):
        if hasattr(subclass, "__tensor_flatten__") and hasattr(subclass, "__tensor_unflatten__"):
            yield subclass
        yield from _below(subclass)
