"""A graph as boxes of many nodes each: by module, where there are none by the user's lines, else by runs of neighbours.

`plan_of` decides which nodes share a box; `part_of` what stands in the boxes, which inputs lie in them, and what joins
them. At most MOST boxes are drawn, however large the graph is.

>>> from graphdbg.toolkit.drawing.source import of_saved
>>> drawn = overview(of_saved(saved))
>>> [box.title for box in drawn.boxes]
['up', 'mul, erf, add', 'down', 'primals_3', 'output']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from ...dumps.names import Path, common
from ...dumps.short import shorten
from ...dumps.wording import counted
from .dot import WEIGHT, Box, Edge, View, heaviest
from .nodes import MOST_OUTPUT_EDGES, GraphShare, frames, name_within
from .source import DrawnGraph, DrawnNode


@dataclass
class Group:
    """Nodes that are drawn as one box. `call` counts groups of the same key from 1."""

    number: int
    key: Hashable
    call: int = 1
    members: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)


def acyclic(keys: Sequence[Hashable | None], inputs: Sequence[Sequence[int]]) -> list[Group]:
    """Groups nodes by key, in the order of their first nodes, so that no group depends on itself through others: nodes
    of one key may be split into several groups.

    `keys` has one entry for each node, None for one that is not grouped; `inputs` has the positions of those it uses.
    """
    groups: list[Group] = []
    home: dict[int, int] = {}
    latest: dict[Hashable, int] = {}
    before: list[int] = []  # bit k of before[g]: group g needs group k
    for index, key in enumerate(keys):
        if key is None:
            continue
        used = {home[other] for other in inputs[index] if other in home}
        number = latest.get(key)
        if number is None or any(other != number and before[other] >> number & 1 for other in used):
            call = groups[number].call + 1 if number is not None else 1
            number = latest[key] = len(groups)
            groups.append(Group(number, key, call))
            before.append(0)
        groups[number].members.append(index)
        home[index] = number
        needed = before[number]
        for other in used - {number}:
            needed |= 1 << other | before[other]
        if needed != before[number]:
            for other in range(len(groups)):  # an earlier group may need a later one by now
                if other == number or before[other] >> number & 1:
                    before[other] |= needed
    return groups


def homes(groups: Iterable[Group]) -> dict[int, int]:
    """The position in `groups` of the group that each node lies in, its inputs included."""
    return {index: place for place, group in enumerate(groups) for index in (*group.members, *group.inputs)}


def in_order(groups: Sequence[Group], inputs: Sequence[Sequence[int]]) -> list[Group]:
    """The groups ordered so that each comes after those it needs, where that is possible; else as they are."""
    home = homes(groups)
    needs = [
        {home[other] for index in group.members for other in inputs[index] if other in home} - {place}
        for place, group in enumerate(groups)
    ]
    ordered: list[int] = []
    done: set[int] = set()
    for start in range(len(groups)):
        stack = [start]
        while stack:
            place = stack[-1]
            missing = sorted(needs[place] - done) if place not in done else []
            if missing:
                stack.append(missing[0])
                continue
            stack.pop()
            if place not in done:
                done.add(place)
                ordered.append(place)
    return [groups[place] for place in ordered]


MOST = 150
"""No overview has more boxes."""

WANTED = 70
"""How many boxes can be read at a glance: another level of modules is opened only if it has no more boxes."""

FEW = 8
"""With fewer boxes than this the next level is opened even if it has too many; neighbours then share boxes."""

BUNDLES = 40
"""The most boxes where neighbours share a box, since such boxes are much alike."""

MOST_INPUT_BOXES = 12
MOST_GROUPS = MOST - MOST_INPUT_BOXES - 1


@dataclass
class GroupPlan:
    """Which groups there are: `depth` levels of `paths` are shown; `bundles` are the groups that share a box.

    `opened` are the modules inside which other modules are shown.
    """

    depth: int
    by: str
    paths: list[Path]
    bundles: list[list[Group]]
    opened: frozenset[Path] = frozenset()

    def path(self, index: int) -> Path:
        """The levels around a node that are shown."""
        return self.paths[index][: self.depth]


def plan_of(
    graph: DrawnGraph, depth: int | None = None, *, only: Collection[int] | None = None, wanted: int = WANTED
) -> GroupPlan:
    """How to group a graph, or only some of its nodes, into boxes."""
    kept = [not node.is_input and node.op != "output" and (only is None or node.index in only) for node in graph.nodes]
    by, paths = _paths(graph, kept)
    inputs = [node.inputs for node in graph.nodes]
    if by == "runs of nodes":
        alone = [index for index, is_kept in enumerate(kept) if is_kept]
        size = _size(len(alone), wanted)
        runs = [Group(0, (), 1, alone[start : start + size]) for start in range(0, len(alone), size)]
        return GroupPlan(0, by, paths, [[run] for run in runs])
    deepest = max(len(path) for path, is_kept in zip(paths, kept, strict=True) if is_kept)
    level, groups = 0, list[Group]()
    for tried in range(1, deepest + 1) if depth is None else [min(depth, deepest)]:
        keys = [path[:tried] if is_kept else None for path, is_kept in zip(paths, kept, strict=True)]
        grouped = acyclic(keys, inputs)
        if len(groups) >= FEW and len(grouped) > wanted:
            break
        level, groups = tried, grouped
        if len(grouped) > wanted:
            break
    size = 1 if len(groups) <= (MOST_GROUPS if depth else wanted) else _size(len(groups), BUNDLES)
    ordered = in_order(groups, inputs) if size > 1 else groups
    opened = {path[:inner] for path in paths for inner in range(1, min(len(path), level))}
    # in an order in which no group needs a later one, bundles of neighbours need each other in no circle
    bundles = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return GroupPlan(level, by, paths, bundles, frozenset(opened))


def _paths(graph: DrawnGraph, kept: Sequence[bool]) -> tuple[str, list[Path]]:
    """The kind of levels by which nodes are grouped, and the levels around each node."""
    computed = [node for node in graph.nodes if kept[node.index]]
    for by, paths in (
        ("module", [node.modules for node in graph.nodes]),
        ("line", [node.frames for node in graph.nodes]),
    ):
        known = sum(bool(paths[node.index]) for node in computed)
        if computed and 4 * known >= len(computed) and len({paths[node.index] for node in computed}) > 1:
            return by, paths
    return "runs of nodes", [() for _ in graph.nodes]


def _size(count: int, boxes: int) -> int:
    """The number of groups in each of at most `boxes` boxes: a round number."""
    least = -(-count // boxes)
    round_sizes = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
    return next((size for size in round_sizes if size >= least), -(-least // 50) * 50)


def around(plan: GroupPlan, bundle: list[Group]) -> Path:
    """The modules around a box: for a box of a whole module, those around that module; for nodes of an opened module
    itself, that module too."""
    path = common([plan.path(group.members[0]) for group in bundle])
    whole = len({plan.path(group.members[0]) for group in bundle}) == 1 and path not in plan.opened
    return path[:-1] if whole else path


_OPS_NAMED = 3
_QUIET = frozenset({"view", "scalar", "movement"})


def overview(graph: DrawnGraph, depth: int | None = None) -> View:
    """The view of a graph by module, with `depth` levels of modules opened (None: as many as stay readable)."""
    plan = plan_of(graph, depth)
    part = part_of(graph, plan)
    title = f"{graph.id}: {counted(len(graph.nodes), 'node')} by {plan.by}, {counted(len(part.boxes), 'box')}"
    return View(title, "by-module", part.boxes, part.clusters, part.edges, part.notes)


def part_of(
    graph: DrawnGraph, plan: GroupPlan, *, prefix: str = "", side: str = "", only: Collection[int] | None = None
) -> GraphShare:
    """The boxes of a plan; `prefix` and `side` as for `frames`, `only` as for `plan_of`."""
    part = GraphShare()
    members: dict[str, list[int]] = {}
    for number, bundle in enumerate(plan.bundles):
        box = f"{prefix}g{number}"
        members[box] = [index for group in bundle for index in group.members]
        part.home.update(dict.fromkeys(members[box], box))
    folded = _fold_inputs(graph, part, members, prefix, only)
    framed = {f"{prefix}g{number}": around(plan, bundle) for number, bundle in enumerate(plan.bundles)}
    part.clusters, places = frames({box: framed.get(box, ()) for box in members}, f"{prefix}c", side)
    for number, (box, indices) in enumerate(members.items()):
        nodes = [graph.nodes[index] for index in indices]
        if number < len(plan.bundles):
            title, lines = _words(plan, plan.bundles[number], nodes, framed[box][: places[box].depth])
            lines += _counts(nodes, folded.get(box, []), graph, title)
        else:
            title, lines = _input_words(nodes)
        names = [graph.nodes[index].name for index in (*indices, *folded.get(box, []))]
        lines, family = [shorten(line, 44) for line in lines], heaviest([node.family for node in nodes])
        home, detail = places[box].cluster, _detail(nodes)
        part.boxes.append(Box(box, shorten(title, 40), lines, family, home, True, names, detail=detail))
    mark_outputs(graph, part, prefix, side)
    part.edges += _edges(graph, part, set(members))
    return part


def _fold_inputs(
    graph: DrawnGraph, part: GraphShare, members: dict[str, list[int]], prefix: str, only: Collection[int] | None
) -> dict[str, list[int]]:
    """Puts inputs that one box uses into that box; the others get boxes of their own, one for all inputs with the same
    users."""
    folded: dict[str, list[int]] = {}
    shared: dict[tuple[str, ...], list[int]] = {}
    sizes, unused = False, 0
    for node in graph.nodes:
        if node.is_input and (only is None or node.index in only):
            users = tuple(sorted({part.home[user] for user in node.users if user in part.home}))
            if node.scalar:
                sizes = True
            elif len(users) == 1 and node.family != "input":
                folded.setdefault(users[0], []).append(node.index)
            elif not users:
                unused += 1
            else:
                shared.setdefault((*users, node.family), []).append(node.index)
    kept = sorted(shared.items(), key=lambda item: (graph.nodes[item[1][0]].family != "input", len(item[0])))
    for number, (_, indices) in enumerate(kept[:MOST_INPUT_BOXES]):
        members[f"{prefix}i{number}"] = indices
        part.home.update(dict.fromkeys(indices, f"{prefix}i{number}"))
    for box, indices in folded.items():
        part.home.update(dict.fromkeys(indices, box))
    if unused:
        part.notes.append(f"{counted(unused, 'input')} that nothing is computed from: not drawn")
    if sizes:
        part.notes.append("sizes that are handed in, and edges along which sizes are passed, are not drawn")
    left = sum(len(indices) for _, indices in kept[MOST_INPUT_BOXES:])
    if left:
        shared_ones = counted(left, "input that several boxes use is", "inputs that several boxes use are")
        part.notes.append(f"{shared_ones} not drawn")
    return folded


def _words(plan: GroupPlan, bundle: list[Group], nodes: list[DrawnNode], framed: Path) -> tuple[str, list[str]]:
    """The title and the second line of a group; `framed` are the levels that have a frame around it."""
    first, last = (plan.path(group.members[0]) for group in (bundle[0], bundle[-1]))
    outer = framed[-1].path if framed else ""
    if len(bundle) > 1 and first != last:
        names = [name_within(path[-1].path, outer) if path else "" for path in (first, last)]
        shown = [path[-1].kind for group in bundle if (path := plan.path(group.members[0])) and path[-1].kind]
        kinds = Counter(shown).most_common(2)
        said = ", ".join(f"{kind} ×{count}" for kind, count in kinds)
        return " … ".join(filter(None, names)), [said] * bool(said)
    if not first or first in plan.opened:  # what lies in no module, or in one that is opened
        busy = [node for node in nodes if node.family not in _QUIET] or nodes
        ops = list(dict.fromkeys(node.base for node in busy))
        title = ", ".join(ops[:3]) + (", …" if len(ops) > 3 else "")
        place = "" if not first or first == framed else f"in {name_within(first[-1].path, outer)}"
        where = next((node.where for node in nodes if node.where), "")
        return title, [line for line in (place, where) if line]
    call = f" (call {bundle[0].call})" if len(bundle) == 1 and bundle[0].call > 1 else ""
    return name_within(first[-1].path, outer) + call, [first[-1].kind] if first[-1].kind else []


def _counts(nodes: Sequence[DrawnNode], inputs: Sequence[int], graph: DrawnGraph, title: str) -> list[str]:
    kinds = Counter(graph.nodes[index].family for index in inputs)
    words = {"parameter": "parameter", "saved": "saved tensor", "tangent": "tangent", "constant": "constant"}
    said = [counted(len(nodes), "node")]
    said += [counted(count, words.get(kind, "input")) for kind, count in kinds.most_common()]
    ops = Counter(node.base for node in nodes if node.family not in _QUIET)
    heavy = sorted(ops, key=lambda base: (_rank(nodes, base), -ops[base]))[:_OPS_NAMED]
    if not set(heavy) - set(title.split(", ")):
        heavy = []
    named = ", ".join(shorten(base, 22) + (f" ×{ops[base]}" if ops[base] > 1 else "") for base in heavy)
    return [line for line in (", ".join(said), named) if line]


def _rank(nodes: Sequence[DrawnNode], base: str) -> int:
    family = next(node.family for node in nodes if node.base == base)
    return WEIGHT.index(family) if family in WEIGHT else len(WEIGHT)


def _input_words(nodes: list[DrawnNode]) -> tuple[str, list[str]]:
    if len(nodes) == 1:
        return nodes[0].name, [line for line in (nodes[0].source, nodes[0].value) if line]
    first = ", ".join(node.source or node.name for node in nodes[:2])
    return counted(len(nodes), "input"), [first + (", …" if len(nodes) > 2 else "")]


def mark_outputs(graph: DrawnGraph, part: GraphShare, prefix: str, side: str) -> None:
    """Shows the output as a box where few enough boxes make outputs, else as a line in each of those."""
    makers: dict[str, list[int]] = {}
    for item in graph.outputs:
        if item.node in part.home:
            makers.setdefault(part.home[item.node], []).append(item.saved)
    shown = [box for box, saved in makers.items() if not all(saved)]
    output = next((node for node in reversed(graph.nodes) if node.op == "output"), None)
    if output is not None and len(shown) <= MOST_OUTPUT_EDGES:
        part.boxes.append(Box(f"{prefix}o", output.name, [], "output", side, nodes=[output.name], detail=output.detail))
        part.home[output.index] = f"{prefix}o"
        counts = [sum(not saved for saved in makers[box]) for box in shown]
        words = [counted(count, "output") if count > 1 else "" for count in counts]
        part.edges += [Edge(box, f"{prefix}o", word) for box, word in zip(shown, words, strict=True)]
    for box in part.boxes:
        saved = makers.get(box.id, [])
        if sum(saved):
            box.lines.append(f"saves {sum(saved)} for backward")
        if output is not None and output.index not in part.home and len(saved) > sum(saved):
            count = len(saved) - sum(saved)
            box.lines.append(counted(count, "output"))


def _edges(graph: DrawnGraph, part: GraphShare, groups: set[str]) -> list[Edge]:
    """One edge for all values that go from one box to another."""
    values: dict[tuple[str, str], dict[int, str]] = {}
    for node in graph.nodes:
        target = part.home.get(node.index)
        if target not in groups:
            continue
        for used in node.inputs:
            source = part.home.get(used)
            if source is not None and source != target and not graph.nodes[used].scalar:
                label = node.value if node.base == "getitem" and node.value else graph.nodes[used].value
                values.setdefault((source, target), {})[used] = label
    return [
        Edge(*ends, next(iter(carried.values())) if len(carried) == 1 else counted(len(carried), "value"))
        for ends, carried in values.items()
    ]


def _detail(nodes: Sequence[DrawnNode]) -> str:
    listed = [node.detail.partition("\n")[0] for node in nodes[:40]]
    return "\n".join(listed + ([f"and {len(nodes) - 40} more"] if len(nodes) > 40 else []))
