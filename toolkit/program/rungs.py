# pyright: basic
"""A function under each of torch's backends in turn, as the program gave it to torch.compile. There is one context per
rung and function while the program runs, so that its guards age as the program's own do.

Each has a backend of its own identity, so that Dynamo takes no entry of another's. Inductor draws eager's random
numbers.

For example:

    rungs = Rungs(step, context)
    rungs.call("aot_eager", args, kwargs)
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import torch_private as t
from .records import LABELS

NAMES = ("dynamo", "aot_eager", "decomposed")
_BACKENDS = {"dynamo": "eager", "aot_eager": "aot_eager", "decomposed": "aot_eager_decomp_partition"}
_ROOM = 6
"""Entries of Dynamo's caches that one of the program's becomes, with those of the rungs."""


class Rungs:
    """The rungs of one function. `names`: from Dynamo alone to what the program asked for; `graphs`: how many Dynamo
    made."""

    def __init__(self, function: Callable[..., Any], context: Any) -> None:
        self.function, self.context = function, context
        backend = context.callback
        while hasattr(backend, "_torchdynamo_orig_backend"):
            backend = backend._torchdynamo_orig_backend
        self.backend = backend
        named = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", type(backend).__name__)
        stock = str(getattr(backend, "__module__", "")).partition(".")[0] == "torch"
        self.last = LABELS.get(named, str(named)) if stock else str(named)
        self.names = [*NAMES[: NAMES.index(self.last)], self.last] if self.last in NAMES else [*NAMES, self.last]
        self._made: dict[str, Callable[..., Any]] = {}
        self.graphs = 0

    def key(self, rung: str) -> str:
        """The name of a rung's layer; "" for a backend that is not torch's."""
        keys = {"decomposed": "aot_eager_decomp_partition", "inductor": "as written"}
        return rung if rung in ("dynamo", "aot_eager") else keys.get(rung, "")

    def call(self, rung: str) -> Callable[..., Any]:
        """The function under a rung."""
        if rung == "eager":
            return self.function
        if rung not in self._made:
            self._made[rung] = self.fresh(rung)
        return self._made[rung]

    def fresh(self, rung: str) -> Callable[..., Any]:
        """The function under a rung, with nothing compiled so far."""
        chosen = self.backend if rung == self.last else t.look_up("lookup_backend")(_BACKENDS[rung])

        def backend(gm: Any, inputs: Any, **kwargs: Any) -> Any:
            self.graphs += 1
            return chosen(gm, inputs, **kwargs)

        backend.of_a_rung = True  # type: ignore[attr-defined]
        alone: dict[str, Any] = {"isolate_recompiles": True} if isolates() else {}
        context = self.context
        return torch.compile(
            self.function,
            backend=backend,
            fullgraph=bool(getattr(context, "fullgraph", False)),
            dynamic=getattr(context, "_dynamic", None),
            **alone,
        )


@functools.cache
def isolates() -> bool:
    """Whether this torch keeps what was compiled for one call of torch.compile apart from what was for others."""
    return "isolate_recompiles" in inspect.signature(torch.compile).parameters


def uncounted(put: t.Replaced) -> None:
    """Keeps entries of rungs out of the count at which Dynamo leaves a function of the program uncompiled."""
    owner, name = t.home("compute_cache_size")
    if isolates() or put.has(owner, name):
        return
    original = getattr(owner, name)
    put.put(owner, name, lambda frame, entry: original(frame, _Entries.of(entry)))


class _Entries:
    """One of Dynamo's entries for a code object, as it is; after it comes the next that is of no rung."""

    def __init__(self, entry: Any) -> None:
        self.entry, self.next = entry, _Entries.of(entry.next)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry, name)

    @staticmethod
    def of(entry: Any) -> Any:
        while entry and hasattr(getattr(entry.backend, "compiler_fn", None), "of_a_rung"):
            entry = entry.next
        return entry and _Entries(entry)


@contextlib.contextmanager
def roomy() -> Iterator[None]:
    """Allows more entries in Dynamo's caches, so that the rungs' do not count as the program's, and draws eager's
    numbers for `numpy.random`."""
    dynamo = t.loaded("dynamo_config")
    limits = {name: getattr(dynamo, name) * _ROOM for name in ("recompile_limit", "accumulated_recompile_limit")}
    with dynamo.patch(limits | {"use_numpy_random_stream": True}):
        yield


@contextlib.contextmanager
def stance(eager: bool) -> Iterator[None]:
    """Sets torch's stance: nothing compiled, or torch's default, whatever the program's stance is. CUDA graphs are off
    in rungs: what they return is overwritten by the next."""
    t.look_up("inductor_config")
    with torch.compiler.set_stance("force_eager" if eager else "default"):
        if eager:
            yield
            return
        with t.inductor_config.patch({"fallback_random": True, "triton.cudagraphs": False}), roomy():
            yield
