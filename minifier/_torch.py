"""Private names of torch that the minifier needs, each with the public alternative that was missing. Checked: 2.11.0, 2.13.0."""

from __future__ import annotations

from typing import Any


def fake_mode(shape_env: Any) -> Any:
    """A mode whose tensors have no values, whose sizes may be symbols of `shape_env`. There is no public one that takes it."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env)
