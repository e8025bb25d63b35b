"""Switches off single applications of passes, patterns, lowerings and decompositions; a callback decides on each.

Nothing public switches one application of a pass off: `torch._inductor.compiler_bisector` is torch's own and private,
and works through files in the user's cache and environment variables that a forked process no longer reads.
Applications that a torch lacks are left out. Everything here changes this process for good or for a context, so it runs
in children only.

For example:

    with asking(lambda asked: asked.subsystem == "post_grad_passes"): compile_it()      # without one post-grad pass
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from ...dumps.allowlist import words
from ...dumps.torchside.definitions import MODULE_PREFIX
from ...dumps.walk import user_frame
from .. import torch_private as t
from ..compile_fx.passes import pattern_name
from ..live.spec import setting
from ..torch_private import replaced
from .bisect_records import Application

Ask = Callable[[Application], bool]
"""Called before each application, which has no key and index yet; True switches it off."""

PATTERNS = "pattern_matches"
"""Our name for a subsystem that torch's bisector lacks: single matches of Inductor's pattern matcher, in any pass. They
are switched off before the pattern's extra checks run."""

REQUIRED = words("""
    stable_sort reinplace_inplaceable_ops fix_auto_functionalized_dtype_views decompose_auto_functionalized
    decompose_triton_kernel_wrapper_functional decompose_triton_kernel_wrapper decompose_scan_to_while_loop
    decompose_map_to_while_loop decomp_comms replace_random replace_randint respecialize_current_device""")
"""Passes and patterns without which lowering cannot take the graph: switching them off makes another failure."""


CUSTOM = ("_custom_pre_pass", "_custom_post_pass", "_custom_pass")
"""Suffixes of the settings that hold a user's pass; the application of the pass has the setting's name."""


def required(name: str) -> bool:
    """Whether a pass or pattern must always run."""
    return name in REQUIRED or name.startswith("decompose_")


def subsystems() -> list[str]:
    """Names of the subsystems whose applications can be switched off one by one, in order of compilation: those of
    torch's bisector, and ours."""
    names = [
        subsystem.name for rows in t.BACKENDS.values() for subsystem in rows if isinstance(subsystem, t.BisectSubsystem)
    ]
    places = [name for name in names if name not in ("lowerings", "cudagraphs")]
    return [*places, PATTERNS, *(name for name in ("lowerings", "cudagraphs") if name in names)]


def config_changes() -> list[tuple[str, str, Any]]:
    """The settings that the bisector tries: (room, setting, value)."""
    changes = [change for rows in t.BACKENDS.values() for change in rows if isinstance(change, t.ConfigChange)]
    return [
        ("inductor" if change.config_name == "inductor" else "functorch", change.config_field, change.config_value)
        for change in changes
    ]


@contextlib.contextmanager
def asking(ask: Ask, folder: str) -> Iterator[None]:
    """Replaces the bisector's own decision by `ask`, and asks before each pattern match as well, for compiles in the
    block.

    `folder`: where the bisector may keep files instead of the user's cache. The bisector is enabled as well, so that no
    compiled graph is taken from a cache.
    """
    half = ""
    entries: dict[int, Any] = {}
    inner, apply = t.compile_inner_whole, t.PatternMatcherPass.apply

    def compile_inner(*args: Any, **kwargs: Any) -> Any:
        nonlocal half
        before, half = half, "backward" if kwargs.get("is_backward") else "forward"
        try:
            return inner(*args, **kwargs)
        finally:
            half = before

    def disable(backend: str, subsystem: str, debug_info: Callable[[], str] | None = None, *_: Any) -> bool:
        name, label, line = _described(subsystem, debug_info)
        return ask(Application(subsystem, name=name, label=label, line=line, half=half))

    def one_pass(of: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal entries
        before, entries = entries, {id(entry.pattern): entry for group in of.patterns.values() for entry in group}
        try:
            return apply(of, *args, **kwargs)
        finally:
            entries = before

    def matcher(match: Any) -> Any:
        def matched(pattern: Any, node: Any) -> Any:
            matching = match(pattern, node)
            if id(pattern) not in entries or not matching:
                return matching
            nodes = ", ".join(matched_node.name for matched_node in matching.nodes)
            name = pattern_name(entries[id(pattern)])
            asked = Application(PATTERNS, name=name, label=nodes, line=_line(node), half=half)
            return t.FailedMatch("switched off") if ask(asked) else matching

        return matched

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(t.CompilerBisector, "disable_subsystem", staticmethod(disable)))
        stack.enter_context(replaced(t.CompilerBisector, "bisection_enabled", True))
        stack.enter_context(replaced(t.CompilerBisector, "in_process_cache", folder))
        stack.enter_context(t.swapped("compile_inner_whole", compile_inner))
        stack.enter_context(replaced(t.PatternMatcherPass, "apply", one_pass))
        for cls in (t.PatternExpr, t.MultiOutputPattern):
            stack.enter_context(replaced(cls, "match", matcher(cls.match)))
        yield


def fall_back(op: str) -> None:
    """Makes Inductor call eager's own kernel for an operator (`aten.tanh.default`), in this process."""
    t.make_fallback(_operator(op), warn=False, override_decomp=True)


def without_decomposition(op: str) -> None:
    """Takes an operator out of Inductor's decompositions, in this process."""
    t.decompositions.pop(_operator(op), None)
    t.fast_random_decomps.cache_clear()


def described(value: Any) -> str:
    """The value of a custom pass in words: where its class or function is from."""
    of = value if hasattr(value, "__qualname__") else type(value)
    if of.__module__.startswith(MODULE_PREFIX):  # from source that the dump holds
        return f"{Path(sys.modules[of.__module__].__file__ or '').stem}.{of.__qualname__}"
    return f"{of.__module__}.{of.__qualname__}"


def _operator(name: str) -> Any:
    import torch

    return attrgetter(name)(torch.ops)


def _described(subsystem: str, debug_info: Callable[[], str] | None) -> tuple[str, str, str]:
    """(the application's name, the node that it is about, the user's line)."""
    text = debug_info() if debug_info is not None else ""
    if subsystem == "lowerings":
        node = t.V.get_current_node()
        return str(getattr(node, "target", text)), text, _line(node)
    if subsystem == "decomposition":  # the op as a string, <OpOverload(op='aten.silu', overload='default')>
        parts = text.split("'")
        return (f"{parts[1]}.{parts[3]}" if len(parts) > 4 else text), "", ""
    return text, _origin(text), ""


def _origin(name: str) -> str:
    """Where a custom pass comes from, which its observer's name does not say; "" for a pass of Inductor's own."""
    if not name.endswith(CUSTOM):
        return ""
    custom = setting("inductor", name)[1]
    passes = custom if isinstance(custom, (list, tuple)) else [custom]
    return ", ".join(described(custom_pass) for custom_pass in passes if custom_pass is not None)


def _line(node: Any) -> str:

    return " ".join(user_frame(getattr(node, "stack_trace", None) or "")).strip()


@contextlib.contextmanager
def noting_kernels(kernels: dict[str, list[str]]) -> Iterator[None]:
    """Records for each kernel that Inductor generates inside the names of the fx nodes that it came from.

    The public setting `trace.provenance_tracking_level` forgets when a compile fails. A torch without these names
    records nothing.
    """

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def note(schedule: Any, kernel_name: Any = "", *args: Any, **kwargs: Any) -> Any:
            for scheduled in schedule if isinstance(schedule, (list, tuple)) else ():
                for origin in getattr(getattr(scheduled, "node", None), "origins", None) or ():
                    names = kernels.setdefault(str(kernel_name), [])
                    if origin.name not in names:
                        names.append(origin.name)
            return original(schedule, kernel_name, *args, **kwargs)

        return note

    with contextlib.ExitStack() as stack:
        for name in ("cpp_tells_kernel", "triton_tells_kernel"):
            original = t.loaded(name)
            if original is not None:
                stack.enter_context(t.swapped(name, watched(original)))
        yield
