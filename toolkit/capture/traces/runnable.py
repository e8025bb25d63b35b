"""What an fx_graph_runnable says beside its graph: the settings in force, the layout of each input, the hints of its
symbols.

It is a script that torch wrote; its assignments and the calls in its `load_args` are read, nothing of it runs.

For example:

    read(script).inputs["primals_1"]  # -> TensorValue(dtype='float32', shape=[4, 4], stride=[4, 1], storage=0)
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from sys import intern

from ....dumps.errors import DamagedError, UnreadableError
from ....dumps.expr_values import evaluate
from ....dumps.schema import Arg, ConstValue, TensorValue, Value
from ....dumps.wording import counted
from .text import GraphText, dotted, literal, parse, parsed

ROOMS = {"_inductor": "inductor", "_dynamo": "dynamo", "_functorch": "functorch"}
_SYMBOL = re.compile(r"[a-z]{1,8}\d{1,20}")
OF_REPROS = {"inductor": ("generate_intermediate_hooks",), "dynamo": ("repro_after", "repro_level", "debug_dir_root")}
"""Settings that repro scripts make for their own sake."""


@dataclass
class Runnable:
    """The graph as it is written there, without values; inputs by the names of its placeholders."""

    graph: GraphText
    config: dict[str, dict[str, Arg]] = field(default_factory=dict[str, dict[str, Arg]])
    inputs: dict[str, Value] = field(default_factory=dict[str, Value])
    hints: dict[str, int] = field(default_factory=dict[str, int])


def read(text: str) -> Runnable:
    """The content of the script. Raises UnreadableError where it is cut off, or its graph is no Python."""
    tree = parsed(text)
    script = Runnable(parse(text))
    values: list[Value | None] = []
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "load_args":
            values = _inputs(statement, script.hints)
        elif isinstance(statement, ast.Assign):
            _setting(statement, script)
    names = [node.name for node in script.graph.inputs]
    if len(values) != len(names):
        why = f"it takes {counted(len(names), 'input')} and tells of {len(values)}: it may be cut off"
        raise DamagedError("its text", why)
    script.inputs = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return script


def _setting(statement: ast.Assign, script: Runnable) -> None:
    path, value = dotted(statement.targets[0]), statement.value
    if len(path) == 1 and isinstance(value, ast.Constant) and type(value.value) is int and _SYMBOL.fullmatch(path[0]):
        script.hints[path[0]] = value.value  # s27 = 12
    if path[0:1] != ["torch"] or path[2:3] != ["config"] or path[1] not in ROOMS or len(path) < 4:
        return
    room, name = ROOMS[path[1]], ".".join(path[3:])
    if name in OF_REPROS.get(room, ()):
        return
    try:
        script.config.setdefault(room, {})[name] = literal(value)
    except UnreadableError:  # a function or an object: no setting that has a saved form
        return


def _inputs(function: ast.FunctionDef, hints: dict[str, int]) -> list[Value | None]:
    storages: dict[str, tuple[int, int, str]] = {}
    values: list[Value | None] = []
    for statement in function.body:
        call = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
        if not isinstance(call, ast.Call):
            continue
        kind, named = dotted(call.func)[-1:], {word.arg: word.value for word in call.keywords}
        if (
            kind == ["storage"]
            and isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Name)
            and len(call.args) > 1
        ):
            device = literal(named["device"]) if "device" in named else {"device": "cpu"}
            place = str(device["device"]) if isinstance(device, dict) else "cpu"
            storages[statement.targets[0].id] = len(storages), _size(call.args[1], hints), intern(place)
        elif kind == ["tensor"] and len(call.args) > 1 and isinstance(call.args[0], ast.Name):
            values.append(_tensor(call, named, storages[call.args[0].id], hints))
        elif kind == ["symint"]:
            values.append(ConstValue(_size(call.args[0], hints)))
        elif kind:
            values.append(None)
    return values


def _tensor(
    call: ast.Call, named: dict[str | None, ast.expr], storage: tuple[int, int, str], hints: dict[str, int]
) -> TensorValue:
    shape = _sizes(call.args[1], hints)
    given = call.args[2] if len(call.args) > 2 else named.get("stride")
    dtype = literal(named["dtype"]) if "dtype" in named else {"dtype": "float32"}
    said = {name: ast.unparse(named[name]) == "True" for name in ("requires_grad", "is_leaf") if name in named}
    number, size, device = storage
    return TensorValue(
        str(dtype["dtype"]) if isinstance(dtype, dict) else "float32",
        [*shape],
        [*(_contiguous(shape) if given is None else _sizes(given, hints))],
        _size(named["storage_offset"], hints) if "storage_offset" in named else 0,
        device,
        requires_grad=said.get("requires_grad", False),
        storage=number,
        storage_bytes=size,
        leaf=said.get("is_leaf", False),
    )


def _sizes(node: ast.expr, hints: dict[str, int]) -> list[int]:
    return [_size(element, hints) for element in node.elts] if isinstance(node, (ast.Tuple, ast.List)) else []


def _size(node: ast.expr, hints: dict[str, int]) -> int:
    """A size as the number that it had."""
    return int(evaluate(ast.unparse(node), hints))


def _contiguous(shape: list[int]) -> list[int]:
    """The strides that torch leaves out: 1 for the last, and each the product of the sizes behind it."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]
