"""Moves records to another device: replaces one type of device by another in all tensors and device arguments. No
torch.

Sizes, strides, symbols and shared storages stay, which would be lost by moving real tensors.

>>> relocated(record, "cuda", "cpu").graph.nodes[0].value.device
'cpu'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec

Kind = TypeVar("Kind")


def relocated(record: Kind, kind: str, device: str) -> Kind:
    """A copy with every device of type `kind` ("cuda" stands for "cuda:0" and "cuda:1" too) replaced by `device`."""
    return _moved(record, kind, device)


def names_device(record: Any, kind: str) -> bool:
    """Whether a tensor or an argument in the record is on a device of that type."""
    return any((key == "device" and _is(entry, kind)) or names_device(entry, kind) for key, entry in _entries(record))


def _is(device: Any, kind: str) -> bool:
    return isinstance(device, str) and device.partition(":")[0] == kind


def _entries(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).items()
    return enumerate(cast("list[Any]", value)) if isinstance(value, (list, tuple)) else ()


def _moved(value: Any, kind: str, device: str) -> Any:
    changed = {
        key: device if key == "device" and _is(entry, kind) else _moved(entry, kind, device)
        for key, entry in _entries(value)
    }
    if isinstance(autocast := changed.get("autocast"), dict) and kind in autocast:
        changed["autocast"] = {**autocast, device.partition(":")[0]: autocast[kind]}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, (list, tuple)):
        return list(changed.values()) if isinstance(value, list) else tuple(changed.values())
    return changed if isinstance(value, dict) else value
