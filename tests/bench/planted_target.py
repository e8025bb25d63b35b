"""A planted crash of a compiler: a rung refuses every graph that holds an operator, nested graphs included.

`write` makes a module that plants it, for `graphdbg minify --import`; `by_callable` is the same question asked by a predicate of
the caller's, for `graphdbg.minify(check=...)`.

>>> Target("aten.sin.default").held_by(gm)
True
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

import graphdbg
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.torchside.targets import name_of
from graphdbg.toolkit.imports import import_modules
from graphdbg.toolkit.live_case import live_case
from graphdbg.toolkit.rungs import rung
from graphdbg.toolkit.surroundings import in_force


class PlantedError(RuntimeError):
    """What the planted fault raises."""


@dataclass(frozen=True)
class Target:
    """An operator as a saved graph names it; `dtype`: of what it gives; `symbolic`: it takes or gives a symbolic size."""

    name: str
    dtype: str = ""
    symbolic: bool = False

    def held_by(self, gm: fx.GraphModule) -> bool:
        """Whether a node of the graph, or of one inside it, is such a one."""
        return any(self._is(node) for part in _graphs(gm) for node in part.graph.nodes)

    def _is(self, node: fx.Node) -> bool:
        if node.op not in ("call_function", "call_method"):
            return False
        if (name_of(node.target) if node.op == "call_function" else f"method {node.target}") != self.name:
            return False
        if self.dtype and self.dtype not in {str(one.dtype) for one in _tensors(node)}:
            return False
        values = [_value(one) for one in (node, *node.all_input_nodes)]
        sizes = [size for value in values for one in pytree.tree_leaves(value)
                 for size in (one.shape if isinstance(one, torch.Tensor) else (one,))]  # fmt: skip
        return not self.symbolic or any(map(_is_open, sizes))


def _is_open(size: Any) -> bool:
    """Whether a number is symbolic still: a symbol may have been found to have one number only."""
    return isinstance(size, (torch.SymInt, torch.SymFloat)) and not size.node.expr.is_number


def _graphs(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    return (part for part in gm.modules() if isinstance(part, fx.GraphModule))


def _value(node: fx.Node) -> Any:
    return node.meta.get("val", node.meta.get("example_value"))


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    return [one for one in pytree.tree_leaves(_value(node)) if isinstance(one, torch.Tensor)]


def plant(told: dict[str, Any], name: str) -> None:
    """From here on the rung refuses graphs that hold the operator."""
    used, target = rung(name), Target(**told)
    build = used.build

    def refusing(gm: fx.GraphModule, fake_inputs: Any, spec: Any) -> Any:
        if target.held_by(gm) and (spec.dynamic or not target.symbolic):  # else the sizes that are noted are numbers
            raise PlantedError(f"planted: {target.name}")
        return build(gm, fake_inputs, spec)

    used.build = refusing  # type: ignore[method-assign]


def write(folder: Path, module: str, target: Target, name: str) -> None:
    """A module that plants the fault in whoever imports it."""
    text = f"import json\n\nimport planted_target\n\nplanted_target.plant(json.loads({json.dumps(asdict(target))!r}), {name!r})\n"
    (folder / f"{module}.py").write_text(text)


def by_callable(payload: dict[str, Any]) -> dict[str, Any]:
    """In a child: `graphdbg.minify` with a predicate, of a graph as it was recorded; the result as a case at `out`."""
    import_modules(payload["imports"])
    saved, target = load_graph(payload["case"]), Target(**payload["target"])
    case = live_case(saved, seed=0)
    with in_force(case.spec):
        found = graphdbg.minify(case.gm, case.inputs, check=lambda module, _: target.held_by(module))
        module, inputs = found.module, found.inputs
        holds = target.held_by(module)
        save_graph(module, inputs, payload["out"], like=saved.record)
    return {"nodes": found.nodes, "input_bytes": found.input_bytes, "queries": found.queries, "holds": holds}
