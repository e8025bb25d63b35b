"""The only door from records to torch: graphs and inputs out of records, and records out of graphs. torch is imported
late.

Loading is safe: nothing found in a dump is imported, evaluated or run; what is off the allow-list is refused by name.

>>> gm, inputs = module(saved.record, saved.tensors), saved.inputs()
>>> save_graph(gm, inputs, "case")
PosixPath('case')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .schema import Ambient, GraphRecord, InputRecord, InputsRecord
from .tensors import TensorSink

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule


def module(record: GraphRecord, tensors: TensorSink | None, *, where: str = "") -> GraphModule:
    """The live graph with real parameters, buffers and constants; `node.meta` has no fake values.

    Tensors whose bytes were not recorded are synthesised; their names are in `gm.meta["graphdbg"]["made_up"]`. Raises
    RefusedError for what is off the allow-list, UnreadableError for what makes no sense, EnvironmentLackError for what
    this torch or process lacks.
    """
    from .torchside.decode import Decoder

    return Decoder(record, tensors, where or f"graph {record.id}").build(fake=False)


def fake_module(
    record: GraphRecord, tensors: TensorSink | None, *, where: str = ""
) -> tuple[GraphModule, list[Any], Any]:
    """The module with fake values on every node: (module, fake inputs, FakeTensorMode), ready for Inductor's inner
    compile.

    Symbols keep their names, hints, ranges and guards; `gm.shape_env` and the mode's shape_env are the rebuilt
    ShapeEnv.
    """
    from .torchside.decode import fake_module as build

    return build(record, tensors, where or f"graph {record.id}")


def inputs(
    record: GraphRecord,
    inputs_record: InputsRecord | None,
    tensors: TensorSink | None,
    seed: int = 0,
    *,
    where: str = "",
) -> list[Any]:
    """Real inputs in placeholder order: stored ones as they were, the others synthesised from `seed` (see
    torchside.make_inputs)."""
    from .torchside.make_inputs import make

    return make(record, inputs_record, tensors, seed, where)


def encode(
    gm: GraphModule,
    *,
    id: str,
    stage: str,
    compile_id: str | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
    ambient: Ambient | None = None,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    roles: Iterable[InputRecord] = (),
    sink: TensorSink | None = None,
) -> GraphRecord:
    """The record of a live graph, which is left untouched; adds no guard. Of `roles`, role and source count."""
    from .torchside.encode import encode as build

    return build(
        gm,
        id=id,
        stage=stage,
        compile_id=compile_id,
        compile_kwargs=compile_kwargs,
        ambient=ambient,
        config=config,
        roles=roles,
        sink=sink,
    )


def observe(
    graph: GraphModule | GraphRecord, real_inputs: Sequence[Any], policy: str, sink: TensorSink | None
) -> InputsRecord:
    """The record of the inputs of one execution under a policy of `--inputs`; call it before the graph runs."""
    from .torchside.observed import observe as build

    return build(graph, real_inputs, policy, sink)


def save_graph(
    gm: GraphModule | ExportedProgram,
    inputs: Sequence[Any],
    path: str | Path,
    *,
    like: GraphRecord | None = None,
    stage: str | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
    ambient: Ambient | None = None,
) -> Path:
    """Writes a case folder (graph.json, graph.py, inputs.json, tensors/) that `load_graph` reads, and returns its path;
    keeps the inputs whole.

    `gm` may be an ExportedProgram; `inputs` are then its user inputs, () for its example inputs.

    Stage, compile kwargs, ambient state and config come from `like`, else from the record that `gm` was loaded from,
    else from what is being asked for. Raises UsageError when `path` exists.

    >>> save_graph(torch.fx.symbolic_trace(model), [x], "linear")
    PosixPath('linear')
    >>> load_graph("linear").inputs()[0].equal(x)
    True
    """
    from .torchside.case import save

    return save(gm, inputs, Path(path), like=like, stage=stage, compile_kwargs=compile_kwargs, ambient=ambient)
