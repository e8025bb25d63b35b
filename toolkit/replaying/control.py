# pyright: basic
"""The control of evidence by time and memory: what a harmless graph of the same size takes on this machine now.

It is compiled from an empty code cache, in the same process or in another child of the same server, beside whatever
else the machine does; its seconds over its own work (CPU time, its compilers' with it) are the factor by which the
clock is slow.

For example: `slowed(server, nodes=30)` gives `5.2`, beside eight busy loops on two cores.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ..isolation import Servers, ask

TASK = f"{__name__}:task"
BUSY = 1.25
"""A machine with a factor from here on is busy: what took long there is measured against the factor."""
MARGIN = 1.25
"""What the factor may be off by, from one minute to the next."""
LIMIT_S = 120.0
MOST_NODES = 100


def slowed(server: Servers, nodes: int) -> float:
    """The factor, by a child of the server; infinite where even the control does not end."""
    answer = ask(TASK, {"nodes": nodes}, LIMIT_S, server=server).answer()
    return answer.value["factor"] if answer.status == "done" else float("inf")


def longer(limit_s: float, factor: float, most_s: float) -> float:
    """The limit that is fair on a machine with that factor; the limit itself where it is not busy."""
    return min(most_s, limit_s * factor * MARGIN) if factor >= BUSY else limit_s


def task(payload: dict[str, Any]) -> dict[str, float]:
    """The body of the query: the factor, measured in a child."""
    return {"factor": factor(payload["nodes"])}


def factor(nodes: int) -> float:
    """The factor, measured in this process."""
    began, worked = time.perf_counter(), sum(os.times()[:4])
    harmless(nodes)
    return max(1.0, (time.perf_counter() - began) / max(0.05, sum(os.times()[:4]) - worked))


def harmless(nodes: int) -> None:
    """Compiles and runs a harmless graph of so many nodes in this process."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from .. import torch_private as t
    from ..judging.judge import judge
    from ..live.case import Live
    from ..live.spec import ReplaySpec
    from .costs import empty_code_cache

    def chain(x: Any) -> Any:
        for _ in range(max(1, min(nodes, MOST_NODES))):
            x = torch.sin(x)
        return x

    case = Live(make_fx(chain, tracing_mode="fake")(torch.ones(8, 8)), [torch.ones(8, 8)], ReplaySpec("inference"))
    with empty_code_cache(), t.inductor_config.patch(compile_threads=1):
        judge(case, "inductor", "crash")
