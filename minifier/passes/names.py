"""Names: inputs become x, y, z in the order in which they are read, operations are called after what they call. The
last step.

Compilers read some names (inputs of joint graphs, sizes), so these stay; one query asks whether the others mean
anything.

For example: `propose(case)` gives `[['names canonical']]`.
"""

from __future__ import annotations

import builtins
import keyword
from itertools import chain, count
from typing import Any

from torch import fx

from ...dumps.torchside.values import fake_of
from ...toolkit.cutting.atoms import is_symbolic, target_name
from ...toolkit.cutting.subgraph import candidate_spec
from ...toolkit.live.case import Live
from ...toolkit.live.eager import copy_graph
from ...toolkit.live.spec import FULL_STAGES
from . import Pass

LETTERS = "xyzwvuabcd"
RENAMED = "renamed inputs"
"""In `gm.meta`: old name -> new name."""
_ORDERED = (*FULL_STAGES, "inference")
"""Stages whose inputs may stand in any order."""


def propose(case: Live) -> list[list[str]]:
    """One edit, unless all names and the order are canonical."""
    canonical = _canonical(case)
    order = case.gm.graph.find_nodes(op="placeholder")
    same = _order(case) == order and all(node.name == name for node, name in canonical.items())
    return [] if same else [["names canonical"]]


def apply(case: Live, edit: str) -> Live:
    """The case with canonical names; raises ValueError for any other edit."""
    if edit != "names canonical":
        raise ValueError(f"there is no edit {edit!r}")
    source = copy_graph(case.gm)
    same = Live(source, case.inputs, case.spec)
    canonical, order = _canonical(same), _order(same)
    before = source.graph.find_nodes(op="placeholder")
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in [*order, *(node for node in source.graph.nodes if node.op != "placeholder")]:
        name = canonical.get(node, node.name)
        args, kwargs = fx.map_arg(node.args, copies.__getitem__), fx.map_arg(node.kwargs, copies.__getitem__)
        target: Any = name if node.op == "placeholder" and name != node.name else node.target
        copies[node] = graph.create_node(node.op, target, args, kwargs, name, node.type)
        copies[node].meta = dict(node.meta)
    gm = fx.GraphModule(source, graph)
    gm.meta = {**source.meta, RENAMED: {node.name: copies[node].name for node in before}}
    if (env := getattr(source, "shape_env", None)) is not None:
        gm.shape_env = env  # type: ignore[assignment]
    inputs = dict(zip(before, case.inputs, strict=True))
    spec = candidate_spec(case.spec, [copies[node].name for node in before], gm)
    return Live(gm, [inputs[node] for node in order], spec)


def _order(case: Live) -> list[fx.Node]:
    """Inputs in the order in which they are read, numbers first."""
    nodes = case.gm.graph.find_nodes(op="placeholder")
    if case.spec.stage not in _ORDERED:
        return nodes
    read = dict.fromkeys(read for node in case.gm.graph.nodes for read in node.all_input_nodes)
    places = {node: place for place, node in enumerate(read)}
    return sorted(nodes, key=lambda node: (not is_symbolic(fake_of(node)), places.get(node, len(places))))


def _canonical(case: Live) -> dict[fx.Node, str]:
    """New name of each node that is to be renamed."""
    nodes = list(case.gm.graph.nodes)
    kept = [node for node in nodes if not _may_change(case, node)]
    used = {node.name for node in kept}
    canonical: dict[fx.Node, str] = {}
    letters = chain(LETTERS, (f"x{number}" for number in count(len(LETTERS))))
    for node in [*_order(case), *(node for node in nodes if node.op != "placeholder")]:
        if node in kept:
            continue
        if node.op == "placeholder":
            name = next(name for name in letters if name not in used)
        else:
            plain = _plain(node)
            names = (plain, *(f"{plain}_{number}" for number in range(1, len(nodes) + 1)))
            name = next(name for name in names if name not in used and not _reserved(name))
        used.add(name)
        canonical[node] = name
    return canonical


def _may_change(case: Live, node: fx.Node) -> bool:
    if node.op == "placeholder":
        return case.spec.stage in _ORDERED and not is_symbolic(fake_of(node)) and "rng" not in node.name
    return node.op in ("call_function", "call_method") and _plain(node).isidentifier()


def _plain(node: fx.Node) -> str:
    """The name of what a node calls, without the underscores of what is private or in place."""
    schema: Any = getattr(node.target, "_schema", None)
    name = target_name(node) if schema is None else schema.name.rpartition("::")[2]
    return name.strip("_").lower()


def _reserved(name: str) -> bool:
    """Names that FX gives to no node."""
    return keyword.iskeyword(name) or hasattr(builtins, name) or name in ("inf", "nan", "torch", "device", "output")


PASS = Pass(order=130, words="plain names", edits={"names *": "other names"}, is_neutral=True)
