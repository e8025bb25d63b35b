"""`graph_dumper_aot`: a backend that saves joint, forward, backward and inference graphs as a run, and runs them as
they are.

The run is what `graphdbg ls`, `show`, `replay` and `get_inputs` take: metadata and roles of all inputs (the two parts
of a joint graph are its inputs with and without the role `tangent`), the values of integer inputs, and on request whole
example inputs of the first execution. Several threads and ranks may write into one run; nobody else's is written into
or over. Works through the recorder's session, and leaves torch unpatched. A graph that cannot be saved is reported at
the end and does not stop the program.

For example:

    model = torch.compile(model, backend=graph_dumper_aot("net", "dumps", dump_example_input=True))
    torch.compile(model, backend="graphdbg_dump", options={"folder": "dumps/net"})  # -> $ graphdbg ls dumps/net
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import fx

from ...dumps.errors import ExistsAlreadyError
from ...dumps.graph_folder import INPUTS_FILE
from ...dumps.ids import compile_name
from ...dumps.output import say
from ...dumps.reading import read_record, stored
from ...dumps.schema import InputRecord, InputsRecord, TensorValue
from ...dumps.wording import counted
from .. import torch_private as t
from ..live import roles
from ..live.torch_state import compile_id
from ..recorder import origin
from ..recorder.flight import Flight, Graph, flying
from ..recorder.observe import watch_callable
from ..recorder.options import Options, checked
from ..recorder.session import Session
from .boxed import aot_graph_name, boxed_call, by_stage, taken, through_aot
from .ts_compile import default_decompositions

_FACTS = ("num_fwd_outputs", "static_lifetime_input_indices")
_open: dict[Path, GraphDumper] = {}
_lock = threading.Lock()


class GraphDumper:
    """The backend, and what one process writes: each graph saved, journalled and watched on its first run.

    `path`: the run that it adds to; `unnamed`: nobody chose its name. Keeps neither graphs nor tensors.
    """

    def __init__(self, path: Path, job: str, *, example_inputs: bool, unnamed: bool) -> None:
        options = checked(Options(run=str(path), inputs="first" if example_inputs else "index"))
        self.__name__ = "graph_dumper_aot"
        self.path, self.example_inputs, self.unnamed = path, example_inputs, unnamed
        self.rank, _ = origin.rank_and_restart()
        self.session = Session(options, join=False, job=job, wanted=str(path))
        self._names: dict[int, str] = {}
        self._joints: dict[int, JointInputs] = {}
        atexit.register(self.close)

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        """Compiles one Dynamo graph, saving on the way; the backward when it is compiled, which may be later."""
        return through_aot(self.arguments(), gm, example_inputs)

    def arguments(self) -> dict[str, Any]:
        """AOTAutograd's arguments, and the function that is called with each Dynamo graph before."""
        return {
            "arrives": self.arrives,
            **by_stage(self.compiler),
            "partition_fn": self.partition,
            "decompositions": default_decompositions,
        }

    def arrives(self, gm: fx.GraphModule) -> None:
        """Records the roles of a Dynamo graph's inputs; later stages know the inputs by number only."""
        with self.session.guarded("roles of the inputs"):
            if (known := compile_id()) is not None:
                self.session.roles[compile_name(known)] = roles.of_dynamo(gm)

    def compiler(self, stage: str) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
        """A compiler that saves the graph under that stage and returns it untouched, boxed, its first run watched."""

        def saving(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Callable[[list[Any]], Any]:
            with self._flying() as flight:
                graph = self._capture(flight, fx_g, stage, {})
            compiled = boxed_call(fx_g)
            if graph is None:
                return compiled
            watched = watch_callable(self.session, [graph], compiled)
            number = aot_graph_name()
            joint = self._joints.get(number[0]) if number is not None and stage != "inference" else None
            return watched if joint is None else joint.watch(stage, graph.id, watched)

        return saving

    def partition(self, joint: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
        """Saves the joint graph before it is split."""
        if isinstance(joint_inputs, (list, tuple)) and not joint_inputs:  # a nested region, saved inside its graph
            return t.default_partition(joint, joint_inputs, **kwargs)
        with self._flying() as flight:
            graph = self._capture(flight, joint, "joint", {key: kwargs[key] for key in _FACTS if key in kwargs})
            number = aot_graph_name()
            if graph is not None and number is not None:
                self._joints[number[0]] = JointInputs(self.session, graph.id)
            return t.default_partition(joint, joint_inputs, **kwargs)

    @contextmanager
    def _flying(self) -> Iterator[Flight]:
        """One compiler call. Without a compile id the graphs that AOTAutograd counts as one share a name."""
        with flying(self.session) as flight:
            number = aot_graph_name()
            if flight.compile_id is None and number is not None:
                flight.name = self._names.setdefault(number[0], flight.name)
            yield flight

    def _capture(self, flight: Flight, fx_g: fx.GraphModule, stage: str, facts: dict[str, Any]) -> Graph | None:
        graph = flight.capture(fx_g, stage, facts)
        if graph is not None and not any(node.op.startswith("call") for node in fx_g.graph.nodes):
            self.session.event("note", graph.id, message="the graph is empty: it has no operators")
            say(f"graphdbg: {graph.id} is empty: it has no operators")
        return graph

    def close(self) -> None:
        """Ends the journal, and says where the graphs are and what was not saved."""
        if self.path.is_dir() and not self.rank:
            say(f"graphdbg: graphs are saved in {self.path}; list them with graphdbg ls {shlex.quote(str(self.path))}")
        for text, count in self.session.errors.items():
            say(f"graphdbg: not saved, {text}" + (f" ({counted(count, 'time')})" if count > 1 else ""))
        self.session.close()


def graph_dumper_aot(
    current_name: str, folder_name: str | os.PathLike[str], dump_example_input: bool = False
) -> GraphDumper:
    """A backend that saves into the run `folder_name/current_name`; called again for it in this process, into the same.

    Raises UsageError when the folder is there already and was not begun by this job.

    >>> y = torch.compile(torch.sin, backend=graph_dumper_aot("net", "dumps"))(torch.ones(2))
    >>> [graph.stage for graph in open_run("dumps/net").graphs()]
    ['inference']
    """
    return dumping_into(Path(folder_name) / current_name, dump_example_input)


def dump_arguments(folder: str | os.PathLike[str] = "", dump_example_input: bool = False) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_dump`; without a folder the first of `graphdbg-run-N` that is free."""
    return dumping_into(Path(folder) if folder else None, dump_example_input).arguments()


def dumping_into(path: Path | None, example_inputs: bool) -> GraphDumper:
    """The dumper of this process for a folder, made on the first call."""
    rank, restart = origin.rank_and_restart()
    with _lock:
        same = (known for known in _open.values() if known.unnamed and known.example_inputs == example_inputs)
        opened = next(same, None) if path is None else _open.get(path.absolute())
        if opened is not None:
            if opened.example_inputs != example_inputs:
                what = f"{path} is written with dump_example_input={opened.example_inputs}"
                raise ExistsAlreadyError(what, "", "name another folder")
            return opened
        job = origin.job(rank)
        chosen = path or _default(job, rank, restart)
        if origin.choose(chosen, job=job, rank=rank, restart=restart) != chosen:
            raise taken(f"cannot dump graphs into {chosen}")
        dumper = GraphDumper(chosen.absolute(), job, example_inputs=example_inputs, unnamed=path is None)
        return _open.setdefault(dumper.path, dumper)


def _default(job: str, rank: int | None, restart: int) -> Path:
    """The first of `graphdbg-run-N` that is free, or was begun by this job for another rank."""
    candidates = (Path(f"graphdbg-run-{number}") for number in itertools.count(1))
    return next(path for path in candidates if origin.choose(path, job=job, rank=rank, restart=restart) == path)


class JointInputs:
    """The example inputs of a joint graph, which itself never runs: those of its forward, and the tangents of its
    backward.

    Put together from what was saved of both when the backward has run for the first time; storages are named by their
    content, so nothing is copied. `parts`: the ids of forward and backward.
    """

    def __init__(self, session: Session, local: str) -> None:
        self.session = session
        self.local = local
        self.parts: dict[str, str] = {}

    def watch(self, stage: str, local: str, compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Notes the graph id of a part. Returns the forward as it is, the backward so that its first run completes the
        joint graph's inputs."""
        self.parts[stage] = local
        if stage != "backward":
            return compiled
        waiting = True

        @functools.wraps(compiled)
        def run(args: list[Any]) -> Any:
            nonlocal waiting
            result = compiled(args)
            if waiting:
                waiting = False
                with self.session.guarded(f"inputs of {self.local}"):
                    self._write()
            return result

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _write(self) -> None:
        writer = self.session.writer()
        stages = ("forward", "backward")
        parts = [writer.graph_path(self.parts[stage]) / INPUTS_FILE for stage in stages if stage in self.parts]
        if len(parts) < 2 or any(stored(path) is None for path in parts):
            return
        forward, backward = (read_record(path, InputsRecord) for path in parts)
        items = [item for item in forward.inputs if item.role != "tangent"]
        first = 1 + max((value.storage or 0 for item in items for value in _with_storage(item)), default=-1)
        tangents = [item for item in backward.inputs if item.role == "tangent"]
        for value in (value for item in tangents for value in _with_storage(item)):
            value.storage = (value.storage or 0) + first  # alias groups are counted again in each record
        forward.inputs = items + tangents
        writer.save_inputs(self.local, forward)


def _with_storage(item: InputRecord) -> list[TensorValue]:
    values = (item.value, item.stored.value if item.stored is not None else None)
    known = {id(value): value for value in values if isinstance(value, TensorValue) and value.storage is not None}
    return [*known.values()]
