"""Training steps on a GPU; prints every loss bit by bit. Run: gpu.py KIND [KIND ...]"""

import sys

import torch
from torch import nn

sys.path.insert(0, __file__.rpartition("/")[0])
from models import bits, train


def make(*shape):
    return lambda step: torch.randn(*shape, device="cuda")


def mlp(dropout=0.1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(dropout), nn.Linear(128, 32)).cuda()


def static():
    train("static", mlp(), make(16, 64), clip=True)


def dynamic():
    train("dynamic", mlp(), lambda step: torch.randn(8 + step, 64, device="cuda"), dynamic=True)


def reduce_overhead():
    torch.manual_seed(0)
    train("reduce_overhead", mlp(), make(16, 64), steps=8, mode="reduce-overhead")
    with torch.no_grad():
        model = torch.compile(mlp(0.0), mode="reduce-overhead")
        for step in range(5):
            print("reduce_overhead inference", bits(model(torch.full((16, 64), float(step), device="cuda"))))


def autocast():
    train("autocast", mlp(), make(16, 64), context=lambda: torch.autocast("cuda", torch.float16))


def convnet():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    model = model.cuda().to(memory_format=torch.channels_last)
    train("convnet", model, lambda step: torch.randn(2, 3, 8, 8, device="cuda").to(memory_format=torch.channels_last))


def triton_kernel():
    import triton
    import triton.language as tl

    globals()["tl"] = tl

    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out + offsets, tl.load(x + offsets, mask=mask) * 2, mask=mask)

    @torch.compile
    def f(x):
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
        return out.sin()

    print("triton_kernel", bits(f(torch.ones(300, device="cuda"))))


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        globals()[kind]()
        torch._dynamo.reset()
