"""Short pieces of the text: what came of a compile, a symbol with its range, a file as a person names it.

>>> span(Symbol("s77", "x.size()[0]", 3, 2))
'x.size()[0] = s77 (3 here, at least 2)'
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath

from ..wording import counted
from . import wording
from .model import Compile, GraphLine, Symbol

_COUNTED = ("dynamo", "joint", "forward", "backward", "inference")


def outcome(item: Compile) -> str:
    """What came of a compile: its graphs with their sizes, or why there is none."""
    if item.parts:
        return f"a graph cut into {counted(len(item.parts), 'part')}"
    final = item.graphs
    attempts = {line.local.partition("/")[0] for line in final}
    if len(attempts) > 1:
        newest = max(attempts, key=lambda name: (len(name), name))
        final = [line for line in final if line.local.startswith(f"{newest}/")]
    parts = [
        f"{line.local.partition('/')[2]} {line.nodes if line.nodes is not None else '?'}"
        for line in final if line.stage in _COUNTED
    ]  # fmt: skip
    bad = [f"{line.stage} {line.status}" for line in final if line.status == "failed"]
    if not final:
        if item.left_out:
            return f"not kept: {item.left_out}"
        if item.nothing:
            return f"left alone: {item.nothing}"
        if item.limit or item.failure is not None:
            return "nothing compiled"
        return "no graph: no operation before the break" if item.breaks and item.breaks[0].then != "frame skipped" else "no graph"
    name = final[0].local.partition("/")[0]
    told = ", ".join(parts) + (" node" if parts[-1].endswith(" 1") else " nodes") if parts else ids(final)
    return f"{name}: " * (name != item.id) + told + (f", {', '.join(bad)}" if bad else "")


def ids(lines: list[GraphLine]) -> str:
    """The compiles of some graphs, with how many each has."""
    stages = Counter(line.local.partition("/")[0] for line in lines)
    return ", ".join(f"{name} ({count})" for name, count in stages.items())


def names(group: list[Compile]) -> str:
    """The ids of some compiles, the middle ones left out when there are many."""
    all_of_them = [item.id for item in group]
    return ", ".join(all_of_them) if len(group) <= 6 else f"{all_of_them[0]}, {all_of_them[1]}, ... {all_of_them[-1]}"


def span(symbol: Symbol) -> str:
    """`x.size()[0] = s77 (3 here, at least 2)`."""
    source = f"{symbol.source} = {symbol.name}" if symbol.source else symbol.name
    low, high = symbol.lower, symbol.upper
    said = [f"{wording.shown(symbol.hint)} here" if symbol.hint is not None else "known only when it runs"]
    if low is not None and high is not None:
        said.append(f"from {low} to {high}")
    elif low is not None:
        said.append(f"at least {low}")
    elif high is not None:
        said.append(f"at most {high}")
    return f"{source} ({', '.join(said)})"


def shown_file(file: str, here: PurePath) -> str:
    """A file relative to this folder where it lies inside, else its last two parts."""
    path = PurePath(file)
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return str(PurePath(*path.parts[-2:])) if len(path.parts) > 3 else file
