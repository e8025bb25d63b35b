"""Which kernel computes which nodes, and why some nodes are in none: the map of a compiled graph, both ways, as plain data.

Must not import torch: `kernels_watch` reads the scheduler, and hands over names.

>>> both_ways([KernelRow("cpp_fused_add_0", "C++", ["add", "mul"])])
{'add': ['cpp_fused_add_0'], 'mul': ['cpp_fused_add_0']}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ...dumps.wording import counted
from .showing.records import KernelRow

VIEW = "a view: no code of its own"
DEAD = "nothing uses it"
SIZE = "a size: computed in the wrapper"
REWRITTEN = "removed or replaced by post_grad"
FOLDED = "folded into others by lowering: no kernel names it"


def numbered(rows: Iterable[KernelRow]) -> list[KernelRow]:
    """The rows with the calls of one kernel counted: Inductor gives equal source one name."""
    seen: Counter[str] = Counter()
    made: list[KernelRow] = []
    for row in rows:
        row.call = seen[row.name]
        seen[row.name] += 1
        made.append(row)
    return made


def both_ways(rows: Sequence[KernelRow]) -> dict[str, list[str]]:
    """Node -> labels of the kernels that compute it, more than one where it is computed again."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for node in row.nodes:
            found.setdefault(node, []).append(row.label)
    return found


def summary(node_to_kernel: Mapping[str, Sequence[str]], without: Mapping[str, str]) -> str:
    """The map in a line: how many nodes are in kernels, how many in none and why."""
    kernels = {name for names in node_to_kernel.values() for name in names}
    text = f"{counted(len(node_to_kernel), 'node')} in {counted(len(kernels), 'kernel')}"
    if not without:
        return text
    words = {
        VIEW: ("view", "views"), DEAD: ("unused", "unused"), SIZE: ("size", "sizes"),
        REWRITTEN: ("rewritten by post_grad", "rewritten by post_grad"), FOLDED: ("folded", "folded"),
    }  # fmt: skip
    counts = Counter(words.get(why, ("part of another's result", "parts of another's result")) for why in without.values())
    return f"{text}, {len(without)} in none ({', '.join(counted(count, *word) for word, count in counts.most_common())})"


def intensity(flops: int | None, read: int | None, written: int | None) -> float | None:
    """FLOPs for each byte moved; None where one of them is not known or no byte is moved."""
    if flops is None or read is None or written is None or read + written == 0:
        return None
    return flops / (read + written)
