"""Trains a small model on a GPU for 40 steps; in step 37 a derivative is NaN, an index out of range, or the process
killed."""

import os
import signal
import sys

import torch
from torch import nn

way, BAD = sys.argv[1], 37
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(50, 64), nn.BatchNorm1d(64), nn.Linear(64, 64)

    def forward(self, rows, gate):
        h = self.last(self.norm(self.table(rows))) * gate
        return h.square().sum(-1).sqrt().mean()


model = Net().cuda()
step = torch.compile(model, mode="reduce-overhead" if way == "reduce_overhead" else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for number in range(1, 41):
    rows, gate = torch.randint(0, 50, (256,), device="cuda"), torch.ones(256, 1, device="cuda")
    if number == BAD and way == "assert":
        rows[3] = 10**6
    if number == BAD and way != "kill":
        gate[5] = 0
    before = [rows, model.norm.running_mean.clone(), model.last.weight.detach().clone()]
    loss = step(rows, gate)
    loss.backward()
    if number == BAD and way == "kill":
        torch.save([value.cpu() for value in before], "killed.pt")
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    optimizer.zero_grad()
    print(number, loss.item().hex(), flush=True)
