"""Functions of torch's that are wrapped while a session goes on, and the hooks that this torch lacks. Knows no wrapper.

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
"""Hooks that were looked for and are not there."""


def missing() -> list[Row]:
    """The hooks that this torch lacks, of those modules that were imported."""
    return list(lacking.values())


def tells_why(hook: Row) -> bool:
    """Whether `ls --why` knows less without it."""
    return hook.module.startswith("torch._dynamo.") and not hook.stages


def missing_stages() -> dict[str, str]:
    """Stage -> the function that this torch lacks, for stages that cannot be recorded here."""
    return {stage: hook.whole() for hook in lacking.values() for stage in hook.stages}


def wrap(owner: Any, name: str, wrapper: Callable[[Function], Function]) -> Function:
    """Wraps a function of torch's until the last session ends, unless it is wrapped already; returns the present
    function."""
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return original
    replacement = wrapper(original)
    setattr(replacement, _MARK, original)
    installed.put(owner, name, replacement)
    return replacement
