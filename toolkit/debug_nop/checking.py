"""A graph that checks its own values: the callable behind `debug_nop`, and its subgraphs'.

Also: the checked module: fx prints the graph, and a check stands after each node's line.

The first run on inputs of a new layout is deep (storages and contents too), later ones are quick. Subgraphs of
higher-order ops are checked when the op runs them. A graph that is called with fake values, while something traces it,
runs unchecked.

>>> run = checked(gm, inputs)
>>> outputs = run(inputs)
>>> run.findings
[]
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ...dumps.wording import listed
from .. import torch_private as t
from ..live.eager import attribute, set_attribute
from ..verdicts.mismatches import SHOWN, MetadataMismatch, Mismatch, NodeMismatch, joined, merged, text_report
from .layout import layout_guard
from .plan import Leaf, NodeStep, Plan, is_getitem, plan_of
from .running import WRAPPED, Binding, KernelExecution, bind, wrapped

RUN = "graphdbg_run"
_MARKER = re.compile(r"^(\s*)(\w+) = (?:\w+_)?graphdbg_marker\((\d+)((?:, \w+)*)\)(?:;  (.*))?$")

Template = Callable[[list[str]], str]


def graphdbg_marker(number: int, *values: object) -> None:
    """Stands in the graph where a check will be; never called."""
    raise AssertionError("a check was not written into the generated code")


def generated(gm: fx.GraphModule, plan: Plan, *, deep: bool, careful: Collection[int] = ()) -> fx.GraphModule:
    """A module that takes a KernelExecution and the graph's flat inputs, and reports to the former. Parameters are
    shared with `gm`.

    `careful`: steps whose values have turned out to be no tensors, so that generated code cannot ask them for a layout.
    """
    graph, templates, calls = marked(gm.graph, plan, deep=deep, careful=careful)

    def rewrite(body: list[str]) -> list[str]:
        lines: list[str] = []
        for line in "".join(body).split("\n"):
            if (marker := _MARKER.match(line)) is None:
                lines.append(line)
                continue
            indent, own, number, names, deleted = marker.groups()
            lines.append(indent + templates[int(number)](re.findall(r"\w+", names)))
            dead = [name for name in (deleted or "").removesuffix(" = None").split(" = ") if name and name != own]
            lines += [f"{indent}{' = '.join(dead)} = None"] if dead else []
        return [f"{line}\n" for line in lines]

    graph.on_generate_code(lambda current: rewrite)
    module = fx.GraphModule(gm, graph, class_name=f"Checked{type(gm).__name__}")
    module.meta["graphdbg_calls"] = calls
    return module


class ToItsEnd(fx.Interpreter):
    """Runs a deep module node by node, past nodes that fail: `checks` gives a value in their place. Only used after a
    failure."""

    def __init__(self, module: fx.GraphModule, plan: Plan, run: Any) -> None:
        super().__init__(module)
        self.checks = run
        self.calls: dict[int, Call] = module.meta["graphdbg_calls"]
        self.steps = {step.name: step for step in plan.steps}

    def run_node(self, n: fx.Node) -> Any:
        """The node's value; for a marker, the result of its check."""
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
"""A method of KernelExecution, and the index of the step that it is called for."""


def marked(
    graph: fx.Graph, plan: Plan, *, deep: bool, careful: Collection[int] = ()
) -> tuple[fx.Graph, list[Template], dict[int, Call]]:
    """Returns a copy of the graph that takes a KernelExecution first and has marker nodes; the code template of each
    marker; and the markers that are calls."""
    calls: dict[int, Call] = {}
    out = fx.Graph()
    run = out.placeholder(RUN)
    templates: list[Template] = []
    copies: dict[fx.Node, fx.Node] = {}

    def call(method: str, step: NodeStep, *values: fx.Node) -> None:
        calls[len(templates)] = method, step.index
        mark(lambda names: _reported(step, method, names), *values)

    def mark(template: Template, *values: fx.Node) -> None:
        templates.append(template)
        out.call_function(graphdbg_marker, (len(templates) - 1, *values))

    for node in graph.nodes:
        if node.op != "placeholder" and not templates:
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
            mark(functools.partial(_QUICK[step.way], step), copied, *arguments)
    out.lint()
    return out, templates, calls


def _begin(names: list[str]) -> str:
    run = names[0]
    return f"graphdbg_r, graphdbg_k, graphdbg_o, graphdbg_al = {run}, {run}.expected, {run}.offsets, {run}.is_alias_of"


def _reported(step: NodeStep, method: str, names: list[str]) -> str:
    return f"graphdbg_r.{method}({', '.join([str(step.index), *names])})"


def _number(step: NodeStep, names: list[str]) -> str:
    return f"if {names[0]} != graphdbg_k[{step.index}]: {_reported(step, 'bad', names)}"


def _parts(step: NodeStep, names: list[str]) -> str:
    index, v = step.index, names[0]
    parts = [f"{v}[{part}]" for part, leaf in enumerate(step.leaves) if leaf is not None]
    offsets = "".join(f"{part}.storage_offset(), " for part in parts)
    differs = f"not graphdbg_k[{index}]({', '.join(parts)}) or ({offsets}) != graphdbg_o[{index}]"
    return f"if len({v}) != {len(step.leaves)} or {differs}: {_reported(step, 'after', names)}"


def _inline(step: NodeStep, names: list[str]) -> str:
    index, v, inputs = step.index, names[0], list(step.node.all_input_nodes)
    asked = [] if step.by_layout else [inputs.index(node) + 1 for node in (*step.aliased, *step.apart)]
    shared = "".join(f", graphdbg_al({v}, {names[place]})" for place in asked)
    offset = f"({v}.storage_offset(){shared})" if asked else f"{v}.storage_offset()"
    return f"if not graphdbg_k[{index}]({v}) or {offset} != graphdbg_o[{index}]: {_reported(step, 'bad', names)}"


_QUICK: dict[str, Callable[[NodeStep, list[str]], str]] = {"inline": _inline, "parts": _parts, "number": _number}
"""Way of a step -> what its marker becomes in generated code."""


UNREAD = "nothing reads it"
_BY_RECORD = ("aten.as_strided", "aten.set_", "inductor.", "prims.as_strided")


def read_by_someone(findings: Sequence[NodeMismatch], plan: Plan, session: CheckedCallable) -> list[NodeMismatch]:
    """The findings of one run, without those on values and properties that nothing reads; the session notes the
    latter."""
    if not findings:
        return []
    steps = {step.name: step for step in plan.steps}
    heard = [each for each in findings if not _quiet(each, steps.get(each.node), plan, session.rewritten)]
    loud = {name for finding in heard for name in (finding.name, *finding.under)}
    kept = [finding for finding in findings if finding.name in loud or not loud.isdisjoint(finding.under)]
    for finding in findings:
        if finding not in kept:
            properties = dict.fromkeys(each.property for each in finding.mismatches)
            session.left_out(UNREAD, f"{' and '.join(properties)} of {finding.name}")
    return kept


def _quiet(finding: NodeMismatch, step: NodeStep | None, plan: Plan, rewritten: bool) -> bool:
    if step is None or not step.torchs or step.node.op in ("placeholder", "get_attr"):
        return False
    if (finding.output >= 0 and _not_taken(step.node, finding.output)) or not (step.node.users or finding.own):
        return True
    for mismatch in finding.mismatches:
        if mismatch.property in ("stride", "offset") and mismatch.cause in ("stale", "inherited"):
            if not rewritten or any(_goes_by_record(user, plan) for user in step.node.users):
                return False
        elif not _in_dead_memory(mismatch) or not _last_use(step, plan):
            return False
    return True


def _in_dead_memory(mismatch: Mismatch) -> bool:
    """Whether a mismatch is about an argument's memory alone: that a result lies in it, or that it is written to."""
    return mismatch.property == "mutation" or (
        mismatch.property == "alias" and mismatch.cause == "fake" and mismatch.expected == "memory of its own"
    )


def _not_taken(node: fx.Node, part: int) -> bool:
    return all(is_getitem(user) and (user.args[1] != part or not user.users) for user in node.users)


def _goes_by_record(user: fx.Node, plan: Plan) -> bool:
    step = plan.by_node[user]
    return user.op == "output" or not step.torchs or step.region or str(user.target).startswith(_BY_RECORD)


def _last_use(step: NodeStep, plan: Plan) -> bool:
    """Whether the memory of the arguments is the graph's own, and no other node reads it from here on."""
    if not isinstance(step.node.target, (t.OpOverload, t.OpOverloadPacket)):
        return False
    roots = {leaf.root for node in step.tensors for leaf in plan.leaves(node) if isinstance(leaf, Leaf)}
    for other in plan.steps:
        if other is step or not any(isinstance(leaf, Leaf) and leaf.root in roots for leaf in plan.leaves(other.node)):
            continue
        if other.node.op in ("placeholder", "get_attr"):
            return False
        if any(user is not step.node and plan.by_node[user].index > step.index for user in other.node.users):
            return False
    return True


BINDINGS = 64
"""How many combinations of input layouts are remembered per graph."""


_COLLECTORS: list[list[NodeMismatch]] = []
"""Lists of the `collecting` contexts in force. Not per thread: backward graphs run on threads of the autograd
engine."""


class CheckedGraph:
    """One graph, or subgraph, with its plan, its two generated modules and the bindings of the inputs that it has
    seen."""

    def __init__(
        self, gm: fx.GraphModule, session: CheckedCallable, path: str = "", device: torch.device | None = None
    ) -> None:
        self.gm = gm
        self.session = session
        self.path = path
        self.plan = plan_of(gm, device)
        self.bindings: OrderedDict[Any, Binding] = OrderedDict()
        self.last: Binding | None = None
        self.tensors = [
            place
            for place, step in enumerate(self.plan.inputs)
            if len(step.leaves) == 1 and isinstance(step.leaves[0], Leaf) and step.leaves[0].layout is torch.strided
        ]
        rest = [place for place in range(len(self.plan.inputs)) if place not in set(self.tensors)]
        self.numbers = [place for place in rest if self.plan.inputs[place].needs]
        self._inner = {
            str(node.target): CheckedSubgraph(CheckedGraph(inner, session, f"{path}{node.target}.", device))
            for node in gm.graph.nodes
            if node.op == "get_attr" and isinstance(inner := attribute(gm, str(node.target)), fx.GraphModule)
        }
        self._modules: dict[bool, fx.GraphModule] = {}
        self.careful: set[int] = set()

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Runs the graph on flat inputs; findings go to the session."""
        if t.FakeTensor in set(map(type, inputs)):
            return self.gm(*inputs)
        if wrapped(inputs):
            self.session.left_out(WRAPPED, f"{self.path}*")
            return self.gm(*inputs)
        binding, deep = self._binding(inputs)
        with _aliases_only_warned(), self._running(KernelExecution(self, binding, deep=deep), inputs) as run:
            outputs = self._module(deep)(run, *inputs)
        binding.runs += 1
        return outputs

    def to_its_end(self, inputs: Sequence[Any]) -> None:
        """Runs the graph past nodes that fail, with synthesised values in their place, to find what else is wrong."""
        with self._running(KernelExecution(self, self._binding(inputs)[0], deep=True), inputs) as run:
            ToItsEnd(self._module(True), self.plan, run).run(run, *inputs)

    @contextlib.contextmanager
    def _running(self, run: KernelExecution, inputs: Sequence[Any]) -> Iterator[KernelExecution]:
        if run.deep or run.binding.known:
            run.inputs(list(inputs))
        runs = self.session.runs
        runs.append(run)
        try:
            yield run
        finally:
            runs.pop()
            self.session.add(read_by_someone(run.findings, self.plan, self.session))
            if run.odd - self.careful:
                self.careful |= run.odd
                self._modules.pop(False, None)

    def _binding(self, inputs: Sequence[Any]) -> tuple[Binding, bool]:
        """The binding of these inputs, and whether this is the first run with it."""
        outer = self.session.outer(self.plan.free)
        rest = (*map(inputs.__getitem__, self.numbers), *outer.items(), torch.is_grad_enabled())
        tensors = [inputs[place] for place in self.tensors]
        try:
            offsets = [tensor.storage_offset() for tensor in tensors]
            last = self.last
            if last is not None and last.guard and last.seen[1:] == (offsets, rest) and last.guard(*tensors):
                return last, _is_new(last)
            layouts = tuple((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in tensors)
            guard = layout_guard(tensors)
        except (AttributeError, RuntimeError, NotImplementedError):  # not a strided tensor: found when it is compared
            layouts, offsets, guard = tuple(str(type(value)) for value in inputs), [], None
        key = (layouts, tuple(offsets), rest)
        binding = self.bindings.get(key)
        if binding is None:
            binding = bind(self.plan, inputs, (layouts, offsets, rest), outer, lambda path: attribute(self.gm, path))
            binding.guard = guard
            self.bindings[key] = binding
            if len(self.bindings) > BINDINGS:
                self.bindings.popitem(last=False)
        else:
            self.bindings.move_to_end(key)
        self.last = binding
        return binding, _is_new(binding)

    def _module(self, deep: bool) -> fx.GraphModule:
        if deep not in self._modules:
            module = generated(self.gm, self.plan, deep=deep, careful=self.careful)
            for path, inner in self._inner.items():
                set_attribute(module, path, inner)
            self._modules[deep] = module
        return self._modules[deep]

    def unchecked(self) -> list[str]:
        """Sentences on values that are not checked, here and in subgraphs."""
        unbound = sorted({name for binding in self.bindings.values() for name in binding.unbound})
        here = [f"{self.path}{sentence}" for sentence in self.plan.unchecked]
        for why, names in self.session.unjudged.items() if not self.path else ():
            here.append(f"{listed(names, SHOWN)}: {why}")
        if unbound:
            where = self.path or "graph"
            here.append(f"{where}: no input says what {', '.join(unbound)} is; taken from the first value that does")
        return here + [sentence for inner in self._inner.values() for sentence in inner.checks.unchecked()]

    def values(self) -> int:
        """How many values are checked, here and in subgraphs."""
        own = sum(len(step.leaves) for step in self.plan.steps if step.way != "none" or step.node.op == "placeholder")
        return own + sum(inner.checks.values() for inner in self._inner.values())


def _is_new(binding: Binding) -> bool:
    """Whether a run must be deep: the first on such inputs, and the first for a new collector."""
    wanted = _COLLECTORS[-1] if _COLLECTORS else None
    new = binding.runs == 0 or (wanted is not None and binding.collector is not wanted)
    binding.collector = wanted
    return new


class CheckedSubgraph(torch.nn.Module):
    """A subgraph in the place where a higher-order op looks for it; one that looks into it (`.graph`) sees the
    original."""

    def __init__(self, checks: CheckedGraph) -> None:
        super().__init__()
        self.checks = checks
        self.graph = checks.gm.graph
        self.meta = checks.gm.meta

    def forward(self, *inputs: Any) -> Any:
        """Runs the subgraph, checked."""
        return self.checks(inputs)


class _OfThread(threading.local):
    """The runs in progress on one thread, and their findings since `taken` was last called."""

    def __init__(self) -> None:
        self.runs: list[KernelExecution] = []
        self.last: list[NodeMismatch] = []


class CheckedCallable:
    """What the graphs of one callable share: its id in the compile, the runs in progress on each thread, and the
    findings."""

    def __init__(self, where: str = "", rewritten: bool = False) -> None:
        self.where = where
        self.rewritten = rewritten
        self.unjudged: dict[str, list[str]] = {}
        self._local = _OfThread()
        self._lock = threading.Lock()
        self.findings: list[NodeMismatch] = []

    @property
    def runs(self) -> list[KernelExecution]:
        """The runs in progress on this thread, outermost first."""
        return self._local.runs

    def outer(self, names: frozenset[str]) -> dict[str, Any]:
        """The values of these symbols in the calling graphs."""
        return {name: run.symbols[name] for run in self.runs for name in sorted(names) if name in run.symbols}

    def left_out(self, why: str, name: str) -> None:
        """Records once what was not compared."""
        names = self.unjudged.setdefault(why, [])
        if name not in names:
            names.append(name)

    def add(self, findings: Sequence[NodeMismatch]) -> None:
        """Adds what one run found."""
        if findings:
            with self._lock:
                self._local.last += findings
                self.findings = merged([*self.findings, *findings])

    def taken(self) -> list[NodeMismatch]:
        """The findings on this thread since the last call."""
        findings, self._local.last = merged(self._local.last), []
        return findings


class Checked:
    """The boxed callable: takes one list, runs the whole graph checked, returns its result.

    `findings` are those of all runs so far. With `raises`, a run that found something ends with MetadataMismatch
    instead.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        *,
        raises: bool,
        device: torch.device | None = None,
        where: str = "",
        rewritten: bool = False,
    ) -> None:
        self._boxed_call = True  # on the instance: wrappers of a backward keep what `functools.wraps` copies
        self.__wrapped__ = gm
        self.raises = raises
        self.session = CheckedCallable(where, rewritten)
        self.graph = CheckedGraph(gm, self.session, device=device)

    def __call__(self, args: Sequence[Any]) -> Any:
        """Runs once. Raises MetadataMismatch after the whole graph ran; also when the graph fails because of what was
        found."""
        codegen = self.__wrapped__.graph
        try:
            outputs = codegen.process_outputs(self.graph(codegen.process_inputs(*args)))
        except Exception as error:
            careful = len(self.graph.careful)
            with contextlib.suppress(Exception):
                self.graph.to_its_end(codegen.process_inputs(*args))
            if isinstance(error, AttributeError) and len(self.graph.careful) > careful:
                return self(args)  # a check itself fell over a value that is no tensor, and is careful from now on
            findings = self._take()
            if self.raises and not _COLLECTORS and any(finding.of_metadata for finding in findings):
                text = f"{text_report(findings)}\nThe graph then failed: {type(error).__name__}: {error}"
                raise MetadataMismatch(text, findings) from error
            raise
        findings = self._take()
        if findings and self.raises and not _COLLECTORS:
            raise MetadataMismatch(text_report(findings), findings)
        return outputs

    def _take(self) -> list[NodeMismatch]:
        findings = self.session.taken()
        if findings and _COLLECTORS:
            _COLLECTORS[-1][:] = joined(_COLLECTORS[-1], findings)
        return findings

    @property
    def findings(self) -> list[NodeMismatch]:
        """One per value, of all runs so far."""
        return list(self.session.findings)

    def report(self) -> str:
        """The findings so far as text."""
        return text_report(self.findings)


@contextlib.contextmanager
def collecting() -> Iterator[list[NodeMismatch]]:
    """Inside the block no checked graph raises; the list that it yields gets the findings of all of them."""
    findings: list[NodeMismatch] = []
    _COLLECTORS.append(findings)
    try:
        yield findings
    finally:
        _COLLECTORS.remove(findings)


def checked(
    fx_g: fx.GraphModule, inps: Sequence[Any] = (), *, device: torch.device | None = None, rewritten: bool = False
) -> Checked:
    """A boxed callable that returns the graph's result and collects what it finds in `.findings`. `inps` are not looked
    at; `device`: where a graph that was traced elsewhere has been moved to; `rewritten`: passes that replace nodes ran
    over the graph (see `KernelExecution`)."""
    return Checked(fx_g, raises=False, device=device, rewritten=rewritten)


def _aliases_only_warned() -> contextlib.AbstractContextManager[None]:
    """Makes AOTAutograd only warn of a custom op that returns its input, where it would raise (CI is set in the
    environment).

    So the checker can name the op.
    """
    if not getattr(t.functorch_config, "error_on_custom_op_aliasing", False):
        return contextlib.nullcontext()
    return t.functorch_config.patch(error_on_custom_op_aliasing=False)
