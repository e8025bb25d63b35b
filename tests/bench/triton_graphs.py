"""The graphs of the twenty models that Inductor would get, forward and backward, with the inputs of one training step.

>>> [(one.stage, len(one.gm.graph.nodes)) for one in graphs_of("gru")]
[('forward', 103), ('backward', 161)]
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import compile_models_more  # noqa: F401  registers the second ten
import torch
from compile_models import MODELS
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition  # type: ignore[attr-defined]
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch.utils._pytree import tree_leaves


@dataclass
class Graph:
    """A graph as the inner compiler gets it. `inputs`: copies of those of the step."""

    model: str
    stage: str
    gm: fx.GraphModule
    inputs: list[Any]


def graphs_of(name: str, size: int = 4) -> list[Graph]:
    """Runs one training step of a model and keeps the graphs that were compiled for it, in the order in which they ran."""
    torch.manual_seed(0)
    module, inputs = MODELS[name].make(size)
    found: list[Graph] = []

    def compiler(stage: str) -> Any:
        def compile(gm: fx.GraphModule, fakes: Sequence[Any]) -> Any:
            kept = copy.deepcopy(gm)

            def run(*given: Any) -> Any:
                found.append(Graph(name, stage, kept, [_copied(one) for one in given]))
                return gm(*given)

            return make_boxed_func(run)

        return compile

    backend = aot_autograd(
        fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("inference"),
        decompositions=select_decomp_table(), partition_fn=min_cut_rematerialization_partition,
    )  # fmt: skip
    torch._dynamo.reset()
    made = torch.compile(module, backend=backend)(*inputs)
    outputs = [one for one in tree_leaves(made) if isinstance(one, torch.Tensor) and one.requires_grad]
    torch.autograd.backward(outputs, [torch.randn_like(one) for one in outputs])
    return found


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
