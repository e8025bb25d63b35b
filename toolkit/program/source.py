# pyright: basic
"""Writes Python text that reconstructs values and functions: a call's arguments, what it reaches, the user's own
definitions.

A value keeps its name from call to call, and is updated where it changed. Small tensors stand in the text, larger ones
in `tensors`. Raises CannotSayError, which names the part that has no text. Changes nothing.

>>> source = Source(globals()); source.text([1.0, torch.float32], "sizes"), source.lines
('sizes', ['sizes = [1.0, torch.float32]'])
"""

from __future__ import annotations

import ast
import cmath
import contextlib
import copy
import copyreg
import enum
import functools
import inspect
import itertools
import keyword
import linecache
import logging
import re
import symtable
import sys
import textwrap
import types
import typing
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Container, Iterator
from pathlib import Path, PurePath
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

from ...dumps import syntax
from ...dumps.torchside.values import storage_key
from .. import torch_private as t
from ..live.execution import same_bits
from .reach import NAMESPACES, class_state, is_library, slots_of
from .start import StartState

_FOLLOWED = (
    "torch.distributions",
    "torch.amp.",
    "torch.optim.lr_scheduler",
    "torch.autograd.grad_mode",
    "contextlib",
    "torch.nn.attention.flex_attention",
)
"""Library modules whose objects consist of their attributes, as the user's objects do."""
_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format, torch.Size)
_PLAIN = (int, str, bytes, type(None), range, type(Ellipsis), *_OF_TORCH)
_OF_COMPILE = ("_compiled_call_impl", "_is_torch_compile")
"""Attributes that torch.compile sets on a module."""
_HOMES = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "math", "operator", "builtins")
_MODULE = {"_parameters", "_buffers", "_modules"}
INLINE = 8
_COMPILES = re.compile(r"(?<!nested_)compile(?!r\b)")
"""Matches the text of a decorator that compiles; decorators of `torch.compiler` only configure, and stay."""


class CannotSayError(Exception):
    """A part of a call has no Python text."""


class _HoldsItselfError(CannotSayError):
    """A value that is being written contains itself."""


class Source:
    """Collects the text of a function's calls. `definitions`: the user's functions and classes by name, after those
    that they need; `spaces`: name in the text -> the namespace and the key of a global that they read; `homes`: the
    user's modules that have to be imported; `reserved`: the names of the program into which the text goes."""

    def __init__(self, known: dict[str, Any], reserved: frozenset[str] = frozenset()) -> None:
        self.known, self.reserved = known, reserved
        self.lines: list[str] = []
        self.definitions: dict[str, str] = {}
        self.imports: set[str] = {"import torch"}
        self.spaces: dict[str, tuple[dict[str, Any], str]] = {}
        self.homes: set[str] = set()
        self.tensors: dict[str, torch.Tensor] = {}
        self.start: StartState | None = None
        self.touched: set[Any] = set()
        self._defined: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._alive: list[Any] = []
        self._last: dict[int, str] = {}
        self._copies: dict[int, torch.Tensor] = {}
        self._taken = {"T", "torch", *reserved}
        self._done: set[int] = set()
        self._late: list[tuple[Any, str, Any]] = []
        """Attributes left for later, since their values contain an object still being written: owner, name, value."""
        self._changed: set[int] = set()
        self._open: set[int] = set()
        self._exact = ""
        self._assigned: dict[str, str] = {}
        self.of_classes: dict[str, str] = {}
        """Class attributes that are assigned, each with the text of its initial value."""
        self.left_out = ""
        """The first attribute or global that was left out, since it has no text."""

    def begin(self, start: StartState, touched: set[Any]) -> None:
        """Begins a call: every value is examined again. `touched`: ids of objects, and names of globals, that the calls
        themselves change."""
        self.lines, self._done, self._changed, self.start = [], set(), set(), start
        self.touched |= touched

    def changed(self) -> list[str]:
        """The names of the Python objects that the calls change: a closure of a class, say, to which no argument
        leads."""
        objects = [value for value in self._alive if not isinstance(value, torch.Tensor)]
        return [self._names[id(value)] for value in objects if id(value) in self.touched]

    def text(self, value: Any, hint: str) -> str:
        """Returns an expression for a value; adds lines that create or update the names in it."""
        if isinstance(value, _PLAIN) and type(value).__module__ in ("builtins", "torch"):
            return repr(value)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic):
            self.imports.add("import numpy")
            return f"numpy.{type(value).__name__}({self.text(numpy.asarray(value).item(), hint)})"
        if isinstance(value, (float, complex)):
            return repr(value) if cmath.isfinite(value) else f"{type(value).__name__}('{value}')"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, slice):
            return f"slice({', '.join(self.text(part, hint) for part in (value.start, value.stop, value.step))})"
        if isinstance(value, enum.Enum):
            # a combination of flags has no name
            member = f"({value.value})" if isinstance(value, enum.Flag) else f".{value.name}"
            return self.text(type(value), hint) + member
        if isinstance(value, (tuple, frozenset)):
            inner = ", ".join(self.text(part, f"{hint}_{at}") for at, part in enumerate(value))
            if type(value) is tuple:
                return f"({inner}{',' if len(value) == 1 else ''})"
            if isinstance(value, frozenset):
                return f"frozenset([{inner}])"
            return f"{self.text(type(value), hint)}({inner})"
        if isinstance(value, weakref.ref) and (held := value()) is not None:  # as in a recurrent layer, to its weights
            self.imports.add("import weakref")
            return f"weakref.ref({self.text(held, hint)})"
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, logging.Logger):
            self.imports.add("import logging")
            return f"logging.getLogger({value.name!r})"
        if isinstance(value, PurePath):
            return f"pathlib.{type(value).__name__}({str(value)!r})"
        if _is_of_typing(value):
            self.imports.add("import typing")
            return _typing_text(value)
        if isinstance(value, (t.OpOverload, t.OpOverloadPacket)):
            return f"torch.ops.{value}"
        if op := next((name for name, held in t.custom_ops.items() if held is value), ""):
            return f"torch.ops.{op.replace('::', '.')}"
        if isinstance(value, DistributedDataParallel):  # only the module is part of the call
            return self.text(value.module, hint)
        if isinstance(value, types.MethodType):
            return f"{self.text(value.__self__, type(value.__self__).__name__.lower())}.{value.__func__.__name__}"
        if isinstance(value, functools.partial):
            self.imports.add("import functools")
            words = [self.text(part, hint) for part in (value.func, *value.args)]
            words += [f"{name}={self.text(part, name)}" for name, part in value.keywords.items()]
            return f"functools.partial({', '.join(words)})"
        value = _jitted(value)
        if inspect.isroutine(value) or isinstance(value, type) or "_torchdynamo_orig_callable" in _own(value):
            if (bound := _bound(value)) is not None:
                return self.text(bound, hint)
            if (region := _own(value).get("__marked_compile_region_fn__")) is not None:
                text = self.text(region, hint)
                return text if "_region" in _decorators(region) else f"torch.compiler.nested_compile_region({text})"
            value = _unwrapped(value) if not isinstance(value, type) else value
            if isinstance(value, (torch.nn.Module, types.MethodType)):
                return self.text(value, hint)
            made_by = _made_by(value)
            if made_by or (_cells(value) and not is_library(_file_of(value))):
                return self._named(value, hint if made_by else _stem(value))
            return self._defined_as(value)
        return self._named(value, hint)

    def assign(self, name: str, value: Any) -> None:
        """Adds a line that assigns a global, unless it already has that value."""
        self._exact = name
        text = self._unless_left_out(lambda: self.text(value, name))
        self._exact = ""
        if not text:
            del self.spaces[name]
        elif text != name and (text != self._assigned.get(name) or self.spaces[name][1] in self.touched):
            self.lines.append(f"{name} = {text}")
        self._assigned[name] = text

    def assign_classes(self) -> None:
        """Adds lines that assign class attributes whose present values differ from those in the class's text."""
        for name, value in [*self._defined.items()]:
            state = class_state(value) if isinstance(value, type) and not issubclass(value, enum.Enum) else {}
            for key, part in state.items():
                place = f"{name}.{key}"
                text = self.text(part, key) if _is_constant(part) and not key.startswith("_") else _COMPUTED
                if _COMPUTED not in (text, before := self._assigned.get(place)) and text != before:
                    self.lines.append(f"{place} = {text}")
                    self.of_classes.setdefault(place, before or text)
                    self._assigned[place] = text

    # values that have a name

    def _named(self, value: Any, hint: str) -> str:
        if id(value) in self._open:
            raise _HoldsItselfError(f"{hint}, which holds itself")
        name = self._names.get(id(value))
        if id(value) in self._done and name:
            return name
        self._open.add(id(value))
        content = self._tensor(value, hint) if isinstance(value, torch.Tensor) else self._content(value, hint)
        self._open.discard(id(value))
        self._done.add(id(value))
        if name is None:
            name = self._names[id(value)] = self._free(hint)
            self._alive.append(value)
            self._write(value, f"{name} = {content}")
        elif content and (content != self._last[id(value)] or self._is_touched(value)):
            self._write(value, f"restore({name}, {content})")
        self._last[id(value)] = content or self._last[id(value)]
        gradient = (
            value.grad if isinstance(value, torch.Tensor) and value.is_leaf and not value.is_inference() else None
        )
        if gradient is not None or f"{name}.grad" in self._taken:
            self._taken.add(f"{name}.grad")
            self.lines.append(f"{name}.grad = {self.text(gradient, f'{name}_grad')}")
        while self._late and not self._open:
            owner, key, part = self._late.pop(0)
            place = f"{self._names[id(owner)]}, {key!r}"
            text = self._unless_left_out(functools.partial(self.text, part, key))
            if text and (id(owner) in self._changed or self._assigned.get(place) != text):
                self.lines.append(f"object.__setattr__({place}, {text})")
                self._assigned[place] = text
        return name

    def _write(self, value: Any, line: str) -> None:
        self.lines.append(line)
        self._changed.add(id(value))

    def _is_touched(self, value: Any) -> bool:
        closure = value.__closure__ if isinstance(value, types.FunctionType) else None
        parts = [value, getattr(value, "__dict__", None), *(closure or ())]
        return any(id(part) in self.touched for part in parts)

    def _free(self, hint: str) -> str:
        if hint == self._exact:
            self._taken.add(hint)
            return hint
        stem = _word(hint)
        stem = f"a{stem}" if stem[0].isdigit() or keyword.iskeyword(stem) else stem
        name = _unused(stem, self._taken, self.known, self._defined, self.spaces)
        self._taken.add(name)
        return name

    def _content(self, value: Any, hint: str) -> str:
        kind = type(value)
        if kind in (list, set, deque, dict, OrderedDict, Counter, defaultdict):
            return self._container(value, hint)
        if kind in (bytearray, object):
            return repr(value) if kind is bytearray else "object()"
        if kind is torch.Generator:
            state = self.text(value.get_state(), f"{hint}_state")
            return f"torch.Generator({str(value.device)!r}).set_state({state})"
        if isinstance(value, (types.FunctionType, type)):
            return self._closed(value)
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            return self._array(value, hint)
        if isinstance(value, torch.nn.Module):
            fresh = torch.nn.Module().__dict__ | {name: {} for name in _MODULE}
            own = {key: part for key, part in value.__dict__.items() if key not in _OF_COMPILE}
            state = {key: part for key, part in own.items() if key not in fresh or not _alike(part, fresh[key])}
        elif _is_plain(value):
            state = slots_of(value) | _own(value)
        elif isinstance(value, dict) and not _own(value) and not is_library(_file_of(kind)):
            return f"rebuilt({self.text(kind, hint)}, {self._items(value, hint)})"
        elif reduced := _reduced(value):
            maker, words = reduced
            return f"{self._elsewhere(maker)}({', '.join(self.text(part, hint) for part in words)})"
        else:
            raise CannotSayError(f"{hint}, a {kind.__module__}.{kind.__qualname__}")
        words = [word for key, part in state.items() if (word := self._attribute(value, key, part, hint))]
        return f"rebuilt({self.text(kind, hint)}, {{{', '.join(words)}}})"

    def _attribute(self, owner: Any, key: str, part: Any, hint: str) -> str:
        """The text `name: value` for an attribute; "" for one whose value contains an object still being written (it is
        set afterwards), and for one without a text, which the call may never read."""

        def said() -> str:  # a module's parameters and the like stand inline, each under its own name
            text = self._items(part, hint) if key in _MODULE else self.text(part, f"{hint}_{key}")
            return f"{self.text(key, f'{hint}_key')}: {text}"

        simple = key in _MODULE or isinstance(part, (*_PLAIN, float, torch.Tensor))
        return said() if simple else self._unless_left_out(said, (owner, key, part))

    def _unless_left_out(self, said: Callable[[], str], late: tuple[Any, str, Any] | None = None) -> str:
        """What `said` returns; where a part has no text, "", and all that `said` added is undone."""
        before = {name: copy.copy(held) for name, held in vars(self).items() if isinstance(held, (list, dict, set))}
        try:
            return said()
        except (CannotSayError, RecursionError) as error:
            vars(self).update(before)
            if late is not None and isinstance(error, _HoldsItselfError):
                self._late.append(late)
            else:
                self.left_out = self.left_out or str(error)
            return ""

    def _container(self, value: Any, hint: str) -> str:
        kind: Any = type(value)
        if issubclass(kind, dict):
            inner = self._items(value, hint)
        else:
            inner = f"[{', '.join(self.text(part, f'{hint}_{at}') for at, part in enumerate(value))}]"
        if kind in (list, dict):
            return inner
        if kind is set:
            return f"set({inner})"
        self.imports.add("import collections")
        first = f"{self.text(value.default_factory, hint)}, " if kind is defaultdict else ""
        return f"collections.{kind.__name__}({first}{inner}{f', {value.maxlen}' if kind is deque else ''})"

    def _items(self, value: Any, hint: str) -> str:
        words = [f"{self.text(key, f'{hint}_key')}: {self.text(part, f'{hint}_{key}')}" for key, part in value.items()]
        return f"{{{', '.join(words)}}}"

    def _tensor(self, value: torch.Tensor, hint: str) -> str:
        if t.is_traceable_wrapper_subclass(value):
            return self._wrapper(value, hint)
        kind: Any = type(value)
        own = kind not in (torch.Tensor, torch.nn.Parameter)
        plain: Any = torch.Tensor
        if own and (kind.__torch_dispatch__ is not plain.__torch_dispatch__ or value.__dict__):
            raise CannotSayError(f"{hint}, a tensor of the class {kind.__name__}, which holds others or has attributes")
        with t.look_up("DisableTorchFunction")():  # a subclass may override operators
            return self._plain_tensor(value, hint, f".as_subclass({self.text(kind, hint)})" if own else "")

    def _wrapper(self, value: Any, hint: str) -> str:
        """The text of a wrapper subclass: `__tensor_unflatten__` of its inner tensors, as torch itself rebuilds it."""
        names, meta = value.__tensor_flatten__()
        inner = self._items({name: getattr(value, name) for name in names}, hint)
        plain = all(isinstance(size, int) for size in value.shape)  # jagged shapes are left out
        parts = (meta, *((tuple(value.shape), value.stride()) if plain else (None, None)))
        words = ", ".join(self.text(part, f"{hint}_meta") for part in parts)
        text = f"{self.text(type(value), hint)}.__tensor_unflatten__({inner}, {words}).detach()"
        if isinstance(value, torch.nn.Parameter):
            return f"torch.nn.Parameter({text}, {value.requires_grad})"
        leaf = ".requires_grad_()" if value.requires_grad else ""
        return f"{text}{leaf}{'' if value.is_leaf else '.clone()'}"

    def _array(self, value: Any, hint: str) -> str:
        try:
            copy = torch.from_numpy(value.copy())
        except TypeError as error:
            raise CannotSayError(f"{hint}, a numpy.ndarray of {value.dtype}") from error
        held = self._copies.get(id(value))
        if held is not None and held.shape == copy.shape and same_bits(held, copy):
            return ""
        name = _unused(_word(self._names.get(id(value), hint)), self.tensors)
        self._copies[id(value)] = self.tensors[name] = copy
        return f"T[{name!r}].numpy()"

    def _plain_tensor(self, value: torch.Tensor, hint: str, kind: str) -> str:
        if value.is_quantized:
            raise CannotSayError(f"{hint}, a tensor of {value.dtype}")
        assert self.start is not None
        storage = storage_key(value) if value.layout == torch.strided else 0
        known = self.start.storages.get(storage)
        plain = value.detach()
        if known is None or value.is_neg() or value.is_conj():
            copy = plain.clone()
        else:
            copy = torch.empty(0, dtype=value.dtype, device=value.device)
            copy.set_(known[1], plain.storage_offset(), plain.shape, plain.stride())
        held = self._copies.get(id(value))
        if held is not None and id(value) not in self.touched and held.shape == copy.shape and same_bits(held, copy):
            return ""
        self._copies[id(value)] = copy
        parameter, of_leaf = isinstance(value, torch.nn.Parameter), value.requires_grad and not value.is_leaf
        small = known is not None and plain.numel() <= INLINE and plain.is_contiguous()
        text = str(plain.tolist()) if small else ""
        short = 0 < len(text) <= 60 and not re.search("nan|inf", text)
        alone = known is not None and storage not in self.start.shared and known[1].nbytes() == plain.nbytes
        if short and alone and not parameter:
            device = f", device={str(value.device)!r}" if value.device.type != "cpu" else ""
            content = f"torch.tensor({text}, dtype={value.dtype}{device}){kind}"
            content += ".requires_grad_()" if value.requires_grad else ""
        else:
            name = _unused(_word(self._names.get(id(value), hint)), self.tensors)
            self.tensors[name] = torch.nn.Parameter(copy, value.requires_grad) if parameter else copy
            content = f"T[{name!r}]{kind}" + (".requires_grad_()" if value.requires_grad and not parameter else "")
        return content + (".clone()" if of_leaf else "")

    # definitions of the user, and names from libraries

    def _closed(self, value: types.FunctionType | type) -> str:
        """A call that makes a function or class with cells again: `make_step(weight)`, `torch.func.grad(loss)`."""
        cells = _cells(value)
        if (made_by := _made_by(value)) is not None:
            first, *words = inspect.signature(made_by).parameters.values()
            held = [(word.name, word.default, cells[word.name].cell_contents) for word in words]
            rest = [f"{key}={self.text(part, key)}" for key, default, part in held if not _alike(part, default)]
            inner = self.text(cells[first.name].cell_contents, first.name)
            return f"{self._elsewhere(made_by)}({', '.join([inner, *rest])})"
        own = [name for name in cells if name != value.__name__]
        if "__class__" in own:
            raise CannotSayError(f"{value.__qualname__}, a method that was given alone")
        inside = {name: self.text(cells[name].cell_contents, name) for name in own}
        name = _stem(value)
        text = self._written(value, set(own), name)
        body = textwrap.indent(text, "    ")
        code = getattr(value, "__code__", value)
        maker = self._name_of(f"make_{name}", code, getattr(value, "__globals__", ()))
        factory_text = f"def {maker}({', '.join(own)}):\n{body}\n    return {name}"
        self._define(maker, code, factory_text)
        return f"{maker}({', '.join(inside.values())})"

    def _defined_as(self, value: Any) -> str:
        file = _file_of(value)
        if not file or is_library(file):
            return self._elsewhere(value)
        name = self._name_of(_stem(value), value)
        if name not in self._defined:
            self._define(name, value, "")
            text = self._written(value, set(), name)
            del self.definitions[name]  # moves it behind the definitions that it needs
            self.definitions[name] = text
        return name

    def _name_of(self, stem: str, value: Any, taken: Collection[str] = ()) -> str:
        """A name for a definition: the stem, numbered where another definition has it."""
        return _unused(stem, taken, self.reserved, [name for name, of in self._defined.items() if of is not value])

    def _define(self, name: str, value: Any, text: str) -> None:
        if self._defined.setdefault(name, value) is not value:
            raise CannotSayError(f"two things that are named {name}")
        self.definitions.setdefault(name, text)

    def _written(self, value: Any, own: set[str], name: str) -> str:
        """The source of a function or class under a name, without decorators that compile; also writes the globals that
        it reads."""
        try:
            tree = _lambda(value, name) or syntax.parsed(textwrap.dedent(inspect.getsource(value)))
        except (OSError, TypeError, SyntaxError) as error:
            defaults = list(getattr(value, "_field_defaults", {}).values())
            if not hasattr(value, "_fields") or not all(map(_is_constant, defaults)):
                raise CannotSayError(f"the source of {value.__qualname__}, which cannot be read") from error
            self.imports.add("import collections")
            words = f"{name!r}, {list(value._fields)}, defaults={defaults}"
            return f"{name} = collections.namedtuple({words})"
        first = tree.body[0]
        if not isinstance(first, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Assign)):
            raise CannotSayError(f"{value.__qualname__}, which has no def of its own")
        space = value.__globals__ if isinstance(value, types.FunctionType) else vars(sys.modules[value.__module__])
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                kept = [mark for mark in node.decorator_list if not _COMPILES.search(ast.unparse(mark))]
                registers = isinstance(node, ast.ClassDef)  # another's decorator may register the class
                node.decorator_list = [mark for mark in kept if not registers or _library(mark, space)]
        if not isinstance(first, ast.Assign):
            first.name = name
        if isinstance(first, ast.ClassDef):
            self._assigned |= {f"{name}.{key}": text for key, text in _class_body(first)}
        read = ast.unparse(Unannotated().visit(copy.deepcopy(tree)))
        inside = f"def _({', '.join(own)}):\n{textwrap.indent(read, '    ')}"  # the wrapper binds nonlocal names
        names = sorted(_reads(inside) - own - {name, "__name__", "__builtins__"})
        _renamed(tree, {other: text for other in names if other in space and (text := self._reads(other, space))})
        for other in sorted(set(_early(first)) & self.spaces.keys()):
            held, key = self.spaces[other]
            if _is_constant(held[key]):
                self.definitions.setdefault(other, f"{other} = {self.text(held[key], other)}")
        return ast.unparse(tree)

    def _reads(self, name: str, space: dict[str, Any]) -> str:
        """Writes the value of a global that a definition reads. Returns the text that must replace the name, where
        another value has that name; else ""."""
        value = _jitted(space[name])
        if type(value) is object and id(value) not in self._names:  # a sentinel, also as a default
            self._names[id(value)], self._last[id(value)] = name, "object()"
            self._alive.append(value)
            self._define(name, value, f"{name} = object()")
            return ""
        if callable(value) and not isinstance(value, (type, torch.nn.Module)):
            value = _unwrapped(value)
        kinds = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, logging.Logger)
        defined = isinstance(value, kinds) or _is_of_typing(value)
        code = getattr(value, "__code__", None)
        closed = getattr(value, "__closure__", None) and not is_library(getattr(code, "co_filename", ""))
        if not defined or closed or _made_by(value):
            if name not in self.reserved:
                first, key = self.spaces.setdefault(name, (space, name))
                if first.get(key) is space[name]:
                    return ""
            if _is_constant(value):
                return f"({self.text(value, name)})"
            known = (other for other, (held, key) in self.spaces.items() if held is space and key == name)
            other = next(known, "") or _unused(name, self._taken, self.known, self._defined, self.spaces)
            self.spaces[other] = (space, name)
            return other
        text = self.text(value, name)
        if text == name or name in self.reserved or self._defined.get(name, value) is not value:
            return "" if text == name else text
        self._define(name, value, f"{name} = {text}")
        return ""

    def _module(self, value: types.ModuleType) -> str:
        if value.__name__ == "__main__":
            raise CannotSayError("the program's own module")
        if value.__name__.startswith("torch.ops."):  # torch.ops modules have no file
            return value.__name__
        file = getattr(value, "__file__", None)
        if file and not is_library(file):
            self.homes.add(value.__name__)
        self.imports.add(f"import {value.__name__}")
        return value.__name__

    def _elsewhere(self, value: Any) -> str:
        for home in (*_HOMES, getattr(value, "__module__", None)):
            holder: Any = sys.modules.get(home or "")
            named = getattr(value, "__qualname__", getattr(value, "__name__", ""))
            for path in {value.__name__: 0, named: 0} if home in _HOMES else [named]:
                held = functools.reduce(lambda holder, part: getattr(holder, part, None), path.split("."), holder)
                if home and (held is value or (isinstance(held, types.FunctionType) and _unwrapped(held) is value)):
                    if home != "builtins":
                        self.imports.add(f"import {home}")
                    return path if home == "builtins" else f"{home}.{path}"
        if (owner := getattr(value, "__objclass__", None)) is not None:  # a method of a class written in C
            return f"{self._elsewhere(owner)}.{value.__name__}"
        if isinstance(value, type) and value.__module__ == parametrize.__name__:  # parametrize's, made for one module
            name, of = self._name_of(value.__name__, value), self.text(value.__base__, value.__name__)
            tensors = [key for key, part in vars(value).items() if isinstance(part, property)]
            lines = [f"    {key} = property(lambda self: self.parametrizations[{key!r}]())" for key in tensors]
            self._define(name, value, "\n".join([f"class {name}({of}):", *lines]))
            return name
        raise CannotSayError(f"{getattr(value, '__qualname__', value)}, which no module has under its name")


def _word(hint: str) -> str:
    return re.sub(r"\W+", "_", hint).strip("_") or "value"


def _unused(stem: str, *taken: Container[str]) -> str:
    """A name that is in none of the containers: the stem, or the stem with a number."""
    names = (f"{stem}_{at}" if at else stem for at in itertools.count())
    return next(name for name in names if not any(name in held for held in taken))


class Unannotated(ast.NodeTransformer):
    """Removes annotations, which a repro does not evaluate; those of variables become None."""

    def visit(self, node: ast.AST) -> Any:
        """Returns the node without annotations, or None for `from __future__`."""
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return None
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _renamed(tree: ast.AST, names: dict[str, str]) -> None:
    """Replaces names of globals in a tree. Raises CannotSayError where one is also a local name."""
    held = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in names]
    given = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    if local := [node.id for node in held if not isinstance(node.ctx, ast.Load) or node.id in given]:
        raise CannotSayError(f"two things that are named {local[0]}")
    for node in held:
        node.id = names[node.id]


def _is_of_typing(value: Any) -> bool:
    return type(value).__module__ == "typing" or isinstance(value, (types.GenericAlias, types.UnionType))


def _typing_text(value: Any) -> str:
    """The text of a type variable, a special form, or an alias of types that a repro can import; else `typing.Any`."""
    if isinstance(value, typing.TypeVar):
        return f"typing.TypeVar({value.__name__!r})"
    try:
        known = eval(repr(value), {"typing": typing, "torch": torch})
    except Exception:  # noqa: BLE001 - a repr need not be Python
        return "typing.Any"
    return repr(value) if known == value else "typing.Any"


def _is_plain(value: Any) -> bool:
    """Whether an object consists of its class and its attributes."""
    kind = type(value)
    home = kind.__module__.partition(".")[0]
    followed = isinstance(value, torch.optim.Optimizer) or (home != "torch" and home not in sys.stdlib_module_names)
    followed = followed or isinstance(value, NAMESPACES) or kind.__module__.startswith(_FOLLOWED)
    own = not issubclass(kind, (dict, list, set, BaseException)) and kind.__reduce_ex__ is object.__reduce_ex__
    return bool(hasattr(value, "__dict__") or slots_of(value)) and followed and own


def _own(value: Any) -> dict[str, Any]:
    """The attributes of an object, without calling its `__getattr__`."""
    return object.__getattribute__(value, "__dict__") if type(value).__dictoffset__ else {}


def _alike(value: Any, other: Any) -> bool:
    return type(value) is type(other) and (
        value is other or (isinstance(value, (bool, int, dict, set, type(None))) and value == other)
    )


def _cells(value: Any) -> dict[str, Any]:
    """Name -> cell of a function, or of the methods of a class (not those that `dataclass` and the like generated, nor
    those of decorators)."""
    if isinstance(value, type):
        routines = [
            (key, _unwrapped(part)) for key, part in vars(value).items() if isinstance(part, types.FunctionType)
        ]
        own = [part for key, part in routines if key.endswith(part.__name__) and _file_of(part) != "<string>"]
        own = [part for part in own if not is_library(_file_of(part))]
        return {name: cell for part in own for name, cell in _cells(part).items() if name != "__class__"}
    code = getattr(value, "__code__", None)
    return dict(zip(code.co_freevars, value.__closure__ or (), strict=True)) if code is not None else {}


def _made_by(value: Any) -> Any:
    """The library function that made this one around a user's function, when its cells suffice to call it again, as for
    `torch.func.grad(loss)`; else None. None for decorators, too: their text stands in the definition."""
    if not isinstance(value, types.FunctionType) or not hasattr(value, "__wrapped__"):
        return None
    if str(value.__globals__.get("__name__")).startswith("torch._dynamo."):
        return None
    makers = [part for part in value.__globals__.values() if isinstance(part, types.FunctionType)]
    maker = next((part for part in makers if value.__code__ in part.__code__.co_consts), None)
    given = {} if maker is None else inspect.signature(maker).parameters
    if not given or not is_library(_file_of(value)) or not given.keys() <= _cells(value).keys():
        return None
    return None if _decorators(value) else maker


def _decorators(value: types.FunctionType) -> str:
    """The lines of decorators above a function's `def`, or ""."""
    with contextlib.suppress(OSError, TypeError):
        text = inspect.getsource(inspect.unwrap(value)).lstrip()
        return text[: text.find("def ")] if text.startswith("@") else ""
    return ""


def _reduced(value: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The callable and arguments that rebuild an object of the standard library, as `copy` does (a pattern, a date, a
    fraction); None where it has more state than that."""
    kind: Any = type(value)
    if kind.__module__.partition(".")[0] not in sys.stdlib_module_names:
        return None
    reduce: Any = copyreg.dispatch_table.get(kind, kind.__reduce__)
    with contextlib.suppress(TypeError):
        reduced = reduce(value)
        return reduced if isinstance(reduced, tuple) and len(reduced) == 2 else None
    return None


def _bound(value: Any) -> types.MethodType | None:
    """The bound method that a library's wrapper stands for, as a scheduler's around an optimizer's `step`; else
    None."""
    inner = value
    while isinstance(inner, types.FunctionType) and is_library(_file_of(inner)):
        for cell in _cells(inner).values():
            held = cell.cell_contents
            held = held() if isinstance(held, weakref.ref) else held
            method = getattr(type(held), value.__name__, None)
            if isinstance(method, types.FunctionType) and inspect.unwrap(method) is inspect.unwrap(value):
                return types.MethodType(method, held)
        inner = getattr(inner, "__wrapped__", None)
    return None


def _jitted(value: Any) -> Any:
    """The function inside a Triton kernel, whose source has the decorators; any other value as it is."""
    while type(value).__module__.startswith("triton.runtime.") and isinstance(getattr(value, "fn", None), Callable):
        value = value.fn
    return value


def _unwrapped(value: Any) -> Any:
    return inspect.unwrap(value, stop=lambda part: _made_by(part) is not None)


def _stem(value: Any) -> str:
    return "function" if value.__name__ == "<lambda>" else value.__name__


def _lambda(value: Any, name: str) -> ast.Module | None:
    """The statement that assigns a lambda to a name; None for other functions. Of several lambdas on one line, the only
    one with the same parameters that reads the same names."""
    if value.__name__ != "<lambda>":
        return None
    code = value.__code__
    reads, given = {*code.co_names, *code.co_freevars}, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    lambdas: dict[str, ast.Lambda] = {}
    for node in ast.walk(syntax.parsed("".join(linecache.getlines(code.co_filename)))):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            parameters = [part.arg for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            named = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node.body)}
            if parameters == list(given) and reads <= named:
                lambdas[ast.unparse(node)] = node
    if len(lambdas) != 1:
        raise CannotSayError(f"{value.__qualname__}, which has no def of its own")
    return syntax.parsed(f"{name} = {next(iter(lambdas))}")


def _file_of(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        return value.__code__.co_filename
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return getattr(module, "__file__", None) or ""


_COMPUTED = "..."


def _class_body(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The attributes assigned in a class body, each with the text of its value; `_COMPUTED` where that is not a
    constant."""
    for line in node.body:
        if not isinstance(line, (ast.Assign, ast.AnnAssign)) or line.value is None:
            continue
        for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
            try:
                text = repr(ast.literal_eval(line.value)) if isinstance(target, ast.Name) else _COMPUTED
            except ValueError:
                text = _COMPUTED
            yield from ((name.id, text) for name in ast.walk(target) if isinstance(name, ast.Name))


def _is_constant(value: Any) -> bool:
    """Whether the value's text needs no other line."""
    simple = isinstance(value, (*_PLAIN, float, complex, torch.device))
    return simple or (type(value) is tuple and all(map(_is_constant, value)))


def _early(node: ast.AST) -> Iterator[str]:
    """The names read when a definition is executed: by defaults, bases and the body of a class."""
    if isinstance(node, ast.Name):
        yield node.id
    later = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    for part in [*node.args.defaults, *node.args.kw_defaults] if later else ast.iter_child_nodes(node):
        yield from _early(part) if part is not None else ()


def _reads(text: str) -> set[str]:
    """The names that a definition reads from its module's globals."""
    names: set[str] = set()
    tables = [symtable.symtable(text, "", "exec")]
    for table in tables:
        tables += table.get_children()
        top = table.get_type() == "module"
        read = [symbol for symbol in table.get_symbols() if symbol.is_global() or (top and symbol.is_referenced())]
        names |= {symbol.get_name() for symbol in read}
    return names


def settings_of(main: types.ModuleType) -> str:
    """The text of a script's top-level statements that set attributes of libraries or call their `set_...` and
    `use_...`, with the statements that these need."""
    file = getattr(main, "__file__", None)
    if not file:
        return ""
    try:
        body = syntax.parsed(Path(file).read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError):
        return ""
    makers: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            makers |= dict.fromkeys(((alias.asname or alias.name).partition(".")[0] for alias in node.names), node)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            makers[node.name] = node
        elif isinstance(node, ast.Assign):
            makers |= dict.fromkeys((target.id for target in node.targets if isinstance(target, ast.Name)), node)
    chosen = [node for node in body if _sets(node, vars(main))]
    kept: list[ast.stmt] = []
    while chosen:
        node = chosen.pop()
        if node in kept:
            continue
        kept.append(node)
        used = _reads(ast.unparse(node)) if not isinstance(node, (ast.Import, ast.ImportFrom)) else set()
        chosen += [makers[name] for name in used if name in makers]
    return "\n".join(ast.unparse(node) for node in body if node in kept)


def _sets(node: ast.stmt, space: dict[str, Any]) -> bool:
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(target, ast.Attribute) and _library(target, space) for target in targets)
    if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id == "setattr" and call.args:
            return _library(call.args[0], space)
        sets = isinstance(call.func, ast.Attribute) and call.func.attr.startswith(("set_", "use_"))
        return sets and _library(call.func, space)
    return False


def _library(node: ast.expr, space: dict[str, Any]) -> bool:
    """Whether an expression starts from a module, class or function of a library."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    value = space.get(node.id) if isinstance(node, ast.Name) else None
    return isinstance(value, (types.ModuleType, types.FunctionType, type)) and is_library(
        _file_of(value) or getattr(value, "__file__", "") or ""
    )
