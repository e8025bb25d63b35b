"""TorchScript, from a graph to a scripted module, and the compilers made of it; an operator that it does not know is
named by node, operator and user line.

`ts_compile`: scripted, mutation removed, frozen, optimised for inference, run once. `simple_ts_compile`: scripted and
frozen, no more; when only `ts_compile` is wrong, its passes are to blame. `nnc_jit`: a function compiled through that
on its first call.

Works on lazy graph modules, with symbolic sizes as inputs, in the graph and as outputs. The caller's graph, inputs and
random state stay as they are. TorchScript's own autocast is off meanwhile: the graph has its casts already.

>>> aot_function(lambda x: x.sin().cos(), fw_compiler=ts_compile)(torch.zeros(2))
tensor([1., 1.])
>>> nnc_jit(lambda x: x.sin().cos())(torch.zeros(2))
tensor([1., 1.])
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

from ...dumps.errors import CannotTakeError
from ...dumps.walk import user_frame
from .. import torch_private as t
from ..debug_nop.blame import op_name
from ..live.eager import clone_inputs
from .boxed import boxed
from .decompositions import default_decompositions
from .scriptable import first_line, has_translation, scriptable

_MARK = "<--- HERE"
_ASSIGNED = re.compile(r"^\s*(?:return\s+)?(\w+)\s*(?::[^=]*)?=", re.MULTILINE)


class UnscriptableError(CannotTakeError):
    """A graph has an operator that TorchScript does not know. `node`, `op` and `user_line` say which ("" where
    unknown)."""

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
    for node in fx_g.graph.nodes:
        if isinstance(node.target, t.HigherOrderOperator) and not has_translation(node):
            raise UnscriptableError("TorchScript has no form for higher-order operators", node.name, *_told(node))
    gm = scriptable(fx_g, inps)
    try:
        with torchscript_alone():
            return finish(torch.jit.script(gm).eval())
    except (RuntimeError, TypeError, NotImplementedError, ValueError, OSError, FrontendError) as error:
        raise _explained(error, fx_g, gm) from error


def returning(fx_g: fx.GraphModule, scripted: Callable[..., Any]) -> Callable[..., Any]:
    """The scripted module with outputs in the container that the graph has: a list comes back from TorchScript as a
    tuple."""
    returns_list = isinstance(fx_g.graph.output_node().args[0], list)
    return (lambda *args: list(scripted(*args))) if returns_list else scripted


def _told(node: fx.Node) -> tuple[str, str]:
    """(operator, user line) of a node."""
    where, line = user_frame(node.stack_trace or "")
    return op_name(node), f"{where}: {line}" if where and line else where


def _explained(error: Exception, fx_g: fx.GraphModule, gm: fx.GraphModule) -> UnscriptableError:
    at_fault = _node_at_fault(str(error), gm)
    if at_fault is None:
        return UnscriptableError(first_line(error))
    original = next((node for node in fx_g.graph.nodes if node.name == at_fault.name), at_fault)
    return UnscriptableError(first_line(error), original.name, *_told(original))


def _node_at_fault(text: str, gm: fx.GraphModule) -> fx.Node | None:
    """The node that the line above the mark assigns; inside a Python function, the node that calls a function of its
    name."""
    nodes = {node.name: node for node in gm.graph.nodes}
    above = text.partition(_MARK)[0].splitlines()
    for line in reversed(above):
        match = _ASSIGNED.match(line)
        if match and match[1] in nodes:
            return nodes[match[1]]
    functions = (node for node in nodes.values() if isinstance(node.target, FunctionType))
    return next((node for node in functions if re.search(rf"\b{node.target.__name__}\b", text)), None)  # type: ignore[union-attr]


@contextlib.contextmanager
def torchscript_alone() -> Iterator[None]:
    """TorchScript's own autocast off, and as it was afterwards; no modes, or the constants that it folds would be fake
    tensors; no warnings that it is deprecated, since it is used on purpose."""
    before = t.set_jit_autocast(False)
    try:
        with warnings.catch_warnings(), t.modes_off():
            for kind in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", message=".*torch.jit.*", category=kind)
            yield
    finally:
        t.set_jit_autocast(before)


@boxed
def ts_compile(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Any:
    """Compiles with TorchScript; the first run is now unless an input is fake. Returns a boxed callable. Raises
    UnscriptableError (a GraphdbgError).

    >>> ts_compile(gm, inputs)(list(inputs))[0].shape
    torch.Size([2, 4])
    """
    with torchscript_alone():
        frozen = script(fx_g, inps, _optimised)
        if not any(isinstance(value, (t.FakeTensor, torch.SymInt)) for value in inps):
            _run_once(frozen, inps)
    return returning(fx_g, frozen)


def _optimised(scripted: torch.jit.ScriptModule) -> Any:
    t.remove_mutation(scripted.graph)
    return torch.jit.optimize_for_inference(torch.jit.freeze(scripted))


def _run_once(frozen: Any, inps: Sequence[Any]) -> None:
    """The run in which TorchScript profiles and specialises; on copies, since a graph may change its inputs, and draw
    numbers."""
    devices = {value.device for value in inps if isinstance(value, torch.Tensor) and value.device.type != "cpu"}
    kind = next(iter(devices)).type if devices else "cuda"
    with torch.random.fork_rng(devices=[device.index or 0 for device in devices], device_type=kind):
        frozen(*clone_inputs(inps))


def ts_arguments(decompose: bool = True) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_ts`; without `decompose` the graph keeps the operators that were
    called."""
    return {"fw_compiler": ts_compile, "decompositions": default_decompositions if decompose else None}


@boxed
def simple_ts_compile(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Any:
    """Compiles with TorchScript and no optimisation but freezing. Returns a boxed callable. Raises UnscriptableError (a
    GraphdbgError).

    >>> simple_ts_compile(gm, inputs)(list(inputs))[0].shape
    torch.Size([2, 4])
    """
    return returning(fx_g, script(fx_g, inps))


def nnc_jit(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, traced on its first call and run by TorchScript, forward and backward; returns the same values.

    >>> nnc_jit(lambda x: x.sin())(torch.zeros(2))
    tensor([0., 0.])
    """
    return t.aot_function(f, simple_ts_compile)
