"""When a recording is made: at the first call with real inputs, once per thread, and once per value of integer inputs.

A call with fake inputs (someone traces the compiled code, or asks for its shapes) goes to the code itself and records nothing.

>>> run = deferred(call, lambda inputs: Recording(call, inputs))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from .. import _torch as t

Call = Callable[[list[Any]], Any]
Make = Callable[[list[Any]], Call]


def deferred(call: Call, make: Make) -> Call:
    """`call` until it gets real inputs; from then on what `make` made of those, in each thread its own."""
    here = threading.local()

    def run(inputs: list[Any]) -> Any:
        recorded: Call | None = getattr(here, "recorded", None)
        if recorded is None:
            if any(t.is_fake(value) for value in inputs):
                return call(inputs)
            with t.preserve_rng_state():
                recorded = make(inputs)
            here.recorded = recorded
        return recorded(inputs)

    return run


def by_integers(inputs: Sequence[Any], make: Make) -> Call:
    """One recording for each value of the inputs that are integers: a recording keeps those that it was made with."""
    places = [index for index, value in enumerate(inputs) if isinstance(value, int)]
    if not places:
        return make(list(inputs))
    recorded: dict[tuple[int, ...], Call] = {}

    def run(inputs: list[Any]) -> Any:
        key = tuple(inputs[index] for index in places)
        if key not in recorded:
            with t.preserve_rng_state():
                recorded[key] = make(list(inputs))
        return recorded[key](inputs)

    return run
