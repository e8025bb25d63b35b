"""Which node a failure's "logits: relative error 0.78" is, the user's line that it comes from, and which pass of the
user's is at fault. Reads records only.

For example: `place_of(record, text)` gives `'logits is add_9 (aten.add.Tensor), model.py:12: return x + y'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..dumps.names import outputs
from ..dumps.schema import GraphRecord
from ..dumps.store import load_graph
from ..dumps.walk import user_frame
from ..toolkit.verdicts.verdict import Verdict, Where

_PASSES = ("custom_pass", "custom_pre_pass", "custom_post_pass")
"""How the settings end that hold a pass of the user's."""


def place_of(record: GraphRecord, text: str) -> str:
    """The output that the text begins with, as a node and a user line; empty where it names none of the graph's own."""
    node_name, name = next((output for output in outputs(record) if text.startswith(f"{output[1]}: ")), ("", ""))
    node = next((node for node in record.graph.nodes if node.name == node_name), None)
    if node is None:
        return ""
    where, code = user_frame(record.strings[node.stack]) if node.stack >= 0 else ("", "")
    line = f", {where}" + (f": {code}" if code else "") if where else ""
    called = "" if name.partition(",")[0] == node.name else f"{name} is "
    return f"{called}{node.name} ({node.target}){line}"


def blamed(verdict: Verdict, needs: Sequence[dict[str, Any]], case: Path) -> Verdict:
    """The verdict on the case in a folder; a pass of the user's is at fault where the case fails with it and passes
    without."""
    needed = [row["name"] for row in needs if row["what"] == "setting" and row["verdict"] == "needed"]
    name = next((name for name in needed if name.endswith(_PASSES)), "")
    if verdict.fault != "compiler" or not name:
        return verdict
    homes = [
        (one.values[name], Path(one.file).name) for one in load_graph(case).record.definitions if name in one.values
    ]
    node, line = homes[0] if homes else ("", "")
    where = Where(node, verdict.where.graph if verdict.where else "", line, name)
    return msgspec.structs.replace(verdict, fault="custom_pass", layer=None, where=where)
