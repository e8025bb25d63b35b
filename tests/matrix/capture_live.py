"""The recording side of the capture matrix: programs compiled and recorded, and beside each graph what the live one
computes.

The reference of a graph is that very graph, copied when the compiler was given it, run node by node in the recording
process, in the state of the program at that moment, on clones of the real inputs, under seed 0. A graph that does not
run by itself gets the real inputs of those that run in its place, by name. Run by capture_matrix.py in a process of its
own.

    python -m tests.matrix.capture_live FOLDER NAME...
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from graphdbg.dumps.live import observe as observe_inputs
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import open_run
from graphdbg.dumps.torchside.torch_private import modes_off
from graphdbg.dumps.torchside.values import storage_key
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.eager import clone_inputs, copy_graph, run_graph
from graphdbg.toolkit.live.execution import Attributes, Execution, changed_inputs, execute
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.recorder import observe
from graphdbg.toolkit.recorder.flight import Flight, Graph
from graphdbg.toolkit.recorder.session import Session
from graphdbg.toolkit.recorder.starting import record
from graphdbg.toolkit.replaying import fidelity
from tests.models.capture_programs import BACKWARD, PROGRAMS, Program

RANK = "--rank"
REFERENCES = "references"
"""Folder beside the run: one file of results for each graph."""


def results_of(gm: fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> list[Any]:
    """What one graph computes: outputs, gradients, and the inputs that it changed. Neither argument is changed."""
    kept = Attributes(gm)
    given = clone_inputs(inputs)
    parameters = [parameter for parameter in gm.parameters() if parameter.requires_grad] if backward else []
    done: Execution = execute(lambda own: run_graph(gm, own), given, seed=0, backward=backward, parameters=parameters)
    kept.restore()
    return [named(value) for value in done.results(changed_inputs(inputs, done.inputs))]


def named(value: Any) -> Any:
    """A result that can be written to a file: what is no tensor and no plain value is there, and no more is said of
    it."""
    return value if isinstance(value, (torch.Tensor, int, float, bool, type(None))) else "an object"


def facts(values: Sequence[Any], *, autograd: bool) -> list[Any]:
    """What inputs are, their values apart: form, memory, which of them share it, and with `autograd` what that knows of
    them."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    storages = [storage_key(tensor) if tensor.layout is torch.strided else id(tensor) for tensor in tensors]
    bases = [tensor if tensor._base is None else tensor._base for tensor in tensors]
    results: list[Any] = []
    for item, storage, base in zip(tensors, storages, bases, strict=True):
        about: list[Any] = [str(item.dtype), list(item.shape), str(item.layout), item.is_conj(), item.is_neg()]
        if item.layout is torch.strided:
            about += [
                list(item.stride()),
                item.storage_offset(),
                item.untyped_storage().nbytes(),
                storages.index(storage),
            ]
        if autograd:
            about += [item.requires_grad, item.is_leaf, next(at for at, other in enumerate(tensors) if other is item)]
            same_base = next(at for at, other in enumerate(bases) if other is base)
            about += [
                same_base if item.requires_grad and not item.is_leaf else -1,
                isinstance(item, torch.nn.Parameter),
            ]
        results.append(about)
    return results


class References:
    """Copies of the live graphs of one recording, and their results, written as soon as their inputs are known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waiting: dict[str, tuple[str, fx.GraphModule]] = {}
        self.given: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self.order: list[str] = []
        self.kept: dict[str, Any] = {}
        self.later: list[tuple[str, fx.GraphModule, list[Any]]] = []
        folder.mkdir()

    def captured(self, graph: str, stage: str, gm: fx.GraphModule) -> None:
        """A graph is being recorded."""
        self.waiting[graph] = stage, copy_graph(gm)
        self.order.append(graph)

    @torch._dynamo.disable  # type: ignore[misc]
    def given_to(self, graph: str, record: Any, inputs: Sequence[Any]) -> None:
        """What the inputs of a graph's first run are, and what `--inputs index` would have kept of them."""
        with modes_off():
            index = observe_inputs(record, list(inputs), "index", None)
            messages = {"facts": [facts(inputs, autograd=full) for full in (False, True)], "index": index}
        (self.folder / f"{graph.replace('/', '-')}.inputs.json").write_bytes(msgspec.json.encode(messages))

    @torch._dynamo.disable  # type: ignore[misc]
    @modes_off()
    def ran(self, graph: str, names: Sequence[str], inputs: Sequence[Any]) -> None:
        """A graph is about to run for the first time: its results, and those of the graphs that it stands for."""
        values = dict(zip(names, clone_inputs(inputs), strict=True))
        compile_name, _, rest = graph.partition("/")
        stage, _, number = rest.partition(".")
        self.given.setdefault(compile_name, []).append((graph, values))
        state = torch.random.get_rng_state()
        try:
            for item in self._stood_for(graph, compile_name, stage, number):
                held = self.waiting.pop(item, None)
                if held is not None:
                    self._write(item, *held, self._inputs(item, *held, compile_name, values))
        finally:
            torch.random.set_rng_state(state)

    def _stood_for(self, graph: str, compile_name: str, stage: str, number: str) -> list[str]:
        mine = [item for item in self.order if item.startswith(f"{compile_name}/")]
        before = mine[: mine.index(graph)] if graph in mine else []
        after = mine[mine.index(graph) :] if graph in mine else []
        if stage == "dynamo":
            return [graph, *[item for item in after if "/pre_grad" in item]]
        results = [graph, f"{compile_name}/post_grad_{stage}" + (f".{number}" if number else "")]
        if stage == "joint_passed":
            results += [item for item in after if "/post_grad_inference" in item][:1]
        if stage == "backward":
            results += [item for item in before if "/joint" in item and item in self.waiting][:2]
        return results

    def _inputs(
        self, graph: str, stage: str, gm: fx.GraphModule, compile_name: str, values: dict[str, Any]
    ) -> list[Any]:
        known = dict(values)
        if stage.startswith(
            "joint"
        ):  # a backward is given the parameters as its forward laid them out: the forward's count
            for other, earlier in self.given[compile_name]:
                if "/forward" in other:
                    known.update(earlier)
        return [known.get(node.name) for node in gm.graph.nodes if node.op == "placeholder"]

    def _write(self, graph: str, stage: str, gm: fx.GraphModule, inputs: list[Any]) -> None:
        try:
            grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
            full = stage in ("dynamo", "pre_grad")
            baked: AbstractContextManager[Any] = nullcontext() if full else torch.no_grad()
            with baked:
                results = results_of(gm, inputs, backward=full and grad)
            torch.save(results, io.BytesIO())  # before the file is there
        except Exception as error:  # noqa: BLE001  a graph that cannot be run by itself is a cell that says so
            self.note(graph, f"the live graph does not run by itself: {type(error).__name__}: {error}")
            return
        torch.save(results, self.folder / f"{graph.replace('/', '-')}.pt")

    def note(self, graph: str, text: str) -> None:
        (self.folder / f"{graph.replace('/', '-')}.txt").write_text(text)


_now: list[Any] = []  # of References, whose methods a decorator of torch makes untyped


def watch_recorder() -> None:
    """From here on every recorded graph and every first run in this process is told to the innermost References."""
    capture, seen = Flight.capture, observe.Watch._observe

    def capturing(self: Flight, gm: Any, stage: str, *args: Any, **kwargs: Any) -> Graph | None:
        graph = capture(self, gm, stage, *args, **kwargs)
        if graph is not None and _now:
            _now[-1].captured(graph.id, stage, gm)
        return graph

    def observing(self: observe.Watch, number: int, local: str, known: Any, inputs: Sequence[Any]) -> None:
        seen(self, number, local, known, inputs)
        if number == 1 and _now:
            _now[-1].given_to(local, known, inputs)
            _now[-1].ran(local, [node.name for node in known.graph.nodes], inputs)

    Flight.capture, observe.Watch._observe = capturing, observing  # type: ignore[method-assign]
    watch_backwards()


def watch_backwards() -> None:
    """The same for backwards of code that is not compiled: inputs are kept one by one, and the graph comes after its
    run."""
    from graphdbg.toolkit.recorder import backward_hooks

    keep, result = backward_hooks.Backwards._kept, backward_hooks.Backwards._made

    def keeping(self: Any, name: str, value: Any) -> None:
        keep(self, name, value)
        if _now:
            _now[-1].kept[name] = clone_inputs([value.detach()])[0]

    def making(self: Any, backward: Any) -> None:
        result(self, backward)
        references = _now[-1] if _now else None
        if references is not None and references.order:
            graph, values, references.kept = references.order[-1], references.kept, {}
            stage, _ = references.waiting.pop(graph)  # as it was before it ran
            gm = copy_graph(backward.module)
            inputs = [values.get(node.name) for node in gm.graph.nodes if node.op == "placeholder"]
            references._write(graph, stage, gm, inputs)
            references.later.append((graph, gm, inputs))

    backward_hooks.Backwards._kept, backward_hooks.Backwards._made = keeping, making  # type: ignore[method-assign]


def record_one(program: Program, folder: Path) -> None:
    """Runs one program under `record(inputs="first")`; its run and references go to `folder`."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    references = References(folder / REFERENCES)
    _now.append(references)
    try:
        if program.api:
            capture_api(program, folder)
            return
        if program.ranks > 1:
            record_ranks(program, folder)
            return
        session: Session
        whole = program.mode == BACKWARD
        with record(folder / "run", inputs="first", **({"compiled_autograd": True} if whole else {})) as session:
            program.run()
        (folder / "errors.txt").write_text("\n".join(session.errors))
        for graph, gm, inputs in references.later:
            spec = ReplaySpec.of(open_run(folder / "run").graph(graph).record)
            keep_compile(gm, inputs, spec, references.folder / f"{graph.replace('/', '-')}.json")
    finally:
        _now.pop()


def record_ranks(program: Program, folder: Path) -> None:
    """Records a program of several ranks with `graphdbg dump`; each rank comes back to `main` as one of them."""
    words = [
        "dump",
        "-o",
        str(folder / "run"),
        "--inputs",
        "first",
        "--",
        "torchrun",
        "--standalone",
        f"--nproc-per-node={program.ranks}",
        "-m",
        "tests.matrix.capture_live",
        RANK,
        str(folder),
        program.name,
    ]
    subprocess.run([sys.executable, "-m", "graphdbg", *words], check=True, stdin=subprocess.DEVNULL)
    (folder / "errors.txt").touch()


def one_rank(program: Program, folder: Path) -> None:
    """What each rank does."""
    torch.manual_seed(0)
    _now.append(References(folder / REFERENCES / f"rank{os.environ['RANK']}"))
    program.run()
    torch.distributed.destroy_process_group()


def capture_api(program: Program, folder: Path) -> None:
    """Captures by `toolkit.capture`, saves a case, and keeps what Inductor makes of the live graph, in normal form."""
    captured = program.captured()
    if isinstance(captured, tuple):
        save_graph(*captured, folder / "case")
        torch.save(results_of(*captured, backward=False), folder / REFERENCES / "case.pt")
        return
    captured.save(folder / "case")
    inputs = captured.values()
    torch.save(results_of(captured.module, inputs, backward=False), folder / REFERENCES / "case.pt")
    spec = ReplaySpec(captured.stage, captured.compile_kwargs, dynamic=bool(program.dynamic))
    spec.ambient.threads = torch.get_num_threads()
    keep_compile(captured.module, inputs, spec, folder / REFERENCES / "case.json")


def keep_compile(gm: fx.GraphModule, inputs: Sequence[Any], spec: ReplaySpec, path: Path) -> None:
    """Writes what Inductor makes of a live graph, in normal form."""
    watched = fidelity.CompiledArtifacts()
    outcome = judge(Live(gm, inputs, spec), "inductor", watch=watched.compiling)
    live = {"graphs": watched.graphs, "code": watched.code, "verdict": outcome.text}
    path.write_bytes(msgspec.json.encode(live))


def main(folder: Path, names: Sequence[str]) -> None:
    """Records the programs one after another; a rank of one program runs it."""
    watch_recorder()
    if str(folder) == RANK:
        one_rank(PROGRAMS[names[1]], Path(names[0]))
        return
    for name in names:
        try:
            record_one(PROGRAMS[name], folder / name)
        except Exception:  # noqa: BLE001  a program that fails is a row that says so
            (folder / name / "failed.txt").write_text(traceback.format_exc())
        (folder / name / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
