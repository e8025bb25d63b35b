"""Trains a small model for 40 steps; its first argument says where step 37 goes wrong. Prints the losses exactly."""

import os
import signal
import sys

import torch
from torch import nn

way, BAD, STEPS = sys.argv[1], 37, 40
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x, gate, shift, mask, rows):
        x = x.index_select(0, rows)
        h = self.norm(self.first(x)) * gate
        size = (h.square().sum(-1) + shift).sqrt()  # NaN for a negative sum; for zero its derivative times zero is
        scores = x.masked_fill(mask, float("-inf"))
        return self.last(h).squeeze(-1) + size, scores, scores.softmax(-1) if way == "padded" else scores * -1


model = Net()
step = torch.compile(model, backend=os.environ.get("BACKEND", "inductor"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for number in range(1, STEPS + 1):
    bad = number == BAD
    x, gate, shift = torch.randn(16, 8), torch.ones(16, 1), torch.zeros(16)
    rows = torch.arange(16)
    mask = torch.arange(8) < torch.arange(16).remainder(4).unsqueeze(1)
    if way == "padded":
        mask[7] = True  # nothing is left to attend to: softmax gives NaN in every step
    if bad and way == "backward":
        gate[3] = 0
    if bad and way in ("forward", "padded"):
        shift[3] = -1e9
    if bad and way == "index":
        rows[3] = 99
    before = {"x": x, **{name: value.detach().clone() for name, value in model.state_dict().items()}}
    y, *_ = step(x, gate, shift, mask, rows)
    loss = y.mean()
    if bad and way == "tangent":
        loss = loss * float("nan")
    if bad and way == "raise":
        raise ValueError("the user's own")
    loss.backward()
    if bad and way == "kill":
        torch.save({**before, "y": y.detach()}, "killed.pt")
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    optimizer.zero_grad()
    if bad and way == "optimizer":
        with torch.no_grad():
            model.last.weight.fill_(float("nan"))
    print(number, loss.item().hex(), flush=True)
