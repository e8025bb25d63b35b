"""Wraps torch's functions: one table from hook to wrapper, installed when the hook's module is imported, removed with
the last session.

Each wrapper is a function `(original) -> replacement` that calls `original` exactly once with the caller's own
arguments, whatever happens to the recording. Changes no setting, backend or pass of the user.

>>> install(); uninstall()
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Set
from types import ModuleType

from ...dumps.private_names import Row
from ..torch_private import home, importing, loaded
from ..torch_private.names import HOOKS
from . import hooks, why_hooks
from .session import Function, installed, lacking, wrap

WRAPPERS: dict[str, Callable[[Function], Function]] = {
    "OutputGraph.call_user_compiler": hooks.call_user_compiler,
    "compile_fx_main": hooks.compile_fx_main,
    "standalone_compile": hooks.standalone_compile,
    "recursive_pre_grad_passes": hooks.pre_grad_passes,
    "partition_fn": hooks.partition_fn,
    "recursive_joint_graph_passes": hooks.joint_graph_passes,
    "compile_inner_whole": hooks.compile_fx_inner,
    "recursive_post_grad_passes": hooks.post_grad_passes,
    "aot_module_simplified": hooks.aot_module_simplified,
    "has_tensor_in_frame": why_hooks.has_tensor_in_frame,
    "signpost_event": why_hooks.signpost_event,
    "get_and_maybe_log_recompilation_reasons": why_hooks.get_and_maybe_log_recompilation_reasons,
    "exceeds_recompile_limit": why_hooks.exceeds_recompile_limit,
    "InstructionTranslatorBase.log_graph_break": why_hooks.log_graph_break,
    "RestartAnalysis.__init__": why_hooks.restart_analysis,
    "exception_handler": why_hooks.exception_handler,
    "CatchErrorsWrapper._handle_skip": why_hooks.handle_skip,
    "SubmodCompiler.compile_submod": why_hooks.compile_submod,
    "compiled_autograd_on": hooks.enable,
    "AutogradCompilerInstance.log_compile_reasons": hooks.log_compile_reasons,
    "AutogradCompilerInstance.begin_capture": hooks.begin_capture,
    "AutogradCompilerInstance.create_graph_module": hooks.create_graph_module,
}
"""Row of `HOOKS` -> its wrapper."""

_ALIASES = {"aot_module_simplified": ("common_aot_module_simplified", "functorch_aot_module_simplified")}
"""Name of a hook -> modules' own references to the function, taken by `from ... import` before the recorder started."""


def install(only: Set[str] = WRAPPERS.keys()) -> None:
    """Wraps each of these hooks whose module is imported, and the others right after their import. Existing wrappers
    stay."""
    by_module: dict[str, list[Row]] = {}
    for hook in HOOKS:
        if only.isdisjoint(hook.places()):
            continue
        by_module.setdefault(hook.module, []).append(hook)
    importing.unwatch()
    importing.watch({name: functools.partial(_patch_module, hooks) for name, hooks in by_module.items()})


def uninstall() -> None:
    """Restores every original; where other code has wrapped our wrapper meanwhile, it stays and only passes calls
    through."""
    importing.unwatch()
    installed.put_back()


def _patch_module(hooks: list[Row], _: ModuleType) -> None:
    for hook in hooks:
        (key,) = hook.places()
        original = loaded(key)
        if not callable(original):
            lacking[key] = hook
            continue
        owner, name = home(key)
        replacement = wrap(owner, name, WRAPPERS[key])
        for alias in _ALIASES.get(key, ()):
            if loaded(alias) is original and replacement is not original:
                installed.put(*home(alias), replacement)
