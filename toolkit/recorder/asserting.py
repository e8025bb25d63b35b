"""`graphdbg.assert_graphs`: a test that a function compiles to what it should: no graph breaks, no recompiles, one
graph.

For example: `graphdbg.assert_graphs(model, batch, then=[(longer_batch,)], recompiles=1)`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from ...dumps.wording import counted
from .counts import Counting, Counts, counting
from .session import active

_MOST = 5
_NAMES = {
    "breaks": ("graph break", ""),
    "recompiles": ("recompile", ""),
    "graphs": ("graph", ""),
    "kernels": ("kernel", ""),
}
_COMPILED = ("_torchdynamo_orig_callable", "_orig_mod", "_compiled_call_impl")


class GraphsDifferError(AssertionError):
    """What was compiled differs from what a test or a baseline expects. The program need not be wrong: no repro can
    show it."""


def assert_graphs(
    fn: Callable[..., Any],
    *args: Any,
    breaks: int | None = 0,
    recompiles: int | None = 0,
    graphs: int | None = 1,
    kernels: int | None = None,
    then: Sequence[tuple[Any, ...]] = (),
    as_is: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls `fn(*args, **kwargs)` compiled, then with each tuple of arguments of `then`; returns the first result.

    `fn` is given to torch.compile unless it was before, or `as_is` says that it compiles inside, as a training step
    does. What was compiled before counts for nothing: it begins with torch.compiler.reset(), and caches on disk are
    ignored.

    `breaks`, `recompiles`: of all calls. `graphs` and `kernels` (that Inductor generated, each once; calls of libraries
    are none): of all compiles that are no recompile. None: not checked. A backward counts if `fn` runs it.

    Raises AssertionError with each number that differs, where it comes from, and what to do next; what `fn` raises as
    it is.

    >>> compiled = torch.compile(torch.relu, backend="eager")
    >>> assert_graphs(compiled, torch.ones(3), graphs=1, breaks=0)
    tensor([1., 1., 1.])
    """
    import torch

    __tracebackhide__ = True  # for pytest
    torch.compiler.reset()
    compiled = as_is or any(getattr(fn, name, None) is not None for name in _COMPILED)
    call: Any = fn if compiled else torch.compile(fn)
    outer = active()
    with counting(kept=True) as counts:
        try:
            result = call(*args, **kwargs)
            for more in then:
                call(*more, **kwargs)
        except BaseException:
            counts.kept = False
            raise
    if outer is not None and not isinstance(outer, Counting):
        torch.compiler.reset()  # for whoever records: a later call is compiled again
    wanted = {"breaks": breaks, "recompiles": recompiles, "graphs": graphs, "kernels": kernels}
    differing = {name: number for name, number in counts.numbers().items() if wanted.get(name) not in (None, number)}
    if not differing and not counts.errors:
        counts.drop()
        return result
    raise GraphsDifferError(_message(getattr(fn, "__qualname__", None) or type(fn).__name__, counts, differing, wanted))


def _message(name: str, counts: Counts, differing: dict[str, int], wanted: dict[str, int | None]) -> str:
    if not differing:
        return f"{name}: what it compiles could not be counted: {counts.errors[0]}"
    parts = [f"{counted(number, *_NAMES[what])}, not {wanted[what]}" for what, number in differing.items()]
    lines = [f"{name} compiled to {'; '.join(parts)}"]
    for what in differing:
        entries: list[str] = getattr(counts, what)
        lines += [f"  {_NAMES[what][0]}: {entry}" for entry in entries[:_MOST]]
        lines += [f"  and {len(entries) - _MOST} more"] if len(entries) > _MOST else []
    lines.append(
        f"why: graphdbg ls {shlex.quote(str(counts.run))} --why" if counts.run.exists() else "nothing was compiled"
    )
    lines.append("if it is to be so: " + ", ".join(f"{what}={number}" for what, number in differing.items()))
    return "\n".join(lines)
