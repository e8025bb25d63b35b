"""A function's graph compiled by Inductor for a pretended GPU and run on the interpreter, beside eager.

>>> agree(lambda x: x.softmax(-1), torch.randn(8, 8))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from graphdbg.toolkit.live.eager import clone_inputs, draw_like_kernels, has_kernel_draws
from graphdbg.toolkit.live.entries import shared_fakes
from graphdbg.toolkit.live.spec import ReplaySpec, no_caches
from graphdbg.toolkit.rungs.triton_interpret import TritonInterpret
from graphdbg.toolkit.triton.interpreting.session import Interpretation, InterpretedLaunch, LaunchObserver


class Seen(LaunchObserver):
    """What ran: each launch, and operators of the library."""

    def __init__(self) -> None:
        self.launches: list[InterpretedLaunch] = []
        self.calls: list[str] = []

    def before(self, launch: InterpretedLaunch) -> None:
        self.launches.append(launch)

    def called(self, operator: Any, read: list[torch.Tensor], written: list[torch.Tensor]) -> None:
        self.calls.append(str(operator))

    @property
    def sources(self) -> str:
        """The text of all kernels."""
        return "\n".join(launch.autotuner.fn.src for launch in self.launches)


class Observed(TritonInterpret):
    """The rung, looked at."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def session(self) -> Interpretation:
        return Interpretation(self.seen)


def graph(function: Callable[..., Any], *inputs: Any, mode: str = "real") -> torch.fx.GraphModule:
    """The graph of a function as Inductor traces it for inference. `mode`: "fake" for operators that cannot run
    here."""
    return make_fx(function, decomposition_table=select_decomp_table(), tracing_mode=mode)(*inputs)


def run(
    function: Callable[..., Any],
    *inputs: Any,
    seen: Seen | None = None,
    traced: Sequence[Any] = (),
    mode: str = "real",
    **settings: Any,
) -> list[Any]:
    """The outputs of its kernels, and what has become of the inputs behind them. `settings` of Inductor, dots as `__`;
    `traced`: inputs to trace it with, where eager refuses those that it is run with."""
    gm = graph(function, *clone_inputs(traced or inputs), mode=mode)
    spec, rung = ReplaySpec("inference"), Observed(seen or Seen())
    with (
        no_caches(),
        config.patch({name.replace("__", "."): value for name, value in settings.items()}),
        rung.around(gm, spec),
    ):
        compiled = rung.build(gm, shared_fakes(gm, inputs, False)[0], spec)
        given = clone_inputs(inputs)
        return [*compiled(list(given)), *given]


def eager(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    """The same of eager; Inductor's random prims draw what kernels draw."""
    given = clone_inputs(inputs)
    gm = graph(function, *clone_inputs(inputs))
    if has_kernel_draws(gm):
        draw_like_kernels(gm)
        gm.recompile()
        return [*tree_leaves(gm(*given)), *given]
    return [*tree_leaves(function(*given)), *given]


def agree(
    function: Callable[..., Any], *inputs: Any, rtol: float | None = None, atol: float | None = None, **settings: Any
) -> Seen:
    """Raises AssertionError where the kernels' results are not eager's, or where there is no kernel at all."""
    seen = Seen()
    got = run(function, *inputs, seen=seen, **settings)
    compare(got, eager(function, *inputs), rtol, atol)
    assert seen.launches, "no kernel was launched"
    return seen


def compare(got: Sequence[Any], wanted: Sequence[Any], rtol: float | None = None, atol: float | None = None) -> None:
    """Tensor by tensor, NaN equal to NaN; 8-bit floats by their bits."""
    for index, (item, other) in enumerate(zip(got, wanted, strict=True)):
        if not isinstance(other, torch.Tensor):
            continue
        if other.dtype.itemsize == 1 and other.dtype.is_floating_point:
            item, other = item.view(torch.uint8), other.view(torch.uint8)
        torch.testing.assert_close(
            item, other, equal_nan=True, rtol=rtol, atol=atol, msg=lambda text, index=index: f"result {index}: {text}"
        )
