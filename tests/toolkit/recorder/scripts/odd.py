"""Compiles in unusual ways; prints what comes out. Run: odd.py KIND [KIND ...]"""

import sys
import threading

import torch


def direct():
    """compile_fx without Dynamo: no compile id."""
    from torch._inductor.compile_fx import compile_fx
    from torch.fx.experimental.proxy_tensor import make_fx

    for size in (3, 4):
        example = torch.ones(size)
        gm = make_fx(lambda x: (x.sin() + 1,))(example)
        print("direct", compile_fx(gm, [example])(example)[0].sum().item())


def threads():
    def work(index):
        function = torch.compile(lambda x: x.sin() * index)
        results[index] = function(torch.ones(2 + index)).sum().item()

    results = {}
    workers = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("threads", sorted(results.items()))


def cond():
    @torch.compile
    def f(x):
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))

    print("cond", f(torch.ones(3)).sum().item())


def nested():
    @torch.compiler.nested_compile_region
    def block(x, w):
        return torch.relu(x @ w)

    @torch.compile
    def f(x, w):
        return block(block(x, w), w).sum()

    w = torch.full((3, 3), 0.1, requires_grad=True)
    f(torch.ones(2, 3), w).backward()
    print("nested", w.grad.sum().item())


def freezing():
    import torch._inductor.config as config

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    with config.patch(freezing=True), torch.no_grad():
        print("freezing", torch.compile(model)(torch.ones(2, 4)).sum().item())


def empty():
    w = torch.ones(3, requires_grad=True)
    out = torch.compile(lambda x: (x, x.view(3)), backend="inductor")(w)
    out[1].sum().backward()
    print("empty", w.grad.sum().item())


def custom_function():
    """A torch.autograd.Function, a custom op and a tensor constant."""

    @torch.library.custom_op("graphdbg_test::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @double.register_fake
    def _(x):
        return torch.empty_like(x)

    constant = torch.arange(3.0)
    print(
        "custom",
        torch.compile(lambda x: double(x) + constant + torch.tensor([1.0, 2.0, 3.0]))(torch.ones(3)).sum().item(),
    )


def compiled_autograd():
    w = torch.ones(3, requires_grad=True)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        torch.compile(lambda x: (x * w).sin().sum(), backend="aot_eager")(torch.ones(3)).backward()
    print("compiled_autograd", w.grad.sum().item())


def modes():
    """The user's own modes must not see what the recorder computes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    f = torch.compile(lambda x: x.sin() + 1, backend="aot_eager")
    f(torch.ones(3))
    g = torch.compile(lambda x: x.cos() + 1, backend="aot_eager")
    with Watch():
        g(torch.ones(3, 2))
    print("modes", seen)


def user_aot_backend():
    from torch._dynamo.backends.common import aot_autograd

    def compiler(gm, inputs):
        print("compiler", len(gm.graph.nodes))
        return gm.forward

    w = torch.ones(3, requires_grad=True)
    backend = aot_autograd(fw_compiler=compiler)
    torch.compile(lambda x: (x * w).sin().sum(), backend=backend)(torch.ones(3)).backward()
    print("user_aot_backend", w.grad.sum().item())


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        globals()[kind]()
        print(kind, "graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])
        torch._dynamo.reset()
