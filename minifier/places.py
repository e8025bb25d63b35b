"""Which node a failure's "output 3" is, and the line of the user's that it comes from. Reads records only.

>>> place_of(record, "output 0: relative error 0.78 to float64")
'output 0 is add_9 (aten.add.Tensor), model.py:12: return x + y'
"""

from __future__ import annotations

import re

from ..dumps.schema import GraphRecord
from ..dumps.walk import leaves, tag_of, user_frame

_OUTPUT = re.compile(r"\boutput (\d+)\b")


def place_of(record: GraphRecord, text: str) -> str:
    """The first output that the text names, as a node and a user line; empty where it names none of the graph's own."""
    found = _OUTPUT.search(text)
    nodes = record.graph.nodes
    returned = next((node for node in reversed(nodes) if node.op == "output"), None)
    if found is None or returned is None:
        return ""
    names = [name if tag == "node" else "" for tag, name in map(tag_of, leaves(returned.args))]
    number = int(found[1])
    name = names[number] if number < len(names) else ""
    node = next((node for node in nodes if node.name == name), None)
    if node is None:
        return ""
    where, code = user_frame(record.strings[node.stack]) if node.stack >= 0 else ("", "")
    line = f", {where}" + (f": {code}" if code else "") if where else ""
    return f"output {number} is {node.name} ({node.target}){line}"
