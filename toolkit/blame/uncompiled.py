"""Leaves one function uncompiled: finds its nodes in a Dynamo graph and the Python lines that exclude it, and runs the
graph so, as a rung.

The rung runs these nodes in eager and compiles the nodes between them, as Dynamo does at a graph break. Names of a
graph become code only where they are identifiers. Does not decide what to try.

For example:

    functions(load_graph("myrun/0_0/dynamo"), ["gelu"])[0].code
    # 'import torch\ntorch.nn.modules.activation.GELU.forward =
    # torch.compiler.disable(torch.nn.modules.activation.GELU.forward)'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dumps.walk import calls, string
from ..live.rung import Around, Compiled, Rung
from ..verdicts.verdict_words import EAGER

if TYPE_CHECKING:
    from torch import fx

    from ...dumps.schema import NodeRecord
    from ...dumps.store import SavedGraph
    from ..live.spec import ReplaySpec

_FILE = re.compile(r"[\w.-]+")


class UncompiledFunction(NamedTuple):
    """A function, the nodes that it makes, and the lines that leave it uncompiled."""

    name: str
    nodes: list[str]
    code: str


def functions(saved: SavedGraph, named: Iterable[str]) -> list[UncompiledFunction]:
    """The innermost function around each named node, unless it makes all of the graph: the `forward` of a module that
    can be imported, else the function whose `def` takes a decorator."""
    nodes = {node.name: node for node in saved.record.graph.nodes if node.op.startswith("call_")}
    by_name = {
        function.name: function for name in named for function in _around(saved, nodes[name], list(nodes.values()))
    }
    return [function for function in by_name.values() if len(function.nodes) < len(nodes)]


def _around(saved: SavedGraph, node: NodeRecord, nodes: Sequence[NodeRecord]) -> Iterable[UncompiledFunction]:
    def text(place: int) -> str:
        return string(saved.record.strings, place)

    frame = next((call for call in reversed(calls(text(node.stack))) if call.user), None)
    module, _, name = (kinds[-1] if (kinds := _classes(text(node.module))) else "").rpartition(".")
    path = f"{module}.{name}"
    if (
        module not in ("", "__main__")
        and path.replace(".", "").isidentifier()
        and (frame is None or frame.function == "forward")
    ):
        imported = "import torch" if module.startswith("torch.") else f"import torch\nimport {module}"
        own = [other.name for other in nodes if path in _classes(text(other.module))]
        yield UncompiledFunction(path, own, f"{imported}\n{path}.forward = torch.compiler.disable({path}.forward)")
        return
    short = frame.where.rpartition(":")[0] if frame is not None else ""
    if frame is not None and frame.function.isidentifier() and _FILE.fullmatch(short):
        place = (frame.file, frame.function)
        own = [other.name for other in nodes if place in {(at.file, at.function) for at in calls(text(other.stack))}]
        alone = f"# @torch.compiler.disable above `def {frame.function}` of {short} leaves that function alone"
        code = f"{alone} uncompiled;\n# the lines below leave all uncompiled\n{EAGER}"
        yield UncompiledFunction(f"{frame.function} ({short})", own, code)


def _classes(modules: str) -> list[str]:
    return [line.rpartition(": ")[2] for line in modules.splitlines()]


class Uncompiled(Around):
    """A rung for Dynamo graphs that leaves some nodes to eager; it compiles each other part when that is first
    called."""

    def __init__(self, inner: Rung, names: Collection[str]) -> None:
        super().__init__(inner)
        self._names = set(names)

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        from torch.fx.passes.split_module import split_module

        from ..live.execution import leaves

        parts: dict[str, int] = {}
        count = 0
        for node in gm.graph.nodes:
            if node.op.startswith("call_"):
                count += (node.name in self._names) != bool(count % 2)  # parts with an odd number run in eager
                parts[node.name] = count
        whole = split_module(gm, gm, lambda node: parts[node.name], keep_original_order=True)
        for name, part in list(whole.named_children()):
            if name.startswith("submod_") and not int(name.removeprefix("submod_")) % 2:
                delattr(whole, name)
                setattr(whole, name, self._compiled(part, spec))
        return lambda inputs: leaves(whole(*inputs))

    def _compiled(self, part: Any, spec: ReplaySpec) -> Callable[..., Any]:
        from ..live.entries import shared_fakes

        output = part.graph.output_node()
        single = not isinstance(output.args[0], tuple)
        if single:
            output.args = ((output.args[0],),)
            part.recompile()
        built: list[Compiled] = []

        def call(*inputs: Any) -> Any:
            if not built:
                built.append(self.inner.build(part, shared_fakes(part, inputs, spec.dynamic)[0], spec))
            results = built[0](list(inputs))
            return results[0] if single else tuple(results)

        return call
