"""Operands: drops operands of a higher-order operator that none of its graphs reads, and results of its graphs that
nothing reads; then the nodes and inputs that served these alone.

Only what the operator does not fix is dropped: never a carried value of a loop, nor an operand of one branch alone.
Sizes that symbols stand for stay. An operand that is not read may still matter to gradients, so each edit is judged
like any other.

For example: `propose(case)` gives `[['operands cond reads y_1', 'operands cond returns 1']]`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from torch import fx

from ...dumps.torchside.values import fake_of
from ...toolkit.cutting.atoms import bound_by, is_symbolic, target_name
from ...toolkit.live.case import Live
from ...toolkit.live.eager import attribute, copy_graph
from . import Pass
from .bodies import bounded_forms
from .forms import forms_after
from .symbolic import fewer, sweep


@dataclass(frozen=True)
class Shape:
    """The arguments of a higher-order operator: `graphs`, the places of its graphs; `lists`, those of its operand
    lists, in the order in which the graphs get them.

    `rest`: from this place on each argument is one operand. `free`: lists of which any operand may go; `single`: lists
    that must keep one. `returns`: whether results may go; `first`: only those behind as many as the first list has.
    """

    graphs: tuple[int, ...]
    lists: tuple[int, ...] = ()
    rest: int | None = None
    free: tuple[int, ...] = ()
    single: tuple[int, ...] = ()
    returns: bool = False
    first: bool = False


SHAPES = {
    "cond": Shape((1, 2), (3,), free=(3,), returns=True),
    "while_loop": Shape((0, 1), (2, 3), free=(3,)),
    "scan": Shape((0,), (1, 2, 3), free=(3,), single=(2,), returns=True, first=True),
    "map_impl": Shape((0,), (1, 2), free=(2,), single=(1,), returns=True),
    "associative_scan": Shape((0,), (1, 1, 2), free=(2,)),
    "wrap": Shape((0,), rest=1, returns=True),
    "tag_activation_checkpoint": Shape((0,), rest=1, returns=True),
    "wrap_activation_checkpoint": Shape((0,), rest=1, returns=True),
    "wrap_with_set_grad_enabled": Shape((1,), rest=2, returns=True),
    "wrap_with_autocast": Shape((4,), rest=5, returns=True),
    "invoke_subgraph": Shape((0,), rest=2, returns=True),
}
"""Operator -> its arguments, and which of them may go. Operators whose graphs were paired with others (flex attention,
autograd functions) are left alone."""


def propose(case: Live) -> list[list[str]]:
    """All that may go, in one round: the results from the last to the first, so that the others keep their numbers."""
    edits = [edit for call in _calls(case.gm) for edit in call.edits(case)]
    if not edits or (known := bounded_forms(case)) is None:
        return []
    after = {edit: forms_after(case, edit, apply, bounded_forms) for edit in edits}
    fine = [edit for edit, seen in after.items() if seen is not None and seen["output"] == known["output"]]
    return [fine] if fine else []


def apply(case: Live, edit: str) -> Live:
    """The case without one operand or result; inputs that nothing reads any more go, except those that bind a
    symbol."""
    _, name, what, which = edit.split(" ")
    gm = copy_graph(case.gm)
    call = next((call for call in _calls(gm) if call.node.name == name), None)
    if call is None:
        raise ValueError(f"there is no operator {name} with graphs")
    if what == "returns":
        call.drop_result(int(which))
    else:
        given = call.drop_operand(which)
        owner = call.node.graph
        homes = owner.find_nodes(op="placeholder")
        if owner is gm.graph:
            homes = [home for home in homes if case.spec.dynamic and bound_by(fake_of(home))]
        sweep(owner, given, set(homes))
        owner.owning_module.recompile()  # type: ignore[union-attr]
    return fewer(case, gm)


@dataclass
class _OperandCall:
    """One call of such an operator, and the others of the same graph (regions that are compiled once)."""

    node: fx.Node
    shape: Shape
    graphs: list[fx.GraphModule]
    calls: list[fx.Node]

    def edits(self, case: Live) -> Iterator[str]:
        """The edits that drop an operand or a result that nothing reads."""
        node = self.node
        for place, (inner, operand) in enumerate(zip(self.placeholders(0), self.operands(), strict=True)):
            symbolic = case.spec.dynamic and isinstance(operand, fx.Node) and is_symbolic(fake_of(operand))
            if not symbolic and self.may_drop(place):
                yield f"operands {node.name} reads {inner.name}"
        if not self.shape.returns:
            return
        returned: Any = self.returned(0)
        if not isinstance(returned, (tuple, list)) or any(user.target is not operator.getitem for user in node.users):
            return
        read: list[Any] = [user.args[1] for call in self.calls for user in call.users if user.users]
        kept, many = len(self.list_of(self.shape.lists[0])) if self.shape.first else 0, len(cast(list[Any], returned))
        unread = [place for place in range(kept, many) if place not in read]
        for place in reversed(unread if len(unread) < many else unread[1:]):
            yield f"operands {node.name} returns {place}"

    def operands(self, call: fx.Node | None = None) -> list[Any]:
        """The operands of a call, in the order of the graphs' inputs."""
        return [operand for _, operand in self._placed(call)]

    def _placed(self, call: fx.Node | None = None) -> list[tuple[int, Any]]:
        """Pairs: the place of the list that holds an operand, or -1, and the operand."""
        node, shape = call or self.node, self.shape
        if shape.rest is not None:
            return [(-1, operand) for operand in node.args[shape.rest :]]
        return [(place, operand) for place in shape.lists for operand in self.list_of(place, node)]

    def list_of(self, place: int, call: fx.Node | None = None) -> list[Any]:
        held: Any = (call or self.node).args[place] if place < len((call or self.node).args) else ()
        return list(cast(list[Any], held)) if isinstance(held, (tuple, list)) else []

    def placeholders(self, number: int) -> list[fx.Node]:
        return list(self.graphs[number].graph.find_nodes(op="placeholder"))

    def returned(self, number: int) -> Any:
        return self.graphs[number].graph.output_node().args[0]

    def may_drop(self, place: int) -> bool:
        """Whether no graph reads an input, and the operator can do without it."""
        placed = self._placed()
        home = placed[place][0]
        alone = len(placed) == 1 if home < 0 else home in self.shape.single and len(self.list_of(home)) == 1
        allowed = home < 0 or home in self.shape.free or home in self.shape.single
        return allowed and not alone and not any(self.placeholders(at)[place].users for at in range(len(self.graphs)))

    def drop_operand(self, name: str) -> list[fx.Node]:
        """Drops an operand of all calls; returns the nodes that were passed for it. Raises ValueError where the input
        of that name may not go."""
        place = next((at for at, node in enumerate(self.placeholders(0)) if node.name == name), None)
        if place is None or not self.may_drop(place):
            raise ValueError(f"{self.node.name} needs its operand {name}")
        home = self._placed()[place][0]
        given = [item for call in self.calls if isinstance(item := self._placed(call)[place][1], fx.Node)]
        for at, graph in enumerate(self.graphs):
            graph.graph.erase_node(self.placeholders(at)[place])
            graph.recompile()
        for call in self.calls:
            args: list[Any] = list(call.args)
            if self.shape.rest is not None:
                del args[self.shape.rest + place]
            else:
                before = sum(at == home for at, _ in self._placed(call)[:place])
                args[home] = type(args[home])(item for at, item in enumerate(args[home]) if at != before)
            call.args = tuple(args)
        return list(dict.fromkeys(given))

    def drop_result(self, place: int) -> None:
        """Drops a result of all calls. Raises ValueError where it is read, or the only one."""
        if f"operands {self.node.name} returns {place}" not in self.edits(Live(self.graphs[0], [])):
            raise ValueError(f"result {place} of {self.node.name} is needed")
        for number, graph in enumerate(self.graphs):
            returned, output = self.returned(number), graph.graph.output_node()
            output.args = (type(returned)(item for at, item in enumerate(returned) if at != place),)
            gone = [returned[place]] if isinstance(returned[place], fx.Node) else []
            sweep(graph.graph, gone, set(graph.graph.find_nodes(op="placeholder")))
            graph.recompile()
        for call in self.calls:
            for user in list(call.users):
                if user.args[1] == place:
                    user.graph.erase_node(user)
                elif user.args[1] > place:  # type: ignore[operator]
                    user.args = (call, user.args[1] - 1)  # type: ignore[operator]
            for key in ("val", "example_value"):
                known: Any = call.meta.get(key)
                if isinstance(known, (tuple, list)) and len(items := cast(list[Any], known)) > place:
                    call.meta[key] = type(items)(item for at, item in enumerate(items) if at != place)


def _calls(gm: fx.GraphModule) -> Iterator[_OperandCall]:
    """Yields the calls whose graphs no other node uses, or that share them as one region; also calls inside graphs.
    Each node name counts once."""
    seen: set[str] = set()
    owners = [item for item in gm.modules() if isinstance(item, fx.GraphModule)]
    every = [(owner, node) for owner in owners for node in owner.graph.nodes]
    regions = [(owner, node) for owner, node in every if target_name(node) == "invoke_subgraph"]
    for owner, node in every:
        call = _call(owner, node, regions) if node.op == "call_function" else None
        names: set[str] = set() if call is None else {item.name for item in call.calls}
        if call is not None and not names & seen:
            seen |= names
            yield call


def _call(owner: fx.GraphModule, node: fx.Node, regions: list[tuple[fx.GraphModule, fx.Node]]) -> _OperandCall | None:
    shape = SHAPES.get(target_name(node))
    if shape is None or len(node.args) <= max(shape.graphs):
        return None
    is_region = target_name(node) == "invoke_subgraph"
    beside = [item for item in regions if item[1].args[1] == node.args[1]] if is_region else []
    calls = [item for _, item in beside] or [node]
    graphs = [_graph(owner, item.args[at]) for item in calls for at in shape.graphs]
    own = {id(graph): graph for graph in graphs if graph is not None}
    others = [item for item in owner.graph.nodes if item not in calls]
    used = any(id(_graph(owner, read)) in own for item in others for read in item.all_input_nodes)
    elsewhere = any(home is not owner for home, _ in beside)
    if used or elsewhere or None in graphs or (not beside and len(own) < len(graphs)):
        return None
    if any(isinstance(value, fx.Node) for item in calls for value in item.kwargs.values()):
        return None
    call = _OperandCall(node, shape, list(own.values()), calls)
    fits = [len(call.placeholders(at)) for at in range(len(own))] + [len(call.operands(item)) for item in calls]
    return call if len(set(fits)) == 1 else None


def _graph(owner: fx.GraphModule, node: Any) -> fx.GraphModule | None:
    held = attribute(owner, str(node.target)) if isinstance(node, fx.Node) and node.op == "get_attr" else None
    return held if isinstance(held, fx.GraphModule) else None


PASS = Pass(
    order=30,
    words="what nobody reads of higher-order operators",
    edits={"operands *": "{1} without what nobody reads"},
    runs_eager=True,
)
