# pyright: basic
"""Compares kernels with eager: whether eager's value is not finite either, and which kernel's buffer departs from it
first.

For example:

    departures(session, checking, "wrong result: ...", around)
    # [Finding(kind='values', kernel='triton_per_fused_softmax_0', line=31, buffer='buf1', node='div')]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import numpy as np
import torch

from ...dumps.wording import counted
from ..live.eager import GraphRunError, clone_inputs
from ..triton.interpreting.memory import Access, AccessWatch
from ..triton.interpreting.on_cpu import running
from ..triton.interpreting.session import Interpretation, InterpretedLaunch, LaunchObserver
from .findings import KernelFault
from .tracking import Collected, LaunchPlace, LenientBuilder, checking_builder
from .watching import Checking, WrapperCall

_SEED = 0
"""Seed for both eager and the wrapper, which draw in the order of the graph."""
_ROUNDINGS = 64
"""How many roundings of a buffer's dtype, relative to its largest element, an element may be off: kernels round in
another order than eager."""


def eager_beside(checking: Checking) -> None:
    """Records for each new NaN and infinity whether eager has it, too; then the kernel is not at fault."""
    known: dict[str, torch.Tensor] = {}
    for run in checking.runs if checking.born else ():
        if run.wrapper is not None:
            with suppress(GraphRunError):
                known |= run.wrapper.eager(run.inputs, {node.name for node in run.wrapper.module.graph.nodes})
    for finding, place, argument, bad in checking.born:
        node = place.node_of.get(place.launch.buffers.get(argument, ""), "")
        value = known.get(node)
        if value is not None and value.shape == bad.shape and value.is_floating_point():
            finding.eager = not bool((bad & torch.isfinite(value)).any())
        else:
            inner = [known[name] for name in place.nodes if name in known and known[name].is_floating_point()]
            finding.eager = any(not bool(torch.isfinite(tensor).all()) for tensor in inner) if inner else None
        finding.note = bool(finding.eager)


def departures(
    session: Interpretation | None, checking: Checking, verdict: str, around: Callable[[], AbstractContextManager[None]]
) -> list[KernelFault]:
    """Runs each wrapper again and compares the kernels' buffers with eager's values of the nodes; returns the first
    that departs."""
    faults: list[KernelFault] = []
    for run in checking.runs:
        if run.wrapper is None or session is None:
            continue
        torch.manual_seed(_SEED)
        try:
            eager = run.wrapper.eager(run.inputs, set(run.wrapper.nodes.values()))
        except GraphRunError:
            continue
        beside = LaunchComparison(run, eager, verdict)
        before, session.observers, session.launches = session.observers, (beside,), 0
        try:
            torch.manual_seed(_SEED)
            with around(), checking_builder(None, LenientBuilder), running(session), torch.no_grad():
                run.call(clone_inputs(run.inputs))
        finally:
            session.observers = before
        faults += beside.found
        if beside.found:
            break
    return faults


class LaunchComparison(LaunchObserver):
    """Compares the buffers of each launch, until one departs."""

    def __init__(self, run: WrapperCall, eager: dict[str, torch.Tensor], verdict: str) -> None:
        self.run, self.eager, self.verdict = run, eager, verdict
        self.found: list[KernelFault] = []
        self._collected = Collected()
        self._launched: Counter[str] = Counter()
        self._watch: _Stores | None = None

    def before(self, launch: InterpretedLaunch) -> AccessWatch | None:
        assert self.run.wrapper is not None
        self._watch = _Stores(self.run.wrapper.place(launch, self._launched[launch.kernel]))
        self._launched[launch.kernel] += 1
        return self._watch

    def after(self, launch: InterpretedLaunch) -> None:
        watch = self._watch
        if self.found or watch is None:
            return
        for name, tensor in launch.tensors.items():
            stored = watch.last.get(tensor.untyped_storage()._cdata)
            node = watch.place.node_of.get(launch.buffers.get(name, ""), "")
            wanted = self.eager.get(node)
            if stored is None or wanted is None or wanted.shape != tensor.shape:
                continue
            if (off := _off(wanted, tensor)) is not None:
                where = [int(index) for index in off.nonzero()[0]]
                numbers = f"{_number(tensor, where)}, eager's is {_number(wanted, where)}"
                places = f"{int(off.sum())} of {counted(off.numel(), 'element')}, first {where}"
                (line, store), detail = stored, f"{places}: {numbers}; {self.verdict}"
                none = np.zeros(store.live.shape, bool)
                finding = self._collected.add("values", watch.place, store, none, line=line, detail=detail)
                finding.programs, finding.lanes = 0, int(off.sum())
                finding.argument, finding.buffer, finding.node = name, launch.buffers.get(name, ""), node
                self.found.append(finding)
                return


class _Stores(AccessWatch):
    """Keeps, for each storage, the last line that stored to it."""

    def __init__(self, place: LaunchPlace) -> None:
        self.place = place
        self.last: dict[int, tuple[int, Access]] = {}

    def access(self, access: Access) -> bool:
        if access.kind != "load" and access.zone is not None and access.inside.any():
            self.last[access.zone.storage._cdata] = self.place.line(), access
        return True


def _number(tensor: torch.Tensor, where: list[int]) -> str:
    value = tensor[tuple(where)].item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _off(wanted: torch.Tensor, got: torch.Tensor) -> torch.Tensor | None:
    """A mask of the elements that rounding does not explain; None where there are none."""
    if wanted.dtype.is_complex or not wanted.numel():
        return None
    if not wanted.is_floating_point():
        differ = wanted != got
        return differ if bool(differ.any()) else None
    kind = max((wanted.dtype, got.dtype), key=lambda dtype: torch.finfo(dtype).eps)
    want, have = wanted.double(), got.double()
    finite = torch.isfinite(want)
    scale = float(want[finite].abs().max()) if bool(finite.any()) else 0.0
    limit = _ROUNDINGS * torch.finfo(kind).eps * max(scale, float(torch.finfo(kind).tiny))
    differ = ((want - have).abs() > limit) | (finite != torch.isfinite(have))
    differ &= ~((want == have) | ((want != want) & (have != have)))
    return differ if bool(differ.any()) else None
