"""Imported, plants a wrong post-grad pass: a silu-like `mul(x, sigmoid(x))` whose sigmoid has no other user loses 2 per cent."""

import os

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

aten = torch.ops.aten
WHICH = int(os.environ.get("PLANTED_COUNT", "-1"))
"""The number of the pair that is rewritten, in graph order; -1 is all of them."""


class Rewrites(CustomGraphPass):
    """Multiplies the product by 0.98 where both nodes are there and the first is used once."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in list(graph.find_nodes(op="call_function", target=aten.mul.Tensor)):
            pair = [arg for arg in node.args if isinstance(arg, fx.Node) and arg.target is aten.sigmoid.default]
            if not pair or len(pair[0].users) != 1 or (WHICH >= 0 and pair[0].name != f"sigmoid_{WHICH}"):
                continue
            with graph.inserting_after(node):
                smaller = graph.call_function(aten.mul.Tensor, (node, 0.98))
            smaller.meta.update(node.meta)
            node.replace_all_uses_with(smaller, delete_user_cb=lambda user, mine=smaller: user is not mine)

    def uuid(self) -> None:
        return None


config.post_grad_custom_post_pass = Rewrites()
