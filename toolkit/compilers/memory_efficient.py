"""`memory_efficient_fusion`: as little as possible is kept from forward to backward, and each goes through TorchScript.

The split is torch's min-cut: what is cheap to compute again is computed again in the backward. The saving is reported
by `.saved_bytes` of the result, and by a line per graph on a stream on request. Only results of the forward count;
inputs and parameters that are kept are counted apart, since they are alive anyway. A storage counts once and whole,
however many views of it are kept. Symbolic sizes count with the numbers they were traced with.

>>> fused = memory_efficient_fusion(lambda x, y: (x + y).sin().exp().sum())
>>> fused(torch.ones(4, requires_grad=True), torch.ones(4)).backward()
>>> print(fused.saved_bytes)
graphdbg x...: 16 B kept from forward to backward in 1 tensor (default partition: 32 B in 2), and 0 B of inputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

import torch
from torch import fx

from ...dumps.wording import counted, size_text
from .. import torch_private as t
from ..live.eager import copy_graph
from .decompositions import default_decompositions
from .label import label
from .scriptable import storage_size
from .ts_compile import ts_compile


def memory_efficient_fusion(
    fn: Callable[..., Any] | torch.nn.Module, *, report: TextIO | None = None, **kwargs: Any
) -> Any:
    """The function or module, compiled on its first call; returns what it returned, with the same gradients.

    `kwargs` are those of `functorch.compile.aot_function` and win over the ones chosen here (`fw_compiler`,
    `bw_compiler`, `partition_fn`, `decompositions`). The result has `.saved_bytes`, a SavedBytes; each of its lines
    goes to `report` too.

    >>> memory_efficient_fusion(lambda x: x.sin().sum())(torch.zeros(2, requires_grad=True)).item()
    0.0
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


class SavedBytes:
    """The report of a compiled function: one row per joint graph, added when it is compiled; none where no gradient is
    wanted."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.rows: list[Partitioned] = []
        self.stream = stream

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows)) or "nothing was partitioned yet: no forward with gradients has run"

    @property
    def saved(self) -> int:
        """Bytes kept between forward and backward, over all graphs."""
        return sum(row.kept.result_bytes for row in self.rows)

    @property
    def saved_by_default(self) -> int:
        """The same under torch's default partition."""
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
    """What a forward returns behind its own outputs, for the backward."""
    given = {key for node in forward.graph.find_nodes(op="placeholder") for key, _ in _storage(node)}
    outputs: Any = forward.graph.output_node().args[0]
    sizes = dict(pair for node in outputs[num_fwd_outputs:] for pair in _storage(node))
    results = [nbytes for key, nbytes in sizes.items() if key not in given]
    inputs = [nbytes for key, nbytes in sizes.items() if key in given]
    return ForwardBytes(sum(results), len(results), sum(inputs), len(inputs))


def _storage(node: Any) -> list[tuple[int, int]]:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return [storage_size(value)] if isinstance(value, torch.Tensor) else []
