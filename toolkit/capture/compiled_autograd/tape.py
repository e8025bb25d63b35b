# pyright: basic
"""A graph of what really ran: every ATen operator of one backward of the eager engine, with its values' metadata.

A TorchDispatchMode below autograd. Each operator runs once, unchanged, on the values that were there, and a node is
recorded for it. A tensor that no node made (a weight, a saved activation, a tensor that a hook holds) becomes a
placeholder at its first use, before anything in this backward wrote to it. The tape holds no tensor: values are found
again by weak references. A number read from a tensor (`.item()`) is a constant of this run, counted in `fixed`; random
numbers (a checkpoint draws them again, from a state of its own) are inputs.

For example:

    with Tape(where) as tape:
        loss.backward()
    gm = tape.finish([tape.seen(parameter.grad)])
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx
from torch.utils.weak import WeakTensorKeyDictionary

from ....dumps.torchside.values import storage_key
from ....dumps.wording import raised_line
from ... import torch_private as t
from ...live.eager import EagerMode
from .places import TapePlace


class Tape(EagerMode):
    """Writes the operators that run while it is active.

    `where()` is the place in the backward; `name_of(value, place)` proposes a name for a placeholder, `kept(name,
    value)` is called with each placeholder's value at its first use.
    """

    def __init__(
        self,
        where: Callable[[], TapePlace],
        name_of: Callable[[torch.Tensor, TapePlace], str],
        kept: Callable[[str, torch.Tensor], None],
    ) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        self.fixed = 0
        self.error: str | None = None
        self.accumulated: dict[Any, fx.Node] = {}
        self._where, self._name_of, self._kept = where, name_of, kept
        self._nodes: Any = WeakTensorKeyDictionary()
        self._views: dict[Any, tuple[Any, fx.Node]] = {}
        self._mode = t.FakeTensorMode(allow_non_fake_inputs=True)
        self._last_input: fx.Node | None = None
        self._memory: dict[fx.Node, int] = {}
        self._memories: dict[int, tuple[Any, Any]] = {}
        self._written: set[int] = set()
        self._paused = False
        self._bodies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if self._paused:
            return func(*args, **kwargs)
        if any(kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) for kind in types):
            return NotImplemented  # a subclass unwraps itself first; its inner tensors are dispatched here again
        place = self._guarded(self._where)
        given = self._guarded(self._arguments, (tuple(args), kwargs), place)
        output = func(*args, **kwargs)
        if given is not None:
            self._guarded(self._write, func, given, output, place)
        return output

    def part(self, module: fx.GraphModule, args: Sequence[Any], run: Callable[[], Sequence[Any]]) -> Any:
        """Runs a compiled part of the backward, whose kernels no operator reports, and writes the graph it was compiled
        from."""
        place = self._guarded(self._where) or TapePlace()
        given = self._guarded(lambda: [self._part_input(value, TapePlace(place.node)) for value in args])
        self._paused = True
        try:
            outputs = run()
        finally:
            self._paused = False
        if given is not None:
            with t.modes_off(), self._mode, torch.no_grad():
                self._guarded(self._part_written, _PartCopy(self, module, given, place), outputs)
        return outputs

    def _part_input(self, value: Any, place: TapePlace) -> tuple[Any, Any]:
        if isinstance(value, torch.Tensor):
            return self._node_of(value, place), self._fake(value)
        if not isinstance(value, (int, float, bool, type(None))):
            raise TypeError(f"a compiled part is called with {type(value).__name__}")
        return value, value

    def _part_written(self, part: _PartCopy, outputs: Sequence[Any]) -> None:
        for value, node in zip(outputs, part.write(), strict=True):
            if isinstance(value, torch.Tensor) and isinstance(node, fx.Node):
                self._bind(value, node)

    def hold(self, value: Any) -> fx.Node:
        """A get_attr node for a value that is no tensor: the body of a higher-order operator, a process group."""
        name = f"held_{self._bodies}"
        self._bodies += 1
        setattr(self.root, name, value)
        return self.graph.get_attr(name)

    def seen(self, value: torch.Tensor) -> fx.Node | None:
        """The node that made the value, or its placeholder; None once something could not be written."""
        return self._guarded(self._node_of, value, TapePlace())

    def finish(self, outputs: Sequence[fx.Node | None]) -> fx.GraphModule | None:
        """The graph with these nodes as outputs; None where something could not be written, and `error` says what."""
        return self._guarded(self._finish, outputs)

    def shared_and_written(self) -> list[str]:
        """Names of the inputs that share memory which the backward writes to; each is an input of its own in the
        graph."""
        several = Counter(self._memory.values())
        return [node.name for node, key in self._memory.items() if several[key] > 1 and key in self._written]

    def _guarded(self, step: Callable[..., Any], *args: Any) -> Any:
        """Keeps an error in writing away from the backward: after the first, nothing more is written."""
        if self.error is not None:
            return None
        try:
            return step(*args)
        except Exception as error:  # noqa: BLE001 - reported by `error`
            self.error = raised_line(error)
            return None

    def _finish(self, outputs: Sequence[fx.Node | None]) -> fx.GraphModule:
        self.graph.output(tuple(outputs))
        gm = fx.GraphModule(self.root, self.graph, "CompiledAutograd")
        gm.graph.lint()
        return gm

    def _write(self, func: Any, given: tuple[Any, Any], output: Any, place: TapePlace) -> None:
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            for value in t.tree_leaves(output):
                if isinstance(value, torch.Tensor):
                    self._input(value, TapePlace(place.node, f"{_short(func)} drew it"))
            return
        self._written.update(_written(func, output))
        node = self.graph.create_node("call_function", func, *given, name=place.gradient or _short(func))
        self._describe(node, output, place)
        if isinstance(output, torch.Tensor):
            if output not in self._nodes:  # what was written in place keeps its node
                self._bind(output, node)
            if place.accumulates is not None:
                self.accumulated[place.accumulates] = self._nodes[output]
        elif isinstance(output, (list, tuple)):
            for index, item in enumerate(output):
                if isinstance(item, torch.Tensor) and self._found(item) is None:
                    part = self.graph.call_function(operator.getitem, (node, index))
                    self._describe(part, item, place)
                    self._bind(item, part)
        elif isinstance(output, (bool, int, float)):
            self.fixed += 1

    def _bind(self, value: torch.Tensor, node: fx.Node) -> None:
        self._nodes[value] = node
        self._views[_view_key(value)] = _weak_storage(value), node

    def _found(self, value: torch.Tensor) -> fx.Node | None:
        """The node of a value, or of another tensor object that is the same view of the same memory: each node of
        autograd unpacks what it saved into an object of its own.
        """
        node = self._nodes.get(value)
        if node is None:
            alive, other = self._views.get(_view_key(value), (None, None))
            if alive is not None and not alive.expired():
                self._nodes[value] = node = other
        return node

    def _node_of(self, value: torch.Tensor, place: TapePlace) -> fx.Node:
        return self._found(value) or self._input(value, place)

    def _arguments(self, given: Any, place: TapePlace) -> Any:
        def argument(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self._node_of(value, place)
            held = isinstance(value, (fx.GraphModule, torch.ScriptObject))  # a higher-order operator's body, a group
            return self.hold(value) if held else value

        return t.tree_map(argument, given, is_leaf=lambda value: isinstance(value, fx.GraphModule))

    def _input(self, value: torch.Tensor, place: TapePlace) -> fx.Node:
        last, graph = self._last_input, self.graph
        with graph.inserting_after(last) if last is not None else graph.inserting_before():  # at the beginning
            node = self.graph.placeholder(self._name_of(value, place))
        self._last_input = node
        if value.layout is torch.strided:
            self._memory[node] = storage_key(value)
        node.meta["val"] = self._fake(value)
        self._bind(value, node)
        with t.modes_off():
            self._kept(node.name, value)
        return node

    def _describe(self, node: fx.Node, output: Any, place: TapePlace) -> None:
        node.meta["val"] = t.tree_map_only(torch.Tensor, self._fake, output)
        for key, value in (("autograd_node", place.node), ("hook", place.hook), ("stack_trace", place.stack)):
            if value:
                node.meta[key] = value
        if place.seq_nr >= 0:
            node.meta["seq_nr"] = place.seq_nr

    def _fake(self, value: torch.Tensor) -> Any:
        with t.modes_off(), torch.no_grad():
            lazy = value.is_quantized or value.is_conj() or value.is_neg()
            if value.layout is not torch.strided or lazy:
                return self._mode.from_tensor(value.detach(), static_shapes=True)
            key = storage_key(value)
            alive, memory = self._memories.get(key, (None, None))
            if alive is None or alive.expired():
                memory = torch.UntypedStorage(value.untyped_storage().nbytes(), device="meta")
                self._memories[key] = _weak_storage(value), memory
            view = torch.empty(0, dtype=value.dtype, device="meta")
            view.set_(memory, value.storage_offset(), value.shape, value.stride())
            return t.FakeTensor(self._mode, view, value.device)


class _PartCopy(fx.Interpreter):
    """Copies the graph of a compiled part into a tape's, with this run's sizes as numbers. `given`: node and fake value
    of each input.
    """

    def __init__(self, tape: Tape, module: fx.GraphModule, given: Sequence[tuple[Any, Any]], place: TapePlace) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.tape, self.given, self.place = tape, given, place
        self.copied = module.graph
        self.nodes: dict[fx.Node, Any] = {}

    def write(self) -> Any:
        """The nodes of the outputs; None and numbers stand for themselves."""
        self.nodes.update(zip(self.copied.find_nodes(op="placeholder"), (node for node, _ in self.given), strict=True))
        self.run(*(value for _, value in self.given), enable_io_processing=False)
        return fx.map_arg(self.copied.output_node().args[0], self.nodes.__getitem__)

    def run_node(self, n: fx.Node) -> Any:
        """Runs one node on fake values, and copies it to the tape where it makes a tensor."""
        output = super().run_node(n)
        if n.op == "get_attr":
            self.nodes[n] = self.tape.hold(output)
        elif n.op == "call_function" and not any(isinstance(value, torch.Tensor) for value in t.tree_leaves(output)):
            self.nodes[n] = output
        elif n.op == "call_function":
            args, kwargs = fx.map_arg((n.args, n.kwargs), self.nodes.__getitem__)
            self.nodes[n] = node = self.tape.graph.create_node("call_function", n.target, args, kwargs, name=n.name)
            node.meta.update({"val": output, "autograd_node": self.place.node})
            if stack := n.meta.get("stack_trace"):
                node.meta["stack_trace"] = stack
        return output


def _short(func: Any) -> str:
    """The operator's name as AOTAutograd names its nodes: "mm", not "mm_default"."""
    return getattr(getattr(func, "overloadpacket", func), "__name__", "call")


def _view_key(value: torch.Tensor) -> tuple[Any, ...]:
    """Equal for two tensor objects that are the same view of the same memory, while that is alive."""
    if value.layout is not torch.strided:
        return (id(value),)
    lazy = value.is_conj(), value.is_neg()
    return storage_key(value), value.storage_offset(), tuple(value.shape), tuple(value.stride()), value.dtype, *lazy


def _written(func: Any, output: Any) -> list[int]:
    """The storage keys of what a mutating operator returns, which is taken for the memory that it wrote to."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    values = t.tree_leaves(output)
    return [storage_key(value) for value in values if isinstance(value, torch.Tensor) and value.layout is torch.strided]


def _weak_storage(value: torch.Tensor) -> Any:
    """An object whose `expired()` says whether the memory of a tensor was freed."""
    no_storage = SimpleNamespace(expired=lambda: True)
    return t.StorageWeakRef(value.untyped_storage()) if value.layout is torch.strided else no_storage
