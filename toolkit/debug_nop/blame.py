"""Whose fault a mismatch is: the op's fake function, its schema, the recorded metadata, or something further up.

The op alone decides. fake(real arguments) != real result: its fake function is wrong. Otherwise the node did right by
what it was given: then a finding at an argument explains the mismatch, unless the recorded value does not follow from
the recorded arguments either, which makes the record itself wrong. So an origin behind another origin is still found.

For example:

    Blame(plan, step, 0, symbols, tainted={}, path="").finding({"stride": ((64, 1), (1, 64))}, given, value)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_arg

from ...dumps.torchside.values import fake_of, storage_key
from ...dumps.walk import user_frame
from ...dumps.wording import counted, raised_line
from .. import torch_private as t
from ..live.eager import attribute
from ..live.execution import tensors_in
from ..live.values import reach
from ..verdicts.mismatches import Cause, Mismatch, NodeMismatch
from .layout import Expression, Layout, differences, evaluate, layout_of, text_of
from .plan import Leaf, NodeStep, Place, Plan, leaf_of


class Says(NamedTuple):
    """The result of a fake function: a Layout, number or None per leaf, and for each leaf the argument nodes whose
    memory it shares.

    `error`: why it could not be run; then there are no leaves.
    """

    leaves: list[Any]
    shares: list[frozenset[str]]
    error: str = ""


def on_real(step: NodeStep, given: Mapping[fx.Node, Any]) -> Says:
    """The op's fake function on fakes of its real arguments."""
    mode = _alone_mode()

    def fake(value: Any) -> Any:
        return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value

    return _run(step, mode, lambda: {node: t.tree_map(fake, value) for node, value in given.items()})


def on_traced(plan: Plan, step: NodeStep, values: Mapping[str, Any]) -> Says:
    """The op's fake function on its arguments as they were recorded, with numbers for symbols."""
    mode = _alone_mode()
    return _run(step, mode, lambda: _recorded(plan, step, values, mode))


def really_on_traced(plan: Plan, step: NodeStep, given: Mapping[fx.Node, Any], values: Mapping[str, Any]) -> Says:
    """What the op itself returns for copies of its arguments that are laid out as recorded.

    Not for ops that draw random numbers, for arguments of another size than recorded, or in lists.
    """
    target = step.node.target
    if not isinstance(target, t.OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
        return Says([], [], "it is not run a second time")
    known = dict(given)
    for node, value in given.items():
        leaves = plan.leaves(node)
        if isinstance(value, (list, tuple)):
            return Says([], [], "its arguments are not single tensors")
        if isinstance(value, torch.Tensor):
            layout = leaves[0].at(values) if len(leaves) == 1 and isinstance(leaves[0], Leaf) else None
            if layout is None or layout.shape != tuple(value.shape) or value.layout is not torch.strided:
                return Says([], [], "its arguments have other sizes than recorded")
            copy = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=value.device)
            known[node] = copy.copy_(value)
    return _run(step, None, lambda: known)


def on_symbols(plan: Plan, step: NodeStep, values: Mapping[str, Any]) -> Says:
    """The op's fake function on the recorded fake values: on a symbol it may branch in another way than on a number."""
    with _quietly(plan.graph) as mode:
        if mode is None:
            return Says([], [], "the graph was not traced with fake values")
        return _run(step, None, lambda: {node: fake_of(node) for node in step.node.all_input_nodes}, values)


def _run(
    step: NodeStep, mode: Any, arguments: Callable[[], Mapping[fx.Node, Any]], values: Mapping[str, Any] | None = None
) -> Says:
    try:
        with torch.no_grad():
            known = arguments()
            with mode or contextlib.nullcontext():
                result = _call(step.node, known)
    except Exception as error:  # noqa: BLE001  a fake function is the user's code and may raise anything
        return Says([], [], raised_line(error))
    leaves = t.tree_leaves(result)
    return Says([_said(leaf, values) for leaf in leaves], [shared(leaf, known) for leaf in leaves])


def _said(leaf: Any, values: Mapping[str, Any] | None) -> Any:
    if isinstance(leaf, torch.Tensor):
        if values is None:
            return layout_of(leaf)
        traced = leaf_of(leaf, (0, 0), {})
        return traced.at(values) if isinstance(traced, Leaf) else None
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        expr = leaf.node.expr
        return (int(expr) if isinstance(leaf, torch.SymInt) else float(expr)) if expr.is_number else None
    return leaf if isinstance(leaf, (bool, int, float)) else None


def shared(leaf: Any, given: Mapping[fx.Node, Any]) -> frozenset[str]:
    """The names of the nodes among `given` whose memory a value shares."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return frozenset()
    key = storage_key(leaf)
    held = [(node.name, tensor) for node, value in given.items() for tensor in tensors_in(value)]
    return frozenset(name for name, tensor in held if tensor.layout is torch.strided and storage_key(tensor) == key)


def _call(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    owner = node.graph.owning_module

    def look_up(argument: fx.Node) -> Any:
        if argument.op == "get_attr" and not isinstance(known.get(argument), torch.Tensor):
            return attribute(owner, str(argument.target))
        return known[argument]

    args, kwargs = map_arg(node.args, look_up), map_arg(node.kwargs, look_up)
    if node.op == "call_function":
        assert callable(node.target)
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    raise NotImplementedError(f"{node.op} has no fake function of its own")


def _recorded(plan: Plan, step: NodeStep, values: Mapping[str, Any], mode: Any) -> Mapping[fx.Node, Any]:
    """Static fakes of the recorded arguments; those of one storage are views of one."""
    wanted: dict[fx.Node, list[Any]] = {}
    spans: dict[tuple[Place, torch.dtype], int] = {}
    for node in step.node.all_input_nodes:
        wanted[node] = [
            (leaf, leaf.at(values)) if isinstance(leaf, Leaf) else (None, evaluate(leaf, values))
            for leaf in plan.leaves(node)
        ]
        for leaf, layout in wanted[node]:
            if leaf is not None and layout.layout is torch.strided:
                key = leaf.root, leaf.dtype
                spans[key] = max(spans.get(key, 0), (layout.offset or 0) + reach(layout.shape, layout.stride))
    bases: dict[Any, torch.Tensor] = {}
    known: dict[fx.Node, Any] = {}
    with mode:
        for node, leaves in wanted.items():
            rebuilt = [value if leaf is None else _view(leaf, value, spans, bases) for leaf, value in leaves]
            traced = fake_of(node)
            if isinstance(traced, (list, tuple)) and len(rebuilt) == len(traced):
                known[node] = type(traced)(rebuilt) if type(traced) in (list, tuple) else rebuilt
            elif len(rebuilt) == 1:
                known[node] = rebuilt[0]
    return known


def _view(leaf: Leaf, layout: Layout, spans: Mapping[Any, int], bases: dict[Any, torch.Tensor]) -> torch.Tensor:
    if layout.layout is not torch.strided:
        return torch.empty(layout.shape, dtype=layout.dtype, device=layout.device, layout=layout.layout)
    key = leaf.root, leaf.dtype
    if key not in bases:
        bases[key] = torch.empty_strided((spans[key],), (1,), dtype=layout.dtype, device=layout.device)
    return torch.as_strided(bases[key], layout.shape, layout.stride, layout.offset or 0)


def _alone_mode() -> Any:
    """A fake mode with numbers for sizes, in which an op of data-dependent size gets a symbol."""
    return t.FakeTensorMode(shape_env=t.ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True)


@contextlib.contextmanager
def _quietly(graph: fx.Graph) -> Iterator[Any]:
    """The fake mode of a graph's recorded values, with no guard added to its shapes; None when no value is a fake
    tensor."""
    values = (leaf for node in graph.nodes for leaf in t.tree_leaves(fake_of(node)))
    mode = next((leaf.fake_mode for leaf in values if isinstance(leaf, t.FakeTensor)), None)
    with contextlib.ExitStack() as quiet:
        if mode is not None and (env := mode.shape_env) is not None:
            for context in (env.suppress_guards(), env.ignore_fresh_unbacked_symbols(), mode):
                quiet.enter_context(context)
        yield mode


OWN = "memory of its own"
_OWN_CHOICE = "the operator runs this region on values of its own choice"
_BRANCHES = "with symbols for sizes it gives what was recorded, with numbers what the run gave"
SHOWN_SYMBOLS = 8
_SIZED = {"size", "stride", "offset", "value"}
"""Properties that symbols say something about."""


@dataclass(frozen=True)
class Blame:
    """Judges the mismatches of one value of one step. `tainted`: arguments with a finding -> its origins; `stale`:
    those of them whose record is stale; `path`: the subgraph's; `foreign`: whether the value lies in memory that is not
    its own."""

    plan: Plan
    step: NodeStep
    place: int
    symbols: Mapping[str, Any]
    tainted: Mapping[str, list[str]]
    path: str
    stale: Collection[str] = ()
    foreign: bool = False

    def finding(
        self, differing: Mapping[str, tuple[Any, Any]], given: Mapping[fx.Node, Any], value: Any
    ) -> NodeMismatch:
        """The finding for property -> (expected, got). `given`: the real arguments, still alive."""
        step = self.step
        mismatches = [
            Mismatch(name, _text(expected), _text(got), "unknown", self._traced(name))  # pyright: ignore
            for name, (expected, got) in differing.items()
        ]
        if step.node.op in ("placeholder", "get_attr"):
            loose = bool(self.path) and step.node.op == "placeholder"
            for mismatch in mismatches:
                mismatch.cause, mismatch.why = ("loose", _OWN_CHOICE) if loose else ("input", "")
        else:
            real = on_real(step, given)
            wrong = self._against_real(real, given, value)
            for mismatch in mismatches:
                mismatch.cause, mismatch.why = self._cause(mismatch.property, real, wrong, given)
        line, code, near = self._line()
        inherits = any(mismatch.cause == "inherited" for mismatch in mismatches)
        return NodeMismatch(
            node=step.name,
            op=op_name(step.node),
            mismatches=mismatches,
            output=self.place if len(step.leaves) > 1 else -1,
            graph=self.path,
            line=line,
            code=code,
            near=near,
            module=module_of(step.node),
            symbols=self._symbols() if {mismatch.property for mismatch in mismatches} & _SIZED else {},
            under=sorted({name for names in self.tainted.values() for name in names}) if inherits else [],
        )

    def _cause(
        self, name: str, real: Says, wrong: Mapping[str, str], given: Mapping[fx.Node, Any]
    ) -> tuple[Cause, str]:
        """The cause of a mismatch of a property, and why it is that."""
        if name == "mutation":
            return "schema", "its schema does not say that it writes there"
        if name == "run" or real.error:
            why = f"the fake function of {op_name(self.step.node)} could not be asked ({real.error})"
            return "inherited" if self.tainted else "unknown", "" if name == "run" else why
        if loose := self._loose(name, real):
            return "loose", loose
        if name in wrong:
            return "fake", f"on the same arguments it says {wrong[name]}"
        traced = on_traced(self.plan, self.step, self.symbols)
        off = self._against_record(traced)
        if name == "alias" and self._in_replaced_memory(traced):
            return "inherited", ""
        if self.tainted and (traced.error or name not in off):
            lie = self._lie_on_record(traced, given).get(name)
            return ("inherited", "") if lie is None else ("fake", lie)
        if not self.tainted and not traced.error and self._branches(name):
            return "symbolic", _BRANCHES
        return "stale", f"on the recorded arguments the op says {off[name]}" if name in off else ""

    def _lie_on_record(self, says: Says, given: Mapping[fx.Node, Any]) -> dict[str, str]:
        """Property -> how the op departs from its fake function on arguments as recorded: a fake function may happen to
        be right about the wrong arguments that the op got."""
        if says.error or self.step.torchs:
            return {}
        real = really_on_traced(self.plan, self.step, given, self.symbols)
        if real.error or self.place >= len(real.leaves) or self.place >= len(says.leaves):
            return {}
        differing = differences(says.leaves[self.place], real.leaves[self.place])
        return {
            name: f"on arguments as recorded it says {_text(said)}, and the op makes {_text(got)}"
            for name, (said, got) in differing.items()
        }

    def _against_real(self, says: Says, given: Mapping[fx.Node, Any], value: Any) -> dict[str, str]:
        """Property -> what the fake function says, where that is not what the op did."""
        if says.error or self.place >= len(says.leaves):
            return {} if says.error else {"kind": counted(len(says.leaves), "value")}
        fake = says.leaves[self.place]
        real = layout_of(value) if isinstance(value, torch.Tensor) else value
        wrong = {name: _text(said) for name, (said, _) in differences(fake, real).items()}
        shares = shared(value, given)
        if shares != says.shares[self.place]:
            wrong["alias"] = _sharing(says.shares[self.place])
        elif not shares and "kind" not in wrong and self.foreign:
            wrong["alias"] = OWN  # yet it lies in memory that no argument has
        return wrong

    def _loose(self, name: str, says: Says) -> str:
        """Why a recorded property does not bind the value; "" where it does."""
        if name == "value" and self.place < len(says.leaves) and says.leaves[self.place] is None:
            return "the number is read from data"
        leaf = self.step.leaves[self.place] if self.place < len(self.step.leaves) else None
        target = self.step.node.target
        if name == "kind" and isinstance(target, t.OpOverload) and not target._schema.returns:
            return "the operator returns nothing; what it stands for returned something"
        if name == "offset" and self.step.torchs and getattr(leaf, "root", None) == (self.step.index, self.place):
            return "where a new value begins in its own storage is left to the operator"
        region = name in ("offset", "alias") and self.step.region
        return "the results of a region lie where its run left them" if region else ""

    def _against_record(self, says: Says) -> dict[str, str]:
        """Property -> what the fake function says of the recorded arguments, where that is not what is recorded."""
        if says.error or self.place >= len(says.leaves):
            return {}
        leaf = self.step.leaves[self.place]
        try:
            recorded = leaf.at(self.symbols) if isinstance(leaf, (Leaf, Expression)) else leaf
        except KeyError:
            return {}
        off = {name: _text(said) for name, (said, _) in differences(says.leaves[self.place], recorded).items()}
        if isinstance(leaf, Leaf) and says.shares[self.place] != self._recorded_sharing(leaf):
            off["alias"] = _sharing(says.shares[self.place])
        return off

    def _in_replaced_memory(self, says: Says) -> bool:
        """Whether the recorded memory is off only in arguments whose own record is stale: the pass that replaced such a
        record replaced its storage as well, and later nodes are still recorded in the old one."""
        leaf = self.step.leaves[self.place]
        if says.error or self.place >= len(says.shares) or not isinstance(leaf, Leaf):
            return False
        odd = says.shares[self.place] ^ self._recorded_sharing(leaf)
        return bool(odd) and odd <= set(self.stale)

    def _recorded_sharing(self, leaf: Leaf) -> frozenset[str]:
        return frozenset(
            node.name
            for node in self.step.tensors
            if any(isinstance(other, Leaf) and other.root == leaf.root for other in self.plan.leaves(node))
        )

    def _branches(self, name: str) -> bool:
        """Whether the fake function, run on symbols, says what was recorded."""
        if not self.step.needs:
            return False
        says = on_symbols(self.plan, self.step, self.symbols)
        return not says.error and bool(says.leaves) and name not in self._against_record(says)

    def _traced(self, name: str) -> str:
        leaf = self.step.leaves[self.place] if self.place < len(self.step.leaves) else None
        known = {"size": leaf.shape, "stride": leaf.stride, "offset": leaf.offset} if isinstance(leaf, Leaf) else {}
        part = leaf if isinstance(leaf, Expression) else known.get(name)
        text = text_of(part) if part is not None else ""
        return text if any(symbol in text for symbol in self.step.needs) else ""

    def _symbols(self) -> dict[str, Any]:
        return {name: self.symbols[name] for name in sorted(self.step.needs)[:SHOWN_SYMBOLS] if name in self.symbols}

    def _line(self) -> tuple[str, str, bool]:
        """The user's line of the node; of the nearest node that its inputs come from where it has none of its own."""
        waiting, seen, near = [self.step.node], {self.step.node}, False
        while waiting:
            node = waiting.pop(0)
            line, code = user_frame(node.meta.get("stack_trace") or "")
            if line:
                return line, code, near
            near = True
            for source in node.all_input_nodes:
                if source not in seen:
                    seen.add(source)
                    waiting.append(source)
        return "", "", False


def op_name(node: fx.Node) -> str:
    """The op as a user writes it: "aten.view.default", "mylib::foo" for a custom op, a method's name, "placeholder"."""
    target = node.target
    if isinstance(target, t.OpOverload):
        return str(target) if target.namespace in ("aten", "prims") else target.name().removesuffix(".default")
    if isinstance(target, t.OpOverloadPacket):
        return str(target)
    if isinstance(target, t.HigherOrderOperator) and node.args and isinstance(node.args[0], t.OpOverload):
        return node.args[0].name().removesuffix(".default")  # auto_functionalized(op, ...)
    if isinstance(target, t.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if node.op in ("placeholder", "get_attr", "output"):
        return node.op
    if isinstance(target, str):
        return f"Tensor.{target}" if node.op == "call_method" else target
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}".removeprefix("_operator.")


def module_of(node: fx.Node) -> str:
    """The path and class of the innermost module that a node comes from."""
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        stack = node.meta.get(key)
        if stack:
            path, kind = list(stack.values())[-1][:2]
            name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
            return f"{path} ({name.rpartition('.')[2]})"
    return ""


def _text(value: Any) -> str:
    if isinstance(value, torch.Size):
        return str(tuple(value))
    if isinstance(value, tuple):
        return str(tuple("any" if size is None else size for size in value)).replace("'any'", "any")
    return str(value)


def _sharing(names: frozenset[str]) -> str:
    return f"the memory of {', '.join(f'`{name}`' for name in sorted(names))}" if names else OWN
