# pyright: basic
"""`torch.export` programs as graphs with inputs: what the signature says becomes descriptions of inputs and outputs.

Runs nothing of the program. Its parameters, buffers and constants are the first inputs, as its signature orders them.

>>> module, values, roles = parts(torch.export.export(model, (x,)))
>>> save_graph(program, (), "case")      # with the program's own example inputs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ..errors import UsageError
from ..schema import InputRecord
from ..wording import counted
from . import torch_private as t

_ROLES = {
    "PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant", "CUSTOM_OBJ": "constant", "TOKEN": "token",
    "USER_INPUT": "user",
}  # fmt: skip

_MUTATIONS = {"BUFFER_MUTATION": "BufferAOTInput", "PARAMETER_MUTATION": "ParamAOTInput", "USER_INPUT_MUTATION": ""}


def is_program(value: Any) -> bool:
    """Whether a value is an exported program."""
    return isinstance(value, torch.export.ExportedProgram)


def parts(
    program: torch.export.ExportedProgram, inputs: Sequence[Any] | None = None, named: Mapping[str, Any] | None = None
) -> tuple[fx.GraphModule, list[Any], list[InputRecord]]:
    """(the graph, a value for each of its inputs, their roles). `inputs` and `named` are what the program would be called with;
    where neither is given, its example inputs. Raises UsageError where it has none, or where they do not fit.
    """
    given, words = (tuple(inputs or ()), dict(named or {}))
    if not given and not words and program.example_inputs is not None:
        given, words = program.example_inputs
    leaves = t.pytree.tree_leaves((tuple(given), dict(words)))
    wanted = [spec for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    if len(leaves) != len(wanted):
        why = f"it takes {counted(len(wanted), 'value')} and {len(leaves)} are known"
        raise UsageError(
            "the exported program has no inputs to be saved with", why, "give them, or export it with example inputs"
        )
    state = {**program.state_dict, **program.constants}
    module = _renamed(program.graph_module)
    values: list[Any] = []
    roles: list[InputRecord] = []
    rest = iter(enumerate(leaves))
    for node, spec in zip(module.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True):
        kind = spec.kind.name
        index, value = next(rest) if kind == "USER_INPUT" else (0, state.get(spec.target or ""))
        values.append(value.detach() if isinstance(value, torch.Tensor) else value)
        source = spec.target or getattr(spec.arg, "name", "")
        roles.append(InputRecord(node.name, _ROLES.get(kind, "unknown"), source))  # type: ignore[arg-type]
        node.meta["desc"] = _input(kind, spec.target, index)
    module.graph.output_node().meta["desc"] = _outputs(program.graph_signature)
    return module, values, roles


def _input(kind: str, target: str | None, index: int) -> Any:
    home = t.optional("descriptors", object)
    if kind in ("PARAMETER", "BUFFER"):
        return _made(home, "ParamAOTInput" if kind == "PARAMETER" else "BufferAOTInput", target)
    return _made(home, "PlainAOTInput", index) if kind == "USER_INPUT" else None


def _outputs(signature: Any) -> list[Any]:
    """What each output is. Gradients of a training program and tokens are not described."""
    home = t.optional("descriptors", object)
    users = [
        spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT" and hasattr(spec.arg, "name")
    ]
    made: list[Any] = []
    count = 0
    for spec in signature.output_specs:
        kind = spec.kind.name
        if kind in _MUTATIONS:
            name = _MUTATIONS[kind]
            written = _made(home, name, spec.target) if name else _made(home, "PlainAOTInput", users.index(spec.target))
            made.append(_made(home, "InputMutationAOTOutput", written))
        elif kind in ("USER_OUTPUT", "LOSS_OUTPUT"):
            made.append(_made(home, "PlainAOTOutput", count))
            count += 1
        else:
            made.append(None)
    return made


def _made(home: Any, name: str, value: Any) -> Any:
    kind = getattr(home, name, None)
    return None if kind is None or value is None else kind(value)


def _renamed(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph with names that FX gives: export keeps an argument's own, such as `input`, which FX would change on
    loading."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    return fx.GraphModule(module, graph)
