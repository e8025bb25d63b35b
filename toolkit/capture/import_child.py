# pyright: basic
"""The child that opens a foreign file: python -m ...import_child FILE CASE TOLD.

A script runs as `__main__` up to the call of torch's `run_repro`, which is ours meanwhile: it is handed the module, the
inputs' reader and the settings, and nothing is compiled. Its graph keeps the nodes as they are written (symbolic trace);
sizes that were symbols are traced again with symbols. Writes one JSON object to TOLD, or `{"why": ...}` and exits with 2.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ...dumps.live import save_graph
from ...dumps.torchside.encode import CARRY
from ..recorder.ambient import ambient
from ..recorder.configs import changed, encoded
from . import _torch as t

_OURS = {"inductor": ("generate_intermediate_hooks",), "dynamo": ("repro_after", "repro_level", "debug_dir_root")}
"""Settings that repro scripts make for their own sake."""


class NothingToImportError(Exception):
    """The file holds no graph that can be taken; the text is for the user."""


class Found(BaseException):
    """Thrown out of a script when it has said what it would run. Not an Exception: scripts catch those."""

    def __init__(self, kind: str, module: Any, inputs: list[Any], stage: str, notes: list[str]) -> None:
        super().__init__(kind)
        self.kind, self.module, self.inputs, self.stage, self.notes = kind, module, inputs, stage, notes


def main(source: Path, out: Path, told: Path) -> int:
    """Opens the file and writes the case."""
    try:
        found = of_script(source) if source.suffix == ".py" else of_program(torch.export.load(source))
    except NothingToImportError as error:
        told.write_text(json.dumps({"why": str(error)}))
        return 2
    config = {
        room: {name: encoded(value) for name, value in values.items() if name not in _OURS.get(room, ())}
        for room, values in changed().items()
    }
    found.module.meta[CARRY] = {"config": config, "inputs": ()}
    save_graph(found.module, found.inputs, out, stage=found.stage, ambient=ambient())
    nodes = len(found.module.graph.nodes)
    told.write_text(
        json.dumps(
            {
                "kind": found.kind,
                "stage": found.stage,
                "nodes": nodes,
                "inputs": len(found.inputs),
                "notes": found.notes,
            }
        )
    )
    return 0


def of_script(source: Path) -> Found:
    """What a repro script would run."""
    after_aot, after_dynamo, ahead = t.repro_modules()
    after_aot.run_repro = _taking("fx_graph_runnable", _of_aot)
    after_dynamo.run_repro = _taking("repro after Dynamo", _of_dynamo)
    ahead.run_repro = _of_ahead
    sys.argv = [str(source)]
    sys.path.insert(0, str(source.parent))
    try:
        runpy.run_path(str(source), run_name="__main__")
    except Found as found:
        return found
    raise NothingToImportError(
        "it ran to its end and never called torch's run_repro, so it is no repro of torch's tools; "
        f"record what it compiles instead: graphdbg dump {source.name}"
    )


def _taking(kind: str, make: Callable[..., tuple[Any, str]]) -> Callable[..., None]:
    def run_repro(mod: Any, load_args: Any, **said: Any) -> None:
        inputs, notes = _inputs(load_args, said.get("save_dir"))
        module, stage = make(mod, inputs, said)
        raise Found(kind, module, inputs, stage, notes)

    return run_repro


def _inputs(load_args: Any, save_dir: str | None) -> tuple[list[Any], list[str]]:
    """The script's own inputs where they lie beside it, else what its reader draws."""
    torch.manual_seed(0)
    reader = t.input_reader(save_dir)
    load_args(reader)
    kept = save_dir is not None and Path(save_dir).is_dir()
    return list(reader.args), [] if kept else ["the script keeps no values: its inputs are random numbers"]


def _of_aot(mod: Any, inputs: list[Any], said: dict[str, Any]) -> tuple[fx.GraphModule, str]:
    names = _argument_names(mod)
    symbolic = said.get("tracing_mode") == "symbolic" or any(isinstance(value, int) for value in inputs)
    if symbolic:
        from torch.fx.experimental.proxy_tensor import make_fx

        module = make_fx(mod, tracing_mode="symbolic")(*inputs)
    else:
        module = _traced(mod, inputs)
    if any(name.startswith("tangents") for name in names):
        return module, "backward"
    return module, "forward" if any(name.startswith("primals") for name in names) else "joint_passed"


def _of_dynamo(mod: Any, inputs: list[Any], said: dict[str, Any]) -> tuple[fx.GraphModule, str]:
    return fx.symbolic_trace(mod), "dynamo"


def _of_ahead(exported_program: Any, **said: Any) -> None:
    raise of_program(exported_program)


def of_program(program: Any) -> Found:
    """An exported program: its parameters, buffers and constants are the first inputs, as its signature says."""
    state = {**program.state_dict, **program.constants}
    example, named = program.example_inputs or ((), {})
    given = iter(t.pytree.tree_leaves((tuple(example), dict(named))))
    inputs: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.target is not None:
            inputs.append(state[spec.target])
        elif (value := next(given, None)) is None:
            raise NothingToImportError("the program was saved without example inputs, so its inputs are not known")
        else:
            inputs.append(value)
    values = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
    return Found("exported program", _renamed(program.graph_module), values, "inference", [])


def _renamed(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph with names that FX gives: export keeps an argument's own, such as `input`, which FX would change on
    loading."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    return fx.GraphModule(module, graph)


def _argument_names(mod: Any) -> list[str]:
    code = type(mod).forward.__code__
    return list(code.co_varnames[1 : code.co_argcount])


def _traced(mod: Any, inputs: list[Any]) -> fx.GraphModule:
    """The nodes as they are written, with fake values of each."""
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    module = fx.symbolic_trace(mod)
    mode = t.FakeTensorMode(allow_non_fake_inputs=True)
    with torch.no_grad():
        FakeTensorProp(module, mode).propagate(*inputs)
    return module


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
