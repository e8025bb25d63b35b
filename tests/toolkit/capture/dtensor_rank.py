"""One of two ranks: the joint graph of a layer of DTensors, compared with torch's own and saved. Run as a script.

>>> python dtensor_rank.py RANK RENDEZVOUS CASE
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from graphdbg.toolkit.capture import joint_graph


class Gathered(torch.nn.Module):
    """The sum over the ranks, on each of them."""

    def forward(self, x: Any) -> Any:
        return x.redistribute(placements=[Replicate()])


def main(rank: int, rendezvous: str, case: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    placements = {"0.weight": Shard(0), "0.bias": Shard(0), "2.weight": Shard(1), "2.bias": Replicate()}
    for name, value in list(model.named_parameters()):
        part = model.get_submodule(name.rpartition(".")[0])
        parameter = torch.nn.Parameter(distribute_tensor(value.detach(), mesh, [placements[name]]))
        setattr(part, name.rpartition(".")[2], parameter)
    x = distribute_tensor(torch.randn(3, 4), mesh, [Replicate()])
    model.append(Gathered())
    # on torch 2.11 the first trace has dead nodes of DTensor's own, while it learns the layouts
    joint_graph(model, (x,))
    ours = joint_graph(model, (x,))
    with contextlib.ExitStack() as stack:
        theirs: Any = aot_export_joint_with_descriptors(stack, model, (x,)).graph_module  # type: ignore[attr-defined]
    ours.save(case)
    out = model(x)
    out.backward(distribute_tensor(torch.ones(3, 2), mesh, out.placements))
    weight: Any = model[0].weight
    messages = {
        "equal": ours.module.code == theirs.code
        and [(n.name, str(n.meta.get("desc"))) for n in ours.module.graph.nodes]
        == [(n.name, str(n.meta.get("desc"))) for n in theirs.graph.nodes],
        "inputs": [(item.role, item.source) for item in ours.inputs_described],
        "collectives": [str(n.target) for n in ours.module.graph.nodes if "c10d" in str(n.target)],
        "local": list(weight.to_local().shape),
        "is_dtensor": isinstance(out, DTensor),
    }
    Path(f"{case}.json").write_text(json.dumps(messages))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
