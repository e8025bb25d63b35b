"""Where torch is wrapped: one table from hook to wrapper, installed when its module is there, removed with the last session.

Each wrapper is a function `(original) -> replacement` that calls `original` exactly once with the caller's own arguments,
whatever happens to the recording. Must not change any setting, backend or pass of the user.

>>> install(); missing_stages()
{}
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ...dumps.private_names import Row
from ..torch_private import home, importing, loaded
from ..torch_private.names import HOOKS
from ..torch_private.replacing import Replaced
from . import aot_hooks, dynamo_hooks, inductor_hooks, why_hooks

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

WRAPPERS: dict[str, Wrap] = {
    "OutputGraph.call_user_compiler": dynamo_hooks.call_user_compiler,
    "compile_fx_main": inductor_hooks.compile_fx_main,
    "recursive_pre_grad_passes": inductor_hooks.pre_grad_passes,
    "partition_fn": inductor_hooks.partition_fn,
    "recursive_joint_graph_passes": inductor_hooks.joint_graph_passes,
    "compile_inner_whole": inductor_hooks.compile_fx_inner,
    "recursive_post_grad_passes": inductor_hooks.post_grad_passes,
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
"""Row of `HOOKS` -> its wrapper."""

_ALIASES = {"aot_module_simplified": ("common_aot_module_simplified", "functorch_aot_module_simplified")}
"""The same function in modules that may have taken it with `from ... import` before the recorder started."""

_MARK = "_graphdbg_original"

_installed = Replaced()
_missing: dict[str, Row] = {}


def install() -> None:
    """Wraps every hook whose module is imported, and the others right after their import. A second call changes nothing."""
    by_module: dict[str, list[Row]] = {}
    for hook in HOOKS:
        by_module.setdefault(hook.module, []).append(hook)
    importing.unwatch()
    importing.watch({name: functools.partial(_patch_module, hooks) for name, hooks in by_module.items()})


def uninstall() -> None:
    """Puts every original back, unless somebody else wrapped ours meanwhile: then ours stays and only passes through."""
    importing.unwatch()
    _installed.put_back()


def missing() -> list[Row]:
    """The hooks that this torch lacks, of those modules that were imported."""
    return list(_missing.values())


def tells_why(hook: Row) -> bool:
    """Whether `ls --why` knows less without it."""
    return hook.module.startswith("torch._dynamo.") and not hook.stages


def missing_stages() -> dict[str, str]:
    """Stage -> the function that this torch lacks, for stages that cannot be recorded here."""
    return {stage: hook.whole() for hook in _missing.values() for stage in hook.stages}


def _patch_module(hooks: list[Row], module: ModuleType) -> None:
    for hook in hooks:
        ((key, path),) = hook.places().items()
        owner, name = _owner(module, path)
        original = getattr(owner, name, None)
        if not callable(original):
            _missing[key] = hook
            continue
        if hasattr(original, _MARK):
            continue
        replacement = WRAPPERS[key](original)
        setattr(replacement, _MARK, original)
        put(owner, name, replacement)
        for alias in _ALIASES.get(key, ()):
            if loaded(alias) is original:
                put(*home(alias), replacement)


def put(owner: Any, name: str, replacement: Any) -> None:
    """Puts a replacement in, until the last session ends."""
    _installed.put(owner, name, replacement)


def _owner(module: ModuleType, attribute: str) -> tuple[Any, str]:
    owner: Any = module
    *path, name = attribute.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    return owner, name
