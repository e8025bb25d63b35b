"""Eight faults put by hand into kernels that Inductor wrote, with what is to be said of each; graphs for tests.

>>> fault = FAULTS["store past the end"]
>>> checked(Live(*fault.graph()), edit=fault.edit).findings[0].kind
'store'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table

from graphdbg.toolkit.live.spec import ReplaySpec

Graph = tuple[fx.GraphModule, list[Any], ReplaySpec]


def pointwise(x: Any, y: Any) -> Any:
    return (x + y).relu() * 2


def chain(x: Any, w: Any) -> Any:
    return (x.sigmoid() @ w).tanh()


def rows(x: Any) -> Any:
    return torch.softmax(x, -1)


def embed(w: Any, i: Any) -> Any:
    return w[i] * 2


def mean(x: Any) -> Any:
    return x - x.float().mean(-1, keepdim=True)


def turned(x: Any, y: Any) -> Any:
    return x.t() + y


def long(x: Any) -> Any:
    return x.sum(-1)


def logarithm(x: Any) -> Any:
    return torch.log(x.abs() + 1)


INPUTS: dict[str, tuple[Callable[..., Any], Callable[[], Sequence[Any]]]] = {
    "pointwise": (pointwise, lambda: [torch.randn(40, 33), torch.randn(40, 33)]),
    "chain": (chain, lambda: [torch.randn(20, 33), torch.randn(33, 57)]),
    "rows": (rows, lambda: [torch.randn(37, 50) + 3]),
    "embed": (embed, lambda: [torch.randn(100, 64), torch.randint(0, 100, (31,))]),
    "mean": (mean, lambda: [torch.randn(37, 50) * 100]),
    "turned": (turned, lambda: [torch.randn(33, 20), torch.randn(20, 33)]),
    "long": (long, lambda: [torch.randn(3, 5000)]),
    "logarithm": (logarithm, lambda: [torch.randn(700)]),
}


def graph(name: str) -> Graph:
    """One of INPUTS as Inductor gets it, with the lines of this file."""
    function, make = INPUTS[name]
    return captured(function, make)


def captured(function: Callable[..., Any], make: Callable[[], Sequence[Any]]) -> Graph:
    """The graph of a function without gradients, as Dynamo and AOTAutograd trace it, and inputs of a seed."""
    torch.manual_seed(0)
    inputs = list(make())
    results: list[tuple[fx.GraphModule, list[Any]]] = []

    def compiler(gm: fx.GraphModule, fakes: Sequence[Any]) -> Any:
        def run(*given: Any) -> Any:  # in the graph's order
            results.append((gm, [value.clone() if isinstance(value, torch.Tensor) else value for value in given]))
            return gm.forward(*given)

        return make_boxed_func(run)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, decompositions=select_decomp_table())
    with torch.no_grad():
        torch.compile(function, backend=backend, dynamic=False)(*inputs)
    return *results[0], ReplaySpec("inference")


@dataclass(frozen=True)
class Fault:
    """`old` becomes `new` in a kernel, once. To be told: `kind`, parts of the kernel's line and of the user's, a
    node."""

    graph_name: str
    old: str
    new: str
    kind: str
    line: str
    node: str
    user: str
    kernel: str = ""

    def graph(self) -> Graph:
        """The graph that it is in."""
        return graph(self.graph_name)

    def edit(self, name: str, source: str) -> str:
        """The kernel with the fault."""
        head, mark, body = source.partition("@triton.jit")
        return head + mark + body.replace(self.old, self.new, 1) if self.kernel in name else source


FAULTS = {
    "load past the end": Fault(
        "pointwise",
        "tl.load(in_ptr1 + (x0), xmask)",
        "tl.load(in_ptr1 + (x0 + 1), xmask)",
        "load",
        "in_ptr1 + (x0 + 1)",
        "add",
        "(x + y)",
    ),
    "store past the end": Fault("pointwise", "tmp6, xmask)", "tmp6, None)", "store", "tl.store(out_ptr0", "mul", "* 2"),
    "half is not written": Fault(
        "chain",
        "tl.store(out_ptr0 + (x0), tmp1, xmask)",
        "tl.store(out_ptr0 + (x0), tmp1, xmask & (x0 < 300))",
        "uninitialised",
        "x0 < 300",
        "sigmoid",
        "sigmoid",
        kernel="_0",
    ),
    "two programs at one place": Fault(
        "pointwise",
        "tl.store(out_ptr0 + (x0), tmp6",
        "tl.store(out_ptr0 + (x0 % 300), tmp6",
        "write-write",
        "x0 % 300",
        "mul",
        "* 2",
    ),
    "a neighbour is read that changes in place": Fault(
        "chain",
        "tl.load(in_out_ptr0 + (x0), xmask)",
        "tl.load(in_out_ptr0 + ((x0 + 1) % xnumel), xmask)",
        "read-write",
        "in_out_ptr0",
        "tanh",
        "tanh()",
        kernel="_1",
    ),
    "an index that overflows": Fault(
        "turned", "20*y0)", "20*y0 + y0*1073741824*4)", "overflow", "in_ptr0", "add", "x.t() + y"
    ),
    "a logarithm of less than nothing": Fault(
        "logarithm",
        "tmp4 = tl_math.log(tmp3)",
        "tmp4 = tl_math.log(tmp3 - 2)",
        "nan",
        "tl_math.log",
        "log",
        "torch.log",
    ),
    "an index beyond the table": Fault(
        "embed",
        "tl.where(tmp3, tmp2, tmp0)",
        "tl.where(tmp3, tmp2, tmp0 + 90)",
        "assert",
        "tl.device_assert",
        "index",
        "w[i]",
    ),
}
