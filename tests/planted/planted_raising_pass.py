"""Imported, plants a pass that raises: a custom post-grad pass that takes no tanh."""

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass


class Refuses(CustomGraphPass):
    """Raises at the first tanh, and names it."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default):
            raise KeyError(f"the planted pass knows nothing of {node.name} of size {tuple(node.meta['val'].shape)}")

    def uuid(self) -> None:
        return None


config.post_grad_custom_post_pass = Refuses()
