"""torch's compiler settings that differ from their defaults: what the user set, and the options of torch.compile.

Only reads; the values are the live ones, to be encoded at once.

>>> changed()
{'inductor': {'max_autotune': True}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..torch_private import loaded
from ..torch_private.names import CONFIGS
from .live_torch import CACHE_SWITCHES


def changed(extra_inductor: Mapping[str, Any] | None = None, *, bypassed: bool = False) -> dict[str, dict[str, Any]]:
    """Settings that are not at their default on this thread, by room of the configuration.

    `extra_inductor` are options that Inductor will apply while it compiles. With `bypassed` the cache switches are left out:
    the recorder itself has set them.
    """
    found: dict[str, dict[str, Any]] = {}
    for room in CONFIGS:
        module = loaded(f"{room}_config")
        values = dict(_not_default(module)) if module is not None else {}
        if room == "inductor":
            values.update({name.replace("-", "_"): value for name, value in (extra_inductor or {}).items()})
        if bypassed:
            values = {name: value for name, value in values.items() if name not in CACHE_SWITCHES.get(room, ())}
        if values:
            found[room] = dict(sorted(values.items()))
    return found


def _not_default(module: Any) -> Iterable[tuple[str, Any]]:
    entries = getattr(module, "_config", None)
    is_default = getattr(module, "_is_default", None)
    if not isinstance(entries, dict) or is_default is None:
        return
    for name, entry in entries.items():
        if getattr(entry, "alias", None) is not None or getattr(entry, "deprecated", False):
            continue
        if is_default(name):
            continue
        value, default = getattr(module, name), getattr(entry, "default", None)
        # The compiler sets some of its settings to their default for a while; those are not changed by anybody.
        if type(value) is not type(default) or not _same(value, default):
            yield name, value


def _same(value: Any, default: Any) -> bool:
    plain = (bool, int, float, str, type(None), list, tuple, dict)
    return value is default or (isinstance(value, plain) and bool(value == default))


def encoded(value: Any) -> Any:
    """A setting or keyword argument as an argument of the saved form (see dumps.schema), for records that exist already."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else {"float": "nan" if value != value else "inf" if value > 0 else "-inf"}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in value]}
    if isinstance(value, (list, set, frozenset)):
        return [encoded(item) for item in (value if isinstance(value, list) else sorted(value, key=str))]
    if isinstance(value, Mapping):
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    return {"opaque": [type(value).__qualname__, _text(value)]}


def _text(value: Any, limit: int = 200) -> str:
    name = getattr(value, "__qualname__", None)
    text = f"{getattr(value, '__module__', '')}.{name}" if name else repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
