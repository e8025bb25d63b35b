"""Where torch is wrapped: one table from hook to wrapper, installed when its module is there, removed with the last session.

Each wrapper is a function `(original) -> replacement` that calls `original` exactly once with the caller's own arguments,
whatever happens to the recording. Must not change any setting, backend or pass of the user.

>>> install(); missing_stages()
{}
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import aot_hooks, dynamo_hooks, importhook, inductor_hooks, why_hooks
from ._torch import ALIASES, HOOKS, Hook

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

WRAPPERS: dict[str, Wrap] = {
    "OutputGraph.call_user_compiler": dynamo_hooks.call_user_compiler,
    "_compile_fx_main": inductor_hooks.compile_fx_main,
    "_recursive_pre_grad_passes": inductor_hooks.pre_grad_passes,
    "partition_fn": inductor_hooks.partition_fn,
    "_recursive_joint_graph_passes": inductor_hooks.joint_graph_passes,
    "_compile_fx_inner": inductor_hooks.compile_fx_inner,
    "_recursive_post_grad_passes": inductor_hooks.post_grad_passes,
    "aot_module_simplified": aot_hooks.aot_module_simplified,
    "has_tensor_in_frame": why_hooks.has_tensor_in_frame,
    "signpost_event": why_hooks.signpost_event,
    "get_and_maybe_log_recompilation_reasons": why_hooks.get_and_maybe_log_recompilation_reasons,
    "exceeds_recompile_limit": why_hooks.exceeds_recompile_limit,
    "InstructionTranslatorBase.log_graph_break": why_hooks.log_graph_break,
    "RestartAnalysis.__init__": why_hooks.restart_analysis,
    "exception_handler": why_hooks.exception_handler,
    "CatchErrorsWrapper._handle_skip": why_hooks.handle_skip,
    "SubmodCompiler.compile_submod": why_hooks.compile_submod,
}
"""`Hook.attribute` -> its wrapper."""

_MARK = "_graphdbg_original"

_installed: list[tuple[Any, str, Any, Any]] = []
_missing: dict[str, Hook] = {}


def install() -> None:
    """Wraps every hook whose module is imported, and the others right after their import. A second call changes nothing."""
    by_module: dict[str, list[Hook]] = {}
    for hook in HOOKS:
        by_module.setdefault(hook.module, []).append(hook)
    importhook.unwatch()
    importhook.watch({name: functools.partial(_patch_module, hooks) for name, hooks in by_module.items()})


def uninstall() -> None:
    """Puts every original back, unless somebody else wrapped ours meanwhile: then ours stays and only passes through."""
    importhook.unwatch()
    for owner, name, original, replacement in reversed(_installed):
        if getattr(owner, name, None) is replacement:
            setattr(owner, name, original)
    _installed.clear()


def missing() -> list[Hook]:
    """The hooks that this torch lacks, of those modules that were imported."""
    return list(_missing.values())


def missing_stages() -> dict[str, str]:
    """Stage -> the function that this torch lacks, for stages that cannot be recorded here."""
    return {stage: hook.name for hook in _missing.values() for stage in hook.required_for}


def _patch_module(hooks: list[Hook], module: ModuleType) -> None:
    for hook in hooks:
        owner, name = _owner(module, hook.attribute)
        original = getattr(owner, name, None)
        if not callable(original):
            _missing[hook.name] = hook
            continue
        if hasattr(original, _MARK):
            continue
        replacement = WRAPPERS[hook.attribute](original)
        setattr(replacement, _MARK, original)
        replace(owner, name, original, replacement)
        for alias_module, alias in ALIASES.get(hook.name, ()):
            holder = sys.modules.get(alias_module)
            if holder is not None and getattr(holder, alias, None) is original:
                replace(holder, alias, original, replacement)


def replace(owner: Any, name: str, original: Any, replacement: Any) -> None:
    """Puts a replacement in, until the last session ends."""
    setattr(owner, name, replacement)
    _installed.append((owner, name, original, replacement))


def _owner(module: ModuleType, attribute: str) -> tuple[Any, str]:
    owner: Any = module
    *path, name = attribute.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    return owner, name
