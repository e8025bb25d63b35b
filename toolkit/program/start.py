# pyright: basic
"""The state that a call begins with: copied before the call, restored as often as needed, and compared afterwards.

Memory is copied storage by storage, so that views stay views, and restored below autograd, which does not bump version
counters. A gradient (`.grad`), Python objects and random states are restored, too. Raises NotCopied where a part cannot
be copied.

>>> from graphdbg.toolkit.program.reach import reach
>>> step = torch.nn.BatchNorm1d(4)
>>> start = StartState(reach(step, (x,), {}))
>>> y = step(x)
>>> [name for name, _ in start.written()[0]]
['running_mean', 'running_var', 'num_batches_tracked']
>>> start.put_back()
"""

from __future__ import annotations

import functools
import random
import re
import sys
import types
from collections import OrderedDict, deque
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ...dumps import opening
from ...dumps.torchside import wrappers
from ...dumps.torchside.values import storage_key
from ...dumps.wording import size_text
from ..live.torch_state import ambient, generators, settings
from .reach import Reached, Restorable, class_state, slots_of

_TRANSFORMED = ("BatchedTensorImpl", "TensorWrapper")
"""The tensor classes that torch.vmap and torch.func pass to a function."""
_LEFT_TO_EAGER = (
    "inside of torch.vmap, torch.func.grad and the like torch.compile leaves a function to eager: compile what they "
    "return, as in torch.compile(torch.vmap(f))"
)


class NotCopied(Exception):
    """The reason why a state cannot be copied."""


class StartState:
    """A copy of the state of everything that was reached."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached
        self.storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._held = 0
        self._sparse: dict[int, torch.Tensor] = {}
        """A detached alias of each sparse tensor: an in-place write may give the tensor other parts."""
        self._first: dict[int, torch.Tensor] = {}
        self.shared: set[int] = set()
        """The storages that several of the tensors share."""
        self.forms: list[tuple[str, torch.Tensor, tuple[Any, ...], Any, bool]] = []
        try:
            for name, tensor in reached.tensors:
                for part in _flat(tensor):
                    self._take(name, part)
                gradient = tensor.grad if tensor.is_leaf and not tensor.is_inference() else None
                for part in _flat(gradient) if gradient is not None and not _lost(gradient) else []:
                    self._take(f"gradient of {name}", part)
                self.forms.append((name, tensor, _form(tensor), gradient, tensor.requires_grad))
                if tensor.layout in _OF_SPARSE:
                    self._sparse[id(tensor)] = tensor.detach()
        except (RuntimeError, ValueError) as error:  # ValueError: a parameter of a lazy module
            if str(error).endswith(_TRANSFORMED):
                raise NotCopied(_LEFT_TO_EAGER) from error
            raise NotCopied(f"{name} cannot be copied ({str(error).splitlines()[0][:120]})") from error
        self.boxes = [(box, _kept(box)) for box in reached.boxes]
        self.random = Randomness(reached.generators)
        self.ambient = ambient(seed=False)
        self.handle_id = RemovableHandle.next_id
        """The key of the next hook, restored so that hooks that a call registers have the same keys in each run."""

    def _take(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.is_meta:  # no memory to copy
            return
        if tensor.layout != torch.strided:
            raise NotCopied(f"{name} is {tensor.layout} on {tensor.device}, which cannot be copied")
        storage = tensor.untyped_storage()
        if storage._cdata in self.storages:
            self.shared.add(storage._cdata)
        else:
            self._held += storage.nbytes() if tensor.device.type == "cpu" else 0
            if self._held > opening.FREELY_BYTES and self._held > opening.most_in_memory():
                over = f"it reaches over {size_text(self._held)} of tensors"
                raise NotCopied(f"{over}, too much to copy in the free memory")
            self.storages[storage._cdata] = (storage, storage.clone())
            self._first[storage._cdata] = tensor

    def put_back(self) -> None:
        """Restores everything to the copied state."""
        for key, (storage, kept) in self.storages.items():
            if _lost(self._first[key]):  # a CUDA graph has reused the memory
                continue
            if storage.nbytes() != kept.nbytes():
                storage.resize_(kept.nbytes())
            storage.copy_(kept)
        for _, tensor, form, gradient, requires in self.forms:
            if not _lost(tensor) and _form(tensor) != form:
                with torch.no_grad():
                    tensor.data = self._sparse[id(tensor)] if id(tensor) in self._sparse else self._dense(tensor, form)
            if tensor.requires_grad and not requires and not tensor.is_leaf:
                tensor.detach_()  # an in-place write gave it a history
            if tensor.is_leaf and not tensor.is_inference():
                if tensor.grad is not gradient:
                    tensor.grad = gradient
                if tensor.requires_grad != requires:
                    tensor.requires_grad_(requires)
        for box, kept in self.boxes:
            _restore(box, kept)
        RemovableHandle.next_id = self.handle_id
        self.random.put_back()

    def _dense(self, tensor: torch.Tensor, form: tuple[Any, ...]) -> torch.Tensor:
        shape, stride, offset, dtype, key = form
        storage = self.storages[key][0] if key in self.storages else tensor.untyped_storage()
        return torch.empty(0, dtype=dtype, device=tensor.device).set_(storage, offset, shape, stride)

    def written(self) -> tuple[list[tuple[str, torch.Tensor]], list[tuple[str, Any]]]:
        """The tensors whose memory or form changed, by their first name; and each leaf's `.grad` that is another object
        or holds other numbers."""
        there = {key: both for key, both in self.storages.items() if not _lost(self._first[key])}
        changed = {key for key, both in there.items() if not _equal(*both)}
        touched = lambda tensor: any(storage_key(part) in changed for part in _flat(tensor))  # noqa: E731
        tensors = [
            (name, tensor)
            for name, tensor, form, _, _ in self.forms
            if not _lost(tensor) and (_form(tensor) != form or touched(tensor))
        ]
        gradients = [
            (f"{name}.grad", tensor.grad)
            for name, tensor, _, before, _ in self.forms
            if tensor.is_leaf
            and not tensor.is_inference()
            and (tensor.grad is not before or (before is not None and not _lost(before) and touched(before)))
        ]
        return tensors, gradients

    def changed(self) -> list[tuple[Restorable, str, Any]]:
        """The changed parts of Python objects: the object, the part's name, its present value (ABSENT where
        removed)."""
        return [(box, name, part) for box, kept in self.boxes for name, part in _changes(box, kept, _kept(box))]

    def switched(self) -> dict[str, Any]:
        """Name -> value of torch's settings that changed."""
        before = settings(self.ambient)
        return {name: value for name, value in settings(ambient(seed=False)).items() if value != before[name]}


PYTHON = "Python"
"""How the names of Python's own generators begin: compiled code draws from them what eager draws."""


class Randomness:
    """The states of torch's, Python's and NumPy's generators."""

    def __init__(self, others: list[Any]) -> None:
        self.others = others
        self.kept = {name: (functools.partial(_put_default, name), state.clone()) for name, state in generators()}
        ways: dict[str, Any] = {PYTHON: (random.getstate, random.setstate)}
        ways |= {f"{_whose(other)} {at}": _ways(other) for at, other in enumerate(others)}
        if (numpy := sys.modules.get("numpy.random")) is not None:
            ways["NumPy"] = functools.partial(numpy.get_state, legacy=False), numpy.set_state
        self.kept |= {name: (put, get()) for name, (get, put) in ways.items()}

    def put_back(self) -> None:
        """Restores every generator."""
        for put, state in self.kept.values():
            put(state)

    def moved(self) -> bool:
        """Whether a random number was drawn since."""
        return self.unlike(self.now())

    def now(self) -> Randomness:
        """The present states of the same generators."""
        return Randomness(self.others)

    def unlike(self, now: Randomness, *, besides: tuple[str, ...] = ()) -> bool:
        """Whether any generator's state differs from that in `now`. `besides`: how the names of those begin that are
        not looked at."""
        names = (name for name in self.kept.keys() & now.kept.keys() if not name.startswith(besides))
        return not all(_same(self.kept[name][1], now.kept[name][1]) for name in names)


def _put_default(name: str, state: torch.Tensor) -> None:
    torch.set_rng_state(state) if name == "cpu" else torch.cuda.set_rng_state(state, name)


def _whose(generator: Any) -> str:
    return PYTHON if isinstance(generator, random.Random) else "other"


def _ways(generator: Any) -> tuple[Any, Any]:
    """The functions that get and set a generator's state, of torch's or of one with Python's interface."""
    of_torch = isinstance(generator, torch.Generator)
    return (generator.get_state, generator.set_state) if of_torch else (generator.getstate, generator.setstate)


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return torch.equal(value, other)
    if isinstance(value, dict):  # a state of NumPy's
        value, other = tuple(value.values()), tuple(other.values())
    if isinstance(value, tuple):
        return all(map(_same, value, other))
    return bool((value == other).all()) if hasattr(value, "all") else value == other


_OF_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values")),
}


def _flat(tensor: torch.Tensor) -> list[torch.Tensor]:
    if wrappers.is_wrapper(tensor):
        return [inner for part in wrappers.parts(tensor).values() for inner in _flat(part)]
    if tensor.layout in _OF_SPARSE:
        return [getattr(tensor.detach(), name)() for name in _OF_SPARSE[tensor.layout]]
    return [tensor]


def _lost(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory belongs to a CUDA graph that has run again since: torch then refuses to read it."""
    try:
        for part in _flat(tensor):
            if part.is_cuda and part.layout == torch.strided:
                part.untyped_storage().data_ptr()
    except RuntimeError:
        return True
    return False


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    if wrappers.is_wrapper(tensor):
        return (tuple(tensor.shape),)
    if tensor.layout in _OF_SPARSE:
        return tuple(tensor.shape), *(storage_key(part) for part in _flat(tensor))
    laid_out = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    return *laid_out, tensor.dtype, storage_key(tensor)


def _equal(storage: torch.UntypedStorage, kept: torch.UntypedStorage) -> bool:
    if storage.nbytes() != kept.nbytes():
        return False
    width = torch.uint8 if kept.nbytes() % 8 else torch.int64
    now, before = (torch.empty(0, dtype=width, device=kept.device).set_(part) for part in (storage, kept))
    return torch.equal(now, before)


def counts(name: str, value: Any) -> bool:
    """Whether a value is an optimizer's step counter. Dynamo moves such a counter to the GPU of its parameters: eager's
    in-place write then goes to another tensor."""
    return name.endswith(("['step']", "['mu_product']")) and isinstance(value, torch.Tensor) and not value.dim()


def _changes(box: Restorable, kept: Any, now: Any) -> list[tuple[str, Any]]:
    if _alike(kept, now):
        return []
    before, after = dict(leaves_of(kept)), dict(leaves_of(now))
    parts = {name: part for name, part in after.items() if name not in before or not _one(before[name], part)}
    parts |= {name: ABSENT for name in before if name not in after}
    if not parts and isinstance(box.owner, OrderedDict):  # whose order is part of what it is
        keys = tuple(key if type(key) in _TOLD else type(key).__name__ for key in now)
        return [(f"the order of {box.name or 'self'}", keys)]
    if box.kind == "dict" and "params" in kept:
        parts.pop("['capturable']", None)  # Dynamo sets it in an optimizer on a GPU, which then counts its steps there
    dotted = box.kind in ("attributes", "class", "slots")
    named = {re.sub(r"^\['(\w+)'\]", r".\1", name) if dotted else name: part for name, part in parts.items()}
    return [((box.name or "self") + name, part) for name, part in named.items()]


def _kept(box: Restorable) -> Any:
    owner = box.owner
    if box.kind == "global":
        space, name = owner
        return space.get(name, ABSENT)
    if box.kind == "cell":
        try:
            return owner.cell_contents
        except ValueError:
            return ABSENT
    return _COPIES[box.kind](owner)


_COPIES: dict[str, Any] = {"class": class_state, "slots": slots_of, "bytes": bytes, "set": set, "dict": dict}
_COPIES |= {"attributes": dict, "list": list}


class _Absent:
    """Marks a value that no longer exists."""


ABSENT = _Absent()


def _alike(kept: Any, now: Any) -> bool:
    """Whether two copies of a Python object hold the same objects, or equal plain values."""
    if isinstance(kept, dict) and isinstance(now, dict):
        return list(kept) == list(now) and all(_one(kept[key], now[key]) for key in kept)
    if isinstance(kept, list) and isinstance(now, list):
        return len(kept) == len(now) and all(map(_one, kept, now))
    return kept == now if isinstance(kept, (set, bytes)) and type(kept) is type(now) else _one(kept, now)


def _one(kept: Any, now: Any) -> bool:
    plain = (int, float, complex, str, bytes, bool, type(None))
    return kept is now or (type(kept) is type(now) and isinstance(kept, plain) and (kept == now or kept != kept))


def _restore(box: Restorable, kept: Any) -> None:
    owner = box.owner
    if _alike(kept, _kept(box)):
        return
    if box.kind == "global":
        space, name = owner
        space.pop(name, None) if kept is ABSENT else space.__setitem__(name, kept)
    elif box.kind == "cell":
        owner.cell_contents = kept
    elif box.kind in ("class", "slots"):
        root: Any = type if box.kind == "class" else object  # slots: bypasses the __setattr__ of a frozen dataclass
        for name in _kept(box).keys() - kept.keys():
            root.__delattr__(owner, name)
        for name, part in kept.items():
            root.__setattr__(owner, name, part)
    elif isinstance(owner, (dict, set)):
        owner.clear()
        owner.update(kept)
    elif isinstance(owner, deque):
        owner.clear()
        owner.extend(kept)
    else:
        owner[:] = kept


_TOLD = (str, int, float, bool, type(None), tuple)
"""Types of keys that are named by their repr; a tensor's repr holds numbers that differ from run to run."""


def leaves_of(value: Any, name: str = "", seen: frozenset[int] = frozenset()) -> list[tuple[str, Any]]:
    """The non-container parts of a value, each with its path; an object of another class without attributes gives its
    class's name."""
    if id(value) in seen:
        return []
    if isinstance(value, tuple) and value and all(type(part) is int for part in value):  # sizes and strides
        return [(name, tuple(value))]
    inner = seen | {id(value)}
    if isinstance(value, dict):
        keys = [repr(key) if type(key) in _TOLD else f"{type(key).__name__} {at}" for at, key in enumerate(value)]
        pairs = zip(keys, value.values(), strict=True)
        return [leaf for key, part in pairs for leaf in leaves_of(part, f"{name}[{key}]", inner)]
    if isinstance(value, (list, tuple, deque)):
        named = getattr(value, "_fields", None)
        places = [f".{field}" for field in named] if named else [f"[{at}]" for at in range(len(value))]
        return [
            leaf for place, part in zip(places, value, strict=True) for leaf in leaves_of(part, name + place, inner)
        ]
    if isinstance(value, (set, frozenset)):
        return [(name, tuple(sorted(map(repr, value))))]
    if hasattr(value, "__dict__") and not isinstance(
        value, (torch.Tensor, torch.nn.Module, type, types.FunctionType, types.ModuleType, types.MethodType)
    ):
        own = [leaf for key, part in vars(value).items() for leaf in leaves_of(part, f"{name}.{key}", inner)]
        return own or [(name, type(value).__qualname__)]
    return [(name, value)]
