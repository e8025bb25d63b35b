"""Imported, plants a wrong pattern in one of Inductor's own joint passes: tanh(x) becomes 1.02 * tanh(x)."""

import torch
from torch._inductor.fx_passes import joint_graph
from torch._inductor.pattern_matcher import Arg, CallFunction, Match, register_graph_pattern

aten = torch.ops.aten


@register_graph_pattern(CallFunction(aten.tanh.default, Arg()), pass_dict=joint_graph.pass_patterns[1])
def larger_tanh(match: Match, x: torch.fx.Node) -> None:
    """What a rewrite would do that gets a constant wrong."""
    node = match.output_node()
    if any(user.target is aten.mul.Tensor and user.args[1] == 1.02 for user in node.users):
        return
    graph = node.graph
    with graph.inserting_after(node):
        larger = graph.call_function(aten.mul.Tensor, (node, 1.02))
    larger.meta.update(node.meta)
    node.replace_all_uses_with(larger, delete_user_cb=lambda user: user is not larger)
