"""Imported, plants a wrong post-grad pass on pairs of nodes: a product of what was computed for it alone loses 2 per
cent.

PLANTED_FIRST is what the product is of (aten.sigmoid.default), PLANTED_COUNT which of the pairs, by the number in the
name of the first node; -1 is all of them.
"""

import os

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

aten = torch.ops.aten
FIRST = os.environ.get("PLANTED_FIRST", "aten.sigmoid.default")
COUNT = os.environ.get("PLANTED_COUNT", "-1")


def _is_first(node: object) -> bool:
    if not isinstance(node, fx.Node) or str(node.target) != FIRST or len(node.users) != 1:
        return False
    return COUNT == "-1" or node.name.rpartition("_")[2] == COUNT


class Rewrites(CustomGraphPass):
    """Multiplies the product by 0.98 where both nodes are there and the first is used once."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in list(graph.find_nodes(op="call_function", target=aten.mul.Tensor)):
            if not any(_is_first(arg) for arg in node.args):
                continue
            with graph.inserting_after(node):
                smaller = graph.call_function(aten.mul.Tensor, (node, 0.98))
            smaller.meta.update(node.meta)
            node.replace_all_uses_with(smaller, delete_user_cb=lambda user, mine=smaller: user is not mine)

    def uuid(self) -> None:
        return None


config.post_grad_custom_post_pass = Rewrites()
