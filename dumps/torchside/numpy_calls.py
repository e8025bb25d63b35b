"""The calls that Dynamo writes for compiled NumPy, by names: "numpy.sin", "numpy.ndarray.reshape",
"numpy.operator.mul".

Dynamo wraps torch's own NumPy in new objects for every call; here each has one name and one object. Nothing of NumPy
itself is called. Where torch has no NumPy to wrap, there are no such names.

For example: `key(dict(functions())["numpy.sin"]) == key(wrapper_of_a_graph)` gives `True`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, cast

from .. import allowlist
from . import torch_private as t

ATTRIBUTE = "numpy.getattr"
"""The name of the call that reads an attribute of an array."""


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Name -> callable, all that a saved graph may call."""
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
