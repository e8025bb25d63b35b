"""Imported, plants a wrong post-grad pass: a custom post pass that turns each tanh into a slightly larger one."""

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass


class Larger(CustomGraphPass):
    """Multiplies every tanh by 1.01."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in list(graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)):
            with graph.inserting_after(node):
                larger = graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.01))
            larger.meta.update(node.meta)
            node.replace_all_uses_with(larger, delete_user_cb=lambda user, mine=larger: user is not mine)

    def uuid(self) -> None:
        return None


config.post_grad_custom_post_pass = Larger()
