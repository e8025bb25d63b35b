"""The departures of two aligned graphs: which nodes differ, in what, and which departures merely follow from others.

Also: differences of two graphs besides their nodes: inputs, symbols, guards, compiler arguments, ambient state,
configuration.

It reads no files; `view` turns the result into text. A node departs when it has no partner, or when it and its partner
differ in target, arguments or value. Names, moved nodes and lines of code are no departures.

>>> comparison = compare(record, run.graph("0_1/forward").record)
>>> comparison.same, comparison.first.kind, comparison.first.changes[0].text()
(False, 'changed', 'shape: [2, 8] -> [s77, 8]')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec

from ..schema import Arg, GraphRecord, SymbolRecord, SymValue, TensorValue
from ..wording import counted, listed
from . import arguments
from .align import Alignment, align
from .arguments import ArgumentDifference, Change, Departure, Kind, changes, only_moves, same_values, short
from .facts import NodeColumns, device_names, renamed, symbol_names

_IGNORED_AMBIENT = frozenset({"seed", "rng_state"})
_COUNTERS = ("graph_id", "fx_graph_id", "num_example_inputs", "num_mutated_inp_runtime_indices")
_POSITIONS = ("static_input_idxs", "static_input_indices", "static_lifetime_input_indices")
_IGNORED_KWARGS = frozenset((*_COUNTERS, *_POSITIONS))
"""Counters, and positions of inputs, which differ whenever the inputs do."""

_MISSING = "unset"
_MAX_GUARDS = 4


def compare_settings(a: GraphRecord, b: GraphRecord, rename: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Sentences on differences, and notes on differences that do not count. `rename` maps symbols of `b` to those of
    `a`."""
    counts = [sum(node.op == "placeholder" for node in record.graph.nodes) for record in (a, b)]
    also = [f"inputs: {counts[0]} -> {counts[1]}"] if counts[0] != counts[1] else []
    also += _symbols(a, b, rename)
    also += _guards(a, b, rename)
    if a.stage == b.stage:  # each stage has its own arguments and state
        also += _mapping("compiler argument", _kept(a.compile_kwargs), _kept(b.compile_kwargs))
        also += _mapping("ambient", _ambient(a), _ambient(b))
        for section in sorted(a.config.keys() | b.config.keys()):
            also += _mapping(f"config {section}", a.config.get(section, {}), b.config.get(section, {}))
    notes = [
        f"{name} {a.versions[name]} -> {b.versions[name]}"
        for name in sorted(a.versions.keys() & b.versions.keys())
        if a.versions[name] != b.versions[name]
    ]
    return also, notes


def _kept(kwargs: dict[str, Arg]) -> dict[str, Arg]:
    return {key: value for key, value in kwargs.items() if key not in _IGNORED_KWARGS}


def _ambient(record: GraphRecord) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(record.ambient).items() if key not in _IGNORED_AMBIENT}


def _mapping(what: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [
        f"{what} {key}: {short(a[key]) if key in a else _MISSING} -> {short(b[key]) if key in b else _MISSING}"
        for key in sorted(a.keys() | b.keys())
        if key not in a or key not in b or type(a[key]) is not type(b[key]) or a[key] != b[key]
    ]


def _symbols(a: GraphRecord, b: GraphRecord, rename: Mapping[str, str]) -> list[str]:
    symbols_a = {symbol.name: symbol for symbol in a.symbols}
    two = {renamed(symbol.name, rename): symbol for symbol in b.symbols}
    differing = [f"symbol {name} ({_described(symbols_a[name])}): only in A" for name in symbols_a if name not in two]
    differing += [f"symbol {name} ({_described(two[name])}): only in B" for name in two if name not in symbols_a]
    for name in symbols_a:
        if name in two and _facts(symbols_a[name]) != _facts(two[name]):
            differing.append(f"symbol {name}: {_described(symbols_a[name])} -> {_described(two[name])}")
    return differing


def _facts(symbol: SymbolRecord) -> tuple[Any, ...]:
    return symbol.lower, symbol.upper, symbol.backed, symbol.source, symbol.replacement


def _described(symbol: SymbolRecord) -> str:
    lower = "" if symbol.lower is None else f"{symbol.lower} <= "
    upper = "" if symbol.upper is None else f" <= {symbol.upper}"
    source = f" = {symbol.source}" if symbol.source else ""
    replaced = f", replaced by {symbol.replacement}" if symbol.replacement else ""
    return f"{lower}{symbol.name}{upper}{source}{replaced}"


def _guards(a: GraphRecord, b: GraphRecord, rename: Mapping[str, str]) -> list[str]:
    guards_a = dict.fromkeys((guard.kind, guard.expr) for guard in a.guards)
    two = dict.fromkeys((guard.kind, renamed(guard.expr, rename)) for guard in b.guards)
    differing: list[str] = []
    for name, mine, other in (("A", guards_a, two), ("B", two, guards_a)):
        extra = [f"{kind} {expr}" for kind, expr in mine if (kind, expr) not in other]
        differing += [f"{text}: only in {name}" for text in extra[:_MAX_GUARDS]]
        if len(extra) > _MAX_GUARDS:
            differing.append(f"{counted(len(extra) - _MAX_GUARDS, 'more guard')}: only in {name}")
    return differing


TRACED = frozenset({"dynamo", "pre_grad"})
"""Stages before autograd: their values require gradients, those of later stages never do."""


class GraphDiff:
    """The comparison of two graphs. `also`: settings that differ; `notes`: remarks on what is no difference."""

    def __init__(self, alignment: Alignment, departures: list[Departure], also: list[str], notes: list[str]) -> None:
        self.alignment = alignment
        self.a, self.b = alignment.a, alignment.b
        self.departures = departures
        self.also = also
        self.notes = notes

    @property
    def same(self) -> bool:
        """Whether neither nodes nor settings differ."""
        return not self.departures and not self.also

    @property
    def verdict(self) -> Literal["same", "settings", "differs"]:
        """differs: some nodes differ; settings: only settings differ; same: neither does."""
        return "differs" if self.departures else "settings" if self.also else "same"

    @property
    def first(self) -> Departure | None:
        """The first departure, in the order of the nodes, that follows from no other; preferably one that changes
        numbers."""
        own = (departure for departure in self.departures if departure.follows is None)
        return min(own, key=self.keeps_numbers, default=None)

    def keeps_numbers(self, departure: Departure) -> bool:
        """Whether a departure leaves all numbers as they are: another view operator, or an additional one."""
        if departure.changes:
            return same_values(departure.changes)
        return only_moves(target for targets in self.targets(departure) for target in targets)

    def name(self, departure: Departure) -> str:
        """The name of a departure's first node."""
        return self.a.nodes[departure.a[0]].name if departure.a else self.b.nodes[departure.b[0]].name

    def targets(self, departure: Departure) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The targets of a departure's nodes, in each graph."""
        return tuple(self.a.targets[i] for i in departure.a), tuple(self.b.targets[j] for j in departure.b)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Numbers of nodes: changed, only in A, only in B, how many of these follow from others; and moved and renamed,
        which are no differences."""
        pairs = [(i, j) for i, j in enumerate(self.alignment.to_b) if j >= 0]
        sizes = [(d, max(len(d.a), len(d.b)) if d.kind == "changed" else len(d.a) + len(d.b)) for d in self.departures]
        return {
            "changed": sum(d.kind == "changed" for d in self.departures),
            "only_a": len(self.a) - len(pairs),
            "only_b": len(self.b) - len(pairs),
            "follows": sum(size for d, size in sizes if d.follows is not None),
            "moved": len(pairs) - len(self.alignment.chain()),
            "renamed": sum(self.a.nodes[i].name != self.b.nodes[j].name for i, j in pairs),
        }


def compare(a: GraphRecord, b: GraphRecord) -> GraphDiff:
    """Compares two graphs."""
    symbols, devices = symbol_names(a, b), device_names(a, b)
    grads = (a.stage in TRACED) == (b.stage in TRACED)
    alignment = align(NodeColumns(a, grads=grads), NodeColumns(b, {**symbols, **devices}, grads=grads))
    also, notes = compare_settings(a, b, symbols)
    if not grads:
        _part_strangers(alignment, traced_first=a.stage in TRACED)
        notes.append("one stage is before autograd: calls are joined by the node that they were made of")
    notes += [f"device {old} -> {new} everywhere" for new, old in devices.items()]
    return GraphDiff(alignment, _Judge(alignment, a.stage in TRACED, b.stage in TRACED).departures(), also, notes)


class _Judge:
    """Finds the departures of one alignment, in the order of both graphs, and their origins."""

    def __init__(self, alignment: Alignment, traced_a: bool, traced_b: bool) -> None:
        self.alignment = alignment
        self.traced = (traced_a, traced_b)
        self.a, self.b = alignment.a, alignment.b
        self.valued = {(i, j) for i, j in enumerate(alignment.to_b) if j >= 0 and self.a.values[i] != self.b.values[j]}
        self.swaps: set[tuple[Any, Any]] = set()
        self.input_swaps: set[tuple[Any, Any]] = set()
        for i, j in self.valued:
            both = arguments.substitutions(self.a.values[i], self.b.values[j])
            pairs = {pair for pair in both if pair[0] != pair[1]}
            self.swaps |= pairs
            if not self.a.inputs[i]:
                self.input_swaps |= pairs
        self.old = {str(old) for old, _ in self.input_swaps}
        self.new = {str(new) for _, new in self.input_swaps}
        self.led_a: set[int] = set()  # nodes without partner whose departure follows from another
        self.led_b: set[int] = set()

    def departures(self) -> list[Departure]:
        """All departures with their origins."""
        departures_found: list[Departure] = []
        before = (-1, -1)
        for i, j in [*self.alignment.chain(), (len(self.a), len(self.b))]:
            departures_found.extend(self._stretch(range(before[0] + 1, i), range(before[1] + 1, j)))
            if i < len(self.a):
                departures_found.extend(self._pair(i, j))
            before = (i, j)
        if self.traced[0] != self.traced[1]:
            departures_found = _regrouped(self.alignment, departures_found, traced_first=self.traced[0])
        return self._traced(departures_found)

    def _stretch(self, range_a: range, range_b: range) -> list[Departure]:
        """The departures between two pairs of the chain: the nodes without partner as one departure, and the moved
        pairs."""
        own_a: list[int] = []
        own_b: list[int] = []
        departures_here: list[Departure] = []
        for i in range_a:
            if self.alignment.to_b[i] >= 0:
                departures_here.extend(self._pair(i, self.alignment.to_b[i]))
            elif self._is_led(self.a, i, self.old, self.led_a):
                departures_here.append(Departure("removed", [i], [], follows=-1))
            else:
                own_a.append(i)
        for j in range_b:
            if self.alignment.to_a[j] < 0:
                if self._is_led(self.b, j, self.new, self.led_b):
                    departures_here.append(Departure("added", [], [j], follows=-1))
                else:
                    own_b.append(j)
        if own_a or own_b:
            kind: Kind = "replaced" if own_a and own_b else "removed" if own_a else "added"
            departures_here.insert(0, Departure(kind, own_a, own_b))
        return departures_here

    def _is_led(self, facts: NodeColumns, index: int, known: set[str], led: set[int]) -> bool:
        """Whether a node without partner only computes a size that a changed input introduced."""
        value = facts.nodes[index].value
        if facts.nodes[index].op == "output" or (value is not None and not isinstance(value, SymValue)):
            return False
        partners = self.alignment.to_b if facts is self.a else self.alignment.to_a
        explained = [
            producer in led or (partners[producer] >= 0 and self._pair_of(facts, producer) in self.valued)
            for producer in facts.inputs[index]
        ]
        by_value = isinstance(value, SymValue) and str(facts.dim(value.expr)) in known
        if by_value or (explained and all(explained)):
            led.add(index)
            return True
        return False

    def _pair_of(self, facts: NodeColumns, index: int) -> tuple[int, int]:
        return (index, self.alignment.to_b[index]) if facts is self.a else (self.alignment.to_a[index], index)

    def _pair(self, i: int, j: int) -> list[Departure]:
        node_a, two = self.a.nodes[i], self.b.nodes[j]
        retargeted = node_a.op != two.op or self.a.targets[i] != self.b.targets[j]
        rewired = not self.alignment.same_wires(i, j)
        reworded = self.a.skeletons[i] != self.b.skeletons[j]
        if not (retargeted or rewired or reworded or (i, j) in self.valued):
            return []
        argument_differences = arguments.differences(self.alignment, i, j) if rewired or reworded else []
        changes_here = self._target_changes(i, j) if retargeted else []
        if node_a.op == "output":
            return [Departure("changed", [i], [j], self._output_changes(i, j), -1)]
        strings = self.a.record.strings, self.b.record.strings
        for place, left, right, *_ in argument_differences:
            changes_here.append(Change("argument", short(left, strings[0]), short(right, strings[1]), place))
        changes_here += changes(self.a.values[i], self.b.values[j])
        if not changes_here:  # only strides differ, in the same order, which the changed shape explains
            changes_here = [Change("value", "", "")]
        own = retargeted or not self._explained(i, j, argument_differences)
        return [Departure("changed", [i], [j], changes_here, None if own else -1)]

    def _target_changes(self, i: int, j: int) -> list[Change]:
        node_a, two = self.a.nodes[i], self.b.nodes[j]
        if node_a.op == "get_attr":
            kind = "content" if node_a.target in self.a.body.attrs else "subgraph"
            return [Change(kind, node_a.target, two.target)]
        if node_a.op != two.op:
            return [Change("op", f"{node_a.op} {node_a.target}", f"{two.op} {two.target}")]
        return [Change("target", node_a.target, two.target)]

    def _output_changes(self, i: int, j: int) -> list[Change]:
        """The outputs that only one graph returns; positions do not count, since one more output shifts all later
        ones."""
        theirs = Counter(self.b.inputs[j])
        mine = Counter(self.alignment.to_b[k] for k in self.a.inputs[i])
        gone = [
            k
            for k in self.a.inputs[i]
            if self.alignment.to_b[k] < 0 or mine[self.alignment.to_b[k]] > theirs[self.alignment.to_b[k]]
        ]
        new = [k for k in self.b.inputs[j] if theirs[k] > mine[k]]
        if gone or new:
            return [Change("outputs", self._names(self.a, gone), self._names(self.b, new))]
        both = self._names(self.a, self.a.inputs[i]), self._names(self.b, self.b.inputs[j])
        return [Change("outputs", *both, "their order")]

    @staticmethod
    def _names(facts: NodeColumns, places: list[int]) -> str:
        return listed(dict.fromkeys(facts.nodes[place].name for place in places), 6) or "nothing"

    def _explained(self, i: int, j: int, argument_differences: list[ArgumentDifference]) -> bool:
        """Whether every difference of a pair comes from its inputs."""
        led = any((k, self.alignment.to_b[k]) in self.valued for k in self.a.inputs[i] if self.alignment.to_b[k] >= 0)
        for difference in argument_differences:
            wired = difference.node_a >= 0 or difference.node_b >= 0
            lonely = (difference.node_a >= 0 and self.alignment.to_b[difference.node_a] < 0) or (
                difference.node_b >= 0 and self.alignment.to_a[difference.node_b] < 0
            )
            led = led or lonely
            swap = (difference.plain_a, difference.plain_b)
            swapped = None not in swap and (swap in self.input_swaps or (led and swap in self.swaps))
            if not (swapped or (wired and lonely)):
                return False
        return led or bool(argument_differences)

    def _traced(self, departures_found: list[Departure]) -> list[Departure]:
        """Sets `follows` of each departure that follows; one without an origin (an output that alone departs) follows
        from nothing."""
        place_a = {i: place for place, departure in enumerate(departures_found) for i in departure.a}
        place_b = {j: place for place, departure in enumerate(departures_found) for j in departure.b}
        own = [place for place, departure in enumerate(departures_found) if departure.follows is None]
        # departure -> the origin of its value: itself, or that of one of its inputs
        source: dict[int, int] = {}
        for place, departure in enumerate(departures_found):
            near = [place_a[k] for i in departure.a for k in self.a.inputs[i] if k in place_a]
            near += [place_b[k] for j in departure.b for k in self.b.inputs[j] if k in place_b]
            origins = {source[other] for other in near if other in source}
            if departure.follows is None:
                source[place] = min(origins) if origins and self._value_is_led(departure) else place
                continue
            departure.follows = min(origins) if origins else self._by_size(departures_found, own)
            if departure.follows is None:
                own.append(place)
            source[place] = place if departure.follows is None else departure.follows
        return departures_found

    def _value_is_led(self, departure: Departure) -> bool:
        """Whether a pair that departs by itself still gets its value from inputs whose values differ."""
        if departure.kind != "changed" or (departure.a[0], departure.b[0]) not in self.valued:
            return False
        return any((k, self.alignment.to_b[k]) in self.valued for k in self.a.inputs[departure.a[0]])

    def _by_size(self, departures_found: list[Departure], own: list[int]) -> int | None:
        """The changed input that introduced the size that a node computes; else the first departure that follows from
        no other."""
        for place in own:
            departure = departures_found[place]
            of_tensor = departure.a and isinstance(self.a.nodes[departure.a[0]].value, TensorValue)
            if departure.kind == "changed" and of_tensor and not self.a.inputs[departure.a[0]]:
                return place
        return own[0] if own else None


def _origin(traced: NodeColumns, later: NodeColumns, index: int) -> int:
    """The traced node that a later node comes from; -1 if none."""
    sources = later.nodes[index].from_node
    return traced.position.get(sources[0], -1) if sources else -1


def _part_strangers(alignment: Alignment, *, traced_first: bool) -> None:
    """Undoes pairs of calls of which neither comes from the other, and which share only a target like getitem."""
    for i, j in enumerate(alignment.to_b):
        if j < 0 or not alignment.a.kinds[i].startswith("call"):
            continue
        traced, later, at = (alignment.a, alignment.b, (i, j)) if traced_first else (alignment.b, alignment.a, (j, i))
        known = bool(later.nodes[at[1]].from_node)
        alike = alignment.a.targets[i] == alignment.b.targets[j] and alignment.same_wires(i, j)
        if _origin(traced, later, at[1]) != at[0] if known else not alike:
            alignment.part(i)


def _regrouped(alignment: Alignment, departures: list[Departure], *, traced_first: bool) -> list[Departure]:
    """Joins each traced node without partner and the later nodes that come from it into one departure, in the order of
    the traced graph."""
    traced, later = (alignment.a, alignment.b) if traced_first else (alignment.b, alignment.a)
    lonely, new = alignment.lonely() if traced_first else alignment.lonely()[::-1]
    heirs: dict[int, list[int]] = {origin: [] for origin in lonely}
    for index in new:
        origin = _origin(traced, later, index)
        if origin in heirs:
            heirs[origin].append(index)
    taken = {index for group in heirs.values() for index in group}
    result: list[Departure] = []
    for departure in departures:
        if departure.kind == "changed":
            result.append(departure)
            continue
        here, there = (departure.a, departure.b) if traced_first else (departure.b, departure.a)
        groups = [([index], heirs[index]) for index in here]
        left = [index for index in there if index not in taken]
        for traced_node, many in [*groups, *([([], left)] if left else [])]:
            a, b = (traced_node, many) if traced_first else (many, traced_node)
            kind: Kind = "replaced" if a and b else "removed" if a else "added"
            result.append(Departure(kind, a, b, follows=departure.follows))
    return result
