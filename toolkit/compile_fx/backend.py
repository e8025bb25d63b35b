"""The backend `graphdbg_triton` of torch.compile: this path with torch.compile's modes and options.

>>> torch.compile(model, backend="graphdbg_triton", options={"skip": ("remove_noop_ops",), "max_autotune": True})
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dumps.errors import UsageError
from .pipeline import Pipeline

_OURS = ("observers", "skip", "replace", "until", "pipeline")
"""Options that are not Inductor's."""


def compile_graph(
    gm: Any, example_inputs: Sequence[Any], options: dict[str, Any] | None, mode: str | None
) -> Callable[..., Any]:
    """Compiles one Dynamo graph. `options` are Inductor's settings and those of a Pipeline, or a `pipeline`; `mode` is
    torch.compile's."""
    from .. import torch_private as t
    from .entry import compile_fx

    settings = {name.replace("-", "_"): value for name, value in (options or {}).items()}
    ours = {name: settings.pop(name) for name in _OURS if name in settings}
    pipeline = ours.pop("pipeline", None)
    if pipeline is not None and ours:
        raise UsageError(
            f"a pipeline was given, and {', '.join(ours)} beside it", "it has its own", "name them where the Pipeline is made"
        )
    pipeline = pipeline or Pipeline(**ours)
    patches = _mode(mode) | settings
    known = set(t.inductor_config.get_config_copy())
    if unknown := sorted(set(patches) - known):
        raise UsageError(
            f"the backend graphdbg_triton has no option {', '.join(map(repr, unknown))}",
            f"it takes {', '.join(_OURS)}, and the settings of Inductor",
            "python -c 'import torch._inductor; print(torch._inductor.list_options())' lists those",
        )
    return compile_fx(gm, example_inputs, config_patches=patches or None, pipeline=pipeline)


def _mode(mode: str | None) -> dict[str, Any]:
    from .. import torch_private as t

    if mode is None or mode == "default":
        return {}
    try:
        return dict(t.list_mode_options(mode))
    except RuntimeError as error:
        raise UsageError(f"the backend graphdbg_triton has no mode {mode!r}", str(error)) from None
