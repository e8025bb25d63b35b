"""Torch's lazy TorchScript backend: begun, traced with, extracted from and run.

>>> start_lazy()
device(type='lazy', index=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...dumps.errors import EnvironmentLackError
from .. import torch_private as t
from ..live.execution import leaves
from .operators import arguments_of, storage_size


def start_lazy() -> torch.device:
    """The lazy TorchScript backend, begun once in a process, and its device.

    torch writes one warning to stderr meanwhile. Where the program has begun it already, a second start fails, and that
    is told by the text of the error alone. Raises EnvironmentLackError for a torch that was built without it.
    """
    if t.optional("lazy_ts") is None:
        raise EnvironmentLackError(
            "this torch has no lazy tensors", "it was built without the lazy TorchScript backend"
        )
    if not _lazy_started:
        try:
            t.start_lazy_backend()
        except RuntimeError as error:
            if "multiple backend fallbacks" not in str(error):
                raise
        _lazy_started.append(True)
    return torch.device("lazy", 0)


_lazy_started: list[bool] = []


def lazy_fallbacks() -> dict[str, int]:
    """Operator -> how often it had no lazy kernel, in this process; counters named aten::... are those."""
    return {name: t.lazy_counter(name) for name in t.lazy_counters() if name.startswith("aten::")}


def wrapped_lazy(tensor: torch.Tensor) -> torch.Tensor:
    """A lazy tensor that views can be taken of: a wrapper makes those functional, and factories give none under a
    mode."""
    return tensor if t.is_functional_tensor(tensor) else t.to_functional_tensor(tensor)


def extract_lazy(tensors: Sequence[torch.Tensor]) -> tuple[bytes, str, list[int], list[Any]]:
    """Compiles what lazy tensors stand for: (hash, IR text, tensor ids of the device data, their values).

    What was written through views is applied first: the functions of torch look at the tensors as they are.
    """
    given = list(tensors)
    for tensor in given:
        if t.is_functional_tensor(tensor):
            t.functional_sync(tensor)
    ids, values = t.lazy_device_data(given)
    found = t.lazy_graph_hash(given), t.lazy_text(given)
    t.lazy_sync(given, [])
    return *found, list(ids), list(values)


def run_lazy(graph_hash: bytes, values: Sequence[Any]) -> list[torch.Tensor] | None:
    """Runs a compiled graph; None when torch has it no longer (it keeps a number of them)."""
    try:
        return t.run_lazy_graph(graph_hash, list(values))
    except RuntimeError as error:
        if "computation by hash" not in str(error):
            raise
        return None


def fakes(values: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A fake mode and a fake tensor for each tensor, sharing a storage where they do.

    Those of inference mode, which count no writes, and those of another fake mode get fresh ones.
    """
    mode = t.FakeTensorMode(allow_non_fake_inputs=True)
    storages: dict[int, torch.Tensor] = {}

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not value.is_inference() and not isinstance(value, t.FakeTensor):
            return mode.from_tensor(value)
        storage, size_bytes = storage_size(value)
        with mode:
            if storage not in storages:
                storages[storage] = torch.empty(size_bytes, dtype=torch.uint8)
            whole = storages[storage][: size_bytes - size_bytes % value.element_size()].view(value.dtype)
            return whole.as_strided(value.shape, value.stride(), value.storage_offset())

    return mode, [fake(value) for value in values]


aten = torch.ops.aten


class OnLazyDevice(t.TorchDispatchMode):
    """A mode under which every tensor is made on the lazy `device`, whatever device the graph names or leaves out.

    It sees ATen's operators, so that factories inside other functions and subgraphs are moved too. Must not change what
    an operator computes: `copy`, which `copy_` becomes and which has no lazy kernel, is said in operators that have
    one.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given = [value for value in leaves([*args, *kwargs.values()]) if isinstance(value, torch.Tensor)]
        if func is aten.copy.default:
            return _copied(*args[:2])
        if func in (aten.lift_fresh.default, aten.lift_fresh_copy.default) and args[0].device != self.device:
            return wrapped_lazy(args[0].to(self.device))
        names = [name for name, _ in arguments_of(func)]
        makes = not given
        if "device" in names:
            place = names.index("device")
            if place < len(args):
                args = (*args[:place], self.device, *args[place + 1 :])
            elif makes or kwargs.get("device") is not None:
                kwargs["device"] = self.device
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        result = func(*(self._moved(value) for value in args), **kwargs)
        if makes and isinstance(result, torch.Tensor) and result.device == self.device:
            return wrapped_lazy(result)
        return result

    def _moved(self, value: Any) -> Any:
        """A tensor of the CPU that came in by the way (a Python function's own constant) as a lazy one."""
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            return value.to(self.device)
        if isinstance(value, (list, tuple)):
            return type(value)([self._moved(one) for one in value])
        return value


def _copied(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`copy`, which has no lazy kernel and is what `copy_` becomes, in operators that have one."""
    if source.dtype != target.dtype:
        source = aten._to_copy.default(source, dtype=target.dtype)
    return aten.expand_copy.default(source, target.shape) if source.shape != target.shape else source.clone()
