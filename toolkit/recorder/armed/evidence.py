"""Whether a tensor is still what a call was given: its version counter, its address, and a fingerprint of 64 elements.

A counter proves nothing for inference tensors, for writes through `.data` and for memory that others reuse; there only
a
fingerprint of the call does. Counters are read, and fingerprints taken, as often as the time that all this may take
allows:
before each call of 10 ms, before some of shorter ones.

For example:

    seen = Seen.of(tuple, [tensor], allowance, "0_0/dynamo")
    tensor.add_(1); seen.word(0, tensor)  # -> 'was written to (version 0, now 1)'
"""

from __future__ import annotations

import ctypes
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...live.torch_state import is_capturing

SHARE = 0.002
"""The part of the time that all looking at inputs may take."""
_MOST_S = 0.001
_CHUNKS, _ELEMENTS = 4, 16
_versions = operator.attrgetter("_version")
_address = torch.Tensor.data_ptr


class Allowance:
    """The time that may be spent on checks that not every call needs."""

    def __init__(self) -> None:
        self._left = _MOST_S
        self._last = time.perf_counter()
        self._costs: dict[str, float] = {}

    def may(self, what: str) -> bool:
        """Whether there is time for a check, by what it took last."""
        now = time.perf_counter()
        self._left = min(self._left + (now - self._last) * SHARE, _MOST_S)
        self._last = now
        cost = self._costs.get(what, 0.0)
        return self._left >= min(cost, _MOST_S)

    def took(self, what: str, seconds: float) -> None:
        """Records how long a check took."""
        self._costs[what] = seconds
        self._left -= seconds


class Seen(NamedTuple):
    """Of the tensors of one call, before it: version counters (-1: none), addresses, fingerprints if there was time;
    all empty where there was no time at all."""

    versions: tuple[int, ...]
    addresses: tuple[int, ...]
    prints: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls, pick: Callable[[Any], tuple[torch.Tensor, ...]], inputs: Sequence[Any], allowance: Allowance, key: str
    ) -> Seen:
        """Looks at the tensors that `pick` takes of the inputs; `key` names the check whose time is asked for."""
        if not allowance.may(key):
            return NOT_SEEN
        start = time.perf_counter()
        tensors = pick(inputs)
        try:
            versions = tuple(map(_versions, tensors))
            addresses = tuple(map(_address, tensors))
        except RuntimeError:  # an inference tensor has no counter, a fake or sparse one no address
            versions, addresses = tuple(map(_version, tensors)), tuple(map(_where, tensors))
        between = time.perf_counter()
        allowance.took(key, between - start)
        if not allowance.may(prints_key := f"{key} prints"):
            return cls(versions, addresses)
        prints = tuple(map(fingerprint, tensors, addresses))
        allowance.took(prints_key, time.perf_counter() - between)
        return cls(versions, addresses, prints)

    def word(self, place: int, tensor: torch.Tensor) -> str:
        """What happened to a tensor since; empty when it is the same, by what proves it."""
        before, now = self.versions[place], _version(tensor)
        where = _where(tensor)
        if where == 0 and self.addresses[place] != 0:
            return "has given its memory back"
        if before != now:
            return f"was written to (version {before}, now {now})"
        print_then = self.prints[place] if self.prints else None
        print_now = fingerprint(tensor, where)
        if print_then is not None and print_now is not None and not _same(print_then, print_now):
            return "was written to past its version counter (a fingerprint of 64 elements differs)"
        if self.addresses[place] != where:
            return "has other memory than at the call"
        if before < 0 and (print_then is None or print_now is None):
            return "has no version counter, and there was no time for a fingerprint: not certain"
        return ""


NOT_SEEN = Seen((), ())
"""There was no time."""


def _version(tensor: torch.Tensor) -> int:
    try:
        return _versions(tensor)
    except RuntimeError:
        return -1


def _where(tensor: torch.Tensor) -> int:
    try:
        return _address(tensor)
    except RuntimeError:
        return 0


def fingerprint(tensor: torch.Tensor, address: int) -> Any:
    """Four runs of 16 elements, evenly spread over the tensor: bytes, or a tensor on its device; None where they cannot
    be read now."""
    if address == 0 or not tensor.is_contiguous():
        return None
    size, count = tensor.element_size(), tensor.numel()
    if tensor.device.type != "cpu":
        if is_capturing():
            return None
        flat = tensor.detach().view(-1)
        return flat[:: max(count // (_CHUNKS * _ELEMENTS), 1)].clone()
    run = _ELEMENTS * size
    if count * size <= _CHUNKS * run:
        return ctypes.string_at(address, count * size)
    gap = (count - _ELEMENTS) // (_CHUNKS - 1) * size
    return b"".join([ctypes.string_at(address + index * gap, run) for index in range(_CHUNKS)])


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, bytes) or isinstance(other, bytes):
        return value == other
    return torch.equal(value.view(torch.uint8), other.view(torch.uint8))
