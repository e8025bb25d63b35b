# pyright: basic
"""The random numbers of two stages of one graph: the same ones in both, or it is said that they cannot be.

A source (`rand`, Inductor's seeds) draws from the generator; what Inductor draws from a seed is a function of that seed
and may be computed twice. Runs no graph.

For example: `alike(before, after)` gives `{140: {'rand': (0, 'rand')}, 150: {'inductor_random': (0, 'rand')}}`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..live.eager import Hook, draws_unrepeatably, is_random, nodes_in

Places = dict[int, dict[str, tuple[int, str]]]
"""For each graph (by `id`) the number and kind of its draws that are to be replaced."""
_DRAWS = {
    "aten.rand.default": "rand",
    "aten.rand_like.default": "rand",
    "aten.randn.default": "randn",
    "aten.randn_like.default": "randn",
}


def alike(before: fx.GraphModule, after: fx.GraphModule) -> Places | None:
    """The draws to be replaced in both: none where both draw the same by themselves; None where they cannot be
    matched."""
    both = (before, after)
    drawn = [[node for node in nodes_in(gm) if _draws(node)] for gm in both]
    if [str(node.target) for node in drawn[0]] == [str(node.target) for node in drawn[1]]:
        return {}
    makers = [[str(node.target) for node in nodes_in(gm) if is_random(node)] for gm in both]
    if makers[0] == makers[1] and not any(map(draws_unrepeatably, both)):
        return {}  # what is drawn from a seed may be drawn again
    kinds = [[_kind(node) for node in nodes] for nodes in drawn]
    inside = any(node.graph not in (before.graph, after.graph) for nodes in drawn for node in nodes)
    if kinds[0] != kinds[1] or "" in kinds[0] or inside:
        return None
    numbers = [{node.name: (place, _kind(node)) for place, node in enumerate(nodes)} for nodes in drawn]
    return {id(before): numbers[0], id(after): numbers[1]}


def drawing(places: dict[str, tuple[int, str]]) -> Hook | None:
    """A hook that puts the same random numbers in the places of both graphs' draws."""
    if not places:
        return None

    def draw(node: fx.Node, value: Any) -> Any:
        if node.name not in places:
            return value
        place, kind = places[node.name]
        generator = torch.Generator().manual_seed(place)
        make = torch.rand if kind == "rand" else torch.randn
        return make(value.shape, generator=generator, dtype=torch.float32).to(value)

    return draw


def _draws(node: fx.Node) -> bool:
    name = str(node.target)
    return name.startswith("prims.inductor_rand") or (is_random(node) and "_seed" not in name and not _idle(node))


def _idle(node: fx.Node) -> bool:
    """Whether a node of the program's could draw but is set to drop nothing."""
    name = getattr(node.target, "__name__", "")
    place, neutral = {"dropout": ("training", False), "scaled_dot_product_attention": ("dropout_p", 0.0)}.get(
        name, ("", None)
    )
    at = {"training": 2, "dropout_p": 4}.get(place, 0)
    given = node.args[at] if len(node.args) > at > 0 else node.kwargs.get(place, 0.0 if place == "dropout_p" else None)
    return bool(place) and given == neutral and given is not None


def _kind(node: fx.Node) -> str:
    if str(node.target) == "prims.inductor_random.default":
        return str(node.args[2])
    return _DRAWS.get(str(node.target), "")
