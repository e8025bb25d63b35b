"""Moves records to another device: replaces one type of device by another in all tensors and device arguments. No
torch.

Sizes, strides, symbols and shared storages stay, which would be lost by moving real tensors.

>>> relocated(record, "cuda", "cpu").graph.nodes[0].value.device
'cpu'
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from .schema import Ambient
from .walk import rebuilt

Kind = TypeVar("Kind")


def relocated(record: Kind, kind: str, device: str) -> Kind:
    """A copy with every device of type `kind` ("cuda" stands for "cuda:0" and "cuda:1" too) replaced by `device`."""

    def part(name: Any, entry: Any) -> Any:
        moves = name == "device" and isinstance(entry, str) and entry.partition(":")[0] == kind
        return device if moves else relocated(entry, kind, device)

    if isinstance(record, Ambient) and kind in record.autocast:
        autocast = {**record.autocast, device.partition(":")[0]: record.autocast[kind]}
        record = msgspec.structs.replace(record, autocast=autocast)
    return rebuilt(record, part)


def names_device(record: Any, kind: str) -> bool:
    """Whether a tensor or an argument in the record is on a device of that type, which is not the default one."""
    return re.search(f'"device":"{kind}[:"]'.encode(), msgspec.json.encode(record, enc_hook=repr)) is not None
