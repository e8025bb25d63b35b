"""Tables of torch's private names; each name is looked up when it is first used.

Each package has one table. The names are attributes of the module whose `__getattr__` is the table's; nothing of torch
is imported before a name is used. Where a torch lacks the name, using it raises LacksName, which is no finding about
the compiler.

>>> NAMES = Names([Row("torch._guards", "CompileContext start_tracing=tracing", "record")])
>>> NAMES.look_up("start_tracing").__qualname__          # torch._guards.tracing
'tracing'
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

from .errors import LacksName

SEEN = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""Versions of torch that were tried; a row with an empty `seen` had its names in all of them."""

_KEPT = (type, ModuleType, BuiltinFunctionType)
_HOOKED = ("torch._dynamo", "torch._functorch", "torch._inductor", "torch.autograd")
"""Looked-up classes and modules are cached. Functions are too, except those of these modules, which other code may have
replaced. Other values may change and are not cached."""


class Row(NamedTuple):
    """Names of one torch module, for one purpose.

    `names`: separated by spaces, each an attribute, a path through a class, or `ours=theirs`. `needed_by`: the
    commands, rungs and backends that use them. `lost`: what is not done or not known without a name; empty where those
    that need it refuse. `seen`: "2.13-" (since), "-2.11" (until), "CUDA" (such builds). `stages`: stages that are not
    recorded without.
    """

    module: str
    names: str
    needed_by: str
    lost: str = ""
    seen: str = ""
    stages: tuple[str, ...] = ()

    def places(self) -> dict[str, str]:
        """The name used here -> the path inside the module."""
        pairs = (word.partition("=") for word in self.names.split())
        return {ours: theirs or ours for ours, _, theirs in pairs}

    def whole(self) -> str:
        """The full name (`torch._guards.tracing`) of a row with one name."""
        (path,) = self.places().values()
        return f"{self.module}.{path}"

    def expected(self, version: str, *, cuda: bool) -> bool:
        """Whether this version of torch should have the names."""
        number = _number(version)
        since, dash, until = self.seen.partition("-")
        if dash:
            return (not since or _number(since) <= number) and (not until or number <= _number(until))
        return cuda or not self.seen


class Names:
    """Looks up the names of a table and of the tables below it."""

    def __init__(self, rows: Iterable[Row], *below: Names) -> None:
        self.rows, self._below = tuple(rows), below
        everything = [row for names in (*below, self) for row in names.rows]
        self._places = {name: (row.module, path) for row in everything for name, path in row.places().items()}
        self._kept: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def look_up(self, name: str) -> Any:
        """Returns torch's object of that name. Raises LacksName where torch has none, AttributeError for a name in no
        row."""
        if name in self._kept:
            return self._kept[name]
        if name not in self:
            raise AttributeError(f"{name} stands in no table of torch's private names")
        owner, last = self.home(name)
        return self._keep(name, getattr(owner, last))

    def _keep(self, name: str, value: Any) -> Any:
        if isinstance(value, _KEPT) or (isinstance(value, FunctionType) and not self.whole(name).startswith(_HOOKED)):
            self._kept[name] = value
        return value

    def taken_by(self, space: dict[str, Any]) -> Callable[[str], Any]:
        """Returns the `__getattr__` of a module with these names. A cached object also becomes an attribute of that
        module (`space`)."""

        def take(name: str) -> Any:
            value = self.look_up(name)
            if name in self._kept:
                space[name] = value
            return value

        return take

    def optional(self, name: str, default: Any = None) -> Any:
        """The object of that name, or a default where torch lacks it."""
        try:
            return self.look_up(name)
        except LacksName:
            return default

    def loaded(self, name: str, default: Any = None) -> Any:
        """The object of that name; the default where torch lacks it, or where its module is not imported. Imports
        nothing."""
        if name in self._kept:
            return self._kept[name]
        module, path = self._places[name]
        value: Any = sys.modules.get(module)
        for part in path.split("."):
            value = getattr(value, part, None)
        return default if value is None else self._keep(name, value)

    def home(self, name: str) -> tuple[Any, str]:
        """The owner (module or class) and attribute of a name, to replace the object there."""
        module, path = self._places[name]
        try:
            return found(module, path)
        except (ImportError, AttributeError) as error:
            raise self._lacks(name, error) from error

    def whole(self, name: str) -> str:
        """The full name in torch: `torch._inductor.config`."""
        return ".".join(self._places[name])

    def _lacks(self, name: str, error: Exception) -> LacksName:
        rows = [row for names in (*self._below, self) for row in names.rows if name in row.places()]
        needed_by = ", ".join(dict.fromkeys(row.needed_by for row in rows))
        version = getattr(sys.modules.get("torch"), "__version__", "here")
        why = f" ({error})" if isinstance(error, ImportError) else ""
        fix = f"versions {SEEN[0]} to {SEEN[-1]} have it; `graphdbg doctor` tells all that is missing"
        return LacksName(f"torch {version} has no {self.whole(name)}{why}, which is needed by {needed_by}", "", fix)

    def lacking(self, version: str, *, cuda: bool) -> list[tuple[str, Row]]:
        """The missing names: (torch's full name, row) of each name that this version should have and the installed
        torch lacks."""
        places = [
            (row, path) for row in self.rows if row.expected(version, cuda=cuda) for path in row.places().values()
        ]
        return [(f"{row.module}.{path}", row) for row, path in places if not exists(row.module, path)]


def found(module: str, path: str) -> tuple[Any, str]:
    """Imports a module and returns (owner, attribute) of a path inside it. Raises ImportError or AttributeError where
    there is none."""
    owner: Any = importlib.import_module(module)
    *outer, last = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    if not hasattr(owner, last):
        if not hasattr(owner, "__path__"):
            raise AttributeError(last)
        importlib.import_module(f"{module}.{path}")
    return owner, last


def exists(module: str, path: str) -> bool:
    """Whether the installed torch has a name."""
    try:
        found(module, path)
    except (ImportError, AttributeError):
        return False
    return True


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
