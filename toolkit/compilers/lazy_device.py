"""A mode under which every tensor is made on the lazy device, whatever device the graph names or leaves out.

It sees ATen's operators, so that factories inside other functions and subgraphs are moved too. Must not change what an operator
computes: `copy`, which `copy_` becomes and which has no lazy kernel, is said in operators that have one.

>>> with OnLazyDevice(device): torch.ones(4).device
device(type='lazy', index=0)
"""

from __future__ import annotations

from typing import Any

import torch

from .. import torch_private as t
from ..execution import leaves
from . import lazy_backend
from .operators import arguments_of

aten = torch.ops.aten


class OnLazyDevice(t.TorchDispatchMode):
    """The mode; `device` is the lazy one."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given = [value for value in leaves([*args, *kwargs.values()]) if isinstance(value, torch.Tensor)]
        if func is aten.copy.default:
            return _copied(*args[:2])
        if func in (aten.lift_fresh.default, aten.lift_fresh_copy.default) and args[0].device != self.device:
            return lazy_backend.wrapped_lazy(args[0].to(self.device))
        names = [name for name, _ in arguments_of(func)]
        makes = not given
        if "device" in names:
            place = names.index("device")
            if place < len(args):
                args = (*args[:place], self.device, *args[place + 1 :])
            elif makes or kwargs.get("device") is not None:
                kwargs["device"] = self.device
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        result = func(*(self._moved(value) for value in args), **kwargs)
        if makes and isinstance(result, torch.Tensor) and result.device == self.device:
            return lazy_backend.wrapped_lazy(result)
        return result

    def _moved(self, value: Any) -> Any:
        """A tensor of the CPU that came in by the way (a Python function's own constant) as a lazy one."""
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            return value.to(self.device)
        if isinstance(value, (list, tuple)):
            return type(value)([self._moved(one) for one in value])
        return value


def _copied(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`copy`, which has no lazy kernel and is what `copy_` becomes, in operators that have one."""
    if source.dtype != target.dtype:
        source = aten._to_copy.default(source, dtype=target.dtype)
    return aten.expand_copy.default(source, target.shape) if source.shape != target.shape else source.clone()
