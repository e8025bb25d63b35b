"""Healthy training and inference programs, each a whole script: nothing in them departs, whatever is run beside them.

They print what they compute and, last, a digest of their weights (`done`), so that two runs can be compared by what
they print.
"""

from __future__ import annotations

PRELUDE = """import hashlib, os, random, torch, torch.nn as nn, torch.nn.functional as F
B = os.environ.get("HEALTHY_BACKEND", "inductor")
if "HEALTHY_DEVICE" in os.environ:
    torch.set_default_device(os.environ["HEALTHY_DEVICE"])
torch.manual_seed(0)
random.seed(0)
def done(*modules):
    digest = hashlib.sha256()
    for module in modules:
        state = module.state_dict() if hasattr(module, "state_dict") else module
        for name, one in sorted(state.items()):
            if isinstance(one, torch.Tensor):
                flat = one.detach().cpu().contiguous().flatten()
                digest.update(name.encode() + flat.view(torch.uint8).numpy().tobytes())
    print("weights", digest.hexdigest())
def fit(model, compiled, batches, optimizer, loss_of):
    for step, batch in enumerate(batches):
        loss = loss_of(compiled, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
    done(model)
"""

PROGRAMS: dict[str, str] = {
    "gru_clipped": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.r, self.o = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 2)
    def forward(self, x):
        return self.o(self.r(x)[0][:, -1])
m = Net()
c, o = torch.compile(m, backend=B), torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
for k in range(4):
    loss = c(torch.randn(4, 6, 8)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    o.step()
    print(k, loss.item())
done(m)
""",
    "experts_graph_breaks": """
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.g, self.e = nn.Linear(8, 3), nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
    def forward(self, x):
        w = self.g(x).softmax(-1)
        top = w.argmax(-1)
        out = torch.zeros_like(x)
        for i, e in enumerate(self.e):
            at = (top == i).nonzero().flatten()
            out = out.index_add(0, at, e(x[at]) * w[at, i : i + 1])
        print("experts", torch.bincount(top, minlength=3).tolist())
        return out
m = Experts()
fit(m, torch.compile(m, backend=B), [torch.randn(10, 8) for _ in range(4)], torch.optim.AdamW(m.parameters(), 1e-2),
    lambda c, x: c(x).pow(2).mean())
""",
    "kv_cache": """
class Cache:
    def __init__(self):
        self.k, self.n = [], 0
    def add(self, k):
        self.k.append(k)
        self.n += 1
        return torch.cat(self.k, 1)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)
    def forward(self, x, cache):
        k = cache.add(x)
        return torch.softmax(self.q(x) @ k.transpose(1, 2), -1) @ k
m, cache = Attention(), Cache()
c = torch.compile(m, backend=B)
with torch.no_grad():
    x = torch.randn(2, 1, 8)
    for k in range(5):
        x = c(x, cache)
        print(k, x.sum().item(), cache.n)
done(m)
""",
    "two_calls_accumulated": """
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 4))
c, o = torch.compile(m, backend=B), torch.optim.Adam(m.parameters())
for k in range(4):
    for _ in range(2):
        a, b = c(torch.randn(3, 4)), c(torch.randn(3, 4))
        ((a - b) ** 2).mean().backward()
    o.step()
    o.zero_grad()
    print(k, a.sum().item())
done(m)
""",
    "arguments_written": """
def f(buffer, x, h):
    buffer.mul_(0.9).add_(x.detach().mean(0))
    h.add_(1.0)
    return (x * buffer).sum() + h.sum()
c, buffer, w = torch.compile(f, backend=B), torch.zeros(4), torch.randn(4, requires_grad=True)
for k in range(4):
    h = w * 2
    loss = c(buffer, torch.randn(3, 4) * w, h)
    loss.backward()
    print(k, loss.item(), w.grad.sum().item(), buffer.sum().item(), h.sum().item())
done({"w": w, "grad": w.grad, "buffer": buffer})
""",
    "counts_in_globals": """
log, n = [], 0
@torch.compile(backend=B)
def f(x):
    global n
    n += 1
    log.append(n)
    return x * n
for k in range(4):
    print(f(torch.randn(3)).sum().item(), n, log)
done({})
""",
    "autograd_function": """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g
w = torch.randn(5, requires_grad=True)
@torch.compile(backend=B)
def f(x):
    return Square.apply(x * w).sum()
for k in range(4):
    loss = f(torch.randn(5))
    loss.backward()
    print(loss.item(), w.grad.sum().item())
done({"w": w.grad})
""",
    "raises_and_warns": """
import logging, warnings
logging.basicConfig(level=logging.INFO)
@torch.compile(backend=B)
def f(x, n):
    if n == 2:
        raise ValueError("two")
    torch._dynamo.graph_break()
    warnings.warn("careful")
    logging.info("in f")
    print("in f", n)
    return x + n
for k in range(4):
    try:
        print(f(torch.ones(2), k).sum().item())
    except ValueError as error:
        print("caught", error)
done({})
""",
    "checkpointed_batch_norm": """
from torch.utils.checkpoint import checkpoint
a = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
b = nn.Conv2d(4, 2, 3)
c, o = torch.compile(a, backend=B), torch.optim.SGD([*a.parameters(), *b.parameters()], 0.1)
for k in range(4):
    y = b(checkpoint(c, torch.randn(2, 3, 8, 8), use_reentrant=False))
    loss = y.pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    print(k, loss.item(), a[1].running_mean.sum().item())
done(a, b)
""",
    "inference_with_workers": """
m = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.LazyLinear(3))
m(torch.zeros(2, 4, dtype=torch.long))
m.compile(backend=B)
loader = torch.utils.data.DataLoader(torch.randint(0, 20, (12, 4)), batch_size=4, num_workers=1)
for b in loader:
    print(m(b).sum().item())
with torch.inference_mode():
    for b in loader:
        print(m(b).argmax(-1).tolist())
done(m)
""",
    "compiled_optimizer": """
m = nn.Linear(6, 6)
o = torch.optim.AdamW(m.parameters(), 1e-2)
s = torch.optim.lr_scheduler.LinearLR(o, total_iters=5)
@torch.compile(backend=B)
def step():
    o.step()
    s.step()
for k in range(5):
    m(torch.randn(3, 6)).pow(2).sum().backward()
    step()
    o.zero_grad()
    print(k, s.get_last_lr(), sum(p.sum().item() for p in m.parameters()))
done(m)
""",
    "nested_dynamic": """
@torch.compile(backend=B)
def inner(x):
    return torch.sin(x) + 1
@torch.compile(backend=B, dynamic=True)
def outer(x):
    y = inner(x)
    torch._dynamo.graph_break()
    return inner(y).sum()
for n in (3, 5, 7, 9):
    print(outer(torch.randn(n, 2)).item())
x = torch.randn(11, 2)
torch._dynamo.mark_dynamic(x, 0)
print(outer(x).item())
done({})
""",
    "two_ranks": """
import torch.distributed as dist, torch.multiprocessing as mp
def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("HEALTHY_PORT", "29517"))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(rank)
    m = nn.Linear(4, 4)
    d = nn.parallel.DistributedDataParallel(torch.compile(m, backend=B))
    o = torch.optim.SGD(d.parameters(), 0.1)
    for k in range(4):
        loss = d(torch.randn(3, 4)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if rank == 0:
            print(k, loss.item())
    if rank == 0:
        done(m)
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(run, nprocs=2)
""",
    "transformer_bf16_autocast": """
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n, self.a = nn.LayerNorm(d), nn.MultiheadAttention(d, 4, batch_first=True, dropout=0.1)
        self.f = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    def forward(self, x):
        h = self.n(x)
        x = x + self.a(h, h, h, need_weights=False)[0]
        return x + self.f(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.b = nn.Embedding(100, 256), nn.ModuleList([Block(256) for _ in range(4)])
        self.h = nn.Linear(256, 100)
    def forward(self, i):
        x = self.e(i)
        for b in self.b:
            x = b(x)
        return self.h(x)
def loss_of(c, i):
    with torch.autocast("cpu", torch.bfloat16):
        return F.cross_entropy(c(i).flatten(0, 1).float(), i.flatten())
m = Net()
fit(m, torch.compile(m, backend=B), [torch.randint(0, 100, (8, 128)) for _ in range(4)],
    torch.optim.AdamW(m.parameters(), 1e-3), loss_of)
""",
    "convnet_batch_norm_scheduler": """
m = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                  nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                  nn.Dropout(0.3), nn.Linear(32, 10))
c, o = torch.compile(m, backend=B), torch.optim.AdamW(m.parameters(), 1e-3)
s = torch.optim.lr_scheduler.OneCycleLR(o, 1e-2, total_steps=8)
for k in range(4):
    loss = F.cross_entropy(c(torch.randn(16, 3, 32, 32)), torch.randint(0, 10, (16,)))
    o.zero_grad()
    loss.backward()
    o.step()
    s.step()
    print(k, loss.item(), s.get_last_lr())
m.eval()
with torch.no_grad():
    print(c(torch.randn(4, 3, 32, 32)).sum().item())
done(m)
""",
    "vae_random_inside": """
class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(20, 8), nn.Linear(4, 20)
    def forward(self, x):
        mean, log = self.enc(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log).exp()
        return self.dec(z), mean, log
def loss_of(c, x):
    y, mean, log = c(x)
    return F.mse_loss(y, x) - 0.5 * (1 + log - mean.pow(2) - log.exp()).mean()
m = Vae()
fit(m, torch.compile(m, backend=B), [torch.randn(6, 20) for _ in range(4)], torch.optim.Adam(m.parameters(), 1e-2),
    loss_of)
""",
    "lstm_varying_lengths": """
class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.r, self.o = nn.Embedding(30, 12), nn.LSTM(12, 16, 2, batch_first=True, dropout=0.1), nn.Linear(16,
            30)
    def forward(self, i, state=None):
        y, state = self.r(self.e(i), state)
        return self.o(y), state
m = Lm()
c, o, state = torch.compile(m, backend=B), torch.optim.RMSprop(m.parameters(), 1e-3), None
for k, n in enumerate((5, 7, 7, 9)):
    i = torch.randint(0, 30, (3, n))
    y, state = c(i, state)
    state = tuple(one.detach() for one in state)
    loss = F.cross_entropy(y.flatten(0, 1), i.flatten())
    o.zero_grad()
    loss.backward()
    o.step()
    print(k, loss.item())
done(m)
""",
    "embedding_bag": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.cross, self.o = nn.EmbeddingBag(50, 8, mode="mean"), nn.Embedding(10, 8), nn.Linear(16, 1)
    def forward(self, words, offsets, kind):
        return self.o(torch.cat([self.bag(words, offsets), self.cross(kind)], -1)).squeeze(-1)
m = Net()
batches = [(torch.randint(0, 50, (12,)), torch.tensor([0, 3, 7]), torch.randint(0, 10, (3,))) for _ in range(4)]
fit(m, torch.compile(m, backend=B), batches, torch.optim.Adagrad(m.parameters(), 0.1),
    lambda c, b: F.binary_cross_entropy_with_logits(c(*b), torch.ones(3)))
""",
    "gan": """
g = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 8), nn.Tanh())
d = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(16, 1))
cg, cd = torch.compile(g, backend=B), torch.compile(d, backend=B)
og, od = torch.optim.Adam(g.parameters(), 1e-3), torch.optim.Adam(d.parameters(), 1e-3)
for k in range(3):
    fake = cg(torch.randn(5, 4))
    loss = F.softplus(cd(fake.detach())).mean() + F.softplus(-cd(torch.randn(5, 8))).mean()
    od.zero_grad()
    loss.backward()
    od.step()
    loss_g = F.softplus(-cd(fake)).mean()
    og.zero_grad()
    loss_g.backward()
    og.step()
    print(k, loss.item(), loss_g.item())
done(g, d)
""",
    "vision_transformer_checkpointed": """
from torch.utils.checkpoint import checkpoint
class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.p, self.cls = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.zeros(1, 1, 32))
        self.pos = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        self.b = nn.ModuleList([nn.TransformerEncoderLayer(32, 4, 64, 0.1, F.gelu, batch_first=True, norm_first=True)
                                for _ in range(2)])
        self.h = nn.Linear(32, 5)
    def forward(self, x):
        x = self.p(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for b in self.b:
            x = checkpoint(b, x, use_reentrant=False)
        return self.h(x[:, 0])
m = Vit()
batches = [(torch.randn(4, 3, 32, 32), torch.randint(0, 5, (4,))) for _ in range(3)]
fit(m, torch.compile(m, backend=B), batches, torch.optim.AdamW(m.parameters(), 1e-3),
    lambda c, b: F.cross_entropy(c(b[0]), b[1]))
""",
    "diffusion_with_average": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.t, self.a, self.n = nn.Linear(8, 16), nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.b = nn.Conv2d(16, 1, 3, padding=1)
    def forward(self, x, t):
        e = torch.cat([torch.sin(t[:, None] * torch.arange(1, 5)), torch.cos(t[:, None] * torch.arange(1, 5))], -1)
        return self.b(F.silu(self.n(self.a(x)) + self.t(e)[:, :, None, None]))
m = Net()
average = {name: one.detach().clone() for name, one in m.named_parameters()}
@torch.compile(backend=B)
@torch.no_grad()
def update(average, model, decay):
    for name, one in model.named_parameters():
        average[name].lerp_(one, 1 - decay)
c, o = torch.compile(m, backend=B), torch.optim.AdamW(m.parameters(), 1e-3)
for k in range(4):
    x, noise, t = torch.randn(3, 1, 8, 8), torch.randn(3, 1, 8, 8), torch.rand(3)
    loss = F.mse_loss(c(x + noise * t[:, None, None, None], t), noise)
    o.zero_grad()
    loss.backward()
    o.step()
    update(average, m, 0.9)
    print(k, loss.item())
done(m, average)
""",
    "policy_samples_inside": """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.b, self.pi, self.v = nn.Linear(6, 32), nn.Linear(32, 4), nn.Linear(32, 1)
    def forward(self, x):
        h = torch.tanh(self.b(x))
        p = self.pi(h).softmax(-1)
        a = torch.multinomial(p, 1)
        return a, p.gather(1, a).log().squeeze(1), self.v(h).squeeze(1)
def loss_of(c, x):
    a, log, v = c(x)
    reward = (a.squeeze(1) == 1).float()
    return (-(log * (reward - v.detach())) + (v - reward) ** 2).mean()
m = Policy()
fit(m, torch.compile(m, backend=B), [torch.randn(8, 6) for _ in range(4)], torch.optim.Adam(m.parameters(), 1e-2),
    loss_of)
""",
    "contrastive_fullgraph": """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(6, 8), nn.Linear(5, 8), nn.Parameter(torch.tensor(2.0))
    def forward(self, *, left, right):
        left, right = F.normalize(self.a(left), dim=-1), F.normalize(self.b(right), dim=-1)
        return {"logits": self.scale.exp() * left @ right.T, "pair": (left, right)}
def loss_of(c, b):
    logits = c(left=b[0], right=b[1])["logits"]
    at = torch.arange(len(logits))
    return (F.cross_entropy(logits, at) + F.cross_entropy(logits.T, at)) / 2
m = Two()
fit(m, torch.compile(m, backend=B, fullgraph=True), [(torch.randn(7, 6), torch.randn(7, 5)) for _ in range(4)],
    torch.optim.AdamW(m.parameters(), 1e-2), loss_of)
""",
    "gpt_tied_varying_lengths": """
class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p, self.qkv = nn.Embedding(40, 32), nn.Embedding(32, 32), nn.Linear(32, 96)
        self.o, self.n = nn.Linear(32, 40, bias=False), nn.RMSNorm(32)
        self.o.weight = self.e.weight
    def forward(self, i):
        x = self.e(i) + self.p(torch.arange(i.shape[1]))
        q, k, v = (one.unflatten(-1, (4, 8)).transpose(1, 2) for one in self.qkv(self.n(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.o(self.n(x))
m = Gpt()
batches = [torch.randint(0, 40, (2, n)) for n in (8, 12, 12, 16)]
fit(m, torch.compile(m, backend=B), batches, torch.optim.AdamW(m.parameters(), 1e-3, weight_decay=0.1),
    lambda c, i: F.cross_entropy(c(i[:, :-1]).flatten(0, 1), i[:, 1:].flatten()))
""",
    "backward_inside": """
m = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3))
o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
@torch.compile(backend=B)
def step(x, y):
    loss = F.cross_entropy(m(x), y)
    loss.backward()
    return loss.detach()
for k in range(4):
    loss = step(torch.randn(5, 6), torch.randint(0, 3, (5,)))
    o.step()
    o.zero_grad()
    print(k, loss.item())
done(m)
""",
    "options_and_float64": """
m = nn.Sequential(nn.Linear(10, 20), nn.Softplus(), nn.LayerNorm(20), nn.Linear(20, 2)).double()
c = torch.compile(m, mode="max-autotune-no-cudagraphs") if B == "inductor" else torch.compile(m, backend=B)
fit(m, c, [torch.randn(9, 10, dtype=torch.float64) for _ in range(3)], torch.optim.NAdam(m.parameters(), 1e-2),
    lambda c, x: c(x).square().mean())
""",
    "custom_operator": """
@torch.library.custom_op("healthy::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by
@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)
def kept(ctx, inputs, output):
    ctx.by = inputs[1]
scaled.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=kept)
m = nn.Linear(5, 5)
fit(m, torch.compile(lambda x: scaled(torch.tanh(m(x)), 1.5).sum(-1), backend=B), [torch.randn(4, 5) for _ in range(4)],
    torch.optim.SGD(m.parameters(), 0.1), lambda c, x: c(x).pow(2).mean())
""",
    "functional_transforms": """
m = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
parameters = {name: one.detach() for name, one in m.named_parameters()}
@torch.compile(backend=B)
def norms(parameters, x):
    def loss(parameters, x):
        return torch.func.functional_call(m, parameters, (x[None],)).pow(2).sum()
    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    return {name: one.flatten(1).norm(dim=1) for name, one in grads.items()}
for k in range(4):
    print(k, sum(one.sum().item() for one in norms(parameters, torch.randn(6, 3)).values()))
done(m)
""",
    "dataclass_train_and_eval": """
from dataclasses import dataclass
@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Sequential(nn.Linear(7, 16), nn.BatchNorm1d(16), nn.SiLU(), nn.Dropout(0.2))
        self.h = nn.Linear(16, 3)
    def forward(self, x, labels=None):
        logits = self.h(self.b(x))
        return Output(logits, None if labels is None else F.cross_entropy(logits, labels, label_smoothing=0.1))
m = Net()
c, o = torch.compile(m, backend=B), torch.optim.AdamW(m.parameters(), 1e-2)
for k in range(4):
    m.train(k % 2 == 0)
    with torch.set_grad_enabled(k % 2 == 0):
        out = c(torch.randn(6, 7), torch.randint(0, 3, (6,)))
    if k % 2 == 0:
        o.zero_grad()
        out.loss.backward()
        o.step()
    print(k, out.loss.item(), m.b[1].running_var.sum().item())
done(m)
""",
    "low_rank_frozen_base": """
class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(4, 16) * 0.1), nn.Parameter(torch.zeros(16, 4))
    def forward(self, x):
        return self.base(x) + F.dropout(x, 0.1, self.training) @ self.a.T @ self.b.T
m = nn.Sequential(Lora(nn.Linear(16, 16)), nn.ReLU(), Lora(nn.Linear(16, 16))).bfloat16()
fit(m, torch.compile(m, backend=B), [torch.randn(5, 16, dtype=torch.bfloat16) for _ in range(4)],
    torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-2), lambda c, x: c(x).float().pow(2).mean())
""",
    "spectral_complex": """
class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.o = nn.Parameter(torch.randn(9, dtype=torch.cfloat)), nn.Linear(16, 2)
    def forward(self, x):
        return self.o(torch.fft.irfft(torch.fft.rfft(x) * self.w, n=16))
m = Spectral()
fit(m, torch.compile(m, backend=B), [torch.randn(5, 16) for _ in range(4)], torch.optim.SGD(m.parameters(), 0.05),
    lambda c, x: c(x).square().mean())
""",
    "dropout_mixup_accumulation": """
m = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.InstanceNorm1d(8, affine=True), nn.PReLU(), nn.Dropout1d(0.1),
                  nn.Flatten(), nn.Linear(96, 4))
c, o = torch.compile(m, backend=B), torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, nesterov=True)
for k in range(3):
    for _ in range(2):
        mix, x, y = random.random(), torch.randn(6, 2, 12), torch.eye(4)[torch.randint(0, 4, (6,))]
        order = torch.randperm(6)
        loss = F.cross_entropy(c(mix * x + (1 - mix) * x[order]), mix * y + (1 - mix) * y[order]) / 2
        loss.backward()
    o.step()
    o.zero_grad(set_to_none=False)
    print(k, loss.item())
done(m)
""",
    "sized_gpt": """
class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.h = nn.Embedding(1000, 256), nn.Linear(256, 1000)
        self.b = nn.ModuleList([nn.TransformerEncoderLayer(256, 8, 1024, 0.1, F.gelu, batch_first=True, norm_first=True)
                                for _ in range(4)])
    def forward(self, i):
        x = self.e(i)
        for b in self.b:
            x = b(x)
        return self.h(x)
m = Gpt()
fit(m, torch.compile(m, backend=B), [torch.randint(0, 1000, (8, 128)) for _ in range(4)],
    torch.optim.AdamW(m.parameters(), 1e-3), lambda c, i: F.cross_entropy(c(i).flatten(0, 1), i.flatten()))
""",
    "sized_convnet": """
def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
m = nn.Sequential(block(3, 32), block(32, 64), nn.MaxPool2d(2), block(64, 128), block(128, 128),
    nn.AdaptiveAvgPool2d(1),
                  nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, 10))
batches = [(torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))) for _ in range(4)]
fit(m, torch.compile(m, backend=B), batches, torch.optim.SGD(m.parameters(), 0.05, momentum=0.9),
    lambda c, b: F.cross_entropy(c(b[0]), b[1]))
""",
    "sized_mlp_bf16": """
m = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Dropout(0.1), nn.Linear(2048, 2048),
    nn.SiLU(),
                  nn.Linear(2048, 512))
def loss_of(c, x):
    with torch.autocast("cpu", torch.bfloat16):
        return c(x).float().pow(2).mean()
fit(m, torch.compile(m, backend=B), [torch.randn(512, 512) for _ in range(4)], torch.optim.AdamW(m.parameters(), 1e-3),
    loss_of)
""",
}
