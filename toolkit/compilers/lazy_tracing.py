"""Runs a graph node by node on lazy tensors, and once on fake ones: what it computes, which operators have no lazy
kernel, and what each output is in eager (an argument, a view of one, a new tensor, a number).

Devices become the lazy one wherever a tensor is made, in subgraphs too, since it happens below Python, at ATen's
operators. No value of an argument is used: stand-ins full of zeros are traced. The user's tensors are not written to.

For example, `traced(gm, [x, w]).results`: lazy tensors, one for each output that is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ...dumps.errors import GraphdbgError
from ...dumps.walk import user_frame
from .. import torch_private as t
from ..live.eager import attribute
from . import lazy_backend
from .operators import first_line, op_name, storage_size


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


class NotExtractedError(GraphdbgError):
    """The lazy backend cannot take a graph. `fallbacks` are the operators that it has no kernel for."""

    exit_code = 3

    def __init__(self, why: str, fallbacks: Sequence[Fallback] = ()) -> None:
        self.fallbacks = tuple(fallbacks)
        super().__init__("the lazy backend cannot take the graph", why, "use another rung or backend for this graph")

    @classmethod
    def of(cls, fallbacks: Sequence[Fallback]) -> NotExtractedError:
        """Names each operator once, with all its places."""
        places: dict[str, dict[str, None]] = {}
        for one in fallbacks:
            places.setdefault(one.op, {})[one.where] = None
        told = [f"{op} has no lazy kernel ({', '.join(where)})" for op, where in places.items()]
        return cls("; ".join(told), fallbacks)


@dataclass
class Traced:
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


@dataclass
class _State:
    """What a graph and its submodules share while they are traced. `attributes`: path -> what stands for it."""

    attributes: dict[str, Any]
    watch: bool
    fallbacks: list[Fallback] = field(default_factory=list)


def attributes_of(gm: fx.GraphModule) -> dict[str, torch.Tensor]:
    """Path -> tensor, of all that the graph reads and was not given: constants, parameters and buffers."""
    found: dict[str, torch.Tensor] = {}
    for node in gm.graph.nodes:
        target = str(node.target)
        value = attribute(gm, target) if node.op in ("get_attr", "call_module") else None
        if isinstance(value, torch.Tensor):
            found[target] = value
        elif isinstance(value, fx.GraphModule):
            found.update({f"{target}.{name}": tensor for name, tensor in attributes_of(value).items()})
        elif isinstance(value, torch.nn.Module):
            for held in (value.named_parameters(remove_duplicate=False), value.named_buffers(remove_duplicate=False)):
                found.update({f"{target}.{name}": tensor for name, tensor in held})
    return found


def traced(gm: fx.GraphModule, inps: Sequence[Any], attributes: dict[str, torch.Tensor]) -> Traced:
    """Traces `gm` on inputs with concrete sizes; `lazies` and `fakes` are those inputs, then the attributes.

    Raises NotExtractedError: operators without a kernel, all of them; what the lazy device refuses; what it would get
    wrong.
    """
    given = [*inps, *attributes.values()]
    names = list(attributes)
    device = lazy_backend.start_lazy()
    with t.modes_off(), torch.inference_mode(False), torch.no_grad():
        lazies, seen = [], []
        for value in given:
            lazy, shown = _lazy(value, device)
            lazies.append(lazy)
            seen.append(shown)
        state = _State(dict(zip(names, seen[len(inps) :], strict=True)), watch=True)
        ids = {t.lazy_tensor_id(lazy): place for place, lazy in enumerate(lazies) if isinstance(lazy, torch.Tensor)}
        try:
            with lazy_backend.OnLazyDevice(device):
                values = _Tracer(gm, state).run(*seen[: len(inps)])
        except _NodeError as error:
            raise _explained(error, state.fallbacks) from error.__cause__
        if state.fallbacks:
            raise NotExtractedError.of(state.fallbacks)
        mode, fakes = lazy_backend.fakes(given)
        before, versions = [_memory(fake) for fake in fakes], _versions(fakes)
        try:
            with mode:
                state = _State(dict(zip(names, fakes[len(inps) :], strict=True)), watch=False)
                eager = _Tracer(gm, state).run(*fakes[: len(inps)])
        except _NodeError as error:
            raise _explained(error, []) from error.__cause__
    if [_memory(fake) for fake in fakes] != before:
        raise NotExtractedError("the graph gives an input other memory or another size, which cannot be copied back")
    changed = [place for place, (was, now) in enumerate(zip(versions, _versions(fakes), strict=True)) if was != now]
    return Traced(values, eager, fakes, lazies, ids, changed)


def _lazy(value: Any, device: torch.device) -> tuple[Any, Any]:
    """(the tensor whose id stands for an input, what the graph sees of it).

    The backend keeps tensors without dimensions by their value, so that two equal ones, or one and a number of the
    graph, would be one input: the graph sees a view of a tensor with one element.
    """
    if not isinstance(value, torch.Tensor):
        return value, value
    try:
        stand_in = torch.zeros(value.shape if value.dim() else (1,), dtype=value.dtype)
        lazy = lazy_backend.wrapped_lazy(stand_in.to(device))
    except (RuntimeError, NotImplementedError) as error:
        raise NotExtractedError(f"an input of {value.dtype} cannot be a lazy tensor: {error}") from error
    return lazy, lazy if value.dim() else lazy.view(())


def _memory(fake: Any) -> tuple[Any, ...] | None:
    """Where a fake tensor lies."""
    if not isinstance(fake, torch.Tensor):
        return None
    return fake.shape, fake.stride(), fake.storage_offset(), storage_size(fake)


def _versions(fakes: Sequence[Any]) -> list[int]:
    """How often each was written to."""
    return [fake._version if isinstance(fake, torch.Tensor) else 0 for fake in fakes]


class _NodeError(Exception):
    """A node raised; the cause is what."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node


def _explained(error: _NodeError, fallbacks: Sequence[Fallback]) -> NotExtractedError:
    """All that is known: what fell back so far, and the node at which it ended."""
    if any(one.node == error.node.name for one in fallbacks):  # it fell back to a kernel that refuses the stand-ins
        return NotExtractedError.of(fallbacks)
    last = Fallback(op_name(error.node), error.node.name, user_frame(error.node.stack_trace or "")[0])
    why = f"{last.op} cannot be traced ({last.where}): {first_line(error.__cause__)}"
    told = NotExtractedError.of(fallbacks).why
    return NotExtractedError(f"{told}; {why}" if told else why, (*fallbacks, last))


class _Tracer(fx.Interpreter):
    """An interpreter that says which node fell back; submodules that are graphs are run the same way."""

    def __init__(self, gm: fx.GraphModule, state: _State, prefix: str = "") -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.state = state
        self.prefix = prefix

    def run_node(self, n: fx.Node) -> Any:
        before = lazy_backend.lazy_fallbacks() if self.state.watch else {}
        try:
            return super().run_node(n)
        except _NodeError:
            raise
        except Exception as error:  # whatever a kernel raises is why the graph cannot be taken
            raise _NodeError(n) from error
        finally:
            inner = n.op == "call_module" and isinstance(attribute(self.module, str(n.target)), fx.GraphModule)
            if self.state.watch and not inner:  # an inner graph's nodes were counted one by one
                line, _ = user_frame(n.stack_trace or "")
                after = lazy_backend.lazy_fallbacks()
                fell = [op for op, count in after.items() if count > before.get(op, 0)]
                self.state.fallbacks += [Fallback(op, n.name, line) for op in fell]

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        path = f"{self.prefix}{target}"
        return self.state.attributes[path] if path in self.state.attributes else super().get_attr(target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = attribute(self.module, str(target))
        path = f"{self.prefix}{target}."
        if isinstance(module, fx.GraphModule):
            return _Tracer(module, self.state, path).run(*args, **kwargs)
        held = {name[len(path) :]: value for name, value in self.state.attributes.items() if name.startswith(path)}
        return torch.func.functional_call(module, held, args, kwargs)
