"""One fixed training run for stages_table: a transformer block, a graph break, another batch size, inference at the
end.

Prints every loss bit by bit. Run: stages.py [BACKEND [DEVICE]]
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS = 16, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(attended)
        print("between the halves", flush=True)
        return x + self.down(F.gelu(self.up(self.out_norm(x))))


def main(backend="inductor", device="cpu"):
    torch.manual_seed(0)
    model = Block().to(device)
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for batch in (4, 4, 6):
        loss = compiled(torch.randn(batch, 5, WIDTH, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(batch, loss.item().hex(), flush=True)
    with torch.no_grad():
        print("inference", compiled(torch.randn(4, 5, WIDTH, device=device)).sum().item().hex())


main(*sys.argv[1:])
