# pyright: basic
"""Private names of torch that the minifier needs, each with the public alternative that was missing. Checked: 2.11.0, 2.13.0."""

from __future__ import annotations

from typing import Any


def fake_mode(shape_env: Any, *, static: bool = False) -> Any:
    """A mode whose tensors have no values, whose sizes may be symbols of `shape_env`. There is no public one that takes it.

    `static`: tensors that are made from real ones have no symbols; loops among operators need a ShapeEnv all the same.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env, static_shapes=static)


def custom_op_function(name: str) -> Any:
    """The function under `torch.library.custom_op` of "namespace::op", None where there is none. Nothing public has it."""
    from torch._library.custom_ops import OPDEFS

    return getattr(OPDEFS.get(name), "_init_fn", None)
