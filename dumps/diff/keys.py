"""Names for nodes that two graphs share: labels, structural hashes and neighbourhoods, as small numbers that can be compared.

Every key is exact, no two different facts get one number. Nothing here decides who belongs to whom; `align` does.

>>> intern = Intern(); a, b = labels(intern, facts_a, STRICT), labels(intern, facts_b, STRICT)
>>> up(intern, facts_a, a)[5] == up(intern, facts_b, b)[7]     # both compute the same value
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .facts import Facts

Keys = list[int]

STRICT, SHAPELESS, BLIND = 0, 1, 2
"""What a label holds: target, arguments and value; without the value; the target alone."""


class Intern(dict[Hashable, int]):
    """Gives each new thing the next number; one for both graphs."""

    def __call__(self, thing: Hashable) -> int:
        return self.setdefault(thing, len(self))


def labels(intern: Intern, facts: Facts, level: int) -> Keys:
    """What each node does by itself."""
    columns: list[Sequence[Hashable]] = [facts.kinds, facts.targets, facts.identities]
    if level <= SHAPELESS:
        columns.append(facts.skeletons)
    if level <= STRICT:
        columns.append(facts.values)
    return [intern((level, row)) for row in zip(*columns, strict=True)]


def up(intern: Intern, facts: Facts, label: Keys) -> Keys:
    """The whole computation that leads to each node: its label and the keys of its inputs, in order (a Merkle hash)."""
    keys: Keys = []
    for own, used in zip(label, facts.inputs, strict=True):
        keys.append(intern(("up", own, *[keys[i] for i in used])))
    return keys


def down(intern: Intern, facts: Facts, label: Keys) -> Keys:
    """All that is made of each node: its label, and for each user its key and the place it is used in."""
    keys = [0] * len(label)
    ends = {index for index, node in enumerate(facts.nodes) if node.op == "output"}
    for index in range(len(label) - 1, -1, -1):
        used = sorted((keys[user], -1 if user in ends else slot) for user, slot in facts.users[index])
        keys[index] = intern(("down", label[index], *used)) if index not in ends else intern(("end", label[index]))
    return keys


def around(intern: Intern, facts: Facts, keys: Keys) -> Keys:
    """One step more of neighbourhood: each node with the keys of its inputs and its users. Repeat for a wider one."""
    ends = {index for index, node in enumerate(facts.nodes) if node.op == "output"}
    made: Keys = []
    for index, own in enumerate(keys):
        users = sorted((keys[user], -1 if user in ends else slot) for user, slot in facts.users[index])
        inputs = () if index in ends else [keys[i] for i in facts.inputs[index]]
        made.append(intern(("around", own, *inputs, -1, *users)))
    return made


def joined(intern: Intern, *columns: Sequence[Hashable]) -> Keys:
    """Several keys as one."""
    return [intern(("joined", row)) for row in zip(*columns, strict=True)]
