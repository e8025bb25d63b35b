"""The form of each node's value in eager: shape, strides and dtype, without the numbers. Edits must not change it.

>>> forms(case)["addmm"]
[((2, 16), (16, 1), torch.float32, device(type='cpu'), True)]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from itertools import count
from typing import Any, cast

import torch
from torch import fx

from ...toolkit import torch_private as t
from ...toolkit.isolation.child import report
from ...toolkit.live.case import Live
from ...toolkit.live.eager import GraphRunError, clone_inputs, run_graph

Forms = dict[str, list[Any]] | None
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError)
"""The exceptions of an edit that does not fit."""

_NUMBERED: ContextVar[tuple[count[int], Collection[int]] | None] = ContextVar("_NUMBERED", default=None)


@contextmanager
def numbered(deadly: Collection[int]) -> Generator[None]:
    """Numbers the eager runs inside. Each is reported as it begins, so that the last report of a process that dies
    names the run; runs in `deadly` raise RuntimeError instead.
    """
    token = _NUMBERED.set((count(), deadly))
    try:
        yield
    finally:
        _NUMBERED.reset(token)


def _begin() -> None:
    if (runs := _NUMBERED.get()) is not None:
        number = next(runs[0])
        if number in runs[1]:
            raise RuntimeError("the process died of this run")
        report(number)


def forms(case: Live) -> Forms:
    """The form of every node's value, the outputs' under "output"; where eager raises, there the error's class. None
    where it cannot be run."""
    seen: dict[str, list[Any]] = {}

    def look(node: fx.Node, value: Any) -> Any:
        seen[node.name] = [_form(item) for item in t.tree_leaves(value)]
        return value

    try:
        seen["output"] = [_form(leaf) for leaf in watched(case, look)]
    except GraphRunError as error:
        seen["output"] = [type(error.__cause__)]
    except RuntimeError:
        return None
    return seen


def forms_after(
    case: Live, edit: str, apply: Callable[[Live, str], Live], forms: Callable[[Live], Forms] = forms
) -> Forms:
    """`forms` of the case with an edit; None also where the edit cannot be applied."""
    try:
        return forms(apply(case, edit))
    except REFUSALS:
        return None


def alike(after: Forms, known: dict[str, list[Any]]) -> bool:
    """Whether every value that is left has the form that it had."""
    return after is not None and all(known.get(name) == kind for name, kind in after.items())


def run(case: Live) -> Any:
    """Runs the case eagerly and returns its result. Raises whatever eager raises."""
    _begin()
    with torch.no_grad():
        return fx.Interpreter(case.gm).run(*clone_inputs(case.inputs), enable_io_processing=False)


def runs(case: Live) -> bool:
    """Runs the case eagerly; raises whatever eager raises."""
    run(case)
    return True


def fitting(
    case: Live, rounds: list[list[str]], apply: Callable[[Live, str], Live], fine: Callable[[Live], bool] = runs
) -> list[list[str]]:
    """Filters rounds: keeps all edits of a round where the case with all of them is `fine`, else those that are so
    alone. Where eager raises on the case as it is (a missing error shows there), an edit fits if eager raises the same
    class."""

    def judged(changed: Live) -> bool | type[BaseException]:
        try:
            return fine(changed)
        except Exception as error:  # noqa: BLE001  whatever eager raises, they do not fit
            return type(error.__cause__ or error)

    wanted = judged(case)

    def fits(edits: list[str]) -> bool:
        try:
            return judged(reduce(apply, edits, case)) is wanted
        except Exception:  # noqa: BLE001  the edits cannot be applied
            return False

    kept = [edits if fits(edits) else [edit for edit in edits if fits([edit])] for edits in rounds if edits]
    return [edits for edits in kept if edits]


def watched(case: Live, look: Callable[[fx.Node, Any], Any]) -> list[Any]:
    """Runs the case eagerly and returns its outputs; each node's value passes through `look`. Raises GraphRunError."""
    _begin()
    with cast(Any, torch.random).fork_rng(devices=[]):
        return run_graph(case.gm, clone_inputs(case.inputs), hook=look)


def _form(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    strides = value.stride() if value.layout is torch.strided else ()
    return tuple(value.shape), strides, value.dtype, value.device, value.requires_grad
