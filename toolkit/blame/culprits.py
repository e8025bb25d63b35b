# pyright: basic
"""Which nodes does a failure itself name? For the first guess of a search: free where one compile failed anyway.

A crash in compile: the node that the compiler was at (see `raised_at`); for a kernel that the C++ compiler or Triton refused, the
nodes that the kernel came from. Wrong numbers or NaN: the earliest output that is wrong. A guess may be wrong.

>>> with noticed(found, gm):
...     compile_it()
>>> found
['relu']
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from torch import fx

from .. import torch_private as t
from ..outcome import Outcome
from . import switching
from .raised_at import _chain, raised_at

MOST = 32
FAR = 100.0
"""How much further off than eager, and how much less than the worst, an output may be and still be called wrong."""
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\([^\n]*?(?:'''|\"\"\")(.*?)(?:'''|\"\"\")", re.DOTALL | re.MULTILINE)
_SOURCE = re.compile(r"\S+\.(?:main\.)?cpp\b")


@contextlib.contextmanager
def noticed(found: list[str], gm: fx.GraphModule) -> Iterator[None]:
    """Adds to `found` the names of nodes of `gm` that an exception inside names; lets it through."""
    kernels: dict[str, list[str]] = {}
    try:
        with switching.noting_kernels(kernels):
            yield
    except Exception as error:
        there = {node.name for node in gm.graph.nodes}
        names = [name for name in _of_kernel(error, kernels) if name in there] or raised_at(error, gm)
        found.extend(name for name in names[:MOST] if name not in found)
        raise


def first_wrong(gm: fx.GraphModule, outcome: Outcome) -> list[str]:
    """The earliest node in graph order whose value is a wrong output.

    None where the failure is no wrong number, or where no output is right: then the fault may lie anywhere before.
    """
    if outcome.signature is None or outcome.signature.kind not in ("accuracy", "nan"):
        return []
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    leaves = t.tree_leaves(output.args[0], is_leaf=lambda value: value is None)
    if outcome.signature.kind == "nan":
        wrong = set(outcome.nan) - set(outcome.eager_nan)
    else:
        errors = [(f"output {one.name}", one.rung or 0.0, one.eager or 0.0) for one in outcome.errors]
        off = {name: error for name, error, own in errors if error > FAR * own}
        wrong = {name for name, error in off.items() if error > max(off.values()) / FAR}
    names = {leaf.name for place, leaf in enumerate(leaves) if f"output {place}" in wrong and isinstance(leaf, fx.Node)}
    computed = {leaf.name for leaf in leaves if isinstance(leaf, fx.Node) and leaf.op.startswith("call")}
    if computed <= names:
        return []
    return [node.name for node in gm.graph.nodes if node.name in names and node.op.startswith("call")][:1]


def _of_kernel(error: BaseException, kernels: dict[str, list[str]]) -> list[str]:
    """The nodes of the kernel that an error is about: named in its text, or in the C++ file that it names."""
    for one in _chain(error):
        text = str(one)
        for name, nodes in kernels.items():
            if re.search(rf"\b{re.escape(name)}\b", text):
                return nodes
        for match in _SOURCE.finditer(text[:2000]):
            refused = _read(Path(match.group()))
            for wrapper in _wrappers(one):
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
