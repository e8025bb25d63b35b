"""Ahead of time: an exported program's graph through AOTAutograd's export, with parameters as constants of the graph again.

>>> compile_ahead(compilers, gm, inputs)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import _torch as t

if TYPE_CHECKING:
    from .capturing import Compilers


def compile_ahead(compilers: Compilers, gm: Any, inputs: Sequence[Any]) -> Any:
    """Captures an inference graph, unlifts its parameters and buffers, and compiles it to a library."""
    from torch._export.utils import _detect_fake_mode_from_gm
    from torch._inductor.utils import is_valid_aoti_model_name

    is_valid_aoti_model_name()
    with t.functorch_config.patch(unlift_effect_tokens=True, selective_decompose=t.config.selective_decompose):
        traced, signature = t.aot_export_module(gm, inputs, trace_joint=False, decompositions=compilers.decompositions)
    fake_mode: Any = _detect_fake_mode_from_gm(traced)
    _fill_constants(traced, fake_mode)
    unlifted = t.stock._unlift_graph(gm, traced, signature)
    for name in ("dynamo_flat_name_to_original_fqn", "dynamo_compile_id"):
        if name in gm.meta:
            unlifted.meta[name] = gm.meta[name]
    compiler = compilers.for_inference()
    autocast = torch._C._is_any_autocast_enabled()
    with (
        t.V.set_fake_mode(fake_mode),
        t.compiled_autograd._disable(),
        torch._C._DisableAutocast() if autocast else _nothing(),
    ):
        return compiler(unlifted, inputs)


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def _fill_constants(gm: Any, fake_mode: Any) -> None:
    """Constants that export kept as attributes have no fake value yet."""
    from operator import attrgetter

    from torch._library.fake_class_registry import FakeScriptObject, maybe_to_fake_obj
    from torch._library.opaque_object import is_opaque_type

    for node in gm.graph.nodes:
        if node.op != "get_attr" or "val" in node.meta:
            continue
        target = attrgetter(node.target)(gm)
        if isinstance(target, torch.Tensor):
            node.meta["val"] = fake_mode.from_tensor(target, static_shapes=True)
        elif isinstance(target, torch.ScriptObject) or is_opaque_type(type(target)):
            node.meta["val"] = maybe_to_fake_obj(fake_mode, target)
        elif isinstance(target, FakeScriptObject):
            node.meta["val"] = target
