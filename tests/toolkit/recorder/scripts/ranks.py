"""Two ranks of DDP on the CPU, split into parts by small buckets. Run: torchrun ... ranks.py BACKEND [HOW...]

The first time, not after a restart: `planted`: rank 1 computes something else; `kill`: it kills itself; `early`: it
leaves before the ranks have met, having compiled something.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn

backend, how = sys.argv[1], sys.argv[2:]
rank, restart = int(os.environ["RANK"]), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
odd = rank == 1 and restart == 0
if odd and "early" in how:
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    os._exit(7)
dist.init_process_group("gloo")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        if odd and "planted" in how:
            x = x.sin()
        return x.square().mean()


torch.manual_seed(0)
model = Net()
compiled = torch.compile(nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1), backend=backend)
torch.manual_seed(rank)
loss = compiled(torch.randn(4, 512))
loss.backward()
print(f"{rank} {restart} {loss.item():.6f}\n", end="", flush=True)
if odd and "kill" in how:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
