# pyright: basic
"""The nodes that a failure itself names: a first guess for a search, which costs no further compile.

A crash in compile: the node that the compiler was at (see `raised_at`); for a kernel that the C++ compiler or Triton
refused, the nodes that the kernel came from. Wrong numbers or NaN: the earliest output that is wrong. A guess may be
wrong.

For example:

    with noticed(names, gm):
        compile_it()
    names  # -> ['relu']
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import fx

from ...dumps.names import of_module
from ..live.execution import returned
from ..verdicts.normalise import lowering_target
from ..verdicts.outcome import Outcome
from . import switching

_LOCALS = ("n", "node", "fx_node", "current_node", "buffer", "scheduler_node", "snode")
_DEPTH = 20


def raised_at(error: BaseException, gm: fx.GraphModule) -> list[str]:
    """The names of the nodes of `gm` that were being compiled, the innermost first; empty where the exception names
    none.

    Read from the frames of the exception, with no further compile: Inductor's lowering, scheduler and code generators
    hold the fx node they are at, or an object that knows the nodes it came from, in a local variable. Where no frame
    holds one, the operator in the message is looked up.
    """
    there = {node.name for node in gm.graph.nodes}
    for cause in reversed(list(_chain(error))):
        for frame in reversed(list(_frames(cause.__traceback__))):
            known = [name for key in _LOCALS if key in frame for name in _names(frame[key])]
            names = [name for name in dict.fromkeys(known) if name in there]
            if names:
                return names
    for cause in _chain(error):
        if target := lowering_target(str(cause)):
            return [node.name for node in gm.graph.nodes if str(node.target) == target]
    return []


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it wraps, outermost first."""
    current: BaseException | None = error
    for _ in range(_DEPTH):
        if current is None:
            return
        yield current
        inner = getattr(current, "inner_exception", None)
        current = (
            inner
            if isinstance(inner, BaseException) and inner is not current
            else current.__cause__ or current.__context__
        )


def _frames(traceback: TracebackType | None) -> Iterator[dict[str, Any]]:
    while traceback is not None:
        yield traceback.tb_frame.f_locals
        traceback = traceback.tb_next


def _names(value: Any) -> list[str]:
    if isinstance(value, fx.Node):
        return [value.name] if value.op not in ("placeholder", "output") else []
    for holder in (value, getattr(value, "node", None)):
        if isinstance(node := getattr(holder, "origin_node", None), fx.Node):
            return [node.name]
        origins = getattr(holder, "origins", None)
        if isinstance(origins, (set, frozenset)) or hasattr(origins, "__iter__"):
            names = [origin.name for origin in origins if isinstance(origin, fx.Node)]  # type: ignore[union-attr]
            if names:
                return names
    return []


MOST = 32
FAR = 100.0
"""How much further off than eager, and how much less than the worst, an output may be and still be called wrong."""
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\([^\n]*?(?:'''|\"\"\")(.*?)(?:'''|\"\"\")", re.DOTALL | re.MULTILINE)
_SOURCE = re.compile(r"\S+\.(?:main\.)?cpp\b")


@contextlib.contextmanager
def noticed(collected: list[str], gm: fx.GraphModule, *, kernels: bool = True) -> Iterator[None]:
    """Adds to `collected` the names of nodes of `gm` that an exception inside names, and lets the exception through.
    `kernels`: also those that a refused kernel came from."""
    noted: dict[str, list[str]] = {}
    try:
        with switching.noting_kernels(noted) if kernels else contextlib.nullcontext():
            yield
    except Exception as error:
        there = {node.name for node in gm.graph.nodes}
        names = [name for name in _of_kernel(error, noted) if name in there] or raised_at(error, gm)
        collected.extend(name for name in names[:MOST] if name not in collected)
        raise


def first_wrong(gm: fx.GraphModule, outcome: Outcome) -> list[str]:
    """The earliest node in graph order whose value is a wrong output.

    None where the failure is no wrong number, or where no output is right: then the fault may lie anywhere before.
    """
    if outcome.signature is None or outcome.signature.kind not in ("accuracy", "nan"):
        return []
    leaves = returned(gm)
    if outcome.signature.kind == "nan":
        wrong = set(outcome.nan) - set(outcome.eager_nan)
    else:
        errors = [(output.name, output.rung or 0.0, output.eager or 0.0) for output in outcome.errors]
        off = {name: error for name, error, own in errors if error > FAR * own}
        wrong = {name for name, error in off.items() if error > max(off.values()) / FAR}
    called = zip(leaves, of_module(gm).outputs, strict=True)
    names = {leaf.name for leaf, name in called if name in wrong and isinstance(leaf, fx.Node)}
    computed = {leaf.name for leaf in leaves if isinstance(leaf, fx.Node) and leaf.op.startswith("call")}
    if computed <= names:
        return []
    return [node.name for node in gm.graph.nodes if node.name in names and node.op.startswith("call")][:1]


def _of_kernel(error: BaseException, kernels: dict[str, list[str]]) -> list[str]:
    """The nodes of the kernel that an error is about: named in its text, or in the C++ file that it names."""
    for cause in _chain(error):
        text = str(cause)
        for name, nodes in kernels.items():
            if re.search(rf"\b{re.escape(name)}\b", text):
                return nodes
        for match in _SOURCE.finditer(text[:2000]):
            refused = _read(Path(match.group()))
            for wrapper in _wrappers(cause):
                for name, body in _KERNEL.findall(wrapper):
                    if refused and body.strip() in refused and name in kernels:
                        return kernels[name]
    return []


def _wrappers(error: BaseException) -> Iterator[str]:
    """The generated modules that were being run when an exception was raised."""
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if traceback.tb_frame.f_code.co_name == "<module>" and "async_compile" in traceback.tb_frame.f_globals:
            yield _read(Path(file))
        traceback = traceback.tb_next


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
