"""`graph_dumper_aot`: a backend that saves joint, forward, backward and inference graphs as a run, and runs them as they are.

The run is what `graphdbg ls`, `show`, `replay` and `get_inputs` take: metadata and roles of all inputs (the two parts of a joint
graph are its inputs with and without the role `tangent`), the values of integer inputs, and on request whole example inputs of
the first execution. Several threads and ranks may write into one run; nobody else's is written into or over.

>>> model = torch.compile(model, backend=graph_dumper_aot("net", "dumps", dump_example_input=True))
>>> torch.compile(model, backend="graphdbg_dump", options={"folder": "dumps/net"})
$ graphdbg ls dumps/net
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dumps.errors import UsageError
from .. import torch_private as t
from ..recorder import origin
from .aot import aot_backend
from .decompositions import default_decompositions
from .dumping import Dumping

if TYPE_CHECKING:
    from torch import fx

_open: dict[Path, Dumping] = {}
_lock = threading.Lock()


class GraphDumper:
    """The backend; `path` is the run that it writes."""

    def __init__(self, dumping: Dumping) -> None:
        self.__name__ = "graph_dumper_aot"
        self.path = dumping.path
        self.dumping = dumping

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        """Compiles one Dynamo graph, saving on the way; the backward when it is compiled, which may be later."""
        given = arguments(self.dumping)
        given.pop("arrives")(gm)
        return aot_backend(given, gm, example_inputs)


def graph_dumper_aot(
    current_name: str, folder_name: str | os.PathLike[str], dump_example_input: bool = False
) -> GraphDumper:
    """A backend that saves into the run `folder_name/current_name`; called again for it in this process, into the same.

    Raises UsageError when the folder is there already and was not begun by this job.
    """
    return GraphDumper(dumping_into(Path(folder_name) / current_name, dump_example_input))


def arguments(dumping: Dumping) -> dict[str, Any]:
    """What AOTAutograd is given, and what is told of each Dynamo graph before."""
    return {
        "arrives": dumping.arrives,
        "fw_compiler": dumping.compiler("forward"),
        "bw_compiler": dumping.compiler("backward"),
        "inference_compiler": dumping.compiler("inference"),
        "partition_fn": dumping.partition(t.default_partition),
        "decompositions": default_decompositions,
    }


def backend_arguments(folder: str | os.PathLike[str] = "", dump_example_input: bool = False) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_dump`; without a folder the first of `graphdbg-run-N` that is free."""
    return arguments(dumping_into(Path(folder) if folder else None, dump_example_input))


def dumping_into(path: Path | None, example_inputs: bool) -> Dumping:
    """What this process writes into a folder, begun on the first call."""
    rank, restart = origin.rank_and_restart()
    with _lock:
        if path is None:
            known = [dumping for dumping in _open.values() if dumping.unnamed and dumping.example_inputs == example_inputs]
            if known:
                return known[0]
        elif (found := _open.get(path.absolute())) is not None:
            if found.example_inputs != example_inputs:
                raise UsageError(f"{path} is written with dump_example_input={found.example_inputs}", "", "name another folder")
            return found
        job = origin.job(rank)
        chosen = path or _default(job, rank, restart)
        if origin.choose(chosen, job=job, rank=rank, restart=restart) != chosen:
            raise UsageError(f"cannot dump graphs into {chosen}", "it is there already", "choose another name or delete it")
        made = Dumping(chosen.absolute(), job, example_inputs=example_inputs, unnamed=path is None)
        return _open.setdefault(made.path, made)


def _default(job: str, rank: int | None, restart: int) -> Path:
    """The first of `graphdbg-run-N` that is free, or was begun by this job for another rank."""
    candidates = (Path(f"graphdbg-run-{number}") for number in itertools.count(1))
    return next(path for path in candidates if origin.choose(path, job=job, rank=rank, restart=restart) == path)
