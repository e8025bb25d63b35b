# pyright: basic
"""What the inputs of a captured backward are called and what they are for.

A parameter is known by its name in its module (a view of it too), an old gradient by its parameter, the gradient that the
backward began with as `grad_output`, a saved activation by the autograd node that used it first; what a hook or a custom
Function holds is a constant.

>>> Names(roots).source(parameter)
'net.0.weight'
"""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils.weak import WeakTensorKeyDictionary

from ....dumps.schema import InputRecord
from ....dumps.torchside.torch_private import storage_key
from .places import Place


class Names:
    """Names of tensors. `roots` are the gradients that the backward begins with."""

    def __init__(self, roots: Sequence[Any]) -> None:
        self._known: Any = WeakTensorKeyDictionary()
        self._memory: dict[int, tuple[str, str, str]] = {}
        self.records: dict[str, InputRecord] = {}
        for path, parameter in parameters():
            self._known[parameter] = known = ("parameter", path, f"p_{path}")
            if parameter.layout is torch.strided and type(parameter) in (torch.Tensor, torch.nn.Parameter):
                self._memory[storage_key(parameter)] = known
            if parameter.grad is not None:
                self._known[parameter.grad] = ("saved", f"{path}.grad", f"old_grad_{path}")
        for root in roots:
            if isinstance(root, torch.Tensor):
                self._known[root] = ("tangent", "the gradient that the backward began with", "grad_output")

    def name(self, value: torch.Tensor, place: Place) -> str:
        """A free name for the placeholder of a value that is first used at `place`; its record is kept."""
        role, source, wanted = self._known.get(value) or self._view(value) or self._of(place)
        name = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_").lower() or "saved"
        free, count = name, 0
        while free in self.records:
            count += 1
            free = f"{name}_{count}"
        self.records[free] = InputRecord(free, role=role, source=source)  # type: ignore[arg-type]
        return free

    def source(self, parameter: torch.Tensor) -> str:
        """What a parameter is called in its module."""
        known = self._known.get(parameter)
        return known[1] if known and known[0] == "parameter" else "unnamed"

    def described(self, gm: fx.GraphModule) -> list[InputRecord]:
        """The placeholders of a graph with their roles."""
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        return [self.records.get(name) or InputRecord(name) for name in names]

    def _view(self, value: torch.Tensor) -> tuple[str, str, str] | None:
        known = self._memory.get(storage_key(value)) if value.layout is torch.strided else None
        return known and ("parameter", f"{known[1]} (a view)", known[2])

    @staticmethod
    def _of(place: Place) -> tuple[str, str, str]:
        if place.hook.endswith(" drew it"):
            return "constant", f"random numbers: {place.hook}", "drawn"
        if place.hook:
            return "constant", f"used in {place.hook}", "held"
        if not place.node:
            return "tangent", "the gradient that the backward began with", "grad_output"
        name, _, rest = place.node.rpartition("::")[2].partition(" (NodeCall ")
        short = re.sub(r"Backward\d*$", "", name)
        return "saved", place.node, f"saved_{rest.rstrip(')')}_{short}"


def parameters() -> list[tuple[str, torch.Tensor]]:
    """Every parameter that a module holds, with its path; where several outermost modules hold some, after the name of the
    class."""
    modules = [item for item in gc.get_objects() if issubclass(type(item), torch.nn.Module) and "_modules" in vars(item)]
    inner = {id(child) for module in modules for child in vars(module)["_modules"].values()}
    held = [_named(module) for module in modules if id(module) not in inner]
    outer = [(kind, found) for kind, found in held if found]
    many = len(outer) > 1
    return [(f"{kind}.{path}" if many else path, parameter) for kind, found in outer for path, parameter in found]


def _named(module: torch.nn.Module) -> tuple[str, list[tuple[str, torch.Tensor]]]:
    """The name of the class, and the parameters by path; none where a class has an idea of its own of what they are."""
    try:
        return type(module).__name__, list(torch.nn.Module.named_parameters(module))
    except Exception:  # noqa: BLE001 - its parameters stay without names
        return type(module).__name__, []
