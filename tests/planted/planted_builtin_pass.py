"""Imported, plants a fault in one of Inductor's own passes: `remove_noop_ops` takes a multiplication by 1.25 for
one."""

import torch
from torch import fx
from torch._inductor.fx_passes import post_grad

_right = post_grad.remove_noop_ops


def remove_noop_ops(graph: fx.Graph) -> None:
    """What it was, and one node too many."""
    _right(graph)
    for node in list(graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)):
        if node.args[1] == 1.25:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


post_grad.remove_noop_ops = remove_noop_ops
