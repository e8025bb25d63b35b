"""Fake values to compile a graph with: the recorded ones where they describe the inputs, else fresh ones.

>>> fakes, mode = shared_fakes(gm, inputs, dynamic=False)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..dumps.torchside.torch_private import storage_key
from . import torch_private as t
from .copying import clone_inputs


def shared_fakes(gm: fx.GraphModule, inputs: Sequence[Any], dynamic: bool) -> tuple[list[Any], Any]:
    """Fake inputs for a compile, and their fake mode.

    The placeholders' own `meta["val"]` when they belong to one fake mode and describe the inputs and which of them share memory
    (with symbols only if `dynamic`); else fresh static ones made from the real inputs.
    """
    recorded = [_fake_of(node) for node in gm.graph.nodes if node.op == "placeholder"]
    modes = {id(value.fake_mode): value.fake_mode for value in recorded if isinstance(value, t.FakeTensor)}
    alike = all(_stands_for(*pair, dynamic) for pair in zip(recorded, inputs, strict=True))
    traced = any("example_value" in node.meta for node in gm.graph.nodes if node.op == "placeholder")
    if len(modes) == 1 and alike and _share_as_promised(recorded, inputs, views=traced and not dynamic):
        return recorded, next(iter(modes.values()))
    gm.shape_env = None  # type: ignore[assignment]  # Inductor prefers it to the one of the inputs
    given = next((value for value in inputs if isinstance(value, t.FakeTensor)), None)
    if given is not None:
        return list(inputs), given.fake_mode
    mode = t.FakeTensorMode(allow_non_fake_inputs=True)
    real_ones = clone_inputs(inputs) if _any_shared(inputs) else inputs  # views of one base, as they were in the program
    return [mode.from_tensor(real) if isinstance(real, torch.Tensor) else real for real in real_ones], mode


def _share_as_promised(recorded: Sequence[Any], inputs: Sequence[Any], views: bool) -> bool:
    """Whether real inputs share memory wherever the recorded values do, which a compiler relies on; with `views` (a graph that
    AOTAutograd still has to see) also whether autograd knows such values as views of each other, as it knew the program's.
    """
    first: dict[int, tuple[Any, Any]] = {}
    for fake, real in zip(recorded, inputs, strict=True):
        if isinstance(fake, torch.Tensor) and fake.layout is torch.strided and not _has_symbols(fake) and real.numel():
            mate, real_mate = first.setdefault(storage_key(fake), (fake, real))
            unrelated = views and mate._base is None and fake._base is None
            if mate is not fake and (unrelated or storage_key(real_mate) != storage_key(real)):
                return False
    return True


def _any_shared(inputs: Sequence[Any]) -> bool:
    seen = [storage_key(one) for one in inputs if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.numel()]
    return len(set(seen)) < len(seen)


def _stands_for(fake: Any, real: Any, dynamic: bool) -> bool:
    """Whether a recorded value describes a real input: the same layout, or symbols in their place when they are wanted."""
    if not isinstance(fake, torch.Tensor) or not isinstance(real, torch.Tensor):
        numbers = isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, type(None)))
        if type(fake).__name__ == "FakeScriptObject":  # an input that the graph hands through, a device mesh for instance
            return isinstance(real, type(getattr(fake, "real_obj", None)))
        return numbers and not isinstance(real, torch.Tensor) and (dynamic or not _has_symbols(fake))
    if _has_symbols(fake):
        return dynamic and fake.dim() == real.dim() and fake.dtype == real.dtype
    if (fake.shape, fake.stride(), fake.dtype) != (real.shape, real.stride(), real.dtype):
        return False
    # Random state of attention on a GPU: torch promises the compiler a scalar there and makes it on the CPU. Seen on 2.11.0.
    return fake.device == real.device or (real.dim() == 0 and real.device.type == "cpu")


def is_number(node: fx.Node) -> bool:
    """Whether a node's value is a number, a size for instance, and not a tensor."""
    return isinstance(_fake_of(node), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


_MISSING = object()


def _fake_of(node: fx.Node) -> Any:
    value = node.meta.get("val", node.meta.get("example_value", _MISSING))
    return int(value) if isinstance(value, torch.SymInt) and value.node.is_constant() else value


def _has_symbols(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if not isinstance(value, torch.Tensor):
        return False
    return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride(), value.storage_offset()))


def mode_of(gm: fx.GraphModule, fakes: Sequence[Any]) -> Any:
    """The fake mode that fake inputs belong to; a fresh static one for a graph without tensor inputs."""
    values = [*fakes, *(node.meta.get("val") for node in gm.graph.nodes)]
    found = next((value.fake_mode for value in values if isinstance(value, t.FakeTensor)), None)
    return t.FakeTensorMode(allow_non_fake_inputs=True) if found is None else found
