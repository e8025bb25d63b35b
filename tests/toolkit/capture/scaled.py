# pyright: basic
"""A wrapper subclass with two inner tensors, values and one scale, as float8 training has it. Its arithmetic is done
unscaled.

>>> Scaled.of(torch.randn(3))
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing


class Scaled(torch.Tensor):
    """`values * scale`, of a shape and dtype of its own."""

    @staticmethod
    def __new__(cls, values: torch.Tensor, scale: torch.Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=scale.dtype,
            device=values.device,
            requires_grad=False,
        )

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self.values_, self.scale_ = values, scale

    @classmethod
    def of(cls, value: torch.Tensor) -> Scaled:
        """A tensor in eight bits with one scale."""
        scale = value.abs().amax() / 400
        return cls((value / scale).to(torch.float8_e4m3fn), scale)

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"Scaled({self.values_!r}, {self.scale_!r})"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["values_", "scale_"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], _meta: Any, _size: Any, _stride: Any) -> Scaled:
        return Scaled(inner["values_"], inner["scale_"])

    def plain(self) -> torch.Tensor:
        """As one tensor of the outer dtype."""
        return self.values_.to(self.scale_.dtype) * self.scale_

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            result = cls(func(args[0].values_), func(args[0].scale_))
            return return_and_correct_aliasing(func, args, kwargs, result)
        plain = torch.utils._pytree.tree_map_only(cls, cls.plain, (args, kwargs))
        return func(*plain[0], **plain[1])
