"""Calls of higher-order operators as the functions that torch.compile takes: Dynamo refuses some operators when called
by name.

`scan` and `flex_attention` come with arguments that Dynamo wants otherwise, a checkpoint and a compiled region are
written with torch's own public functions. Texts only. Imports no torch.

>>> rewritten("higher_order.tag_activation_checkpoint", ["body", "x"], ["use_reentrant=False"]).text
'torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False)'
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..schema import GraphBody, TensorValue
from ..walk import references, tag_of
from .case import placeholders
from .text import CHECKPOINTS

REGION = "higher_order.invoke_subgraph"
"""Calls a region that is compiled once, and known by its second argument."""

FUNCTION = "higher_order.autograd_function_apply"
"""A torch.autograd.Function: its first two arguments are its forward and its backward."""

_FUNCTION_KEYS = frozenset({"non_differentiable_idx", "saved_for_backward_idx"})
_NO_ALIASES = ("higher_order.while_loop", "higher_order.cond", "higher_order.scan", "higher_order.map_impl")
"""Operators whose bodies may not give back what they were given."""

_SCAN = [
    "def scan(combine, init, xs, extra):",
    '    """The operator `scan` of the graph, by the function that torch.compile takes."""',
    "",
    "    def step(carry, x):",
    "        made = list(combine(*carry, *x, *extra))",
    "        return made[: len(init)], made[len(init) :]",
    "",
    "    carry, rows = torch._higher_order_ops.scan(step, init, xs)",
    "    return [*carry, *rows]",
]


@dataclass(frozen=True)
class HigherOrderCall:
    """A call as text, the helper that it needs above the graph, and a module to import."""

    text: str
    helper: list[str] = field(default_factory=list[str])
    module: str = ""


def rewritten(target: str, args: list[str], named: list[str]) -> HigherOrderCall | None:
    """A call of a higher-order operator that is written otherwise; None for one that is called by its name."""
    if target in CHECKPOINTS:
        text = f"torch.utils.checkpoint.checkpoint({', '.join([*args, *named])})"
        return HigherOrderCall(text, module="torch.utils.checkpoint")
    if target == REGION and len(args) >= 2 and not named:
        return HigherOrderCall(f"{args[0]}({', '.join(args[2:])})")
    if target == "higher_order.scan" and len(args) == 4 and not named:
        return HigherOrderCall(f"scan({', '.join(args)})", _SCAN, "torch._higher_order_ops")
    if (
        target == FUNCTION
        and len(args) >= 2
        and set(_keys(named)) <= _FUNCTION_KEYS
        and "non_differentiable_idx=[]" in named
    ):
        return HigherOrderCall(f"{args[0]}_function.apply({', '.join(args[2:])})", _function(args[0], args[1]))
    if target == "higher_order.flex_attention" and len(args) == 9 and not named:
        score, mask = (_closed(name, buffers) for name, buffers in ((args[3], args[7]), (_last(args[4]), args[8])))
        block = args[4][: -len(_last(args[4])) - 1] + f"{mask})"
        return HigherOrderCall(f"torch.ops.{target}({', '.join([*args[:3], score, block, *args[5:7]])})")
    return None


def _keys(named: list[str]) -> list[str]:
    return [argument.partition("=")[0] for argument in named]


def _function(forward: str, backward: str) -> list[str]:
    """A torch.autograd.Function of the two bodies that were recorded: the forward gives (outputs, what is saved)."""
    return [
        f"class {forward}_function(torch.autograd.Function):",
        "    @staticmethod",
        "    def forward(ctx, *inputs):",
        f"        outputs, saved = {forward}(*inputs)",
        "        ctx.save_for_backward(*saved)",
        "        return outputs",
        "",
        "    @staticmethod",
        "    def backward(ctx, *grads):",
        f"        return {backward}(*grads, *ctx.saved_tensors)",
    ]


def _closed(name: str, buffers: str) -> str:
    """A function that has its buffers with it: Dynamo takes none beside it."""
    return name if buffers in ("()", "[]") else f"lambda *at: {name}(*at, *{buffers})"


def _last(block: str) -> str:
    """The last item of a tuple's text, which is a name."""
    return block.removesuffix(")").rpartition(", ")[2]


def regions(body: GraphBody) -> dict[str, str]:
    """Nodes of subgraphs that are called as compiled regions -> the region's own name."""
    by_node: dict[str, str] = {}
    for node in body.nodes:
        names = list(references(node.args[:2]))
        if node.target == REGION and len(node.args) >= 2 and names:
            by_node[names[0]] = str(node.args[1])
        elif node.target == FUNCTION and len(names) == 2:
            by_node |= {name: f"autograd_{name}" for name in names}
    return by_node


def without_aliases(body: GraphBody) -> set[str]:
    """Nodes of subgraphs that may not give back what they were given."""
    outputs_without_aliases: set[str] = set()
    for node in body.nodes:
        if node.target in _NO_ALIASES:
            outputs_without_aliases |= {name for tag, name in map(tag_of, node.args) if tag == "node"}
    return outputs_without_aliases


def given_back(body: GraphBody) -> set[str]:
    """Tensors that a body takes and returns."""
    taken = {node.name for node in placeholders(body) if isinstance(node.value, TensorValue)}
    return taken & {name for node in body.nodes if node.op == "output" for name in references(node.args)}
