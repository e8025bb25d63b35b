"""From a graph to a scripted module; what TorchScript cannot take is named by node, operator and user line.

Must not change the caller's graph. TorchScript's own autocast is off meanwhile: the graph has its casts already.

>>> script(fx_g, inps, torch.jit.freeze)
RecursiveScriptModule(original_name=GraphModule)
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import fx
from torch.jit.frontend import FrontendError

from ...dumps.errors import GraphdbgError
from ...dumps.sidecar import user_frame
from .. import torch_private as t
from .operators import op_name
from .scriptable import has_translation, scriptable

_MARK = "<--- HERE"
_ASSIGNED = re.compile(r"^\s*(?:return\s+)?(\w+)\s*(?::[^=]*)?=", re.MULTILINE)


class UnscriptableError(GraphdbgError):
    """A graph has an operator that TorchScript does not know. `node`, `op` and `user_line` say which ("" where unknown)."""

    exit_code = 3

    def __init__(self, why: str, node: str = "", op: str = "", user_line: str = "") -> None:
        self.node, self.op, self.user_line = node, op, user_line
        what = f"TorchScript cannot take {op or 'the graph'}"
        if node:
            what += f" (node {node}, {user_line or 'no user line is known'})"
        super().__init__(what, why, "use another rung or backend for this graph, or decompose the operator")


def script(
    fx_g: fx.GraphModule, inps: Sequence[Any], finish: Callable[[torch.jit.ScriptModule], Any] = torch.jit.freeze
) -> torch.jit.ScriptModule:
    """The scripted copy of a graph, in evaluation mode, after the passes of `finish`. Raises UnscriptableError."""
    for node in _nodes(fx_g):
        if node.op == "call_function" and isinstance(node.target, t.HigherOrderOperator) and not has_translation(node):
            raise UnscriptableError("TorchScript has no form for higher-order operators", node.name, *_told(node))
    gm = scriptable(fx_g, inps)
    try:
        with torchscript_alone():
            return finish(torch.jit.script(gm).eval())
    except (RuntimeError, TypeError, NotImplementedError, ValueError, OSError, FrontendError) as error:
        raise _explained(error, fx_g, gm) from error


def returning(fx_g: fx.GraphModule, scripted: Callable[..., Any]) -> Callable[..., Any]:
    """The scripted module with outputs in the container that the graph has: a list comes back from TorchScript as a tuple."""
    if isinstance(fx_g.graph.output_node().args[0], list):

        def with_list(*args: Any) -> list[Any]:
            return list(scripted(*args))

        return with_list
    return scripted


def _nodes(fx_g: fx.GraphModule) -> list[fx.Node]:
    return list(fx_g.graph.nodes)


def _told(node: fx.Node) -> tuple[str, str]:
    """(operator, user line) of a node."""
    where, line = user_frame(node.stack_trace or "")
    return op_name(node), f"{where}: {line}" if where and line else where


def _explained(error: Exception, fx_g: fx.GraphModule, gm: fx.GraphModule) -> UnscriptableError:
    text = str(error)
    reason = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    found = _node_at_fault(text, gm)
    if found is None:
        return UnscriptableError(reason)
    original = next((node for node in fx_g.graph.nodes if node.name == found.name), found)
    return UnscriptableError(reason, original.name, *_told(original))


def _node_at_fault(text: str, gm: fx.GraphModule) -> fx.Node | None:
    """The node that the line above the mark assigns; inside a Python function, the node that calls a function of its name."""
    nodes = {node.name: node for node in gm.graph.nodes}
    above = text.partition(_MARK)[0].splitlines()
    for line in reversed(above):
        found = _ASSIGNED.match(line)
        if found and found[1] in nodes:
            return nodes[found[1]]
    functions = (node for node in nodes.values() if isinstance(node.target, FunctionType))
    return next((node for node in functions if re.search(rf"\b{node.target.__name__}\b", text)), None)  # type: ignore[union-attr]


@contextlib.contextmanager
def torchscript_alone() -> Iterator[None]:
    """TorchScript's own autocast off, and as it was afterwards; no modes, or the constants that it folds would be fake tensors;
    no warnings that it is deprecated, since it is used on purpose."""
    before = t.set_jit_autocast(False)
    try:
        with warnings.catch_warnings(), t.modes_off():
            for kind in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", message=".*torch.jit.*", category=kind)
            yield
    finally:
        t.set_jit_autocast(before)
