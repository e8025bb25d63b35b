"""Case folders: a graph with its inputs, outside any run. Also turns `torch.export` programs into graphs with inputs.

A program's signature gives the descriptions of inputs and outputs. Nothing of the program is run. Its parameters,
buffers and constants are the first inputs, in the order of its signature.

For example: `save_graph(torch.export.export(model, (x,)), (), "case")` keeps the program's own example inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from ..atomic import new_folder
from ..errors import NoGraphError
from ..graph_folder import TENSORS_FOLDER, write_graph_folder
from ..schema import Ambient, ConstValue, GraphRecord, InputRecord
from ..tensors import TensorStore
from ..wording import counted
from . import torch_private as t
from .encode import CARRIED, CARRY, encode
from .observed import observe

_ROLES = {
    "PARAMETER": "parameter",
    "BUFFER": "buffer",
    "CONSTANT_TENSOR": "constant",
    "CUSTOM_OBJ": "constant",
    "TOKEN": "token",
    "USER_INPUT": "user",
}

_MUTATIONS = {"BUFFER_MUTATION": "BufferAOTInput", "PARAMETER_MUTATION": "ParamAOTInput", "USER_INPUT_MUTATION": ""}


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
    path = Path(path)
    if isinstance(gm, ExportedProgram):
        gm, inputs, roles = parts(gm, inputs)
        gm.meta[CARRY] = {"inputs": roles}
        stage = stage or "inference"
    with new_folder(path) as folder:
        store = TensorStore(folder / TENSORS_FOLDER)
        record = describe(gm, like=like, stage=stage, compile_kwargs=compile_kwargs, ambient=ambient, sink=store)
        seen = observe(record, inputs, "all", store)
        for node, item in zip((n for n in record.graph.nodes if n.op == "placeholder"), seen.inputs, strict=True):
            node.value = node.value or item.value or ConstValue(value=item.scalar)
        write_graph_folder(folder / "graph", record, seen)
        for entry in (folder / "graph").iterdir():
            entry.rename(folder / entry.name)
        (folder / "graph").rmdir()
    return path


def describe(
    gm: GraphModule,
    *,
    like: GraphRecord | None,
    stage: str | None,
    compile_kwargs: Mapping[str, Any] | None,
    ambient: Ambient | None,
    sink: Any,
) -> GraphRecord:
    """The record of a case: fields that are not given come from `like`, then from the record that the module was loaded
    from."""
    carry: dict[str, Any] = getattr(gm, "meta", {}).get(CARRY, {})
    if like is not None:
        carry = {name: getattr(like, name) for name in CARRIED}
    stage = str(stage or carry.get("stage") or guess_stage(gm))
    record = encode(
        gm,
        id=carry.get("id", f"case/{stage}"),
        stage=stage,
        compile_id=carry.get("compile_id"),
        compile_kwargs=compile_kwargs,
        ambient=ambient or carry.get("ambient"),
        roles=carry.get("inputs", ()),
        sink=sink,
    )
    if compile_kwargs is None:
        record.compile_kwargs = dict(carry.get("compile_kwargs", {}))
    record.config = dict(carry.get("config", {}))
    record.definitions = list(carry.get("definitions", ())) or record.definitions
    return record


def guess_stage(gm: GraphModule) -> str:
    """The stage: `inference` for a graph of registered ops alone, else `dynamo`."""
    for node in gm.graph.nodes:
        low_level = isinstance(node.target, (t.OpOverload, t.HigherOrderOperator))
        low_level = low_level or getattr(node.target, "__module__", "") == "_operator"
        if node.op in ("call_method", "call_module") or (node.op == "call_function" and not low_level):
            return "dynamo"
    return "inference"


def parts(
    program: ExportedProgram, inputs: Sequence[Any] | None = None, named: Mapping[str, Any] | None = None
) -> tuple[GraphModule, list[Any], list[InputRecord]]:
    """Returns (the graph, a value for each of its inputs, their roles). `inputs` and `named` are the arguments to call
    the program with; where neither is given, its example inputs. Raises UsageError where it has none, or they do not
    fit.
    """
    given, words = (tuple(inputs or ()), dict(named or {}))
    if not given and not words and program.example_inputs is not None:
        given, words = program.example_inputs
    leaves = t.pytree.tree_leaves((tuple(given), dict(words)))
    wanted = [spec for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    if len(leaves) != len(wanted):
        why = f"it takes {counted(len(wanted), 'value')} and {len(leaves)} are known"
        raise NoGraphError(
            "the exported program has no example inputs", why, "pass inputs, or export it with example inputs"
        )
    state = {**program.state_dict, **program.constants}
    module = _renamed(program.graph_module)
    values: list[Any] = []
    roles: list[InputRecord] = []
    rest = enumerate(cast(list[Any], leaves))
    for node, spec in zip(module.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True):
        kind = spec.kind.name
        index, value = next(rest) if kind == "USER_INPUT" else (0, cast(Any, state.get(spec.target or "")))
        values.append(value.detach() if isinstance(value, torch.Tensor) else value)
        source = spec.target or getattr(spec.arg, "name", "")
        roles.append(InputRecord(node.name, _ROLES.get(kind, "unknown"), source))  # type: ignore[arg-type]
        node.meta["desc"] = _input(kind, spec.target, index)
    module.graph.output_node().meta["desc"] = _outputs(program.graph_signature)
    return module, values, roles


def _input(kind: str, target: str | None, index: int) -> Any:
    if kind in ("PARAMETER", "BUFFER"):
        return _made("ParamAOTInput" if kind == "PARAMETER" else "BufferAOTInput", target)
    return _made("PlainAOTInput", index) if kind == "USER_INPUT" else None


def _outputs(signature: Any) -> list[Any]:
    """A descriptor for each output. Gradients of a training program and tokens have none."""
    given = [spec.arg for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    users = [argument.name for argument in given if hasattr(argument, "name")]
    descriptors: list[Any] = []
    places = itertools.count()
    for spec in signature.output_specs:
        kind, descriptor = spec.kind.name, None
        if name := _MUTATIONS.get(kind):
            descriptor = _made("InputMutationAOTOutput", _made(name, spec.target))
        elif kind in _MUTATIONS:
            descriptor = _made("InputMutationAOTOutput", _made("PlainAOTInput", users.index(spec.target)))
        elif kind in ("USER_OUTPUT", "LOSS_OUTPUT"):
            descriptor = _made("PlainAOTOutput", next(places))
        descriptors.append(descriptor)
    return descriptors


def _made(name: str, value: Any) -> Any:
    kind = getattr(t.optional("descriptors", object), name, None)
    return None if kind is None or value is None else kind(value)


def _renamed(module: GraphModule) -> GraphModule:
    """A copy of the graph with names that FX gives: export keeps an argument's own name, such as `input`, which FX
    would change on loading."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return GraphModule(module, graph)
