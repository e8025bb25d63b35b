"""Which node a failure's "logits: relative error 0.78" is, and the line of the user's that it comes from. Reads records only.

>>> place_of(record, "logits: relative error 0.78 to float64")
'logits is add_9 (aten.add.Tensor), model.py:12: return x + y'
"""

from __future__ import annotations

from ..dumps.names import outputs
from ..dumps.schema import GraphRecord
from ..dumps.walk import user_frame


def place_of(record: GraphRecord, text: str) -> str:
    """The output that the text begins with, as a node and a user line; empty where it names none of the graph's own."""
    found, name = next((one for one in outputs(record) if text.startswith(f"{one[1]}: ")), ("", ""))
    node = next((node for node in record.graph.nodes if node.name == found), None)
    if node is None:
        return ""
    where, code = user_frame(record.strings[node.stack]) if node.stack >= 0 else ("", "")
    line = f", {where}" + (f": {code}" if code else "") if where else ""
    called = "" if name.partition(",")[0] == node.name else f"{name} is "
    return f"{called}{node.name} ({node.target}){line}"
