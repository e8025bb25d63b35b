"""`inductor_nofuse`: Inductor with one loop per node and without its optional passes.

Right here and wrong under `inductor`: a pass or fusion is to blame. Wrong here too: a lowering or the generated code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import fx

from ...dumps.allowlist import words
from .. import torch_private as t
from ..live.eager import eager_draws, has_kernel_draws
from ..live.spec import ReplaySpec
from .inductor import CUSTOM_PASSES, Inductor


class InductorNofuse(Inductor):
    """The same entries as `inductor`."""

    name = "inductor_nofuse"

    @contextlib.contextmanager
    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> Iterator[None]:
        """Inductor with one loop per node and without its optional passes: what is left is lowering and code
        generation.

        Its settings for fusion act on the scheduler, but pointwise nodes are inlined before it, at lowering; no setting
        realises each node, so `GraphLowering.run_node` does it here. Passes that later steps rely on stay. Random
        numbers are drawn by torch itself, because a joint pass would have to replace them; one has where the graph's
        kernels draw.
        """
        lower, skips = t.look_up("GraphLowering.run_node"), t.look_up("GraphTransformObserver._check_disable_pass")

        def run_node(self: Any, n: fx.Node) -> Any:
            value = lower(self, n)
            if n.op == "call_function" and isinstance(value, t.TensorBox) and isinstance(value.data, t.StorageBox):
                value.realize()
            return value

        def skip(self: Any) -> bool:
            optional = self.subsystem == "post_grad_passes" and not self.passname.startswith(_NEEDED_PASSES)
            return optional or skips(self)

        own = (*CUSTOM_PASSES, "_pre_fusion_custom_pass", "_post_fusion_custom_pass")
        off = {name: None for name in own if hasattr(t.inductor_config, name)}
        settings: dict[str, Any] = {"use_pre_grad_passes": False, "use_joint_graph_passes": False, **off}
        with (
            contextlib.nullcontext() if has_kernel_draws(gm) else eager_draws(),
            t.swapped("GraphLowering.run_node", run_node),
            t.swapped("Scheduler.fuse_nodes", lambda self, nodes: nodes),
            t.swapped("GraphTransformObserver._check_disable_pass", skip),
            t.inductor_config.patch(settings),
        ):
            yield


_NEEDED_PASSES = tuple(
    words(
        """
        remove_profiler_ops remove_assert_ops chain_random_ops_ordering stable_sort decomp reinplace_inplaceable_ops
        fix_auto_functionalized_dtype_views custom_backend_passes_
        """
    )
)
"""Name prefixes of post-grad passes without which lowering fails."""


RUNG = InductorNofuse(
    order=70,
    words="Inductor with no fusion and no optional pass",
    layer="inductor",
    meaning="The fault is in a lowering or in the generated code, not in fusion and not in an optional pass.",
    command="graphdbg bisect {graph}",
    is_usual=True,
)
"""The one instance that the registry hands out."""
