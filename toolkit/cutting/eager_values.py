# pyright: basic
"""Runs a graph once and keeps what every node computed, as `values.Values`.

Each tensor is cloned with its strides and overlap, at the point of use. The graph, its attributes, its modules and the
inputs are not changed: the run works on copies, under a copy of the random state.

>>> values = record_values(gm, inputs)
>>> values.tree("mul").load().shape
torch.Size([2, 16])
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from ...dumps.errors import EnvironmentLackError
from ...dumps.torchside import torch_private as t
from ...dumps.torchside.values import fake_of
from ...dumps.torchside.wrappers import is_wrapper, parts, type_name
from ..live.eager import clone_inputs, is_random
from ..live.execution import leaves
from ..live.values import OPAQUE, PLAIN, Held, Values, compact, write_storage


def record_values(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    spill: Path | None = None,
    *,
    errors: bool = False,
    ends_at: str = "",
    running: Path | None = None,
) -> Values:
    """Runs the graph once on copies of the inputs and keeps what every node computed. The caller's random state is
    kept.

    With `errors`, a node that raises ends the run (see `Values.raised`); else its exception propagates. `ends_at` names
    a node that is not run, because an earlier process died in it: it counts as one that raises. `running`: a file with
    the name of the node being run, to be read if this process dies.
    """
    cuda = sorted({value.device.index for value in inputs if isinstance(value, torch.Tensor) and value.is_cuda})
    with torch.random.fork_rng(devices=cuda):
        recorder = Recorder(gm, list(inputs), spill, ends_at, running)
        try:
            recorder.run(*clone_inputs(inputs), enable_io_processing=False)
        except Exception:
            if not (errors or ends_at) or recorder.running is None:
                raise
            recorder.end_at(recorder.running)
    if running is not None:
        running.unlink(missing_ok=True)
    return recorder.values


class _EndedError(Exception):
    """The run has reached the node at which it is to end."""


class Recorder(fx.Interpreter):
    """Interprets node by node; notices writes by schema, by version counters, and by the bytes where neither can be
    trusted."""

    def __init__(
        self, gm: fx.GraphModule, inputs: list[Any], spill: Path | None, ends_at: str = "", running: Path | None = None
    ) -> None:
        super().__init__(gm)
        _refuse_wrappers(gm, inputs)
        self.extra_traceback = False
        self.values = Values(inputs)
        self._spill, self._ends_at, self._running = spill, ends_at, running
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []
        self._versions: dict[int, int] = {}
        self._attributes: dict[str, Any] = {}
        self._later: list[tuple[str, int, Any]] = []
        """Values made inside a vmap or grad; they are held when that is over."""
        self.running: fx.Node | None = None
        """The node that is being run, until its value is there."""

    def end_at(self, n: fx.Node) -> None:
        """Ends the run as if this node had raised."""
        self.values.raised = n.name
        self.values.memory[n.name] = frozenset()
        self.values.produced[n.name] = self.values.read["output", n.name] = 0
        self.values.trees[n.name, 0] = self._hold(_zeros(fake_of(n)), f"{n.name}.0")

    def run_node(self, n: fx.Node) -> Any:
        before: dict[fx.Node, int] = {}
        for node in n.all_input_nodes:
            self._note_read(n, node)
            before[node] = sum(_version(tensor) for tensor in _tensors(self.env[node]))
        copies = self._bytes_before(n)
        grad = torch.is_grad_enabled()
        self.running = n
        if n.name == self._ends_at:
            raise _EndedError
        if self._running is not None and n.op.startswith("call"):
            self._running.write_text(n.name)
        result = super().run_node(n)
        self.running = None
        if torch.is_grad_enabled() != grad or getattr(n.target, "__name__", "") == "_set_grad_enabled":
            self.values.grads[n.name] = (grad, torch.is_grad_enabled())
        if is_random(n):
            self.values.random.append(n.name)
        written: set[int] = set()
        declared = set(written_arguments(n))
        for node in n.all_input_nodes:
            value = self.env.get(node)
            if node in declared or sum(_version(tensor) for tensor in _tensors(value)) != before[node]:
                written |= self._memory(value)
        written |= {storage for storage, now_and_then in copies.items() if not torch.equal(*now_and_then)}
        if written:
            self.values.writes[n.name] = frozenset(written)
            for storage in written:
                self._versions[storage] = self._versions.get(storage, 0) + 1
        if n.op != "output":
            self.values.memory[n.name] = frozenset(self._memory(result))
            version = self._version_of(n.name)
            self.values.produced[n.name] = version
            if n.op not in ("placeholder", "get_attr"):
                self._later.append((n.name, version, result))
            if t.transform_level() is None:
                for name, at, value in self._later:
                    self.values.trees[name, at] = self._hold(value, f"{name}.{at}")
                self._later.clear()
        return result

    def _bytes_before(self, n: fx.Node) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """For a node whose writes neither its schema nor versions may show: the bytes of all its arguments, and copies
        of them."""
        tensors = [tensor for node in n.all_input_nodes for tensor in _tensors(self.env[node])]
        if not _may_write_unseen(n, tensors):
            return {}
        kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for tensor in tensors:
            if tensor.layout is torch.strided and tensor.device.type != "meta":
                [storage] = self._memory(tensor)
                if storage not in kept:
                    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
                    flat.set_(tensor.detach().untyped_storage())
                    kept[storage] = flat, flat.clone()
        return kept

    def fetch_attr(self, target: str) -> Any:
        if target not in self._attributes:
            value = super().fetch_attr(target)
            self._attributes[target] = clone_inputs([value])[0] if isinstance(value, torch.Tensor) else value
        return self._attributes[target]

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        submodule = super().fetch_attr(target)
        return copy.deepcopy(submodule)(*args, **kwargs)

    def _note_read(self, user: fx.Node, node: fx.Node) -> None:
        version = self._version_of(node.name)
        self.values.read[user.name, node.name] = version
        if version != self.values.produced[node.name] and (node.name, version) not in self.values.trees:
            self.values.trees[node.name, version] = self._hold(self.env[node], f"{node.name}.{version}")

    def _version_of(self, name: str) -> int:
        return sum(self._versions.get(storage, 0) for storage in self.values.memory[name])

    def _memory(self, value: Any) -> set[int]:
        ids: set[int] = set()
        for tensor in _tensors(value):
            # A weak reference keeps the storage's address from being used again, but not its bytes.
            reference = StorageWeakRef(tensor.untyped_storage()) if tensor.layout is torch.strided else tensor
            key = reference.cdata if isinstance(reference, StorageWeakRef) else id(tensor)
            self._alive.append(reference)
            if key not in self._storages:
                self._storages[key] = len(self._storages)
            ids.add(self._storages[key])
        return ids

    def _hold(self, value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            if t.is_wrapped(value) or is_wrapper(value):  # the first is of use only inside its vmap or grad
                return OPAQUE
            return self._hold_tensor(value, name)
        if isinstance(value, (list, tuple)):
            parts = [self._hold(part, f"{name}.{i}") for i, part in enumerate(value)]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.hint
        return value if isinstance(value, PLAIN) else OPAQUE

    def _hold_tensor(self, value: torch.Tensor, name: str) -> Held:
        kept = compact(value)
        plain = kept.layout is torch.strided
        held = Held.of(kept, tensor=kept, place=self._place(value) if plain else None)
        if self._spill is not None and plain and not kept.is_quantized:
            held.path = self._spill / f"{name}.safetensors"
            held.tensor = None
            write_storage(kept.detach(), held.path)
        return held

    def _place(self, value: torch.Tensor) -> tuple[int, int, int] | None:
        """(storage, version, offset in bytes) of a tensor, if `compact` keeps its layout; None otherwise."""
        lazy = value.is_quantized or value.is_conj() or value.is_neg()
        if lazy or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return None
        [storage] = self._memory(value)
        return storage, self._versions.get(storage, 0), int(value.storage_offset()) * value.element_size()


def _zeros(fake: Any) -> Any:
    """A value of the form of a fake one; a single zero where none was traced."""
    if isinstance(fake, torch.Tensor):
        return torch.zeros([int(size) for size in fake.shape], dtype=fake.dtype)
    if isinstance(fake, (list, tuple)):
        return [_zeros(part) for part in fake]
    return torch.zeros(())


def _refuse_wrappers(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=False):
        if is_wrapper(value):
            why = f"its input {node.name} is a {type_name(value)}, which holds other tensors"
            later = "cut a graph that was recorded after AOTAutograd (forward, backward, inference)"
            raise EnvironmentLackError("this graph cannot be cut", why, f"{later}, whose inputs are the tensors inside")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for leaf in leaves(value):
        if is_wrapper(leaf):
            yield from _tensors(list(parts(leaf).values()))
        elif isinstance(leaf, torch.Tensor) and not t.is_wrapped(leaf):  # wrapped: functorch's
            yield leaf


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


_OURS = frozenset({"torch", "_operator", "operator", "math", "builtins", ""})
BUILT_IN = frozenset({"aten", "prims", "prim", "inductor", "_c10d_functional", "quantized", "mkldnn", "rngprims"})


def _may_write_unseen(n: fx.Node, tensors: list[torch.Tensor]) -> bool:
    """Whether a write may show neither in a schema nor in a version: higher-order and custom operators, functions of
    other packages, and inference tensors, which have no version.
    """
    if n.op == "call_function" and hasattr(n.target, "_schema"):
        return n.target.namespace not in BUILT_IN  # type: ignore[union-attr]
    known = (getattr(n.target, "__module__", None) or "").partition(".")[0] in _OURS
    higher_order = any(kind.__name__ == "HigherOrderOperator" for kind in type(n.target).__mro__)
    if n.op == "call_function" and (higher_order or not known):
        return True
    return n.op in ("call_function", "call_method", "call_module") and any(tensor.is_inference() for tensor in tensors)


def written_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """The arguments that an operator's own schema declares as written to."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not getattr(schema, "is_mutable", False):
        return
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            for part in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(part, fx.Node):
                    yield part
