"""Graph breaks, recompiles, a recompile limit, threads, nested compile, skipped functions; then one in a child
process."""

import subprocess
import sys
import threading

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def speak(self, x):
        print("spoken")
        return x + 1

    def forward(self, x, n=1):
        x = self.linear(x)
        x = self.speak(x)
        if x.sum() > 100:
            x = x * 2
        return x * n


def breaks():
    model = torch.compile(Model(), backend="eager")
    model(torch.ones(2, 4))
    model(torch.ones(2, 4), 2)
    model(torch.ones(3, 4))


@torch.compile(backend="eager")
def texts(x, text):
    return x + len(text)


def limit():
    for length in range(10):
        texts(torch.ones(2), "a" * length)


@torch.compile(backend="eager", fullgraph=True)
def whole(x):
    print("never")
    return x


@torch.compile(backend="eager")
def looping(x):
    for _ in range(2):
        x = x + 1
        print("looping")
    return x


@torch.compile(backend="eager")
def generator(x):
    yield x + 1


@torch.compile(backend="eager")
def nothing(n):
    return n + 1


def failures():
    try:
        whole(torch.ones(2))
    except torch._dynamo.exc.Unsupported:
        print("refused")
    looping(torch.ones(2))
    list(generator(torch.ones(2)))
    nothing(3)


@torch.compile(backend="eager")
def worker(x):
    return x.sin()


def threads():
    for name in ("worker-a", "worker-b"):
        thread = threading.Thread(target=lambda: worker(torch.ones(2)), name=name)
        thread.start()
        thread.join()


@torch.compile(backend="eager")
def inner(x):
    return x.cos()


@torch.compile(backend="eager")
def outer(x):
    x = inner(x)
    torch._dynamo.graph_break()
    return inner(x) + 1


@torch.compile(backend="eager", dynamic=True)
def open_shape(x):
    return x.relu() if x.shape[0] < 10 else x


def shapes():
    open_shape(torch.ones(3))
    open_shape(torch.ones(20))


def again():
    torch._dynamo.reset()
    worker(torch.ones(2))


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        worker(torch.ones(2))
    else:
        for run in (breaks, limit, failures, threads, lambda: outer(torch.ones(2)), shapes, again):
            run()
        subprocess.run([sys.executable, __file__, "child"], check=True)
