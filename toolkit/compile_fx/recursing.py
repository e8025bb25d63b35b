"""Inductor's pass groups on a graph and on the graphs inside it (bodies of cond, while_loop, invoke_subgraph and the like).

Bodies come first, as in stock; the passes themselves are torch's. Must not change their order.

>>> gm = joint(gm, device=torch.device("cpu"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _torch as t
from .passes import at_graph


def pre_grad(gm: Any, inputs: Sequence[Any], path: str = "") -> Any:
    """Pre-grad passes; a body has no example inputs."""
    if not t.config.use_pre_grad_passes:
        return gm
    for name in t.subgraph_names(gm):
        setattr(gm, name, pre_grad(getattr(gm, name), (), _join(path, name)))
    with at_graph(gm, path):
        return t.pre_grad_passes(gm, inputs, t.config.add_pre_grad_passes, t.config.remove_pre_grad_passes)


def joint(gm: Any, *, skip_invoke_subgraph: bool = False, device: Any = None, path: str = "") -> Any:
    """Joint passes, also on graphs that they make themselves. Bodies of invoke_subgraph had theirs when they were partitioned."""
    if not t.config.use_joint_graph_passes:
        return gm
    known = t.subgraph_names(gm, skip_invoke_subgraph)

    def body(of: Any, name: str) -> Any:
        below = _join(path, name)
        return joint(getattr(of, name), skip_invoke_subgraph=skip_invoke_subgraph, device=device, path=below)

    for name in known:
        setattr(gm, name, body(gm, name))
    with at_graph(gm, path):
        made = t.joint_graph_passes(gm, device) if t.JOINT_TAKES_DEVICE else t.joint_graph_passes(gm)
    for name in t.subgraph_names(made):
        if name not in known:
            setattr(made, name, body(made, name))
    return made


def post_grad(gm: Any, *, is_inference: bool, path: str = "") -> None:
    """Post-grad passes, in place."""
    if not t.config.use_post_grad_passes:
        return
    for name in t.subgraph_names(gm):
        post_grad(getattr(gm, name), is_inference=is_inference, path=_join(path, name))
    with at_graph(gm, path):
        t.post_grad_passes(gm, is_inference)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
