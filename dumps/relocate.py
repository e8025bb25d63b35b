"""Moves records to another device: replaces one type of device by another in all tensors and device arguments. No
torch.

Sizes, strides, symbols and shared storages stay, which would be lost by moving real tensors.

>>> relocated(record, "cuda", "cpu").graph.nodes[0].value.device
'cpu'
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Kind = TypeVar("Kind")


def relocated(record: Kind, kind: str, device: str) -> Kind:
    """A copy with every device of type `kind` ("cuda" stands for "cuda:0" and "cuda:1" too) replaced by `device`."""
    return _moved(record, kind, device)


def names_device(record: Any, kind: str) -> bool:
    """Whether a tensor or an argument in the record is on a device of that type."""
    if isinstance(record, msgspec.Struct):
        return _is(getattr(record, "device", ""), kind) or any(
            names_device(getattr(record, name), kind) for name in record.__struct_fields__
        )
    if isinstance(record, dict):
        pairs: list[tuple[Any, Any]] = list(record.items())  # pyright: ignore[reportUnknownArgumentType]
        return any((key == "device" and _is(entry, kind)) or names_device(entry, kind) for key, entry in pairs)
    if isinstance(record, (list, tuple)):
        items: list[Any] = list(record)  # pyright: ignore[reportUnknownArgumentType]
        return any(names_device(entry, kind) for entry in items)
    return False


def _is(device: Any, kind: str) -> bool:
    return isinstance(device, str) and device.partition(":")[0] == kind


def _moved(value: Any, kind: str, device: str) -> Any:
    if isinstance(value, msgspec.Struct):
        changed = {name: _moved(getattr(value, name), kind, device) for name in value.__struct_fields__}
        if _is(changed.get("device"), kind):
            changed["device"] = device
        if isinstance(autocast := changed.get("autocast"), dict) and kind in autocast:
            changed["autocast"] = {**autocast, device.partition(":")[0]: autocast[kind]}  # type: ignore[dict-item]
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, dict):
        pairs: list[tuple[Any, Any]] = list(value.items())  # pyright: ignore[reportUnknownArgumentType]
        return {
            key: device if key == "device" and _is(entry, kind) else _moved(entry, kind, device) for key, entry in pairs
        }
    if isinstance(value, (list, tuple)):
        items: list[Any] = [_moved(entry, kind, device) for entry in value]  # pyright: ignore[reportUnknownVariableType]
        return items if isinstance(value, list) else tuple(items)
    return value
