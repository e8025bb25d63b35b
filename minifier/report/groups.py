"""Process groups of a graph's collectives, made in the repro: by one process, so that it runs without torchrun.

Where all groups had one rank they are real (gloo); larger ones are torch's "fake" backend, whose collectives have the recorded
shapes and move nothing, and the head says so. Must not import torch.

>>> group_lines(record)[0][:1]                                                         # doctest: +SKIP
['if not torch.distributed.is_initialized():']
"""

from __future__ import annotations

from collections.abc import Iterator

from ...dumps.schema import GraphBody, GraphRecord
from ...dumps.wording import counted
from .program import CannotExpressError

_COLLECTIVES = ("_c10d_functional.", "c10d_functional.", "_c10d_functional_autograd.")
_SIZED = {"all_gather_into_tensor": 1, "reduce_scatter_tensor": 2, "all_gather_into_tensor_coalesced": 1}
"""Where the size of its group stands among the arguments of a collective."""


def group_lines(record: GraphRecord) -> tuple[list[str], list[str]]:
    """Statements that make the groups, and sentences for the head; none for a graph without collectives."""
    sizes: dict[str, int] = {}
    for body in _bodies(record.graph):
        for node in body.nodes:
            if node.op != "call_function" or not node.target.startswith(_COLLECTIVES):
                continue
            texts = [arg for arg in [*node.args, *node.kwargs.values()] if isinstance(arg, str)]
            op = node.target.split(".")[1].removesuffix("_out").removesuffix("_")
            at = _SIZED.get(op, -1)
            size = node.args[at] if 0 <= at < len(node.args) else 1
            if op == "wait_tensor" or not texts:
                continue
            if not texts[-1].isdigit():
                raise CannotExpressError(
                    f"the process group {texts[-1][:40]!r} has a name that no plain program gives it"
                )
            sizes[texts[-1]] = max(sizes.get(texts[-1], 1), size if isinstance(size, int) else 1)
    if not sizes:
        return [], []
    world = max(sizes.values())
    backend, store = ("gloo", "torch.distributed.HashStore()") if world == 1 else ("fake", "FakeStore()")
    lines = [
        "if not torch.distributed.is_initialized():",
        *(["    from torch.testing._internal.distributed.fake_pg import FakeStore", ""] if world > 1 else []),
        f'    torch.distributed.init_process_group("{backend}", store={store}, rank=0, world_size={world})',
    ]
    lines += [
        f"    torch.distributed.new_group(list(range({sizes.get(str(number), 1)})))"
        for number in range(1, max(map(int, sizes)) + 1)
    ]
    ranks = "one rank each" if world == 1 else f"up to {counted(world, 'rank')} that are not there: collectives move nothing"
    return lines, [f"Process groups are made here by one process, with {ranks}."]


def _bodies(body: GraphBody) -> Iterator[GraphBody]:
    yield body
    for inner in body.subgraphs.values():
        yield from _bodies(inner)
