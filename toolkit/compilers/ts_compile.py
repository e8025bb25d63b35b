"""TorchScript, from a graph to a scripted module, and the compilers made of it; an operator that it does not know is
named by node, operator and user line.

`ts_compile`: scripted, mutation removed, frozen, optimised for inference, run once. `simple_ts_compile`: scripted and
frozen, no more; when only `ts_compile` is wrong, its passes are to blame. `nnc_jit`: a function compiled through that
on its first call. `memory_efficient_fusion`: as little as possible is kept from forward to backward, and each goes
through `ts_compile`. `default_decompositions`: what functorch takes apart before a debug compiler sees it.

Works on lazy graph modules, with symbolic sizes as inputs, in the graph and as outputs. The caller's graph, inputs and
random state stay as they are. TorchScript's own autocast is off meanwhile: the graph has its casts already.

>>> aot_function(lambda x: x.sin().cos(), fw_compiler=ts_compile)(torch.zeros(2))
tensor([1., 1.])
>>> nnc_jit(lambda x: x.sin().cos())(torch.zeros(2))
tensor([1., 1.])
>>> torch.ops.aten.tanh_backward.default in default_decompositions
True
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, NamedTuple, TextIO

import torch
from torch import fx
from torch.jit.frontend import FrontendError

from ...dumps.errors import CannotTakeError
from ...dumps.walk import user_frame
from ...dumps.wording import counted, error_line, size_text
from .. import torch_private as t
from ..debug_nop.blame import op_name
from ..live.eager import clone_inputs, copy_graph
from .boxed import boxed, label
from .scriptable import has_translation, scriptable, storage_size

aten = torch.ops.aten

_TAKEN_APART = (
    aten.detach, aten.is_same_size, aten.conj_physical,
    aten.masked_fill.Scalar, aten.masked_fill.Tensor,
    aten.elu, aten.leaky_relu, aten.hardtanh, aten.hardswish, aten.hardsigmoid,
    aten.gelu_backward, aten.leaky_relu_backward, aten.sigmoid_backward, aten.threshold_backward,
    aten.hardtanh_backward,
    aten.hardsigmoid_backward, aten.hardswish_backward, aten.tanh_backward, aten.silu_backward, aten.elu_backward,
    aten.cudnn_batch_norm, aten.cudnn_batch_norm_backward,
)  # fmt: skip
"""A packet stands for all its overloads. The same operators as functorch's own table, each with torch's own
decomposition, so results are the same."""

default_decompositions: dict[Any, Callable[..., Any]] = t.get_decompositions(_TAKEN_APART)
"""Overload -> its decomposition, as `torch.compile` and `aot_function` take it."""


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
) -> Callable[..., Any]:
    """The scripted copy of a graph, in evaluation mode, after the passes of `finish`; a list that the graph returns,
    which is a tuple in TorchScript, is one again. Raises UnscriptableError."""
    for node in fx_g.graph.nodes:
        if isinstance(node.target, t.HigherOrderOperator) and not has_translation(node):
            raise UnscriptableError("TorchScript has no form for higher-order operators", node.name, *_user_place(node))
    gm = scriptable(fx_g, inps)
    try:
        with torchscript_alone():
            scripted = finish(torch.jit.script(gm).eval())
    except (RuntimeError, TypeError, NotImplementedError, ValueError, OSError, FrontendError) as error:
        raise _explained(error, fx_g, gm) from error
    returns_list = isinstance(fx_g.graph.output_node().args[0], list)
    return (lambda *args: list(scripted(*args))) if returns_list else scripted


def _user_place(node: fx.Node) -> tuple[str, str]:
    """(operator, user line) of a node."""
    where, line = user_frame(node.stack_trace or "")
    return op_name(node), f"{where}: {line}" if where and line else where


def _explained(error: Exception, fx_g: fx.GraphModule, gm: fx.GraphModule) -> UnscriptableError:
    at_fault = _node_at_fault(str(error), gm)
    if at_fault is None:
        return UnscriptableError(error_line(error))
    original = next((node for node in fx_g.graph.nodes if node.name == at_fault.name), at_fault)
    return UnscriptableError(error_line(error), original.name, *_user_place(original))


def _node_at_fault(text: str, gm: fx.GraphModule) -> fx.Node | None:
    """The node that the line above the mark assigns; inside a Python function, the node that calls a function of its
    name."""
    nodes = {node.name: node for node in gm.graph.nodes}
    for line in reversed(text.partition(_MARK)[0].splitlines()):
        if (match := _ASSIGNED.match(line)) and match[1] in nodes:
            return nodes[match[1]]
    functions = (node for node in nodes.values() if isinstance(node.target, FunctionType))
    return next((node for node in functions if re.search(rf"\b{node.target.__name__}\b", text)), None)  # type: ignore[union-attr]


@contextlib.contextmanager
def torchscript_alone() -> Iterator[None]:
    """Turns TorchScript's own autocast off and restores it afterwards; turns dispatch modes off, or constants that
    TorchScript folds would be fake tensors; silences deprecation warnings, since TorchScript is used on purpose."""
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
    return frozen


def _optimised(scripted: torch.jit.ScriptModule) -> Any:
    t.remove_mutation(scripted.graph)
    return torch.jit.optimize_for_inference(torch.jit.freeze(scripted))


def _run_once(frozen: Any, inps: Sequence[Any]) -> None:
    """Runs once, so that TorchScript profiles and specialises; on copies of the inputs and of the random state, since
    the graph may change both."""
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
    return script(fx_g, inps)


def nnc_jit(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, traced on its first call and run by TorchScript, forward and backward; returns the same values.

    >>> nnc_jit(lambda x: x.sin())(torch.zeros(2))
    tensor([0., 0.])
    """
    return t.aot_function(f, simple_ts_compile)


def memory_efficient_fusion(
    fn: Callable[..., Any] | torch.nn.Module, *, report: TextIO | None = None, **kwargs: Any
) -> Any:
    """The function or module, compiled on its first call; returns what it returned, with the same gradients.

    The split is torch's min-cut: what is cheap to compute again is computed again in the backward. What is kept counts
    whole storages, each once; inputs and parameters that are kept are counted apart, since they are alive anyway.
    Symbolic sizes count with the numbers they were traced with.

    `kwargs` are those of `functorch.compile.aot_function` and win over the ones chosen here (`fw_compiler`,
    `bw_compiler`, `partition_fn`, `decompositions`). The result has `.saved_bytes`, a SavedBytes; each of its lines
    goes to `report` too.

    >>> fused = memory_efficient_fusion(lambda x, y: (x + y).sin().exp().sum())
    >>> fused(torch.ones(4, requires_grad=True), torch.ones(4)).backward()
    >>> print(fused.saved_bytes)
    graphdbg x...: 16 B kept from forward to backward in 1 tensor (default partition: 32 B in 2), and 0 B of inputs
    """
    config: dict[str, Any] = {
        "fw_compiler": ts_compile,
        "bw_compiler": ts_compile,
        "partition_fn": t.min_cut_rematerialization_partition,
        "decompositions": default_decompositions,
        **kwargs,
    }
    saved = SavedBytes(report)
    config["partition_fn"] = saved.watching(config["partition_fn"])
    compiled: Any = FusedModule(fn, config) if isinstance(fn, torch.nn.Module) else t.aot_function(fn, **config)
    compiled.saved_bytes = saved
    return compiled


class FusedModule(torch.nn.Module):
    """A module run by its compiled graphs. Tied weights are one input, which `functorch.compile.aot_module` refuses;
    parameters and buffers are those that the module has at each call."""

    def __init__(self, module: torch.nn.Module, config: dict[str, Any]) -> None:
        super().__init__()
        self.orig_module = module
        state = len(list(module.parameters())) + len(list(module.buffers()))
        self._compiled = t.aot_function(self._call, num_params_buffers=state, **config)

    def _call(self, parameters: dict[str, Any], buffers: dict[str, Any], args: Any, kwargs: Any) -> Any:
        return torch.func.functional_call(self.orig_module, {**parameters, **buffers}, args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns."""
        module = self.orig_module
        return self._compiled(dict(module.named_parameters()), dict(module.named_buffers()), args, kwargs)


class ForwardBytes(NamedTuple):
    """What one forward keeps: results of its own and inputs, in bytes and in number."""

    result_bytes: int
    results: int
    input_bytes: int
    inputs: int


class Partitioned(NamedTuple):
    """One joint graph: the compile that it belongs to, what is kept, and what the default partition would keep."""

    name: str
    kept: ForwardBytes
    default: ForwardBytes

    def __str__(self) -> str:
        kept, default = self.kept, self.default
        return (
            f"graphdbg {self.name}: {size_text(kept.result_bytes)} kept from forward to backward in "
            f"{counted(kept.results, 'tensor')} (default partition: {size_text(default.result_bytes)} in "
            f"{default.results}), "
            f"and {size_text(kept.input_bytes)} of inputs"
        )


@dataclass(eq=False)
class SavedBytes:
    """The report of a compiled function: one row per joint graph, added when it is compiled; none where no gradient is
    wanted."""

    stream: TextIO | None = None
    rows: list[Partitioned] = field(default_factory=list[Partitioned])

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows)) or "nothing was partitioned yet: no forward with gradients has run"

    @property
    def saved(self) -> int:
        """Bytes kept between forward and backward, over all graphs."""
        return sum(row.kept.result_bytes for row in self.rows)

    @property
    def saved_by_default(self) -> int:
        """Bytes that torch's default partition would keep, over all graphs."""
        return sum(row.default.result_bytes for row in self.rows)

    def watching(self, partition: Callable[..., Any]) -> Callable[..., Any]:
        """The partitioner, with each of its results added to this report and printed to the stream."""

        def watched(joint: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
            copied = copy_graph(joint)  # both partitioners change the graph that they are given
            forward, backward = partition(joint, joint_inputs, **kwargs)
            by_default, _ = t.default_partition(copied, joint_inputs, **kwargs)
            count = kwargs["num_fwd_outputs"]
            row = Partitioned(label(joint, "joint").name, kept(forward, count), kept(by_default, count))
            self.rows.append(row)
            if self.stream is not None:
                self.stream.write(f"{row}\n")
            return forward, backward

        return watched


def kept(forward: fx.GraphModule, num_fwd_outputs: int) -> ForwardBytes:
    """What a forward returns for the backward, after its own outputs."""
    given = {key for node in forward.graph.find_nodes(op="placeholder") for key, _ in _storage(node)}
    outputs: Any = forward.graph.output_node().args[0]
    sizes = dict(pair for node in outputs[num_fwd_outputs:] for pair in _storage(node))
    results = [nbytes for key, nbytes in sizes.items() if key not in given]
    inputs = [nbytes for key, nbytes in sizes.items() if key in given]
    return ForwardBytes(sum(results), len(results), sum(inputs), len(inputs))


def _storage(node: Any) -> list[tuple[int, int]]:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return [storage_size(value)] if isinstance(value, torch.Tensor) else []
