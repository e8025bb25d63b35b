"""Freezing: parameters of an inference graph become constants, folded and laid out anew.

>>> compiler = frozen_compiler(compilers)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import _torch as t

if TYPE_CHECKING:
    from .capturing import Compilers


def frozen_compiler(compilers: Compilers) -> Any:
    """The inference compiler under `config.freezing`."""
    extra = compilers.extra
    return functools.partial(
        t.stock.fw_compiler_freezing, dynamo_model=compilers.model, num_example_inputs=len(compilers.inputs),
        inner_compile=compilers.inner, cudagraphs=extra.cudagraphs, graph_id=extra.graph_id,
        forward_device=extra.forward_device,
    )  # fmt: skip
