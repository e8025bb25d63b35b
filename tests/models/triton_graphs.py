"""The graphs of the twenty models that Inductor would get, forward and backward, with the inputs of one training step.

>>> [(one.stage, len(one.gm.graph.nodes)) for one in graphs_of("gru")]
[('dynamo', 62), ('forward', 122), ('backward', 186), ('joint', 285)]
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from functorch.compile import make_boxed_func  # type: ignore[attr-defined]
from torch import fx
from torch._inductor import compile_fx as path
from torch.utils._pytree import tree_leaves

from graphdbg.toolkit.live.spec import no_caches
from graphdbg.toolkit.torch_private import replaced
from tests.models import compile_models_more  # noqa: F401  registers the second ten
from tests.models.compile_models import MODELS

SIZES = {"embedding_bag": 8}
"""Batch size of models that want another than four."""


@dataclass
class Graph:
    """A graph as the compiler of its stage gets it. `inputs`: copies of the step's; `kwargs`: what the compiler is
    told."""

    model: str
    stage: str
    gm: fx.GraphModule
    inputs: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic: bool = False


def graphs_of(
    name: str, size: int | None = None, *, dynamic: bool | None = None, autocast: torch.dtype | None = None
) -> list[Graph]:
    """Runs one training step of a model and keeps the graphs that Inductor compiled for it: Dynamo's, those that its
    inner compiler got, in the order in which they ran, and the joint graph. `autocast`: to that type."""
    torch.manual_seed(0)
    module: Any
    module, inputs = MODELS[name].make(size or SIZES.get(name, 4))
    results: list[Graph] = []
    joints: list[Graph] = []
    usual = path.partition_fn

    def inner(gm: fx.GraphModule, fakes: Sequence[Any], **kwargs: Any) -> Any:
        kept = copy.deepcopy(gm)
        stage = "backward" if kwargs.get("is_backward") else "inference" if kwargs.get("is_inference") else "forward"
        known = {key: list(value) for key, value in kwargs.items() if key == "static_input_idxs"}

        def run(*given: Any) -> Any:
            results.append(Graph(name, stage, kept, [_copied(value) for value in given], known, bool(dynamic)))
            return gm(*given)

        return make_boxed_func(run)

    def partition(gm: fx.GraphModule, given: Sequence[Any], **kwargs: Any) -> Any:
        known = {
            key: value for key, value in kwargs.items() if key in ("num_fwd_outputs", "static_lifetime_input_indices")
        }
        joints.append(Graph(name, "joint", copy.deepcopy(gm), [], known, bool(dynamic)))
        return usual(gm, given, **kwargs)

    def backend(gm: fx.GraphModule, given: Sequence[Any]) -> Any:
        kept = copy.deepcopy(gm)
        compiled: Any = path.compile_fx(gm, list(given), inner_compile=inner)

        def run(*real: Any) -> Any:
            results.append(Graph(name, "dynamo", kept, [_kept(item) for item in real], {}, bool(dynamic)))
            return compiled(*real)

        return run

    torch._dynamo.reset()
    context = torch.autocast("cpu", autocast) if autocast is not None else torch.autocast("cpu", enabled=False)
    lstms_too = torch._dynamo.config.patch(allow_rnn=True)  # oneDNN's own layer of an LSTM has no kernels of Inductor's
    with (
        no_caches(),
        context,
        lstms_too,
        torch.backends.mkldnn.flags(enabled=False),
        replaced(path, "partition_fn", partition),
    ):
        result = torch.compile(module, backend=backend, dynamic=dynamic)(*inputs)
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    torch.autograd.backward(outputs, [torch.randn_like(output) for output in outputs])
    return [*results, *_with_inputs(joints, results)]


def _with_inputs(joints: list[Graph], halves: list[Graph]) -> list[Graph]:
    """Joint graphs take what their halves took, by name."""
    known: dict[str, Any] = {}
    for half in halves:
        if half.stage != "dynamo":
            known |= dict(zip(_names(half.gm), half.inputs, strict=True))
    for joint in joints:
        joint.inputs = [known.get(name) for name in _names(joint.gm)]
    return [joint for joint in joints if all(value is not None for value in joint.inputs)]


def _names(gm: fx.GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes if node.op == "placeholder"]


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _kept(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
