# pyright: basic
"""Finds the operator whose decomposition makes a traced graph compute something else than the program: its node there,
and its line.

Also: makes the two graphs of a pair run on the same inputs for the same list of results, whatever transformation lies
between them.

A traced node records which node of the program and which operator it was made from. The first value of the program that
none of the nodes made from it has is where the two part; gradients of the program's values are looked for among the
nodes of the backward. Does not decide whether anything is wrong: the results have shown that.

For example:

    traced_apart(program, traced, (seen_program, seen_traced)).text
    # 'aten.hardswish.default became add, clamp_min, clamp_max, mul, div'
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import fx

from ...dumps.torchside.history import leaves_of
from ...dumps.wording import listed
from ..live.eager import Hook, run_graph, set_attribute
from ..live.entries import is_number
from ..live.execution import Execution, execute, leaves, returned, tangents, tensors_in
from ..live.spec import FULL_STAGES, ReplaySpec
from ..node_values.standing import target_of

AGAIN = "__again"
"""Suffix of the name of a backward node whose name the forward uses, too."""


class Unmatched(Exception):
    """The inputs or results of two graphs cannot be matched with certainty."""


class StageRun:
    """Runs a graph as it was recorded: with its backward, where it is a program that trains."""

    def __init__(self, gm: fx.GraphModule, spec: ReplaySpec) -> None:
        self.gm, self.spec = gm, spec
        self.backward = spec.stage in FULL_STAGES and spec.ambient.grad and not spec.ambient.inference_mode
        self.roots: dict[bool, list[Any]] = {}
        """Whether another form of the graph was run -> the outputs of the last such run that require grad, None in
        place of others."""

    def run(
        self, gm: fx.GraphModule, inputs: list[Any], seed: int, hook: Hook | None = None, poison: bool = False
    ) -> Execution:
        """Runs `gm`: this graph, or another form of it."""
        parameters = [parameter for parameter in gm.parameters() if parameter.requires_grad] if self.backward else []

        def kept(given: list[Any]) -> Sequence[Any]:
            outputs = run_graph(gm, given, poison=poison, hook=hook)
            self.roots[gm is not self.gm] = [
                output if isinstance(output, torch.Tensor) and output.requires_grad else None for output in outputs
            ]
            return outputs

        return execute(kept, inputs, seed=seed, backward=self.backward, parameters=parameters)


_INPUT, _OUTPUT = r"PlainAOTInput\(idx=(\d+)\)", r"PlainAOTOutput\(idx=(\d+)\)"
_PARAMETER = r"ParamAOTInput\(target='([^']*)'\)"


class Traced(StageRun):
    """A joint or inference graph, run so that it gives the results of the Dynamo graph that it was traced from."""

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
            raise Unmatched  # several views of one tensor: their gradients are added up
        known = {("input", place) for place in range(len(inputs))} | {name for name, _ in _held(program.gm)}
        wanted = {("output", place) for place in range(len(returned(program.gm)))}
        taken = {source for source in self.given if source[0] != "tangent"}
        gradients = {fate[1] for fate in self.made if fate[0] == "gradient"}
        if not taken <= known or not wanted <= self.made.keys() or not gradients <= set(self.leaves):
            raise Unmatched
        self._check(inputs)

    def _check(self, inputs: Sequence[Any]) -> None:
        """Raises Unmatched where an input of the program has another kind, dtype or number of dimensions than was
        traced."""
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
        """Runs the graph on the program's inputs, with the tangents of the program's outputs in its last run."""
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
            dtype = torch.float64 if wide and tensor.is_floating_point() else tensor.dtype
            values[name] = tensor.detach().to(dtype, copy=True)
        given = [values[key] for key in self.given]
        with contextlib.ExitStack() as plainly:
            plainly.enter_context(torch.no_grad())
            for device in self.program.spec.ambient.autocast:
                plainly.enter_context(torch.autocast(device, enabled=False))
            ran = execute(partial(run_graph, gm, poison=poison, hook=hook), given, seed=seed)
        results = {fate: ran.outputs[place] for fate, place in self.made.items()}
        outputs = [results["output", place] for place in range(len(roots))]
        gradients = [results.get(("gradient", leaf)) for leaf in self.leaves]
        after = [results.get(("mutated", place), value) for place, value in enumerate(plain)]
        return Execution(outputs, gradients if self.program.backward else [], after)


def _described(text: Any) -> tuple[str, Any]:
    """The program's input or output that a traced graph's input or output stands for, from AOTAutograd's descriptor
    text."""
    forms: list[tuple[str, Callable[[re.Match[str]], tuple[str, Any]]]] = [
        (_INPUT, lambda match: ("input", int(match[1]))),
        (r"(Param|Buffer)AOTInput\(target='([^']*)'\)", lambda match: (match[1].lower(), match[2])),
        (rf"TangentAOTInput\(output={_OUTPUT}\)", lambda match: ("tangent", int(match[1]))),
        (_OUTPUT, lambda match: ("output", int(match[1]))),
        (rf"GradAOTOutput\(grad_of={_INPUT}\)", lambda match: ("gradient", ("input", int(match[1])))),
        (rf"GradAOTOutput\(grad_of={_PARAMETER}\)", lambda match: ("gradient", ("param", match[1]))),
        (rf"InputMutationAOTOutput\(mutated_input={_INPUT}\)", lambda match: ("mutated", int(match[1]))),
    ]
    for form, of_match in forms:
        if match := re.fullmatch(form, str(text)):
            return of_match(match)
    raise Unmatched


def _held(gm: fx.GraphModule) -> Iterator[tuple[tuple[str, str], torch.Tensor]]:
    """A program's parameters and buffers, keyed as `_described` keys them."""
    for kind, some in (("param", gm.named_parameters(remove_duplicate=False)), ("buffer", gm.named_buffers())):
        yield from (((kind, name), parameter) for name, parameter in some)


def joined(joint: fx.GraphModule, forward: fx.GraphModule, backward: fx.GraphModule, kept: int) -> fx.GraphModule:
    """Joins forward and backward into one graph with the joint graph's inputs and results. `kept`: how many of the
    forward's results are the program's; the others are saved for the backward. Effect tokens, a joint graph's first
    results, end in a node of the forward.
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
    saved = {node.name: first[node] for node in returned(forward)[kept:] if isinstance(node, fx.Node)}
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
    """The effect tokens that end in a half of a joint graph."""
    ends = [node for node in part.graph.nodes if str(node.target) == "prims._sink_tokens.default"]
    return [token for node in ends for token in leaves(node.args[0])]


def _copied(
    graph: fx.Graph, part: fx.GraphModule, given: dict[str, fx.Node], named: Callable[[str], str]
) -> dict[fx.Node, fx.Node]:
    """Copies a part's nodes into the joined graph; returns old node -> copy."""
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


CLOSE = 1e-6
"""How much two equal values may differ through rounding in float64 and of constants, relative to the sum of their
sizes."""


class Parted(NamedTuple):
    """Where two graphs part. `node`: of the earlier graph; `text`: what became of it; `at`: the node's name in the
    later graph; `op`: the operator that was decomposed."""

    node: fx.Node
    text: str
    at: str = ""
    op: str = ""


class Seen:
    """A hook that keeps the shapes and a few sums of each node's value; with `gradients`, of its gradient, too."""

    def __init__(self, gradients: bool = False) -> None:
        self.values: dict[str, list[tuple[Any, ...]]] = {}
        self.gradients: dict[str, tuple[Any, ...]] = {}
        """By node name, in the order of the nodes."""
        self.written: dict[str, list[tuple[str, tuple[Any, ...]]]] = {}
        """Node name -> its inputs that were written in place after they were computed: name, and sums at the time of
        the read."""
        self._wanted = gradients
        self._known: dict[str, tuple[weakref.ref[torch.Tensor], int]] = {}

    def __call__(self, node: fx.Node, value: Any) -> Any:
        if node.op != "output":
            self.values[node.name] = [_sums(tensor) for tensor in tensors_in(value)]
        for name in (source.name for source in node.all_input_nodes if source.name in self._known):
            reference, version = self._known[name]
            tensor = reference()
            if (
                tensor is not None
                and tensor._version != version
                and not any(result is tensor for result in tensors_in(value))
            ):
                self.written.setdefault(node.name, []).append((name, _sums(tensor)))
        if isinstance(value, torch.Tensor) and not value.is_inference():
            self._known[node.name] = weakref.ref(value), value._version
        if self._wanted and isinstance(value, torch.Tensor) and value.requires_grad:
            self.gradients[node.name] = ()

            def keep(gradient: torch.Tensor, name: str = node.name) -> None:
                self.gradients[name] = _sums(gradient)

            value.register_hook(keep)
        return value


def _sums(value: torch.Tensor) -> tuple[Any, ...]:
    if value.layout is not torch.strided or value.is_quantized:
        return (tuple(value.shape),)
    flat = value.detach().reshape(-1)
    flat = torch.view_as_real(flat.resolve_conj()).reshape(-1) if flat.is_complex() else flat
    wide = flat.to(torch.float64)
    places = torch.cos(torch.arange(wide.numel(), dtype=torch.float64, device=wide.device))
    return tuple(value.shape), value.dtype, float(wide.abs().sum()), float(wide.sum()), float((wide * places).sum())


def _alike(sums: list[tuple[Any, ...]], other: list[tuple[Any, ...]], close: float) -> bool:
    if [a[:2] for a in sums] != [b[:2] for b in other]:
        return False
    for a, b in zip(sums, other, strict=True):
        size = abs(a[2]) + abs(b[2]) if len(a) > 2 else 0.0
        if any(abs(x - y) > close * size or (x != x) != (y != y) for x, y in zip(a[2:], b[2:], strict=True)):
            return False
    return True


def parting(
    before: fx.GraphModule, after: fx.GraphModule, seen: tuple[Seen, Seen], close: float, rewritten: bool = False
) -> Parted | None:
    """The first node at which the graphs part; None where every value that both have is alike. `rewritten`: only nodes
    whose calls differ are compared."""
    known = {node.name: node for node in before.graph.nodes}
    there = {node.name: node for node in after.graph.nodes}
    of_before, of_after = (item.values for item in seen)
    for node in after.graph.nodes:
        mate = known.get(node.name.removesuffix(AGAIN))
        if mate is None or (rewritten and _text(mate) == _text(node)):
            continue
        if node.op == "output":
            return _returned(mate, node, known, there)
        values = of_before.get(mate.name), of_after.get(node.name)
        if values[0] is not None and values[1] is not None and not _alike(values[0], values[1], close):
            return _rewritten(mate, node, known, there)._replace(at=node.name)
    return None


def _rewritten(mate: fx.Node, node: fx.Node, known: dict[str, fx.Node], there: dict[str, fx.Node]) -> Parted:
    """The rewritten node: the node itself, or one of its former inputs that no longer exists."""
    if _call(mate) == _call(node):
        for old, new in zip(mate.all_input_nodes, node.all_input_nodes, strict=False):
            if old.name != new.name.removesuffix(AGAIN) and old.name not in there:
                return Parted(old, _gone(old, new, known))
    if str(mate.target) != str(node.target):
        return Parted(mate, f"{mate.name}: {target_of(mate)} became {target_of(node)}")
    if (was := _arguments(mate)) != (now := _arguments(node)):
        return Parted(mate, f"{mate.name}: {target_of(mate)}({was}) became ({now})")
    return Parted(mate, f"{mate.name} ({target_of(mate)}) has another value")


def _returned(mate: fx.Node, node: fx.Node, known: dict[str, fx.Node], there: dict[str, fx.Node]) -> Parted | None:
    """The first result that is now another node's; None where all are the same."""
    for old, new in zip(leaves(mate.args[0]), leaves(node.args[0]), strict=False):
        if isinstance(old, fx.Node) and (not isinstance(new, fx.Node) or old.name != new.name):
            here = f"{old.name} is no longer returned, {new} is"
            return Parted(old, here if old.name in there else _gone(old, new, known))
    return None


def _gone(old: fx.Node, new: Any, known: dict[str, fx.Node]) -> str:
    if isinstance(new, fx.Node) and new.name not in known:
        return f"{old.name}: {target_of(old)}({_arguments(old)}) became {target_of(new)}({_arguments(new)})"
    return f"{old.name} ({target_of(old)}) is gone, {new} is in its place"


def _text(node: fx.Node) -> str:
    return f"{node.target}({_arguments(node)})" if node.op != "output" else ""


def _call(node: fx.Node) -> tuple[str, int]:
    return str(node.target), len(node.all_input_nodes)


def _arguments(node: fx.Node) -> str:
    text = ", ".join([*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())])
    return text.replace(AGAIN, "")


_SHOWN = 8


def traced_apart(program: fx.GraphModule, traced: fx.GraphModule, seen: tuple[Seen, Seen]) -> Parted | None:
    """The node at which program and traced graph part; None where every value of the program is found in the traced
    graph, or nothing shows it."""
    mates: dict[str, list[fx.Node]] = {}
    for node in traced.graph.nodes:
        if node.op == "call_function":
            for name in node.meta.get("from_node") or ():
                mates.setdefault(_name(name), []).append(node)
    backwards: dict[int, list[fx.Node]] = {}
    for node in traced.graph.nodes:
        if _is_backward(node):
            backwards.setdefault(node.meta.get("seq_nr", -1), []).append(node)
    there = {node.name: node for node in program.graph.nodes}
    for node in program.graph.nodes:
        counterparts, mine = mates.get(node.name, []), seen[0].values.get(node.name, ())
        known = [sums for mate in counterparts for sums in seen[1].values.get(mate.name, ())]
        mine = mine if str(getattr(node.target, "__name__", "")).endswith("_") else mine[:1]  # each that it wrote
        if known and any(len(part) > 1 and not _any_like(part, known) for part in mine):
            return _badly_written(counterparts, node.name, seen) or _decomposed(counterparts, node)
    every = [sums for nodes in backwards.values() for node in nodes for sums in seen[1].values.get(node.name, ())]
    every += [sums for node in traced.graph.find_nodes(op="placeholder") for sums in seen[1].values.get(node.name, ())]
    for name, grad in reversed(seen[0].gradients.items()):
        if len(grad) < 2 or _any_like(grad, every):
            continue
        users = [mates.get(user.name, ()) for user in there[name].users]
        numbers = {mate.meta.get("seq_nr", -1) for counterparts in users for mate in counterparts} - {-1}
        groups = [_last_operator(backwards[number]) for number in numbers if number in backwards]
        if groups:
            return _decomposed(max(groups, key=len), max(there[name].users, key=lambda user: user.name in mates))
    return None


def _badly_written(counterparts: Sequence[fx.Node], name: str, seen: tuple[Seen, Seen]) -> Parted | None:
    """The node that should read what the program wrote in place, where no input has the written value: it was lost, or
    changed."""
    sources = {source.name: source for mate in counterparts for source in mate.all_input_nodes}
    read = [sums for source in sources for sums in seen[1].values.get(source, ())]
    known = [sums for values in seen[0].values.values() for sums in values]
    for written, sums in seen[0].written.get(name, ()):
        if len(sums) > 3 and not _any_like(sums, read):
            for source in sources.values():
                new = seen[1].values.get(source.name, ())
                alike = [other for other in known if other[:2] == sums[:2]]
                if len(new) == 1 and new[0][:2] == sums[:2] and not _any_like(new[0], alike):
                    return Parted(source, f"{source.name} is not what was written in place to {written}", source.name)
            last = counterparts[-1]
            return Parted(last, f"{last.name} reads no more what was written in place to {written}", last.name)
    return None


def _last_operator(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes of one operation's backward that come from its most frequent operator."""
    operator = Counter(map(_operator, nodes)).most_common(1)[0][0]
    return [node for node in nodes if _operator(node) == operator]


def _decomposed(counterparts: Sequence[fx.Node], node: fx.Node) -> Parted:
    last = counterparts[-1]
    operator = _operator(last)
    every = listed((mate.name for mate in counterparts), _SHOWN)
    runs = [of for of, _ in groupby(map(_operator, counterparts))]
    if runs.count(operator) > 1:  # interleaved calls: tracing itself made these nodes of the program's call
        return Parted(last, f"{target_of(node)} became {every}", last.name, target_of(node))
    alone, counterparts = len(counterparts) == 1, [mate for mate in counterparts if _operator(mate) == operator]
    names = listed((mate.name for mate in counterparts), _SHOWN)
    last.meta.setdefault("stack_trace", node.meta.get("stack_trace") or "")
    if len(counterparts) == 1 and str(last.target) == operator:
        what = f"{names} ({operator}) has another value than {node.name} in the program"
        return Parted(last, what if alone else f"{target_of(node)} became {every}: {what}", last.name)
    return Parted(last, f"{operator} became {names}", last.name, operator)


def _operator(node: fx.Node) -> str:
    return str(node.meta.get("original_aten") or node.meta.get("graphdbg_original_aten") or node.target)


def _is_backward(node: fx.Node) -> bool:
    marked = node.meta.get("partitioner_tag") == "is_backward" or bool(node.meta.get("autograd_backward"))
    return marked and node.op == "call_function"


def _name(source: Any) -> str:
    return str(getattr(source, "name", source))


def _any_like(sums: tuple[Any, ...], others: Iterable[tuple[Any, ...]]) -> bool:
    """Whether another value has the same sums, whatever its order of elements and shape."""
    return any(len(other) > 3 and _near(sums, other) for other in others)


def _near(sums: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    size = sums[2] + other[2]
    return all(abs(x - y) <= CLOSE * size or (x != x and y != y) for x, y in zip(sums[2:4], other[2:4], strict=True))
