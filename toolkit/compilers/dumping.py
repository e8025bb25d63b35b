"""What one process writes of the graphs that AOTAutograd builds: each saved, journalled and watched on its first run.

Works through the recorder's session, which is safe under threads, forks and ranks, and leaves torch unpatched. A graph that
cannot be saved is told at the end and does not stop the program. Must not keep graphs or tensors.

>>> dumping = Dumping(Path("dumps/net").absolute(), job="process 1", example_inputs=False, unnamed=False)
>>> aot_module_simplified(gm, inputs, fw_compiler=dumping.compiler("forward"), ...)
"""

from __future__ import annotations

import atexit
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dumps.ids import compile_name
from ...dumps.output import say
from ...dumps.wording import counted
from ..recorder import roles
from ..recorder.flight import Flight, Graph, flying
from ..recorder.observe import watch_callable
from ..recorder.options import Options, checked
from ..recorder.origin import rank_and_restart
from ..recorder.session import Session
from . import aot
from .boxed import boxed_call
from .joint_inputs import JointInputs

if TYPE_CHECKING:
    from torch import fx

_FACTS = ("num_fwd_outputs", "static_lifetime_input_indices")


class Dumping:
    """A run that this process adds to. `unnamed`: nobody chose its name."""

    def __init__(self, path: Path, job: str, *, example_inputs: bool, unnamed: bool) -> None:
        options = checked(Options(run=str(path), inputs="first" if example_inputs else "index"))
        self.path = path
        self.example_inputs = example_inputs
        self.unnamed = unnamed
        self.rank, _ = rank_and_restart()
        self.session = Session(options, join=False, job=job, wanted=str(path))
        self._names: dict[int, str] = {}
        self._joints: dict[int, JointInputs] = {}
        atexit.register(self.close)

    def arrives(self, gm: fx.GraphModule) -> None:
        """Takes note of what the inputs of a Dynamo graph are for; later stages know them by number only."""
        compile_id = aot.compile_id()
        with self.session.guarded("roles of the inputs"):
            if compile_id is not None:
                self.session.roles[compile_name(compile_id)] = roles.of_dynamo(gm)

    def compiler(self, stage: str) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
        """A compiler that saves the graph under that stage and returns it untouched, boxed, its first run watched."""

        def saving(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Callable[[list[Any]], Any]:
            with self._flying() as flight:
                graph = self._capture(flight, fx_g, stage, {})
            compiled = boxed_call(fx_g)
            if graph is None:
                return compiled
            watched = watch_callable(self.session, [graph], compiled)
            number = aot.aot_graph_name()
            joint = self._joints.get(number[0]) if number is not None and stage != "inference" else None
            return watched if joint is None else joint.watch(stage, graph.id, watched)

        return saving

    def partition(self, partition: Callable[..., Any]) -> Callable[..., Any]:
        """A partitioner that saves the joint graph before it is split."""

        def saving(joint: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
            if isinstance(joint_inputs, (list, tuple)) and not joint_inputs:  # a nested region, saved inside its graph
                return partition(joint, joint_inputs, **kwargs)
            with self._flying() as flight:
                graph = self._capture(flight, joint, "joint", {key: kwargs[key] for key in _FACTS if key in kwargs})
                number = aot.aot_graph_name()
                if graph is not None and number is not None:
                    self._joints[number[0]] = JointInputs(self.session, graph.id)
                return partition(joint, joint_inputs, **kwargs)

        return saving

    @contextmanager
    def _flying(self) -> Iterator[Flight]:
        """One compiler call. Without a compile id the graphs that AOTAutograd counts as one share a name."""
        with flying(self.session) as flight:
            number = aot.aot_graph_name()
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
