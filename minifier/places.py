"""Which node a failure's "output 3" is, and the line of the user's that it comes from. Reads records only.

>>> place_of(record, "output 0: relative error 0.78 to float64")
'output 0 is add_9 (aten.add.Tensor), model.py:12: return x + y'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from ..dumps.schema import GraphRecord
from ..dumps.sidecar import user_frame

_OUTPUT = re.compile(r"\boutput (\d+)\b")


def place_of(record: GraphRecord, text: str) -> str:
    """The first output that the text names, as a node and a user line; empty where it names none of the graph's own."""
    found = _OUTPUT.search(text)
    nodes = record.graph.nodes
    returned = next((node for node in reversed(nodes) if node.op == "output"), None)
    if found is None or returned is None:
        return ""
    leaves = list(_leaves(returned.args))
    number = int(found[1])
    name = leaves[number] if number < len(leaves) else ""
    node = next((node for node in nodes if node.name == name), None)
    if node is None:
        return ""
    where, code = user_frame(record.strings[node.stack]) if node.stack >= 0 else ("", "")
    line = f", {where}" + (f": {code}" if code else "") if where else ""
    return f"output {number} is {node.name} ({node.target}){line}"


def _leaves(arg: Any) -> Iterator[str]:
    """Names of the nodes that are returned, in order; empty for what is no node."""
    if isinstance(arg, list):
        for item in cast("list[Any]", arg):
            yield from _leaves(item)
    elif isinstance(arg, dict) and (inner := cast("dict[str, Any]", arg).get("tuple")) is not None:
        yield from _leaves(inner)
    elif isinstance(arg, dict):
        yield str(cast("dict[str, Any]", arg).get("node", ""))
    else:
        yield ""
