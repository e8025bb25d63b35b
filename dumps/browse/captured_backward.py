"""Records beside the nodes of a backward that compiled autograd captured: origins of nodes, hooks, gradients, passes.

Reads the record alone; everything is empty for graphs of other stages and for records without these notes.

For example: `origins(saved.record)["mul_3"]` gives `'MulBackward0 (NodeCall 3), train.clip (train.py:31)'`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from ..names import OutputRole
from ..schema import GraphRecord
from ..store import SavedGraph
from ..walk import plain
from ..wording import counted

_MOST_HOOKS = 12


def has(saved: SavedGraph) -> bool:
    """Whether a graph is a captured backward, or Dynamo's graph of one, by its id alone."""
    return saved.stage == "compiled_autograd" or (
        saved.stage in ("dynamo", "pre_grad") and saved.local_id.startswith("ca")
    )


def facts(record: GraphRecord) -> dict[str, Any]:
    """The recorder's notes on the whole capture."""
    noted = plain(record.graph.meta.get("custom"))
    noted_facts = cast("dict[str, Any]", noted).get("compiled_autograd") if isinstance(noted, dict) else None
    return cast("dict[str, Any]", noted_facts) if isinstance(noted_facts, dict) else {}


def origins(record: GraphRecord) -> dict[str, str]:
    """Node name -> the autograd node it came from, and the hook that computed it."""
    noted = {node.name: (node.meta.get("autograd_node"), node.meta.get("hook")) for node in record.graph.nodes}
    texts = {name: [part for part in parts if isinstance(part, str)] for name, parts in noted.items() if any(parts)}
    return {name: ", ".join(parts) for name, parts in texts.items()}


def outputs(record: GraphRecord) -> list[OutputRole]:
    """The role of each output: the tensor whose gradient it is."""
    last = record.graph.nodes[-1] if record.graph.nodes else None
    items = cast("list[Any]", plain(last.args[0])) if last is not None and last.args else []
    pairs = zip(items, cast("list[str]", facts(record).get("outputs", [])), strict=False)
    return [
        OutputRole(index, str(cast("dict[str, Any]", item).get("node", "")), "gradient", of.removesuffix(".grad"))
        for index, (item, of) in enumerate(pairs)
        if isinstance(item, dict)
    ]


def sentences(record: GraphRecord) -> list[str]:
    """Sentences on the hooks that ran, including those without operators, and on the passes over torch's capture."""
    return [*_hook_lines(record), *_pass_lines(record)]


def hooks(record: GraphRecord) -> list[dict[str, Any]]:
    """Each hook that ran: its name, its kind, its autograd node, and the number of its operators in the graph."""
    rows: list[dict[str, Any]] = facts(record).get("hooks", [])
    ran = Counter((node.meta.get("hook"), node.meta.get("autograd_node")) for node in record.graph.nodes)
    return [{**row, "operators": ran[row.get("hook"), row.get("node")]} for row in rows]


def _hook_lines(record: GraphRecord) -> list[str]:
    """A sentence for each hook, up to `_MOST_HOOKS`."""
    hook_lines: list[str] = []
    for row in hooks(record):
        where = ", ".join(str(row[key]) for key in ("kind", "node") if row.get(key))
        runs = counted(row["operators"], "operator") if row["operators"] else "no operator"
        hook_lines.append(f"hook {row.get('hook')} ({where}) runs {runs}")
    if len(hook_lines) > _MOST_HOOKS:
        hook_lines[_MOST_HOOKS:] = [f"and {len(hook_lines) - _MOST_HOOKS} more hooks: show --json has them all"]
    return hook_lines


def _pass_lines(record: GraphRecord) -> list[str]:
    """A sentence on the nodes that graphdbg's passes over the capture moved and removed; empty where no pass ran."""
    passes: list[dict[str, Any]] = facts(record).get("passes", [])
    did = [
        f"{pass_['name']} {' and '.join(f'{word} {pass_[word]}' for word in ('moved', 'removed') if pass_.get(word))}"
        for pass_ in passes
        if pass_.get("moved") or pass_.get("removed")
    ]
    if not passes:
        return []
    size = counted(passes[0].get("nodes", "?"), "node")
    return [f"passes over torch's capture of {size}: {', '.join(did) or 'none changed it'}"]


def extend(nodes: list[dict[str, Any]], record: GraphRecord) -> None:
    """Adds origins to rows of `show --json`."""
    for row, node in zip(nodes, record.graph.nodes, strict=True):
        row |= {key: node.meta[key] for key in ("autograd_node", "hook") if key in node.meta}
