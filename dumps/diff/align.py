"""Aligns the nodes of two graphs: unique structural hashes first, then the nodes between those pairs, by ever looser
keys.

The sequence steps are those of patience diff (unique keys, longest increasing run, common beginnings and ends) with
keys from strict to loose; in between, nodes are joined by the partners of their inputs and users. Near-linear in the
nodes. Names play no part.

>>> from graphdbg.dumps.diff.facts import NodeColumns
>>> alignment = align(NodeColumns(record), NodeColumns(record))
>>> alignment.to_b[3]               # the partner of node 3, or -1
3
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import SequenceMatcher

from ..sidecar import Intern
from .facts import NodeColumns

_CELLS = 40_000
"""Up to so many pairs of items `difflib` finds the common runs; for more, they are found greedily."""

_LOOK_AHEAD = 64
_RUN = 3
_SEARCHES = 1000


def increasing(values: Sequence[int]) -> list[int]:
    """The positions of a longest strictly increasing subsequence (patience sorting, O(n log n))."""
    tops: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for position, value in enumerate(values):
        pile = bisect_left(tops, value)
        before.append(last[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(value)
            last.append(position)
        else:
            tops[pile], last[pile] = value, position
    positions: list[int] = []
    position = last[-1] if last else -1
    while position >= 0:
        positions.append(position)
        position = before[position]
    return positions[::-1]


def common_run(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs of positions with equal items, increasing in both."""
    if len(a) * len(b) > _CELLS:
        return _greedy(a, b)
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return [(block.a + n, block.b + n) for block in blocks for n in range(block.size)]


def _greedy(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Walks both sequences; at a difference it continues at the nearest place where several items in a row are
    equal."""
    both = set(a) & set(b)
    places_a, places_b = ([n for n, item in enumerate(items) if item in both] for items in (a, b))
    a, b = [a[n] for n in places_a], [b[n] for n in places_b]
    pairs: list[tuple[int, int]] = []
    i = j = searches = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            pairs.append((places_a[i], places_b[j]))
            i, j = i + 1, j + 1
            continue
        searches += 1
        i, j = _resync(a, b, i, j) if searches < _SEARCHES else (i + 1, j + 1)
    return pairs


def _resync(a: Sequence[Hashable], b: Sequence[Hashable], i: int, j: int) -> tuple[int, int]:
    for total in range(1, _LOOK_AHEAD):
        for step in range(total + 1):
            x, y = i + step, j + total - step
            if a[x : x + _RUN] == b[y : y + _RUN] and x < len(a) and y < len(b):
                return x, y
    return i + 1, j + 1


Keys = list[int]

STRICT, SHAPELESS, BLIND = 0, 1, 2
"""The parts of a label: target, arguments and value; the same without the value; the target alone."""


def labels(intern: Intern[Hashable], facts: NodeColumns, level: int) -> Keys:
    """A label for each node, from its own call and value."""
    columns: list[Sequence[Hashable]] = [facts.kinds, facts.targets, facts.identities]
    if level <= SHAPELESS:
        columns.append(facts.skeletons)
    if level <= STRICT:
        columns.append(facts.values)
    return [intern((level, row)) for row in zip(*columns, strict=True)]


def up(intern: Intern[Hashable], facts: NodeColumns, label: Keys) -> Keys:
    """A key for the whole computation that leads to each node: its label and the keys of its inputs, in order (a Merkle
    hash)."""
    keys: Keys = []
    for own, used in zip(label, facts.inputs, strict=True):
        keys.append(intern(("up", own, *[keys[i] for i in used])))
    return keys


def down(intern: Intern[Hashable], facts: NodeColumns, label: Keys) -> Keys:
    """A key for everything computed from each node: its label, and for each user the user's key and the argument
    slot."""
    keys = [0] * len(label)
    for index in range(len(label) - 1, -1, -1):
        is_end = facts.nodes[index].op == "output"
        keys[index] = intern(("end" if is_end else "down", label[index], *_users(facts, index, keys)))
    return keys


def _users(facts: NodeColumns, index: int, keys: Keys) -> list[tuple[int, int]]:
    """The key of each user of a node, with the argument slot (-1 for the output, whose order does not count)."""
    return sorted((keys[user], -1 if facts.nodes[user].op == "output" else slot) for user, slot in facts.users[index])


def around(intern: Intern[Hashable], facts: NodeColumns, keys: Keys) -> Keys:
    """Keys for a neighbourhood one step wider: each node's key with the keys of its inputs and users."""
    wider: Keys = []
    for index, own in enumerate(keys):
        inputs = () if facts.nodes[index].op == "output" else [keys[i] for i in facts.inputs[index]]
        wider.append(intern(("around", own, *inputs, -1, *_users(facts, index, keys))))
    return wider


def joined(intern: Intern[Hashable], *columns: Sequence[Hashable]) -> Keys:
    """One key per node from several."""
    return [intern(("joined", row)) for row in zip(*columns, strict=True)]


def _joined(intern: Intern[Hashable], columns: Sequence[Sequence[Sequence[Hashable]]]) -> tuple[Keys, Keys]:
    """Joins keys in both graphs."""
    return joined(intern, *(of_a for of_a, _ in columns)), joined(intern, *(of_b for _, of_b in columns))


Gap = tuple[list[int], list[int]]
"""Nodes of A, and of B, without partner that lie between two neighbouring pairs."""

_PASSES = 12
_FAN = 200
"""The most users of a node among which a partner is searched; a node with more users says little about each of them."""

_CALLS = ("call_function", "call_method", "call_module")


class Alignment:
    """Partners as positions (-1: none); `chain`: the pairs that stand in the same order in both graphs."""

    def __init__(self, a: NodeColumns, b: NodeColumns) -> None:
        self.a, self.b = a, b
        self.to_b, self.to_a = [-1] * len(a), [-1] * len(b)
        self.weak: set[int] = set()

    def join(self, i: int, j: int, *, weak: bool = False) -> None:
        """Makes two nodes partners; a weak pair is undone at the end where its nodes share no input or user."""
        self.to_b[i], self.to_a[j] = j, i
        if weak:
            self.weak.add(i)

    def part(self, i: int) -> None:
        """Undoes a pair."""
        self.to_a[self.to_b[i]] = -1
        self.to_b[i] = -1

    def lonely(self) -> Gap:
        """All nodes without partner, of A and of B."""
        return [i for i, j in enumerate(self.to_b) if j < 0], [j for j, i in enumerate(self.to_a) if i < 0]

    def chain(self) -> list[tuple[int, int]]:
        """The longest list of pairs in the order of both graphs; all other pairs have moved."""
        pairs = [(i, j) for i, j in enumerate(self.to_b) if j >= 0]
        return [pairs[k] for k in increasing([j for _, j in pairs])]

    def gaps(self) -> list[Gap]:
        """The ranges between pairs of the chain in which both graphs have nodes without partner."""
        gaps_between: list[Gap] = []
        before = (-1, -1)
        for pair in [*self.chain(), (len(self.a), len(self.b))]:
            if pair[0] - before[0] > 1 and pair[1] - before[1] > 1:
                lonely_a = [i for i in range(before[0] + 1, pair[0]) if self.to_b[i] < 0]
                lonely_b = [j for j in range(before[1] + 1, pair[1]) if self.to_a[j] < 0]
                if lonely_a and lonely_b:
                    gaps_between.append((lonely_a, lonely_b))
            before = pair
        return gaps_between

    def same_wires(self, i: int, j: int) -> bool:
        """Whether each argument of `i` is the partner of the same argument of `j`."""
        return [self.to_b[k] for k in self.a.inputs[i]] == self.b.inputs[j]

    def kinship(self, i: int, j: int) -> int:
        """The number of inputs and users that two nodes share, in the same argument slots."""
        inputs = sum(self.to_b[k] == m for k, m in zip(self.a.inputs[i], self.b.inputs[j], strict=False))
        users = set(self.b.users[j])
        return inputs + sum((self.to_b[user], slot) in users for user, slot in self.a.users[i])


def align(a: NodeColumns, b: NodeColumns) -> Alignment:
    """Aligns the nodes of two graphs."""
    alignment = Alignment(a, b)
    intern: Intern[Hashable] = Intern()
    strict = labels(intern, a, STRICT), labels(intern, b, STRICT)
    if strict[0] == strict[1] and a.inputs == b.inputs:
        alignment.to_b, alignment.to_a = list(range(len(a))), list(range(len(b)))
        return alignment
    for ka, kb in _whole(intern, a, b, strict):
        _join_unique(alignment, ka, kb)
    for weak, (ka, kb) in _levels(intern, a, b, strict):
        gaps = alignment.gaps()
        if not gaps:
            break
        for gap in gaps:
            _between(alignment, gap, ka, kb, weak)
    blind = labels(intern, a, BLIND), labels(intern, b, BLIND)
    _by_neighbours(alignment, lambda i, j: blind[0][i] == blind[1][j])
    for gap in alignment.gaps():
        for i, j in common_run([blind[0][i] for i in gap[0]], [blind[1][j] for j in gap[1]]):
            alignment.join(gap[0][i], gap[1][j], weak=True)
    _part_strangers(alignment)
    _by_neighbours(alignment, lambda i, j: _replaceable(a, b, i, j))
    return _better(alignment, strict)


def _whole(
    intern: Intern[Hashable], a: NodeColumns, b: NodeColumns, strict: tuple[Keys, Keys]
) -> Iterator[tuple[Keys, Keys]]:
    """Yields keys of whole computations, which join nodes that are unique in both graphs, wherever they stand."""
    up_a, up_b = up(intern, a, strict[0]), up(intern, b, strict[1])
    down_a, down_b = down(intern, a, strict[0]), down(intern, b, strict[1])
    yield joined(intern, up_a, down_a), joined(intern, up_b, down_b)
    yield up_a, up_b
    yield down_a, down_b


def _levels(
    intern: Intern[Hashable], a: NodeColumns, b: NodeColumns, strict: tuple[Keys, Keys]
) -> Iterator[tuple[bool, tuple[Keys, Keys]]]:
    """Yields keys for the ranges between pairs, the most specific first; with weak keys, nodes must also share an input
    or user."""
    wide = strict
    steps: list[tuple[Keys, Keys]] = []
    for _ in range(3):
        wide = around(intern, a, wide[0]), around(intern, b, wide[1])
        steps.append(wide)
    for step in reversed(steps):
        yield False, step
    blind = labels(intern, a, BLIND), labels(intern, b, BLIND)
    shapeless = labels(intern, a, SHAPELESS), labels(intern, b, SHAPELESS)
    for direction in (up, down):
        yield False, (direction(intern, a, blind[0]), direction(intern, b, blind[1]))
    origin = [[(f.module(i), f.code(i), f.nodes[i].original_aten) for i in range(len(f))] for f in (a, b)]
    near = around(intern, a, blind[0]), around(intern, b, blind[1])
    code = [[f.code(i) for i in range(len(f))] for f in (a, b)]
    for columns in (
        *((near, label, origin) for label in (strict, shapeless, blind)),
        *((label, origin) for label in (strict, shapeless, blind)),
    ):
        yield False, _joined(intern, columns)
    yield False, near
    yield True, _joined(intern, (blind, code))
    yield True, shapeless


def _unique(positions: Sequence[int], keys: Keys) -> dict[int, int]:
    """Key -> its position, for keys that occur once."""
    counts = Counter(keys[i] for i in positions)
    return {keys[i]: i for i in positions if counts[keys[i]] == 1}


def _join_unique(alignment: Alignment, ka: Keys, kb: Keys) -> None:
    lonely_a, lonely_b = alignment.lonely()
    there = _unique(lonely_b, kb)
    for key, i in _unique(lonely_a, ka).items():
        if key in there:
            alignment.join(i, there[key])


def _between(alignment: Alignment, gap: Gap, ka: Keys, kb: Keys, weak: bool) -> None:
    """Joins the nodes of one gap, in order: unique keys, and between those common beginnings and ends."""
    work = [(gap, 0)]
    while work:
        (ga, gb), passes = work.pop()
        there = _unique(gb, kb)
        place = {j: n for n, j in enumerate(gb)}
        both = [(n, place[there[key]]) for n, i in enumerate(ga) if (key := ka[i]) in there]
        alone = _unique(ga, ka) if both else {}
        both = [(n, m) for n, m in both if ka[ga[n]] in alone]
        anchors = [both[k] for k in increasing([m for _, m in both])]
        if not anchors or passes > _PASSES:
            _trim(alignment, ga, gb, ka, kb, weak)
            continue
        before = (-1, -1)
        for n, m in [*anchors, (len(ga), len(gb))]:
            inner = ga[before[0] + 1 : n], gb[before[1] + 1 : m]
            if inner[0] and inner[1]:
                work.append((inner, passes + 1))
            if n < len(ga):
                alignment.join(ga[n], gb[m], weak=weak)
            before = (n, m)


def _trim(alignment: Alignment, ga: list[int], gb: list[int], ka: Keys, kb: Keys, weak: bool) -> None:
    start, shorter = 0, min(len(ga), len(gb))
    while start < shorter and ka[ga[start]] == kb[gb[start]]:
        alignment.join(ga[start], gb[start], weak=weak)
        start += 1
    end = 1
    while end <= shorter - start and ka[ga[-end]] == kb[gb[-end]]:
        alignment.join(ga[-end], gb[-end], weak=weak)
        end += 1


def _by_neighbours(alignment: Alignment, fits: Callable[[int, int], bool]) -> None:
    """Joins nodes without partner that have the same relation to partners: as the only user of their inputs, or as an
    argument."""
    a, b = alignment.a, alignment.b
    for i in alignment.lonely()[0]:
        wires = [(alignment.to_b[k], slot) for slot, k in enumerate(a.inputs[i]) if alignment.to_b[k] >= 0]
        if not wires:
            continue
        producer, place = min(wires, key=lambda wire: len(b.users[wire[0]]))
        if len(b.users[producer]) > _FAN:
            continue
        near = [j for j, slot in b.users[producer] if slot == place and alignment.to_a[j] < 0 and fits(i, j)]
        near = [j for j in near if all(s < len(b.inputs[j]) and b.inputs[j][s] == p for p, s in wires)]
        if len(near) == 1 and alignment.kinship(i, near[0]) >= min(2, len(a.users[i]) + len(a.inputs[i])):
            alignment.join(i, near[0])
    for i in reversed(alignment.lonely()[0]):
        for user, slot in a.users[i]:
            partner = alignment.to_b[user]
            if partner < 0 or len(b.inputs[partner]) != len(a.inputs[user]):
                continue
            j = b.inputs[partner][slot]
            related = min(2, len(a.users[i]) + len(a.inputs[i]))
            if alignment.to_a[j] < 0 and fits(i, j) and alignment.kinship(i, j) >= related:
                alignment.join(i, j)
                break


def _replaceable(a: NodeColumns, b: NodeColumns, i: int, j: int) -> bool:
    """Whether a node may have replaced the other with another target."""
    kind_a, two = a.kinds[i], b.kinds[j]
    return kind_a == two != "output" or (kind_a in _CALLS and two in _CALLS)


def _part_strangers(alignment: Alignment) -> None:
    """Undoes weak pairs that share nothing but their target."""
    a, b = alignment.a, alignment.b
    for i in sorted(alignment.weak):
        j = alignment.to_b[i]
        if j >= 0 and not alignment.kinship(i, j) and (not a.code(i) or a.code(i) != b.code(j)):
            alignment.part(i)


def _better(alignment: Alignment, strict: tuple[Keys, Keys]) -> Alignment:
    """Aligns position by position instead, where that leaves fewer departures: in graphs of many equal nodes of which
    one changed."""
    a, b = alignment.a, alignment.b
    if len(a) != len(b):
        return alignment
    plain = Alignment(a, b)
    for i in range(len(a)):
        if a.kinds[i] == b.kinds[i]:
            plain.join(i, i)
    return plain if _departures(plain, strict) < _departures(alignment, strict) else alignment


def _departures(alignment: Alignment, strict: tuple[Keys, Keys]) -> int:
    equal = sum(
        j >= 0 and strict[0][i] == strict[1][j] and alignment.same_wires(i, j) for i, j in enumerate(alignment.to_b)
    )
    return len(alignment.a) + len(alignment.b) - 2 * equal
