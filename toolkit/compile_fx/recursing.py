"""Inductor's pass groups on a graph and on the graphs inside it (bodies of cond, while_loop, invoke_subgraph and the like).

Bodies come first, as in stock; the passes themselves are torch's. Must not change their order.

>>> gm = joint(gm, device=torch.device("cpu"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _torch as t


def pre_grad(gm: Any, inputs: Sequence[Any]) -> Any:
    """Pre-grad passes; a body has no example inputs."""
    if not t.config.use_pre_grad_passes:
        return gm
    for name in t.subgraph_names(gm):
        setattr(gm, name, pre_grad(getattr(gm, name), ()))
    return t.pre_grad_passes(gm, inputs, t.config.add_pre_grad_passes, t.config.remove_pre_grad_passes)


def joint(gm: Any, *, skip_invoke_subgraph: bool = False, device: Any = None) -> Any:
    """Joint passes, also on graphs that they make themselves. Bodies of invoke_subgraph had theirs when they were partitioned."""
    if not t.config.use_joint_graph_passes:
        return gm
    known = t.subgraph_names(gm, skip_invoke_subgraph)
    for name in known:
        setattr(gm, name, joint(getattr(gm, name), skip_invoke_subgraph=skip_invoke_subgraph, device=device))
    made = t.joint_graph_passes(gm, device) if t.JOINT_TAKES_DEVICE else t.joint_graph_passes(gm)
    for name in t.subgraph_names(made):
        if name not in known:
            body = joint(getattr(made, name), skip_invoke_subgraph=skip_invoke_subgraph, device=device)
            setattr(made, name, body)
    return made


def post_grad(gm: Any, *, is_inference: bool) -> None:
    """Post-grad passes, in place."""
    if not t.config.use_post_grad_passes:
        return
    for name in t.subgraph_names(gm):
        post_grad(getattr(gm, name), is_inference=is_inference)
    t.post_grad_passes(gm, is_inference)
