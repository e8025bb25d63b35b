"""Runs a graph node by node on lazy tensors, and once on fake ones: what it computes, which operators have no lazy
kernel, and what each output is in eager (an argument, a view of one, a new tensor, a number).

Devices become the lazy one wherever a tensor is made, in subgraphs too, since it happens below Python, at ATen's
operators. No value of an argument is used: stand-ins full of zeros are traced. The user's tensors are not written to.

For example, `traced(gm, [x, w]).results`: lazy tensors, one for each output that is new.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ...dumps.errors import CannotTakeError, TorchLacksError
from ...dumps.walk import user_frame
from ...dumps.wording import error_line
from .. import torch_private as t
from ..debug_nop.blame import op_name
from ..live.eager import attribute
from ..live.execution import leaves
from .scriptable import storage_size

DEVICE = torch.device("lazy", 0)


@functools.cache
def start_lazy() -> None:
    """Begins the lazy TorchScript backend, once in a process.

    torch writes one warning to stderr meanwhile. Where the program has begun it already, a second start fails,
    recognisable only by the text of the error. Raises EnvironmentLackError for a torch that was built without it.
    """
    if t.optional("lazy_ts") is None:
        raise TorchLacksError("this torch has no lazy tensors", "it was built without the lazy TorchScript backend")
    try:
        t.start_lazy_backend()
    except RuntimeError as error:
        if "multiple backend fallbacks" not in str(error):
            raise


def lazy_fallbacks() -> dict[str, int]:
    """Operator -> how often it had no lazy kernel, in this process; counters named aten::... are those."""
    return {name: t.lazy_counter(name) for name in t.lazy_counters() if name.startswith("aten::")}


def wrapped_lazy(tensor: torch.Tensor) -> torch.Tensor:
    """A lazy tensor whose views are functional: wraps it where it has no wrapper yet, as a factory's result under a
    mode."""
    return tensor if t.is_functional_tensor(tensor) else t.to_functional_tensor(tensor)


def extract_lazy(tensors: list[torch.Tensor]) -> tuple[bytes, str, list[int], list[Any]]:
    """Compiles the graph behind lazy tensors: (hash, IR text, tensor ids of the device data, their values).

    Writes through views are applied first, because torch's functions read the tensors as they are.
    """
    for tensor in tensors:
        if t.is_functional_tensor(tensor):
            t.functional_sync(tensor)
    ids, values = t.lazy_device_data(tensors)
    graph_hash, text = t.lazy_graph_hash(tensors), t.lazy_text(tensors)
    t.lazy_sync(tensors, [])
    return graph_hash, text, ids, values


def run_lazy(graph_hash: bytes, values: list[Any]) -> list[torch.Tensor] | None:
    """Runs a compiled graph; None when torch has it no longer (it keeps a number of them)."""
    try:
        return t.run_lazy_graph(graph_hash, values)
    except RuntimeError as error:
        if "computation by hash" in str(error):
            return None
        raise


def as_fakes(values: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A fake mode and a fresh fake tensor for each tensor, sharing a storage where they do.

    Made afresh because tensors of inference mode count no writes, and tensors that are fake already belong to another
    mode.
    """
    mode = t.FakeTensorMode(allow_non_fake_inputs=True)
    storages: dict[int, torch.Tensor] = {}

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        storage, size_bytes = storage_size(value)
        if storage not in storages:
            storages[storage] = torch.empty(size_bytes, dtype=torch.uint8)
        whole = storages[storage][: size_bytes - size_bytes % value.element_size()].view(value.dtype)
        return whole.as_strided(value.shape, value.stride(), value.storage_offset())

    with mode:
        return mode, [fake(value) for value in values]


aten = torch.ops.aten


class OnLazyDevice(t.TorchDispatchMode):
    """A mode under which every tensor is made on the lazy device, whatever device the graph names or leaves out.

    It sees ATen's operators, so that factories inside other functions and subgraphs are moved too. What an operator
    computes stays the same: `copy`, which `copy_` becomes and which has no lazy kernel, is written with operators that
    have one.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is aten.copy.default:
            return _copied(*args[:2])
        if func in (aten.lift_fresh.default, aten.lift_fresh_copy.default) and args[0].device != DEVICE:
            return wrapped_lazy(args[0].to(DEVICE))
        names = [argument.name for argument in func._schema.arguments]
        makes = not any(isinstance(value, torch.Tensor) for value in leaves([*args, *kwargs.values()]))
        if "device" in names:
            place = names.index("device")
            if place < len(args):
                args = (*args[:place], DEVICE, *args[place + 1 :])
            elif makes or kwargs.get("device") is not None:
                kwargs["device"] = DEVICE
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        result = func(*t.tree_map_only(torch.Tensor, _moved, args), **kwargs)
        lazy = makes and isinstance(result, torch.Tensor) and result.device == DEVICE
        return wrapped_lazy(result) if lazy else result


def _moved(value: torch.Tensor) -> torch.Tensor:
    """A CPU tensor that is no input (a Python function's own constant) as a lazy one."""
    return value.to(DEVICE) if value.device.type == "cpu" else value


def _copied(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`copy`, which has no lazy kernel and is what `copy_` becomes, in operators that have one."""
    if source.dtype != target.dtype:
        source = aten._to_copy.default(source, dtype=target.dtype)
    return aten.expand_copy.default(source, target.shape) if source.shape != target.shape else source.clone()


@dataclass(frozen=True)
class Fallback:
    """An operator without a lazy kernel, as torch names it ("aten::sin"); `line` is the user's ("train.py:12"), "" if
    unknown."""

    op: str
    node: str
    line: str

    @property
    def where(self) -> str:
        """The place, for a sentence."""
        return self.line or f"node {self.node}"


class NotExtractedError(CannotTakeError):
    """The lazy backend cannot take a graph. `fallbacks` are the operators that it has no kernel for."""

    def __init__(self, why: str, fallbacks: Sequence[Fallback] = ()) -> None:
        self.fallbacks = tuple(fallbacks)
        super().__init__("the lazy backend cannot take the graph", why, "use another rung or backend for this graph")

    @classmethod
    def of(cls, fallbacks: Sequence[Fallback], *more: str) -> NotExtractedError:
        """Names each operator once, with all its places; `more` are further sentences."""
        places: dict[str, dict[str, None]] = {}
        for fallback in fallbacks:
            places.setdefault(fallback.op, {})[fallback.where] = None
        sentences = [f"{op} has no lazy kernel ({', '.join(where)})" for op, where in places.items()]
        return cls("; ".join([*sentences, *more]), fallbacks)


@dataclass
class LazyTrace:
    """`values` is what the graph returns, lazy; `eager` is the same on fake tensors, whose inputs were `fakes`.

    `ids`: lazy tensor id -> the input's place, as the inputs were before the graph wrote to any; `changed`: the places
    that it writes to.
    """

    values: Any
    eager: Any
    fakes: list[Any]
    lazies: list[Any]
    ids: dict[int, int]
    changed: list[int]


def attributes_of(gm: fx.GraphModule) -> dict[str, torch.Tensor]:
    """Path -> tensor, of all that the graph reads and was not given: constants, parameters and buffers."""
    tensors: dict[str, torch.Tensor] = {}
    for node in gm.graph.nodes:
        target = str(node.target)
        value = attribute(gm, target) if node.op in ("get_attr", "call_module") else None
        if isinstance(value, torch.Tensor):
            tensors[target] = value
        elif isinstance(value, fx.GraphModule):
            tensors.update({f"{target}.{name}": tensor for name, tensor in attributes_of(value).items()})
        elif isinstance(value, torch.nn.Module):
            for held in (value.named_parameters(remove_duplicate=False), value.named_buffers(remove_duplicate=False)):
                tensors.update({f"{target}.{name}": tensor for name, tensor in held})
    return tensors


def traced(gm: fx.GraphModule, inps: Sequence[Any], attributes: dict[str, torch.Tensor]) -> LazyTrace:
    """Traces `gm` on inputs with concrete sizes; `lazies` and `fakes` are those inputs, then the attributes.

    Raises NotExtractedError for operators without a lazy kernel, all of which it names, and for what the lazy device
    refuses or would get wrong.
    """
    given = [*inps, *attributes.values()]
    start_lazy()
    fallbacks: list[Fallback] = []

    def run(seen: Sequence[Any]) -> Any:
        held = dict(zip(attributes, seen[len(inps) :], strict=True))
        return _FallbackInterpreter(gm, held, fallbacks).run(*seen[: len(inps)])

    with t.modes_off(), torch.inference_mode(False), torch.no_grad():
        lazies, seen = zip(*(_lazy(value) for value in given), strict=True) if given else ((), ())
        ids = {t.lazy_tensor_id(lazy): place for place, lazy in enumerate(lazies) if isinstance(lazy, torch.Tensor)}
        with OnLazyDevice():
            values = run(seen)
        if fallbacks:
            raise NotExtractedError.of(fallbacks)
        mode, fakes = as_fakes(given)
        before = [_memory(fake) for fake in fakes]
        with mode:
            eager = run(fakes)
    after = [_memory(fake) for fake in fakes]
    if [where for where, _ in before] != [where for where, _ in after]:
        raise NotExtractedError("the graph gives an input other memory or another size, which cannot be copied back")
    changed = [place for place, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    return LazyTrace(values, eager, fakes, list(lazies), ids, changed)


def _lazy(value: Any) -> tuple[Any, Any]:
    """(the tensor whose id stands for an input, what the graph sees of it).

    The backend keeps tensors without dimensions by their value, so that two equal ones, or one and a number of the
    graph, would be one input: the graph sees a view of a tensor with one element.
    """
    if not isinstance(value, torch.Tensor):
        return value, value
    try:
        stand_in = torch.zeros(value.shape if value.dim() else (1,), dtype=value.dtype)
        lazy = wrapped_lazy(stand_in.to(DEVICE))
    except (RuntimeError, NotImplementedError) as error:
        raise NotExtractedError(f"an input of {value.dtype} cannot be a lazy tensor: {error}") from error
    return lazy, lazy if value.dim() else lazy.view(())


def _memory(fake: Any) -> tuple[Any, int]:
    """(where a fake tensor lies, how often it was written to)."""
    if not isinstance(fake, torch.Tensor):
        return None, 0
    return (fake.shape, fake.stride(), fake.storage_offset(), storage_size(fake)), fake._version


class _FallbackInterpreter(fx.Interpreter):
    """An interpreter that notes which node fell back; submodules that are graphs are run the same way.

    `attributes`: path -> what stands for it; `prefix`: the path of this graph.
    """

    def __init__(
        self, gm: fx.GraphModule, attributes: dict[str, Any], fallbacks: list[Fallback], prefix: str = ""
    ) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.attributes, self.fallbacks, self.prefix = attributes, fallbacks, prefix

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_module" and isinstance(attribute(self.module, str(n.target)), fx.GraphModule):
            return super().run_node(n)  # its nodes are counted one by one
        before = lazy_fallbacks()
        try:
            value = super().run_node(n)
        except Exception as error:  # whatever a kernel raises is why the graph cannot be taken
            if self._fell(n, before):  # it fell back to a kernel that refuses the stand-ins
                raise NotExtractedError.of(self.fallbacks) from error
            last = Fallback(op_name(n), n.name, user_frame(n.stack_trace or "")[0])
            why = f"{last.op} cannot be traced ({last.where}): {error_line(error)}"
            raise NotExtractedError.of(self.fallbacks, why) from error
        self._fell(n, before)
        return value

    def _fell(self, node: fx.Node, before: dict[str, int]) -> bool:
        """Records the operators of a node that fell back; returns whether any did."""
        line, _ = user_frame(node.stack_trace or "")
        fell = [op for op, count in lazy_fallbacks().items() if count > before.get(op, 0)]
        self.fallbacks += [Fallback(op, node.name, line) for op in fell]
        return bool(fell)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        path = f"{self.prefix}{target}"
        return self.attributes[path] if path in self.attributes else super().get_attr(target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = attribute(self.module, str(target))
        path = f"{self.prefix}{target}."
        if isinstance(module, fx.GraphModule):
            return _FallbackInterpreter(module, self.attributes, self.fallbacks, path).run(*args, **kwargs)
        held = {name[len(path) :]: value for name, value in self.attributes.items() if name.startswith(path)}
        return torch.func.functional_call(module, held, args, kwargs)
