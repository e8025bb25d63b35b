"""A program with torch's own compiled autograd: a compiled part in the forward, hooks (one runs no operator), sizes
that grow."""

import torch

torch.manual_seed(0)
calls = []
part = torch.nn.Linear(4, 3)
weight = torch.nn.Parameter(torch.randn(3, 2))
forward = torch.compile(part, backend="aot_eager")


def clip(grad):
    return grad.clamp(-0.5, 0.5)


def count(grad):
    calls.append(None)


weight.register_hook(clip)
part.bias.register_hook(count)
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager"), dynamic=False):
    for size in (3, 5):
        weight.grad = part.weight.grad = part.bias.grad = None
        ((forward(torch.randn(size, 4)).sin() @ weight) ** 2).mean().backward()
        print(size, weight.grad.sum().item(), part.weight.grad.sum().item(), part.bias.grad.sum().item())
