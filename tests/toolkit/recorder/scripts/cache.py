"""An inference graph that writes into its input: each call adds one row to a cache. Saves what it held before the last
call."""

import torch


@torch.compile
def attend(cache, row, place):
    cache.index_copy_(0, place, row)
    return (cache @ row.t()).sum(0)


torch.manual_seed(0)
cache, alias = torch.zeros(8, 4), None
with torch.no_grad():
    for number in range(5):
        row = torch.randn(1, 4)
        if number == 4:
            torch.save([cache, row], "cache.pt")
        print(attend(cache, row, torch.tensor([number])).item())
