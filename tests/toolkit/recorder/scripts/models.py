"""Small training steps of many kinds; prints every loss and gradient norm bit by bit. Run: models.py KIND[@BACKEND]
..."""

import gc
import sys

import torch
from torch import nn

default = "inductor"
"""The backend of a step that names none: `models.py KIND@BACKEND` names another."""


def bits(value):
    return value.detach().float().sum().item().hex()


def train(name, model, make, steps=3, compiled=None, context=None, clip=False, **options):
    torch.manual_seed(0)
    compiled = compiled or torch.compile(model, **{"backend": default, **options})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        if context is None:
            output = compiled(make(step))
        else:
            with context():
                output = compiled(make(step))
        output = output[0] if isinstance(output, tuple) else output
        loss = output.float().square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5) if clip else torch.zeros(())
        optimizer.step()
        optimizer.zero_grad()
        print(name, step, bits(loss), bits(norm), flush=True)
    print(name, "random", torch.rand(1).item().hex(), flush=True)


def mlp(dropout=0.1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 4))


def alive():
    """How many graphs and tensors there are: a recording must keep none of them."""
    gc.collect()
    classes = [type(item).__mro__ for item in gc.get_objects()]
    print("alive", *(sum(kind in bases for bases in classes) for kind in (torch.fx.GraphModule, torch.Tensor)))


def static():
    model = mlp()
    train("static", model, lambda step: torch.randn(4, 8), clip=True)
    with torch.no_grad():
        print("static inference", bits(torch.compile(model)(torch.ones(4, 8))))


def dynamic():
    model = mlp(0.0)
    train("dynamic", model, lambda step: torch.randn(3 + step, 8), steps=4, dynamic=True)


def automatic():
    model = mlp(0.0)
    train("automatic", model, lambda step: torch.randn(3 + step, 8), steps=4)


def autocast():
    model = mlp()
    train("autocast", model, lambda step: torch.randn(4, 8), context=lambda: torch.autocast("cpu", torch.bfloat16))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def lstm():
    torch.manual_seed(0)
    train("lstm", Reader(), lambda step: torch.randn(2, 3, 4), steps=2)


def convnet():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    model = model.to(memory_format=torch.channels_last)
    train("convnet", model, lambda step: torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last), steps=2)


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = self.a(x).relu()
        torch._dynamo.graph_break()
        return self.b(x)


def graph_break():
    torch.manual_seed(0)
    train("graph_break", Breaks(), lambda step: torch.randn(4, 8), steps=2)


def aot_eager():
    model = mlp()
    train("aot_eager", model, lambda step: torch.randn(4, 8), backend="aot_eager")
    with torch.no_grad():
        print("aot_eager inference", bits(torch.compile(model, backend="aot_eager")(torch.ones(4, 8))))


def eager():
    train("eager", mlp(), lambda step: torch.randn(4, 8), backend="eager")


def own_backend():
    def backend(gm, inputs):
        print("own backend", len(gm.graph.nodes), len(inputs))
        return gm.forward

    train("own_backend", mlp(), lambda step: torch.randn(4, 8), backend=backend)


def own_pass():
    import torch._inductor.config as config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Count(CustomGraphPass):
        def __call__(self, graph):
            print("own pass", len(graph.nodes))

        def uuid(self):
            return None

    config.post_grad_custom_post_pass = Count()
    train("own_pass", mlp(), lambda step: torch.randn(4, 8), steps=2, options={"epilogue_fusion": False})
    config.post_grad_custom_post_pass = None


def mode():
    train("mode", mlp(), lambda step: torch.randn(4, 8), steps=2, mode="max-autotune-no-cudagraphs")


def mutation():
    counter = torch.zeros(4)

    def step(x):
        counter.add_(x)
        return counter * 2

    compiled = torch.compile(step)
    for i in range(3):
        print("mutation", bits(compiled(torch.full((4,), float(i)))), bits(counter))


if __name__ == "__main__":
    for word in sys.argv[1:]:
        kind, _, backend = word.partition("@")
        default = backend or "inductor"
        globals()[kind]()
        print(kind, "graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])
        torch._dynamo.reset()
