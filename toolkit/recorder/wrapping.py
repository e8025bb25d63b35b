"""Wraps functions of torch while a session is active, and lists the hooks that this torch lacks. Contains no wrapper
itself.

>>> missing_stages()
{}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dumps.private_names import Row
from ..torch_private.replacing import Replaced

Function = Callable[..., Any]

_MARK = "_graphdbg_original"

installed = Replaced()
lacking: dict[str, Row] = {}
"""Places of hooks that this torch does not have."""


def missing() -> list[Row]:
    """The hooks that this torch lacks, among imported modules."""
    return list(lacking.values())


def tells_why(hook: Row) -> bool:
    """Whether `ls --why` shows less without this hook."""
    return hook.module.startswith("torch._dynamo.") and not hook.stages


def missing_stages() -> dict[str, str]:
    """Stage -> the function that this torch lacks, for stages that cannot be recorded here."""
    return {stage: hook.whole() for hook in lacking.values() for stage in hook.stages}


def wrap(owner: Any, name: str, wrapper: Callable[[Function], Function]) -> Function:
    """Wraps a function of torch until the last session ends, unless it is wrapped already; returns the wrapper in
    place."""
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return original
    replacement = wrapper(original)
    setattr(replacement, _MARK, original)
    installed.put(owner, name, replacement)
    return replacement
