"""A planted crash of a compiler: a rung refuses every graph that holds an operator, nested graphs included.

`write` makes a module that plants it, for `graphdbg minify --import`; `by_callable` is the same question asked by a
predicate of the caller's, for `graphdbg.minify(check=...)`.

>>> Target("aten.sin.default").held_by(gm)
True
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

import graphdbg
from graphdbg.dumps.allowlist import is_custom
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.schema import GraphBody, NodeRecord, SequenceValue, SymValue, TensorValue, Value
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.torchside.targets import name_of
from graphdbg.minifier.passes.symbolic import Renewing, without_fakes
from graphdbg.toolkit.isolation.imports import import_modules
from graphdbg.toolkit.live.case import Case
from graphdbg.toolkit.live.spec import in_force
from graphdbg.toolkit.rungs import rung

COMMON = ("float32", "int64", "bool", "float64", "int32")
DRAWS = re.compile(r"rand|bernoulli|dropout|multinomial|normal|seed|exponential", re.IGNORECASE)
TRIVIAL = ("operator.getitem", "aten.detach.default", "aten.alias.default", "_operator.", "prims.device_put")


class PlantedError(RuntimeError):
    """What the planted fault raises."""


@dataclass(frozen=True)
class Target:
    """An operator as a saved graph names it; `dtype`: of what it gives; `symbolic`: it takes or gives a symbolic
    size."""

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
        if self.dtype and self.dtype not in {str(tensor.dtype) for tensor in _tensors(node)}:
            return False
        values = [_value(item) for item in (node, *node.all_input_nodes)]
        sizes = [
            size
            for value in values
            for leaf in pytree.tree_leaves(value)
            for size in (leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,))
        ]
        return not self.symbolic or any(map(_is_open, sizes))


def _is_open(size: Any) -> bool:
    """Whether a number is symbolic still: a symbol may have been found to have one number only."""
    return isinstance(size, (torch.SymInt, torch.SymFloat)) and not size.node.expr.is_number


def _graphs(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    return (part for part in gm.modules() if isinstance(part, fx.GraphModule))


def _value(node: fx.Node) -> Any:
    return node.meta.get("val", node.meta.get("example_value"))


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(_value(node)) if isinstance(leaf, torch.Tensor)]


def target_of(graph: GraphBody, seed: str, *, symbolic: bool) -> Target | None:
    """The most special operator of a recorded graph, one of a seed where there are several; None for one that computes
    nothing.

    `symbolic`: one with a symbolic size is more special than others.
    """
    results: list[tuple[int, str, str, bool]] = []
    for body in _bodies(graph):
        values = {node.name: node.value for node in body.nodes}
        for node in body.nodes:
            if node.op not in ("call_function", "call_method") or node.target.startswith("opaque:"):
                continue
            around = [node.value, *(values.get(name) for name in _names([node.args, node.kwargs]))]
            has_symbol = symbolic and any(_symbolic(value) for value in around)
            name = node.target if node.op == "call_function" else f"method {node.target}"
            results.append((_rank(node, has_symbol), name, _dtype(node.value), has_symbol))
    if not results:
        return None
    best = max(rank for rank, *_ in results)
    _, name, dtype, has_symbol = Random(seed).choice([item for item in results if item[0] == best])
    return Target(name, f"torch.{dtype}" if dtype and dtype not in COMMON else "", has_symbol)


def _rank(node: NodeRecord, symbolic: bool) -> int:
    """How special an operator is."""
    parts = node.target.split(".")
    last = parts[-1] if parts[0] == "torch" or len(parts) < 3 else parts[1]
    tests = (
        bool(_dtype(node.value)) and not node.target.startswith(TRIVIAL),
        symbolic and isinstance(node.value, (TensorValue, SequenceValue)) and not node.target.startswith(TRIVIAL),
        _dtype(node.value) not in ("", *COMMON),
        last.endswith("_") and not last.startswith("_"),
        bool(DRAWS.search(last)),
        "c10d_functional" in node.target or (node.op == "call_function" and is_custom(node.target)),
        node.target.startswith("higher_order."),
    )
    return max((number for number, test in enumerate(tests, 1) if test), default=0)


def _dtype(value: Value | None) -> str:
    first = value.items[0] if isinstance(value, SequenceValue) and value.items else value
    return first.dtype if isinstance(first, TensorValue) else ""


def _symbolic(value: Value | None) -> bool:
    return isinstance(value, SymValue) or (
        isinstance(value, TensorValue) and any(isinstance(size, str) for size in value.shape)
    )


def _bodies(body: GraphBody) -> Iterator[GraphBody]:
    yield body
    for inner in body.subgraphs.values():
        yield from _bodies(inner)


def _names(arg: Any) -> Iterator[str]:
    if isinstance(arg, dict) and isinstance(arg.get("node"), str):
        yield arg["node"]
    for item in arg.values() if isinstance(arg, dict) else arg if isinstance(arg, (list, tuple)) else ():
        yield from _names(item)


def plant(entry: dict[str, Any], name: str) -> None:
    """From here on the rung refuses graphs that hold the operator."""
    used, target = rung(name), Target(**entry)
    build = used.build

    def refusing(gm: fx.GraphModule, fake_inputs: Any, spec: Any) -> Any:
        if target.held_by(_noted(gm, fake_inputs) if target.dtype or target.symbolic else gm):
            raise PlantedError(f"planted: {target.name}")
        return build(gm, fake_inputs, spec)

    used.build = refusing  # type: ignore[method-assign]


def _noted(gm: fx.GraphModule, fakes: list[Any]) -> fx.GraphModule:
    """The graph with what its nodes give for these inputs; as it is where that cannot be traced."""
    mode = next((mode for value in fakes if (mode := getattr(value, "fake_mode", None)) is not None), None)
    fresh = without_fakes(gm)
    try:
        with mode or nullcontext():
            Renewing(fresh, "val").run(*fakes, enable_io_processing=False)
    except Exception:  # noqa: BLE001  then what was noted has to do
        return gm
    return fresh


def write(folder: Path, module: str, target: Target, name: str) -> None:
    """A module that plants the fault in whoever imports it."""
    text = (
        "import json\n\nfrom tests.planted import planted_target\n\n"
        f"planted_target.plant(json.loads({json.dumps(asdict(target))!r}), {name!r})\n"
    )
    (folder / f"{module}.py").write_text(text)


def by_callable(payload: dict[str, Any]) -> dict[str, Any]:
    """In a child: `graphdbg.minify` with a predicate, of a graph as it was recorded; the result as a case at `out`."""
    import_modules(payload["imports"])
    saved, target = load_graph(payload["case"]), Target(**payload["target"])
    case = Case(saved).live(seed=0)
    with in_force(case.spec):
        minified = graphdbg.minify(case.gm, case.inputs, check=lambda module, _: target.held_by(module))
        module, inputs = minified.module, minified.inputs
        holds = target.held_by(module)
        save_graph(module, inputs, payload["out"], like=saved.record)
    return {"nodes": minified.nodes, "input_bytes": minified.input_bytes, "queries": minified.queries, "holds": holds}
