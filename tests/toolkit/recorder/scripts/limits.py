"""Trains 20 steps: one function compiled before them, a model compiled in step 0 and again in step 12, or many
recompiles."""

import sys

import torch

torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000


@torch.compile(backend="aot_eager", dynamic=False)
def early(x):
    return (x.sin() * x.shape[0]).relu().sum(-1)


def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(20):
        loss = compiled(torch.ones(3 if step == 12 else 2, 4)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


if __name__ == "__main__":
    for size in range(2, 2 + int(sys.argv[1])):
        early(torch.ones(size, 3))
    if int(sys.argv[1]) == 1:
        train()
