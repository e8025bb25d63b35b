"""Trains with an optimizer whose step is compiled as one graph, which a hook that Dynamo cannot trace would break."""

import torch


class Sign(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad.sign(), alpha=-group["lr"])


torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = Sign(model.parameters())


@torch.compile(backend="aot_eager", fullgraph=True)
def step():
    optimizer.step()


for number in range(6):
    compiled(torch.ones(3 if number == 4 else 2, 4)).sum().backward()
    step()
    optimizer.zero_grad(set_to_none=False)
    print(number, model.weight.sum().item())
