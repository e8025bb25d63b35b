"""Converts functions to and from their names in a saved graph, by an allow-list in both directions.

`name_of` never fails: a function that is not on the list gets a name that starts with "opaque:", which is shown and
never run. `resolve` imports nothing that a dump names: it looks names up in tables built from torch itself, and refuses
all others by name.

>>> name_of(torch.ops.aten.sin.default), resolve("operator.getitem", "case/graph.json: node x")
('aten.sin.default', <built-in function getitem>)
"""

from __future__ import annotations

import builtins
import functools
import importlib
import math
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import torch
import torch.overrides

from .. import allowlist
from ..errors import (
    NameRefusedError,
    NotRegisteredError,
    PackageMissingError,
    TargetRefusedError,
    TorchLacksError,
    UntrustedSourceError,
)
from ..program.text import IDENTIFIER, is_identifier
from ..schema import Arg
from ..walk import tag_of
from . import torch_private as t

ATTRIBUTE = "numpy.getattr"
"""The target of a call that reads an attribute of an array."""


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields the name and callable of everything in compiled NumPy that a saved graph may call."""
    modules: dict[Any, Any] | None = t.optional("numpy_modules")
    if not modules:
        return
    for theirs, module in modules.items():
        for name, function in cast(dict[str, Any], vars(module)).items():
            if name.startswith("_") or name in allowlist.DENIED_FUNCTIONS or not callable(getattr(theirs, name, None)):
                continue
            if str(getattr(function, "__module__", "")).startswith("torch._numpy"):
                yield f"{theirs.__name__}.{name}", t.numpy_function(function)
    for name in sorted(allowlist.OPERATOR):
        yield f"numpy.operator.{name}", t.numpy_operator(getattr(operator, name))
    for name, method in vars(cast(type[Any], t.numpy_array)).items():
        plain = not name.startswith("_") and name not in allowlist.DENIED_METHODS
        if (plain or name in allowlist.DUNDER_METHODS) and callable(method):
            yield f"numpy.ndarray.{name}", t.numpy_method(name)
    yield ATTRIBUTE, t.numpy_attribute


def key(function: Any) -> Any:
    """A key that all wrappers of one function share; any other function is its own key."""
    if type(function).__module__ != "torch._dynamo.utils":
        return function
    for kind, held in (("numpy_function", "f"), ("numpy_method", "method"), ("numpy_operator", "op")):
        if type(function) is t.optional(kind):
            return kind, getattr(function, held)
    return function


OPAQUE = "opaque:"
_OF_A_CAPTURE = (f"{OPAQUE}torch._dynamo.compiled_autograd.", f"{OPAQUE}torch._dynamo.external_utils.")
"""Prefixes of autograd steps in torch's own graph of a backward (compiled autograd)."""
_OWN_NAMESPACES = ("aten", "prims")
_RESOLVED: dict[str, Callable[..., Any]] = {}
_RESERVED = frozenset({"operator", "math", "builtins", "torch", "numpy", "higher_order"})


def name_of(function: Any) -> str:
    """The saved name of a call_function target; "opaque:module.name" for a function that could not be loaded again."""
    if isinstance(function, t.OpOverload):
        op = cast(Any, function)
        return f"{op.namespace}.{op._schema.name.split('::')[-1]}.{op._overloadname}"
    if isinstance(function, t.HigherOrderOperator):
        return f"higher_order.{function.name()}"
    if isinstance(function, t.OpOverloadPacket):
        return cast(Any, function)._qualified_op_name.replace("::", ".")
    with suppress(TypeError):  # not hashable
        if (name := _names().get(key(function))) is not None:
            return name
    module = str(getattr(function, "__module__", None) or type(function).__module__)
    qualified = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return f"{OPAQUE}{module}.{qualified or type(function).__qualname__}"


def is_autograd_step(name: str) -> bool:
    """Whether a saved name is that of an autograd step that compiled autograd does not trace into."""
    return name.startswith(_OF_A_CAPTURE)


def resolve(name: str, where: str) -> Callable[..., Any]:
    """The function of a saved name. Raises RefusedError naming it, or EnvironmentLackError for an op that is not
    registered."""
    if name.startswith(OPAQUE):
        why = f"the target {name[len(OPAQUE) :]!r} is a Python function, and a saved graph may not call it"
        if is_autograd_step(name):
            why = f"{name[len(OPAQUE) :]!r} stands for an autograd step that torch did not trace into"
            raise TargetRefusedError(where, why)
        fix = "register it as a custom op (torch.library) to make it replayable"
        raise TargetRefusedError(where, why, "" if name.startswith(f"{OPAQUE}torch.") else fix)
    if name in _RESOLVED:
        return _RESOLVED[name]
    parts = name.split(".")
    if not all(IDENTIFIER.fullmatch(part) for part in parts):
        raise NameRefusedError(where, f"the target {name!r} is not a dotted name")
    if parts[0] in _RESERVED:
        if parts[0] == "higher_order":
            return _higher_order(name, where)
        if (function := _functions().get(name)) is not None:
            return function
        if parts[0] == "numpy" and not t.optional("numpy_modules"):
            why = f"the target {name!r} needs NumPy, which is not installed"
            raise PackageMissingError(where, why, "pip install numpy")
        raise _unlisted(name, where)
    if len(parts) not in (2, 3):
        raise _unlisted(name, where)
    op = _registered_op(name, parts, where)
    if parts[0] in _OWN_NAMESPACES:  # other libraries may unregister their ops
        _RESOLVED[name] = op
    return op


def _unlisted(name: str, where: str) -> TargetRefusedError:
    why = f"the target {name!r} is not on the list of functions that a saved graph may call"
    return TargetRefusedError(where, why)


def denial(qualified_name: str, schema: Any = None) -> str | None:
    """Why a registered op ("aten::from_file") may not be called, or None if it may."""
    namespace = qualified_name.split("::")[0]
    if namespace in allowlist.DENIED_NAMESPACES or qualified_name in allowlist.DENIED_OPS:
        return "it is not a computation on tensors"
    for argument in () if schema is None else schema.arguments:
        words = argument.name.lower()
        if "str" in str(argument.type) and any(word in words for word in allowlist.DENIED_ARGUMENTS):
            return f"its argument {argument.name!r} names a file"
    return None


def _registered_op(name: str, parts: list[str], where: str) -> Callable[..., Any]:
    qualified = f"{parts[0]}::{parts[1]}"
    schemas = t.op_schemas(qualified)
    if not schemas and parts[0] in allowlist.OP_HOMES:
        for home in allowlist.OP_HOMES[parts[0]]:
            _home(home)
        schemas = t.op_schemas(qualified)
    why = denial(qualified) or next((reason for schema in schemas if (reason := denial(qualified, schema))), None)
    if why is not None:
        raise TargetRefusedError(where, f"the target {name!r} may not be called from a saved graph: {why}")
    if not schemas:
        if parts[0] in sys.stdlib_module_names:
            raise _unlisted(name, where)
        fix = f"name the module that registers {qualified} with --import MODULE, or import it first in Python"
        raise NotRegisteredError(where, f"the op {name!r} is not registered in this process", fix)
    packet = getattr(getattr(torch.ops, parts[0]), parts[1])
    if not isinstance(packet, t.OpOverloadPacket):
        raise TargetRefusedError(where, f"the target {name!r} is not a registered op")
    packet = cast(Any, packet)
    if len(parts) == 2:
        return packet
    overload = parts[2]
    if overload not in packet.overloads():
        known = ", ".join(sorted(packet.overloads())[:8])
        raise TorchLacksError(where, f"the op {qualified} has no overload {overload!r} in this torch; it has {known}")
    return getattr(packet, overload)


def _higher_order(name: str, where: str) -> Callable[..., Any]:
    short = name.split(".", 1)[1]
    if name in allowlist.TRITON_CALLS:
        why = f"the target {name!r} runs the user's own Triton kernel, whose source is in the dump"
        raise UntrustedSourceError(where, why, "read it, then add --trust to run it")
    if short in allowlist.DENIED_HIGHER_ORDER:
        why = f"the target {name!r} may not be called from a saved graph: it calls back into Python"
        raise TargetRefusedError(where, why)
    operator = t.higher_order_ops.get(short)
    if operator is None:
        fix = "load the dump with the torch that wrote it"
        raise TorchLacksError(where, f"this torch has no higher-order op {short!r}", fix)
    return operator


def check_method(name: str, where: str) -> str:
    """The name of a `call_method`, if it is a computing method of Tensor or of a number; raises RefusedError
    otherwise."""
    if not is_identifier(name):
        raise NameRefusedError(where, f"the method name {name!r} is not a plain identifier")
    if name not in _methods():
        why = f"the method {name!r} is not on the list of methods that a saved graph may call"
        raise TargetRefusedError(where, why)
    return name


def check_attribute_path(path: str, where: str) -> list[str]:
    """The segments of a dotted attribute path: identifiers or numbers, nothing that starts with two underscores."""
    parts = path.split(".")
    for part in parts:
        if not (is_identifier(part) or (part.isascii() and part.isdigit())) or part.startswith("__"):
            raise NameRefusedError(where, f"the attribute {path!r} is not a dotted path of plain identifiers")
    return parts


def check_getattr(name: str, args: list[Arg], kwargs: dict[str, Arg], where: str) -> None:
    """Refuses a call that reads an attribute (`builtins.getattr`, or of an array) unless the attribute is on the
    list."""
    if name not in ("builtins.getattr", ATTRIBUTE):
        return
    known = allowlist.ATTRIBUTES if name == "builtins.getattr" else allowlist.ARRAY_ATTRIBUTES
    named = len(args) == 2 and not kwargs and isinstance(args[1], str) and args[1] in known
    if not named or tag_of(args[0])[0] != "node":
        shown = args[1] if len(args) > 1 else None
        why = f"getattr of {shown!r} is not on the list of Tensor attributes that a saved graph may read"
        raise TargetRefusedError(where, why)


@functools.cache
def _methods() -> frozenset[str]:
    public = {name for name in dir(torch.Tensor) if not name.startswith("_")} - allowlist.DENIED_METHODS
    plain = {name for name in public if callable(getattr(torch.Tensor, name, None))}
    dunder = {name for name in allowlist.DUNDER_METHODS if hasattr(torch.Tensor, name)}
    return frozenset(plain | dunder | allowlist.NUMBER_METHODS)


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Name -> function, for everything but registered ops. A function with several names is saved under the first."""
    table: dict[str, Callable[..., Any]] = {}
    for name, function in (*_plain_functions(), *_torch_functions(), *functions()):
        table.setdefault(name, function)
    return table


@functools.cache
def _names() -> dict[Callable[..., Any], str]:
    names: dict[Callable[..., Any], str] = {}
    for name, function in _functions().items():
        names.setdefault(key(function), name)
    return names


def _plain_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(allowlist.OPERATOR):
        yield f"operator.{name}", getattr(operator, name)
    for name in sorted(allowlist.BUILTINS):
        yield f"builtins.{name}", getattr(builtins, name)
    for name in dir(math):
        if not name.startswith("_") and callable(getattr(math, name)):
            yield f"math.{name}", getattr(math, name)


def _torch_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in dir(torch):
        if (name.startswith(("sym_", "_sym_"))) and callable(getattr(torch, name)):
            yield f"torch.{name}", getattr(torch, name)
    overrides: Any = torch.overrides
    for functions in overrides.get_overridable_functions().values():
        for function in functions:
            name = overrides.resolve_name(function)
            if name is not None and _may_be_called(name):
                yield name, function
    for name in allowlist.EXTRA_FUNCTIONS:
        home, _, last = name.rpartition(".")
        of_torch = getattr(_home(home), last, None)
        if callable(of_torch):
            yield name, of_torch
    for home in allowlist.REFERENCE_HOMES:
        module = _home(home)
        for short in getattr(module, "__all__", ()):
            if callable(getattr(module, short, None)) and _may_be_called(f"{home}.{short}"):
                yield f"{home}.{short}", getattr(module, short)
    for home in allowlist.BUILTIN_HOMES:
        module = _home(home)
        for short in dir(module):
            function = getattr(module, short, None)
            if callable(function) and not short.startswith("__") and type(function) is type(len) and _is_op(short):
                yield f"{home}.{short}", function


def _may_be_called(name: str) -> bool:
    parts = name.split(".")
    if not all(IDENTIFIER.fullmatch(part) for part in parts) or parts[-1] in allowlist.DENIED_FUNCTIONS:
        return False
    if parts[:2] == ["torch", "Tensor"]:
        return len(parts) == 3 and parts[2] in _methods()
    return not parts[-1].startswith("__")


def _is_op(short: str) -> bool:
    schemas = () if short in allowlist.DENIED_FUNCTIONS else t.op_schemas(f"aten::{short}")
    return bool(schemas) and all(denial(f"aten::{short}", schema) is None for schema in schemas)


@functools.cache
def _home(name: str) -> Any:
    """A module or namespace of torch named by allowlist, or None where this torch has none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        home, _, last = name.rpartition(".")
        return getattr(_home(home), last, None) if home else None
