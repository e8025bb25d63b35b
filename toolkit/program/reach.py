# pyright: basic
"""Finds what a call of a function can reach: tensors, and Python objects whose state can be restored, each with the
name that users know.

It starts from the arguments, the object that a method is bound to, closures, defaults and the globals that the code
names, that of methods which it names included. What torch, the standard library and installed packages keep in their
own modules is not followed. Changes nothing.

>>> reached = reach(model.forward, (x,), {})
>>> [name for name, _ in reached.tensors]
['input', 'weight', 'bias']
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import io
import os
import random
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from .. import torch_private as t

_DRAWN = 4
"""By how much the generator's offset grows when the dropout state is made again."""


class CudnnDropout(NamedTuple):
    """cuDNN's dropout state on one GPU, with a generator's interface."""

    device: torch.device

    def getstate(self) -> torch.Tensor:
        """A copy of the state, (bytes,) of uint8 on the GPU; empty where none exists yet. Restores the generator
        afterwards."""
        before = torch.cuda.get_rng_state(self.device)
        state = self._held()
        if torch.equal(before, torch.cuda.get_rng_state(self.device)):
            return state.clone()
        torch.cuda.set_rng_state(before, self.device)
        return torch.empty(0, dtype=state.dtype, device=self.device)

    def setstate(self, state: torch.Tensor) -> None:
        """Restores a copy of the state; nothing for an empty one. The GPU's generator, restored before, ends as it
        was."""
        if not state.numel():
            return
        generator = torch.cuda.get_rng_state(self.device)
        generator.view(torch.int64)[1] -= _DRAWN  # the state holds seed and offset
        torch.cuda.set_rng_state(generator, self.device)
        self._held().copy_(state)

    def _held(self) -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cuda", enabled=False), _RnnStates() as seen:
            flat, single = torch.ones(16, device=self.device), torch.ones(1, 1, 1, device=self.device)
            weights = [flat[:4].view(4, 1), flat[4:8].view(4, 1), flat[8:12], flat[12:]]  # one buffer, or torch warns
            torch.lstm(single, (single, single), weights, True, 1, 0.5, True, False, False)
        return seen.state


class _RnnStates(t.TorchDispatchMode):
    state = torch.empty(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._cudnn_rnn.default:
            self.state = args[-1]
        return func(*args, **(kwargs or {}))


MOST = 300_000
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type, types.ModuleType, types.CodeType, torch.dtype,
    torch.device,
          torch.Size, types.BuiltinFunctionType, slice, range, type(Ellipsis), torch.layout)  # fmt: skip
NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
"""Classes of the standard library whose instances hold the user's values."""
_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "FSDPState")
_LIBRARIES = (*map(sysconfig.get_path, ("purelib", "platlib", "stdlib")), f"{Path(torch.__file__).parent}{os.sep}")
_INSTALLED = {"site-packages", "dist-packages"}


class Restorable(NamedTuple):
    """A Python object whose state can be restored. `kind`: decides how; `outside`: reached only through a closure or
    globals, and no part of a module or optimizer."""

    name: str
    owner: Any
    kind: str
    outside: bool


class Reached:
    """All that a call can reach. `refused`: why the call cannot be run twice, or ""."""

    def __init__(self) -> None:
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self.boxes: list[Restorable] = []
        self.generators: list[Any] = []
        self.once: list[tuple[str, Any]] = []
        """Objects that can be read only once: iterators and files."""
        self.refused = ""
        self.replicas: list[DistributedDataParallel] = []
        self.backward = False
        """Whether the function calls a backward itself: hooks on leaves are then followed, too."""
        self.named = {"forward"}
        """The names in the code that was followed: methods of the program's classes are followed where one is there."""
        self.methods: list[tuple[str, types.FunctionType]] = []
        """The methods that were not followed yet, each with the name that a call of it has in code."""


def callable_of(function: Any) -> tuple[Any, Any]:
    """The innermost function under modules, partials and wrappers, and the object that it is bound to (or None)."""
    while True:
        owner = getattr(function, "__self__", None)
        if type(replica := function if owner is None else owner) is DistributedDataParallel:
            function = replica.module
        elif isinstance(function, torch.nn.Module):
            return type(function).forward, function
        elif isinstance(function, functools.partial):
            function = function.func
        elif owner is not None and not isinstance(owner, types.ModuleType):
            return function.__func__ if hasattr(function, "__func__") else function, owner
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif isinstance(called := inspect.getattr_static(type(function), "__call__", None), types.FunctionType):
            return called, function
        else:
            return function, None


def reach(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reached:
    """Collects all that a call may read or write."""
    reached, seen = Reached(), set[int]()
    inner, owner = callable_of(function)
    later = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
    if any(is_one(inner) for is_one in later):
        reached.refused = "it returns a generator or a coroutine, which does its work only after the call"
        return reached
    names = argument_names(inner, owner)
    reached.backward = "backward" in _named(getattr(inner, "__code__", None))
    roots = [(names[at] if at < len(names) else f"argument {at}", value, False) for at, value in enumerate(args)]
    roots += [(name, value, False) for name, value in kwargs.items()]
    if owner is not None:
        roots.insert(0, ("", owner, False))
    roots.append((getattr(inner, "__name__", ""), function, True))
    work = deque(roots)
    while work or _release(reached, work):
        name, value, outside = work.popleft()
        if (isinstance(value, _PLAIN) and not _own_class(value)) or id(value) in seen:
            continue
        seen.add(id(value))
        if len(seen) > MOST:
            reached.refused = f"it reaches more than {MOST:,} objects"
            return reached
        plain = type(value) is DistributedDataParallel and value.mixed_precision is None
        if not plain and any(base.__name__ in _DISTRIBUTED for base in inspect.getmro(type(value))):
            reached.refused = f"it talks to other processes ({name or 'the module'} is {type(value).__name__})"
            return reached
        if _is_read_once(value):
            reached.once.append((name or "something", value))
        work.extend(_parts(reached, name, value, outside))
    return reached


def _release(reached: Reached, work: deque[tuple[str, Any, bool]]) -> bool:
    """Moves the methods that the code names to `work`; returns whether there are any."""
    called = [pair for pair in reached.methods if pair[0] in reached.named]
    reached.methods = [pair for pair in reached.methods if pair[0] not in reached.named]
    work.extend((name, method, True) for name, method in called)
    return bool(called)


_CALLS = ("__call__", "_call_impl", "_wrapped_call_impl")


def _user_function(inner: Any, owner: Any) -> Any:
    """The function that the user wrote: `forward`, where a module is called."""
    called = isinstance(owner, torch.nn.Module) and getattr(inner, "__name__", "") in _CALLS
    return getattr(type(owner), "forward", inner) if called else inner


def argument_names(inner: Any, owner: Any) -> list[str]:
    """The names of the positional arguments, without `self` of a bound method."""
    code = getattr(_user_function(inner, owner), "__code__", None)
    if code is None:
        return []
    return list(code.co_varnames[: code.co_argcount])[1 if owner is not None else 0 :]


def _is_read_once(value: Any) -> bool:
    once = isinstance(value, (types.AsyncGeneratorType, io.IOBase)) or hasattr(type(value), "__next__")
    return once and not isinstance(value, torch.Tensor)


class Reading:
    """Watches whether a block reads an iterator or file that can be read only once: by its position, or by a call of
    its `__next__` where the position does not show it.

    >>> numbers = iter([1, 2])
    >>> with Reading([("numbers", numbers)]) as reading:
    ...     first = next(numbers)
    >>> reading.why()
    'it reads numbers, a list_iterator, whose state cannot be restored'
    """

    def __init__(self, once: list[tuple[str, Any]]) -> None:
        self._once, self._before = once, [_position(value) for _, value in once]
        self._frames = [value.gi_frame if isinstance(value, types.GeneratorType) else None for _, value in once]
        advances = [getattr(getattr(type(value), "__next__", None), "__code__", None) for _, value in once]
        self._codes = {*advances, *(frame.f_code for frame in self._frames if frame is not None)} - {None}
        self._read: list[Any] = []
        self._watched = False

    def __enter__(self) -> Reading:
        self._watched = bool(self._codes) and sys.getprofile() is None
        if self._watched:
            sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        if self._watched:
            sys.setprofile(None)

    def _called(self, frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in self._codes:
            first = frame.f_code.co_varnames[:1]
            self._read += [frame, *(frame.f_locals.get(name) for name in first)]

    def why(self) -> str:
        """Why the block's call cannot be repeated, or ""."""
        if self._codes and not self._watched:
            name, value = self._once[0]
            hidden = "and the program's own profiler hides whether it reads that"
            return f"it can reach {name}, a {type(value).__name__}, {hidden}"
        for (name, value), frame, before in zip(self._once, self._frames, self._before, strict=True):
            read = any(item is value or (item is frame and frame is not None) for item in self._read)
            if read or before is None or before != _position(value):
                return f"it reads {name}, a {type(value).__name__}, whose state cannot be restored"
        return ""


def _position(value: Any, deep: int = 3) -> Any:
    """The position of an iterator or file, where it can be determined; else None. Raises nothing."""
    try:
        if isinstance(value, io.IOBase):
            return value.closed or not value.readable() or value.tell()
        if isinstance(value, types.GeneratorType):
            return value.gi_frame is None
        parts = [*slots_of(value).values(), *getattr(value, "__dict__", {}).values()]
        if not parts:  # an iterator of the standard library: ask `__reduce__`, as copying does
            _, arguments, *state = value.__reduce__()
            parts = [*arguments, *state]
    except Exception:  # noqa: BLE001 - any class of the program's may raise
        return None
    inner = [_position(part, deep - 1) if deep and _is_read_once(part) else _Same(part) for part in parts]
    return None if None in inner else inner


class _Same:
    """Compares a part of a position: plain values by value, other objects by identity."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        if type(self.value) is list and type(other.value) is list:  # the remaining items of a dictionary's iterator
            return len(self.value) == len(other.value)
        plain = isinstance(self.value, (int, str, range)) and type(self.value) is type(other.value)
        return self.value is other.value or (plain and self.value == other.value)


def _parts(reached: Reached, name: str, value: Any, outside: bool) -> Iterator[tuple[str, Any, bool]]:
    dot = f"{name}." if name else ""
    if isinstance(value, torch.Tensor):
        reached.tensors.append((name, value))
        for place in ("_backward_hooks", "_post_accumulate_grad_hooks") if reached.backward else ():
            yield from (("a hook", hook, True) for hook in (getattr(value, place, None) or {}).values())
    elif isinstance(value, type):
        reached.boxes.append(Restorable(name, value, "class", True))
        yield from ((f"{dot}{key}", part, True) for key, part in class_state(value).items())
        yield from ((base.__name__, base, True) for base in value.__bases__)
        for key, part in vars(value).items():
            method = part.__func__ if isinstance(part, (classmethod, staticmethod)) else part
            method = method.fget if isinstance(method, property) else method
            if isinstance(method, types.FunctionType):
                yield from _of_cells(reached, method)
                if key.startswith("__") and key != "__init__":
                    yield key, method, True
                else:
                    reached.methods.append((value.__name__ if key == "__init__" else key, method))
    elif isinstance(value, (torch.Generator, random.Random)):
        reached.generators.append(value)
    elif isinstance(value, dict):
        reached.boxes.append(Restorable(name, value, "dict", outside))
        path_of = lambda key: f"{name}[{key!r}]" if isinstance(key, (str, int)) else f"{name}[...]"  # noqa: E731
        yield from ((path_of(key), part, outside) for key, part in list(value.items()))
        yield from ((name, key, outside) for key in list(value) if not isinstance(key, _PLAIN))
    elif isinstance(value, (list, deque)):
        reached.boxes.append(Restorable(name, value, "list", outside))
        yield from ((f"{name}[{at}]", part, outside) for at, part in enumerate(list(value)))
    elif isinstance(value, (tuple, frozenset)):
        yield from ((f"{name}[{at}]", part, outside) for at, part in enumerate(value))
    elif isinstance(value, (set, bytearray)):
        reached.boxes.append(Restorable(name, value, "set" if isinstance(value, set) else "bytes", outside))
    elif isinstance(value, functools.partial):
        yield from ((name, part, outside) for part in (value.func, value.args, value.keywords))
    elif isinstance(value, types.MethodType):
        yield from ((name, part, outside) for part in (value.__self__, value.__func__))
    elif isinstance(value, types.FunctionType):
        yield from _of_function(reached, value)
    elif isinstance(value, DistributedDataParallel):
        reached.replicas.append(value)
        reached.boxes.append(Restorable(name, value.__dict__, "attributes", False))
        yield name, value.module, False
    elif isinstance(value, torch.nn.Module):
        outside = False
        if isinstance(value, torch.nn.RNNBase) and value.dropout:
            devices = {parameter.device for parameter in value.parameters() if parameter.is_cuda}
            reached.generators += [state for state in map(CudnnDropout, devices) if state not in reached.generators]
        reached.boxes.append(Restorable(name, value.__dict__, "attributes", False))
        yield f"{type(value).__name__}", type(value), True
        for key, part in value.__dict__.items():
            inner = isinstance(part, dict) and key in ("_parameters", "_buffers", "_modules")
            if inner:
                reached.boxes.append(Restorable(name, part, "attributes", False))
                yield from ((f"{dot}{child}", held, False) for child, held in part.items())
            else:
                yield f"{dot}{key}", part, False
        yield type(value).__name__, type(value), True
    elif (shared := array_of(value)) is not None:
        reached.tensors.append((name, shared))
    elif _followed(value):
        outside = outside and not _is_state(value)
        parts = slots_of(value)
        if parts:
            reached.boxes.append(Restorable(name, value, "slots", outside))
        if hasattr(value, "__dict__"):
            reached.boxes.append(Restorable(name, value.__dict__, "attributes", outside))
            parts = parts | value.__dict__
        if parts or hasattr(value, "__dict__"):
            yield f"{type(value).__name__}", type(value), True
        yield from ((f"{dot}{key}", part, outside) for key, part in parts.items())


def array_of(value: Any) -> torch.Tensor | None:
    """A tensor that shares memory with a writable NumPy array; None for anything else."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or not value.flags.writeable:
        return None
    with contextlib.suppress(TypeError, ValueError):  # a dtype or strides that torch does not support
        return torch.from_numpy(value)
    return None


def slots_of(value: Any) -> dict[str, Any]:
    """The values in the slots of an object's classes."""
    slots = {}
    for base in type(value).__mro__:
        for key, slot in vars(base).items() if "__slots__" in vars(base) else ():
            if isinstance(slot, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # a slot without a value
                    slots[key] = slot.__get__(value)
    return slots


def _own_class(value: Any) -> bool:
    """Whether a value is a class defined by the program, whose attributes can change."""
    return isinstance(value, type) and own_file(sys.modules.get(value.__module__)) != ""


def own_file(module: Any) -> str:
    """The source file of a module that belongs to the user; "" for a library's."""
    file = str(getattr(module, "__file__", None) or "")
    home = str(getattr(module, "__name__", "")).partition(".")[0]
    ours = home in ("torch", "graphdbg") or home in sys.stdlib_module_names
    return "" if not file.endswith(".py") or ours or is_library(file) else file


def own_modules() -> dict[str, str]:
    """Name -> file of the user's modules that this program has imported, without the main script."""
    main = own_file(sys.modules.get("__main__"))
    files = {name: own_file(module) for name, module in list(sys.modules.items())}
    itself = Path(main).absolute() if main else None
    return {name: file for name, file in files.items() if file and Path(file).absolute() != itself}


def class_state(value: type) -> dict[str, Any]:
    """The attributes of a class, without methods, properties and names that begin with `__`."""
    code = (
        types.FunctionType,
        classmethod,
        staticmethod,
        property,
        types.MemberDescriptorType,
        types.GetSetDescriptorType,
    )
    return {key: part for key, part in vars(value).items() if not key.startswith("__") and not isinstance(part, code)}


def _is_state(value: Any) -> bool:
    return type(value).__module__.startswith("torch.optim") or isinstance(value, torch.optim.Optimizer)


def _followed(value: Any) -> bool:
    """Whether an object's attributes are followed: those of users' objects, modules and optimizers; not of torch's or
    Triton's own machinery (a kernel keeps what it compiled at its first launch)."""
    home = type(value).__module__.partition(".")[0]
    return (
        isinstance(value, NAMESPACES)
        or _is_state(value)
        or (home not in ("torch", "torchvision", "triton", "graphdbg") and home not in sys.stdlib_module_names)
    )


def _of_function(reached: Reached, function: types.FunctionType) -> Iterator[tuple[str, Any, bool]]:
    file = function.__code__.co_filename
    yield from (("a default", default, True) for default in function.__defaults__ or ())
    yield from _of_cells(reached, function)
    if is_library(file):
        return
    reached.named.update(names := _named(function.__code__))
    for name in names:
        if name in function.__globals__:
            held = function.__globals__[name]
            reached.boxes.append(Restorable(name, (function.__globals__, name), "global", True))
            yield name, held, True


def _of_cells(reached: Reached, function: types.FunctionType) -> Iterator[tuple[str, Any, bool]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held = cell.cell_contents
        except ValueError:
            continue
        reached.boxes.append(Restorable(name, cell, "cell", True))
        yield name, held, True


def _named(code: types.CodeType | None) -> list[str]:
    if code is None:
        return []
    inside = [name for constant in code.co_consts if isinstance(constant, types.CodeType) for name in _named(constant)]
    return list(dict.fromkeys([*code.co_names, *inside]))


@functools.cache
def is_library(file: str) -> bool:
    """Whether a file belongs to Python or an installed package, also in a folder of PYTHONPATH (`pip install
    --target`)."""
    return (
        file.startswith(_LIBRARIES)
        or "<frozen" in file
        or not _INSTALLED.isdisjoint(Path(file).parts)  # of another Python, or of a distribution without RECORD
        or any(
            file.startswith(folder + os.sep) and Path(file).relative_to(folder).parts[0] in _installed_into(folder)
            for folder in sys.path
            if folder
        )
    )


@functools.cache
def _installed_into(folder: str) -> set[str]:
    """The packages and files that pip put into a folder."""
    records = Path(folder).glob("*.dist-info/RECORD")
    return {
        line.partition(",")[0].partition("/")[0]
        for at in records
        for line in at.read_text("utf-8", "replace").splitlines()
    }


def user_place() -> tuple[str, int]:
    """File and line of the innermost frame outside libraries and graphdbg; of the outermost frame where there is
    none."""
    frame, ours = sys._getframe(1), (f"{Path(__file__).parents[2]}{os.sep}", "<eval_with_key>")
    while frame.f_back is not None and (is_library(file := frame.f_code.co_filename) or file.startswith(ours)):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def place_of(function: Any, made_at: tuple[str, int]) -> tuple[str, str, int]:
    """Name, file and line of a function as users know it; for a library's function the line where it was given to
    torch.compile."""
    inner, owner = callable_of(function)
    inner = inspect.unwrap(_user_function(inner, owner))
    if isinstance(owner, torch.nn.Module):
        name = f"{type(owner).__qualname__}.{getattr(inner, '__name__', 'forward')}"
    else:
        name = getattr(inner, "__qualname__", type(inner).__name__).replace("<locals>.", "")
    code = getattr(inspect.unwrap(inner), "__code__", None)
    if code is None or is_library(code.co_filename):
        return name, *made_at
    return name, code.co_filename, code.co_firstlineno
