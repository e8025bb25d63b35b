"""Programs of the capture matrix with process groups: functional collectives, named subgroups, DTensor. gloo on the
CPU.

A builder joins the world that torchrun made, or makes a world of one rank.

>>> function, arguments = collectives()
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor, nn

from tests.models.capture_hops import Made


def world() -> int:
    """The number of ranks; the process group exists afterwards."""
    if not dist.is_initialized():
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
        else:
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return dist.get_world_size()


def collectives() -> Made:
    """all_reduce, all_gather, reduce_scatter and broadcast over all ranks."""
    size, everyone = world(), dist.group.WORLD

    def f(x: Tensor) -> tuple[Tensor, ...]:
        summed = funcol.all_reduce(x * 2, "sum", everyone)
        gathered = funcol.all_gather_tensor(summed.sin(), 0, everyone)
        part = funcol.reduce_scatter_tensor(gathered * 0.5, "sum", 0, everyone)
        return part.relu(), funcol.broadcast(x + 1, 0, everyone)

    torch.manual_seed(dist.get_rank())
    return f, (torch.randn(2 * size, 3),)


def subgroups() -> Made:
    """Collectives in a group of its own for each rank, beside one of all."""
    size = world()
    own = [dist.new_group([rank]) for rank in range(size)][dist.get_rank()]

    def f(x: Tensor) -> Tensor:
        return funcol.all_reduce(funcol.all_gather_tensor(x.cos(), 0, own), "sum", dist.group.WORLD)

    torch.manual_seed(dist.get_rank())
    return f, (torch.randn(3, 3),)


def reduced_in_place() -> Made:
    """torch.distributed's own all_reduce, which writes to its argument."""
    world()

    def f(x: Tensor) -> Tensor:
        y = x.exp()
        dist.all_reduce(y)
        return y * 2

    return f, (torch.randn(4, 2),)


def training() -> Made:
    """An autograd-aware reduction in training."""
    world()

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return funcol.all_reduce(self.layer(x).tanh(), "sum", dist.group.WORLD) + x

    return Module(), (torch.randn(3, 4),)


def dtensor() -> Made:
    """A product of sharded and replicated DTensors: its collectives come from their placements."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world(),))
    x, w = (distribute_tensor(torch.randn(4, 4), mesh, [placed]) for placed in (Shard(1), Shard(0)))
    return lambda a, b: (a @ b).redistribute(mesh, [Replicate()]).relu(), (x, w)
