"""Bodies: removes nodes from the graphs inside higher-order operators. One of a node's arguments takes its place, the
last node first; nodes that could not go with the others are then proposed alone.

Where several operators can be inlined, an edit inlines all of them. Not proposed: an edit that eager refuses or that
changes the form of a value, and a body that returns one of its inputs, which compilers refuse.

For example: `propose(case)` gives `[['bodies cond_true_0 sin_1 mul'], ...]`.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import fx

from ...toolkit import torch_private as t
from ...toolkit.cutting.atoms import COMPUTE, target_text
from ...toolkit.live.case import Live
from ...toolkit.live.eager import attribute, copy_graph
from ...toolkit.live.inlining import inlinable, inlined
from . import Pass
from .forms import Forms, forms
from .symbolic import bodies, renewed

_VIEWS = """T alias contiguous detach diagonal expand expand_as flatten imag mT movedim moveaxis narrow permute ravel
real
    reshape reshape_as select slice split squeeze swapaxes swapdims t to transpose type unbind unflatten unfold
    unsqueeze view
    view_as"""
VIEWS = frozenset({"getitem", *_VIEWS.split()})
"""Functions and methods that may return a view of their first argument."""
MOST = 64
"""Most nodes that are tried, in all bodies together."""
MOST_CALLS = 1000
"""A loop whose body is called more often is taken for one that never ends."""


def propose(case: Live) -> list[list[str]]:
    """A round that inlines, where several operators can be inlined; one of nodes that can go together, one of nodes
    that go only alone."""
    paths = bodies(case.gm)
    if not paths:
        return []
    rounds: list[list[str]] = []
    if len(inlinable(case.gm)) > 1 and _valid(case, _inlined(case)):
        rounds.append(["bodies inline"])
    known = bounded_forms(case)
    if known is None:
        return rounds
    nodes = [(path, node.name) for path in paths for node in _compute(case.gm, path)][:MOST]
    together, state, left = list[str](), case, list[tuple[str, str]]()
    for path, name in nodes:
        edit, state = _bypassing(state, path, name, known)
        if edit:
            together.append(edit)
        else:
            left.append((path, name))
    alone = [edit for edit in (_bypassing(case, *place, known)[0] for place in left) if edit]
    return [*rounds, *(edits for edits in (together, alone) if edits)]


def _bypassing(case: Live, path: str, name: str, known: dict[str, list[Any]]) -> tuple[str, Live]:
    """The edit that puts an argument of a node in its place, and the case with it; "" and the same case where no
    argument fits."""
    for argument in _arguments(case.gm, path, name):
        edit = f"bodies {path} {name} {argument}"
        try:
            changed = apply(case, edit)
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue
        worse = _returns_input(changed.gm, path) and not _returns_input(case.gm, path)
        if not worse and bounded_forms(changed) == known:
            return edit, changed
    return "", case


def apply(case: Live, edit: str) -> Live:
    """The case with one node fewer in a body, or with the operators inlined. Unchanged where the node is gone
    already."""
    if edit == "bodies inline":
        return _inlined(case)
    _, path, name, argument = edit.split(" ")
    gm = copy_graph(case.gm)
    body = attribute(gm, path)
    if not isinstance(body, fx.GraphModule):
        raise ValueError(f"there is no body {path}")
    nodes = {node.name: node for node in body.graph.nodes}
    if name in nodes:
        if argument not in nodes:
            raise ValueError(f"{path} has no node {argument}")
        nodes[name].replace_all_uses_with(nodes[argument])
        body.graph.erase_node(nodes[name])
        body.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or node.is_impure())
        body.recompile()
    return Live(gm, case.inputs, case.spec)  # no value outside of the body has another form now


def _inlined(case: Live) -> Live:
    return renewed(case, inlined(case.gm, case.inputs), case.inputs)


def _valid(case: Live, changed: Live) -> bool:
    known, after = bounded_forms(case), bounded_forms(changed)
    return known is not None and after is not None and known.get("output") == after.get("output")


def _compute(gm: fx.GraphModule, path: str) -> list[fx.Node]:
    """The nodes of a body that compute, the last first."""
    body: Any = attribute(gm, path)
    return [node for node in reversed(body.graph.nodes) if node.op in COMPUTE]


def _arguments(gm: fx.GraphModule, path: str, name: str) -> list[str]:
    """Names of the arguments that may take a node's place; none for a node that is gone."""
    body: Any = attribute(gm, path)
    if not isinstance(body, fx.GraphModule):  # it went with the operator that it is inside of
        return []
    node = next((node for node in body.graph.nodes if node.name == name), None)
    if node is None or node.target is operator.getitem:  # a list cannot stand for its item
        return []
    return [read.name for read in node.all_input_nodes if read.op != "get_attr"]


def _returns_input(gm: fx.GraphModule, path: str) -> bool:
    """Whether a body returns an input, a view of one, or one value twice."""
    body: Any = attribute(gm, path)
    returned = [item for item in t.tree_leaves(body.graph.output_node().args[0]) if isinstance(item, fx.Node)]
    return any(_seen(node).op == "placeholder" for node in returned) or len(set(returned)) < len(returned)


def _seen(node: fx.Node) -> fx.Node:
    """The base of a view, through views of views; any other node itself."""
    while node.op in ("call_function", "call_method") and node.args and _is_view(node):
        if not isinstance(node.args[0], fx.Node):
            break
        node = node.args[0]
    return node


def _is_view(node: fx.Node) -> bool:
    """Whether it may give back memory of its first argument, by its schema, or by its name where it has none."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return any(result.alias_info is not None for result in schema.returns)
    return target_text(node) in VIEWS


@contextmanager
def _bounded(gm: fx.GraphModule) -> Generator[None]:
    """While the block runs, a body that is called more than MOST_CALLS times raises RuntimeError: with a node less, a
    loop may never end."""
    calls: Counter[str] = Counter()
    handles: list[Any] = []

    def counting(path: str) -> Any:
        def count(*_: Any) -> None:
            calls[path] += 1
            if calls[path] > MOST_CALLS:
                raise RuntimeError(f"{path} was called {MOST_CALLS} times")

        return count

    try:
        for path in bodies(gm):
            body: Any = attribute(gm, path)
            handles.append(body.register_forward_pre_hook(counting(path)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def bounded_forms(case: Live) -> Forms:
    """What eager gives at each node, as `forms`; None also where a loop does not end any more."""
    with _bounded(case.gm):
        return forms(case)


PASS = Pass(
    order=20,
    words="smaller graphs inside higher-order operators",
    edits={"bodies inline": "the operators that hold graphs inlined", "bodies * * *": "{1} without {2}"},
    unneeded={"bodies inline": "operators that hold graphs"},
    runs_eager=True,
)
