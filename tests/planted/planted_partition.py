"""Imported, plants a wrong partition: what the backward is given of a tanh is 3 per cent too large there."""

from typing import Any

import torch
from torch import fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomPartitionerFn


class Larger(CustomPartitionerFn):
    """Inductor's partition, with a product too many in the backward."""

    def __call__(self, gm: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        forward, backward = min_cut_rematerialization_partition(gm, joint_inputs, **kwargs | {"compiler": "inductor"})
        for node in list(backward.graph.nodes):
            if not node.name.startswith("tanh"):
                continue
            first = next(other for other in backward.graph.nodes if other.op != "placeholder")
            with backward.graph.inserting_before(first if node.op == "placeholder" else node.next):
                larger = backward.graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.03))
            larger.meta.update(node.meta)
            node.replace_all_uses_with(larger, delete_user_cb=lambda user, mine=larger: user is not mine)
        backward.recompile()
        return forward, backward

    def uuid(self) -> None:
        return None


config.custom_partitioner_fn = Larger()
