"""The checked module: fx prints the graph, and a check stands after each node's line.

The checks are marker nodes in a copy of the graph, so that fx itself keeps values alive for as long as a check needs
them; when fx generates code, the line of a marker is rewritten into the comparison. Two forms: `quick` compares
layouts, and memory where an op may alias, with one tuple comparison per node; `deep` goes through `Run.before` and
`Run.after`, which also look at storages and contents.

For example:

    from graphdbg.toolkit.debug_nop.plan import plan_of
    print(generated(gm, plan_of(gm), deep=False).code)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from torch import fx

from .plan import NodeStep, Plan

RUN = "graphdbg_run"
_MARKER = re.compile(r"^(\s*)(\w+) = (?:\w+_)?graphdbg_marker\((\d+)((?:, \w+)*)\)(?:;  (.*))?$")

Template = Callable[[list[str]], str]


def graphdbg_marker(number: int, *values: object) -> None:
    """Stands in the graph where a check will be; never called."""
    raise AssertionError("a check was not written into the generated code")


def generated(gm: fx.GraphModule, plan: Plan, *, deep: bool, careful: Collection[int] = ()) -> fx.GraphModule:
    """A module that takes a Run and the graph's flat inputs, and reports to the Run. Parameters are shared with `gm`.

    `careful`: steps whose values have turned out to be no tensors, so that generated code cannot ask them for a layout.
    """
    graph, templates, calls = marked(gm.graph, plan, deep=deep, careful=careful)

    def rewrite(body: list[str]) -> list[str]:
        lines: list[str] = []
        for line in "".join(body).split("\n"):
            marker = _MARKER.match(line)
            if marker is None:
                lines.append(line + "\n")
                continue
            indent, own, number, names, deleted = marker.groups()
            lines.append(indent + templates[int(number)](re.findall(r"\w+", names)) + "\n")
            dead = [name for name in (deleted or "").removesuffix(" = None").split(" = ") if name and name != own]
            if dead:
                lines.append(f"{indent}{' = '.join(dead)} = None\n")
        return lines

    graph.on_generate_code(lambda current: rewrite)
    module = fx.GraphModule(gm, graph, class_name=f"Checked{type(gm).__name__}")
    module.meta["graphdbg_calls"] = calls
    return module


class ToItsEnd(fx.Interpreter):
    """Runs a deep module node by node, past nodes that fail: the Run gives a value in their place. Only after a
    failure."""

    def __init__(self, module: fx.GraphModule, plan: Plan, run: Any) -> None:
        super().__init__(module)
        self.checks = run
        self.calls: dict[int, Call] = module.meta["graphdbg_calls"]
        self.steps = {step.name: step for step in plan.steps}

    def run_node(self, n: fx.Node) -> Any:
        """The node's value; that of a marker is what its check gives."""
        if n.target is graphdbg_marker:
            number, *values = self.fetch_args_kwargs_from_env(n)[0]
            method, index = self.calls.get(number, ("", 0))
            return getattr(self.checks, method)(index, *values) if method else None
        try:
            return super().run_node(n)
        except Exception as error:  # noqa: BLE001  whatever an op raises, the run goes on
            step = self.steps[n.name]
            arguments = [self.env[argument] for argument in n.all_input_nodes]
            return self.checks.failed(step, error, dict(zip(step.node.all_input_nodes, arguments, strict=True)))


Call = tuple[str, int]
"""A method of Run, and the index of the step that it is called for."""


def marked(
    graph: fx.Graph, plan: Plan, *, deep: bool, careful: Collection[int] = ()
) -> tuple[fx.Graph, list[Template], dict[int, Call]]:
    """A copy of the graph that takes a Run first and has marker nodes; what each marker becomes; which of them are
    calls."""
    calls: dict[int, Call] = {}
    out = fx.Graph()
    run = out.placeholder(RUN)
    templates: list[Template] = []
    copies: dict[fx.Node, fx.Node] = {}
    begun = False

    def call(method: str, step: NodeStep, *values: fx.Node) -> None:
        calls[len(templates)] = method, step.index
        mark(lambda names: f"graphdbg_r.{method}({', '.join([str(step.index), *names])})", *values)

    def mark(template: Template, *values: fx.Node) -> None:
        templates.append(template)
        out.call_function(graphdbg_marker, (len(templates) - 1, *values))

    for node in graph.nodes:
        if node.op != "placeholder" and not begun:
            begun = True
            mark(_begin, run)
        step = plan.by_node[node]
        arguments = [copies[argument] for argument in node.all_input_nodes]
        careful_here = deep or not step.torchs or step.index in careful
        computed = node.op in ("call_function", "call_method", "call_module")
        looked_at = computed and (step.way != "none" or step.written is not None)
        if careful_here and looked_at and step.written is not None and step.tensors:
            call("before", step, *(copies[argument] for argument in step.tensors))
        copies[node] = copied = out.node_copy(node, copies.__getitem__)
        copied.type = None
        if not looked_at and not (step.way != "none" and node.op == "get_attr"):
            continue
        if careful_here or step.way == "several" or step.late:
            call("after", step, copied, *arguments)
        elif step.way in _QUICK:
            mark(_QUICK[step.way](step), copied, *arguments)
    out.lint()
    return out, templates, calls


def _begin(names: list[str]) -> str:
    run = names[0]
    return f"graphdbg_r, graphdbg_k, graphdbg_o, graphdbg_al = {run}, {run}.expected, {run}.offsets, {run}.is_alias_of"


def _number(step: NodeStep) -> Template:
    index = step.index
    return lambda names: f"if {names[0]} != graphdbg_k[{index}]: graphdbg_r.bad({', '.join([str(index), *names])})"


def _parts(step: NodeStep) -> Template:
    index, count = step.index, len(step.leaves)

    def template(names: list[str]) -> str:
        v = names[0]
        parts = [f"{v}[{part}]" for part, leaf in enumerate(step.leaves) if leaf is not None]
        offsets = "".join(f"{part}.storage_offset(), " for part in parts)
        differs = f"not graphdbg_k[{index}]({', '.join(parts)}) or ({offsets}) != graphdbg_o[{index}]"
        return f"if len({v}) != {count} or {differs}: graphdbg_r.after({', '.join([str(index), *names])})"

    return template


def _inline(step: NodeStep) -> Template:
    index, inputs = step.index, list(step.node.all_input_nodes)
    asked = [] if step.by_layout else [inputs.index(node) + 1 for node in (*step.aliased, *step.apart)]

    def template(names: list[str]) -> str:
        v = names[0]
        shared = "".join(f", graphdbg_al({v}, {names[place]})" for place in asked)
        offset = f"({v}.storage_offset(){shared})" if asked else f"{v}.storage_offset()"
        differs = f"not graphdbg_k[{index}]({v}) or {offset} != graphdbg_o[{index}]"
        return f"if {differs}: graphdbg_r.bad({', '.join([str(index), *names])})"

    return template


_QUICK: dict[str, Callable[[NodeStep], Template]] = {"inline": _inline, "parts": _parts, "number": _number}
"""Way of a step -> what its marker becomes in generated code."""
