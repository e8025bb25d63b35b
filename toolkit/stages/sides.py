# pyright: basic
"""The two graphs of a pair as things to run on the same inputs for the same list of results, whatever lies between
them.

`Side` is a graph as it is, `joined` makes one of the forward and the backward that a joint graph was cut into, and
`Traced` is a joint or inference graph beside Dynamo's: AOTAutograd wrote on its inputs and outputs which of the
program's they are. What cannot be matched for sure raises Unmatched.

For example: `Side(gm, spec).run(gm, inputs, seed=0).outputs` gives `[tensor([2., 2.])]`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from ...dumps.torchside.history import leaves_of
from ..live.eager import Hook, run_graph, set_attribute
from ..live.entries import is_number
from ..live.execution import Execution, execute, leaves, returned, tangents
from ..live.spec import FULL_STAGES, ReplaySpec

AGAIN = "__again"
"""Ends the name of a node of the backward that the forward computes, too."""


class Unmatched(Exception):
    """Two graphs whose inputs or results cannot be matched for sure."""


class StageRun:
    """A graph that is run as it was recorded: with its backward where it was traced from a program that trains."""

    def __init__(self, gm: fx.GraphModule, spec: ReplaySpec) -> None:
        self.gm, self.spec = gm, spec
        self.backward = spec.stage in FULL_STAGES and spec.ambient.grad and not spec.ambient.inference_mode
        self.roots: dict[bool, list[Any]] = {}
        """Of its last run, as it is and in another form (True): the outputs that require grad, None in the place of
        others."""

    def run(
        self, gm: fx.GraphModule, inputs: list[Any], seed: int, hook: Hook | None = None, poison: bool = False
    ) -> Execution:
        """Runs `gm`, which is this graph or another form of it."""
        parameters = [parameter for parameter in gm.parameters() if parameter.requires_grad] if self.backward else []

        def kept(given: list[Any]) -> Sequence[Any]:
            outputs = run_graph(gm, given, poison=poison, hook=hook)
            self.roots[gm is not self.gm] = [
                output if isinstance(output, torch.Tensor) and output.requires_grad else None for output in outputs
            ]
            return outputs

        return execute(kept, inputs, seed=seed, backward=self.backward, parameters=parameters)


_INPUT, _OUTPUT = r"PlainAOTInput\(idx=(\d+)\)", r"PlainAOTOutput\(idx=(\d+)\)"


class Traced(StageRun):
    """A joint or inference graph that gives the results of the graph of Dynamo's that it was made of."""

    def __init__(self, gm: fx.GraphModule, spec: ReplaySpec, program: StageRun, inputs: Sequence[Any]) -> None:
        super().__init__(gm, spec)
        self.program = program
        self.given = [_described(node.meta.get("desc")) for node in gm.graph.nodes if node.op == "placeholder"]
        output = gm.graph.output_node()
        descriptions = output.meta.get("desc")
        if not isinstance(descriptions, (list, tuple)) or len(descriptions) != len(returned(gm)):
            raise Unmatched
        self.made = {
            _described(description): place for place, description in enumerate(descriptions) if description is not None
        }
        named: list[tuple[str, Any]] = [("input", place) for place in range(len(inputs))]
        named += [("param", name) for name, _ in program.gm.named_parameters()]
        values = [*inputs, *program.gm.parameters()]
        places = leaves_of(values)
        self.leaves: list[tuple[str, Any]] = [named[place] for place in places]
        if any(leaf.shape != values[place].shape for place, leaf in places.items()):
            raise Unmatched  # views of one tensor, whose gradients are added up
        known = {("input", place) for place in range(len(inputs))} | {name for name, _ in _held(program.gm)}
        wanted = {("output", place) for place in range(len(returned(program.gm)))}
        taken = {source for source in self.given if source[0] != "tangent"}
        gradients = {fate[1] for fate in self.made if fate[0] == "gradient"}
        if not taken <= known or not wanted <= self.made.keys() or not gradients <= set(self.leaves):
            raise Unmatched
        self._check(inputs)

    def _check(self, inputs: Sequence[Any]) -> None:
        """Checks that each input of the program has the layout that was traced."""
        for node, (kind, which) in zip(self.gm.graph.find_nodes(op="placeholder"), self.given, strict=True):
            if kind != "input":
                continue
            value, real = node.meta.get("val"), inputs[which]
            if isinstance(real, torch.Tensor) != isinstance(value, torch.Tensor):
                if not is_number(node):
                    raise Unmatched
            elif isinstance(real, torch.Tensor) and (value.dtype, value.dim()) != (real.dtype, real.dim()):
                raise Unmatched

    def run(
        self, gm: fx.GraphModule, inputs: list[Any], seed: int, hook: Hook | None = None, poison: bool = False
    ) -> Execution:
        """Runs it on the program's inputs, with the tangents that the program's outputs had in its last run."""
        wide = gm is not self.gm
        roots = self.program.roots[wide]
        places = [place for place, root in enumerate(roots) if root is not None]
        if sorted(which for kind, which in self.given if kind == "tangent") != places:
            raise Unmatched
        given_back = tangents([roots[place] for place in places], seed)
        values: dict[tuple[str, Any], Any] = {}
        values |= {("tangent", place): gradient for place, gradient in zip(places, given_back, strict=True)}
        plain = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
        values |= {("input", place): value for place, value in enumerate(plain)}
        for name, tensor in _held(self.program.gm):
            values[name] = tensor.detach().to(
                torch.float64 if wide and tensor.is_floating_point() else tensor.dtype, copy=True
            )
        given = [values[key] for key in self.given]
        with contextlib.ExitStack() as plainly:
            plainly.enter_context(torch.no_grad())
            for device in self.program.spec.ambient.autocast:
                plainly.enter_context(torch.autocast(device, enabled=False))
            ran = execute(partial(run_graph, gm, poison=poison, hook=hook), given, seed=seed)
        outputs = [ran.outputs[self.made["output", place]] for place in range(len(roots))]
        gradients = [self._gradient(ran.outputs, leaf) for leaf in self.leaves]
        after = [
            ran.outputs[self.made["mutated", place]] if ("mutated", place) in self.made else value
            for place, value in enumerate(plain)
        ]
        return Execution(outputs, gradients if self.program.backward else [], after)

    def _gradient(self, outputs: list[Any], leaf: tuple[str, Any]) -> Any:
        place = self.made.get(("gradient", leaf))
        return None if place is None else outputs[place]


def _described(text: Any) -> tuple[str, Any]:
    """The program's input or output behind one of a traced graph, as AOTAutograd describes it."""
    forms: list[tuple[str, Callable[[re.Match[str]], tuple[str, Any]]]] = [
        (_INPUT, lambda match: ("input", int(match[1]))),
        (r"(Param|Buffer)AOTInput\(target='([^']*)'\)", lambda match: (match[1].lower(), match[2])),
        (rf"TangentAOTInput\(output={_OUTPUT}\)", lambda match: ("tangent", int(match[1]))),
        (_OUTPUT, lambda match: ("output", int(match[1]))),
        (rf"GradAOTOutput\(grad_of={_INPUT}\)", lambda match: ("gradient", ("input", int(match[1])))),
        (
            r"GradAOTOutput\(grad_of=ParamAOTInput\(target='([^']*)'\)\)",
            lambda match: ("gradient", ("param", match[1])),
        ),
        (rf"InputMutationAOTOutput\(mutated_input={_INPUT}\)", lambda match: ("mutated", int(match[1]))),
    ]
    for form, of_match in forms:
        if match := re.fullmatch(form, str(text)):
            return of_match(match)
    raise Unmatched


def _held(gm: fx.GraphModule) -> Iterator[tuple[tuple[str, str], torch.Tensor]]:
    """The parameters and buffers of a program, as a traced graph describes them."""
    for kind, some in (("param", gm.named_parameters(remove_duplicate=False)), ("buffer", gm.named_buffers())):
        yield from (((kind, name), parameter) for name, parameter in some)


def joined(joint: fx.GraphModule, forward: fx.GraphModule, backward: fx.GraphModule, kept: int) -> fx.GraphModule:
    """Forward and backward as one graph that takes and returns what the joint graph does; `kept`: how many of the
    forward's results are the program's, the others being saved for the backward. Tokens of effects, the first results
    of a joint graph, end in a node of the forward.
    """
    if _sunk(backward):
        raise Unmatched
    kept -= len(_sunk(forward))
    graph = fx.Graph()
    names = {node.name for part in (joint, forward, backward) for node in part.graph.nodes}
    given: dict[str, fx.Node] = {}
    for node in joint.graph.find_nodes(op="placeholder"):
        given[node.name] = graph.node_copy(node)
    first = _copied(graph, forward, given, lambda name: name)
    saved = {
        node.name: first[node]
        for node in leaves(forward.graph.output_node().args[0])[kept:]
        if isinstance(node, fx.Node)
    }
    taken = {node.name for node in first}

    def again(name: str) -> str:
        return f"{name}{AGAIN}" if name in taken or f"{name}{AGAIN}" in names else name

    second = _copied(graph, backward, given | saved, again)
    halves = ((first, [*_sunk(forward), *returned(forward)[:kept]]), (second, returned(backward)))
    graph.output(tuple(known.get(member, member) for known, some in halves for member in some))
    owner = torch.nn.Module()
    for part in (forward, backward):
        for node in part.graph.find_nodes(op="get_attr"):
            if "." in str(node.target) or (part is backward and hasattr(owner, str(node.target))):
                raise Unmatched
            set_attribute(owner, str(node.target), getattr(part, str(node.target)))
    return fx.GraphModule(owner, graph)


def _sunk(part: fx.GraphModule) -> list[fx.Node]:
    """The tokens of effects that a half of a joint graph ends."""
    return [
        token
        for node in part.graph.nodes
        if str(node.target) == "prims._sink_tokens.default"
        for token in leaves(node.args[0])
    ]


def _copied(
    graph: fx.Graph, part: fx.GraphModule, given: dict[str, fx.Node], named: Callable[[str], str]
) -> dict[fx.Node, fx.Node]:
    """Copies a part's nodes into the joined graph; returns the copy of each."""
    known: dict[fx.Node, fx.Node] = {}
    for node in part.graph.nodes:
        if node.op == "placeholder":
            if node.name not in given:
                raise Unmatched
            known[node] = given[node.name]
        elif node.op != "output":
            known[node] = graph.node_copy(node, lambda argument: known[argument])
            known[node].name = named(node.name)
    return known
