"""Creates the process groups that a recorded graph's collectives name, so that a replay communicates as the run did.

A world of one rank is created alone. A larger one needs all its ranks: each replays its own graph, and they meet
through a file. Where they cannot, the error says why. Never imitates a collective: numbers from other ranks are never
synthesised.

>>> join(saved.record, meeting="/tmp/meet")          # it names none
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ...dumps.errors import RanksMissingError, TorchLacksError
from ...dumps.schema import GraphRecord
from ...dumps.store import SavedGraph
from ...dumps.walk import plain
from ...dumps.wording import counted
from .. import torch_private as t

_COLLECTIVE = re.compile(r"c10d_functional\w*\.(?!\w*(?:wait|send|recv|p2p))(\w+)")
"""Matches collectives that every rank calls, not sends and receives."""
WAIT_S = 120
"""Seconds that a collective waits for the other ranks of a replay."""


def groups_of(record: GraphRecord) -> dict[str, dict[str, Any]]:
    """Group name -> {"backend", "ranks", "rank", "world_size"}; empty for a graph without collectives."""
    recorded: Any = record.graph.meta.get("process_groups")
    return plain(recorded) if isinstance(recorded, dict) else {}


def peers(saved: SavedGraph) -> list[SavedGraph]:
    """The graphs, with the same id, of the other ranks that this graph communicates with; empty for a world of one.

    Raises EnvironmentLackError naming the ranks whose graph is not in the run.
    """
    if saved.run is None or len({process.rank for process in saved.run.processes}) < 2:
        return []  # a graph that needs other ranks raises when it is loaded
    groups = groups_of(saved.record).values()
    world = max((facts["world_size"] for facts in groups), default=1)
    if world == 1:
        return []
    by_rank = {
        graph.rank: graph for graph in saved.run.graphs() if graph.local_id == saved.local_id and graph.rank is not None
    }
    wanted = set(range(world)) - {saved.rank}
    if missing := sorted(wanted - set(by_rank)):
        raise RanksMissingError(
            f"{saved.id} communicates with {counted(world - 1, 'other rank')}",
            f"the run has no graph {saved.local_id} of rank {', '.join(map(str, missing))}, and one rank alone cannot "
            "run a collective",
            "replay it from a run that recorded all ranks",
        )
    graphs = [by_rank[rank] for rank in sorted(wanted)]
    for peer in graphs if all(len(facts["ranks"]) == world for facts in groups) else ():  # else others may answer
        if alone := called_alone(pair := sorted([saved, peer], key=lambda graph: graph.rank or 0)):
            raise RanksMissingError(
                f"{saved.id} communicates with {counted(world - 1, 'other rank')}",
                f"{alone}: the ranks would wait for each other, under any compiler",
                f"{shlex.join(['graphdbg', 'diff', *(f'{saved.run.path}/{graph.id}' for graph in pair)])} shows where "
                "they part",
            )
    return graphs


def called_alone(graphs: Sequence[SavedGraph]) -> str:
    """A sentence about the first collective that only one of two graphs calls; "" where there is none."""
    calls = [_collectives(graph) for graph in graphs]
    counts = [Counter(name for name, _ in side) for side in calls]
    for side, mine in enumerate(graphs):
        more = counts[side] - counts[1 - side]
        for name, line in calls[side]:
            if more[name]:
                again = " once more" if counts[1 - side][name] else ""
                place = f" ({line})" if line else ""
                return f"{mine.id} calls {name}{place}{again}, and {graphs[1 - side].id} does not"
    return ""


def _collectives(graph: SavedGraph) -> list[tuple[str, str]]:
    """The collectives that a graph calls, in order, each with its line."""
    table = graph.table
    nodes = zip(table.target, table.where, strict=True)
    called = [(_COLLECTIVE.search(table.strings[target]), table.strings[where]) for target, where in nodes]
    return [(match[1], line) for match, line in called if match]


def join(record: GraphRecord, meeting: str = "") -> None:
    """Makes the groups of a graph in this process, where they do not exist yet. `meeting`: a file that all ranks of a
    world share.

    Raises EnvironmentLackError for a larger world without one, and for a torch without torch.distributed.
    """
    groups = groups_of(record)
    if not groups:
        return
    import torch.distributed

    distributed: Any = torch.distributed
    if not distributed.is_available():
        raise TorchLacksError(
            "the graph runs collectives", "this torch was built without torch.distributed", "use another build of torch"
        )
    facts = next(iter(groups.values()))
    world, rank = int(facts["world_size"]), int(facts["rank"])
    wait = timedelta(seconds=WAIT_S)
    if not distributed.is_initialized():
        if world > 1 and not meeting:
            raise RanksMissingError(
                f"the graph communicates with {counted(world - 1, 'other rank')}",
                "they do not run here",
                "use graphdbg replay, which runs the graphs of all ranks together",
            )
        store = distributed.FileStore(meeting, world) if meeting else distributed.HashStore()
        backend = _usable(facts["backend"])
        distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=wait)
    for name, group in groups.items():
        if not _same(_process_group(name), group["ranks"]):
            backend = _usable(group["backend"])
            new = distributed.new_group(group["ranks"], backend=backend, timeout=wait, use_local_synchronization=True)
            if _process_group(name) is not None:
                t.unregister_process_group(name)
            t.register_process_group(name, new)  # new_group does not let its caller choose the name


def _same(group: Any, ranks: Sequence[int]) -> bool:
    import torch.distributed as distributed

    return group is not None and list(distributed.get_process_group_ranks(group)) == list(ranks)


def _usable(backend: str) -> str:
    """The recorded backend where this machine has it, else gloo."""
    import torch
    import torch.distributed as distributed

    if "nccl" in backend and not (torch.cuda.is_available() and distributed.is_nccl_available()):
        return "gloo"
    return backend


def _process_group(name: str) -> Any:
    """The process group that functional collectives know by a name, or None."""
    try:
        return t.resolve_process_group(name)
    except (RuntimeError, ValueError):
        return None
