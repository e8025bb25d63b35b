"""Custom operators of a graph, registered in the repro itself: by their own source where this process has it, else by a
stand-in.

Imports no torch. A stand-in is never passed off as the operator: `Registered.remarks` says so in the program's head.

For example: `custom_targets(record)` gives `{'mine::scale': [OpCall(...)]}`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ...dumps import syntax
from ...dumps.allowlist import TRITON_CALLS, is_custom
from ...dumps.definitions import CutProgram, cut
from ...dumps.errors import EnvironmentLackError
from ...dumps.program.case import Registered
from ...dumps.program.inputs import HELPER, OpCall, results, stand_in
from ...dumps.program.text import dotted
from ...dumps.schema import Arg, DefinitionRecord, GraphRecord, NodeRecord, SequenceValue, TensorValue, Value
from ...dumps.walk import bodies, contents, given, nodes, tag_of, used

_ROOTS = frozenset({"torch", "numpy", *sys.stdlib_module_names}) - {"__future__"}
_LONGEST = 120
"""Lines of source above which an operator is better imported, or stood in for."""


@dataclass(frozen=True)
class OpSource:
    """Statements in order, and imports that they need beside `import torch`."""

    statements: tuple[str, ...]
    imports: tuple[str, ...]


def source_of(name: str) -> OpSource | None:
    """The source of `namespace::op`; None where it was not registered here by `custom_op`, or cannot be cut out."""
    if "torch" not in sys.modules:
        return None
    from ...toolkit import torch_private as t

    function: Any = getattr(t.custom_ops.get(name), "_init_fn", None)
    try:
        text = inspect.getsource(cast("Any", inspect.getmodule(function)))
    except (OSError, TypeError):
        return None
    program = cut(text, {name}, line=function.__code__.co_firstlineno)
    if program is None or program.missing or sum(len(part.splitlines()) for part in program.statements) > _LONGEST:
        return None
    whole = "\n".join((*program.imports, *program.statements))
    return None if "TYPE_CHECKING" in whole else _source(program, whole)  # a repro evaluates annotations


def recorded_source(name: str, definitions: Sequence[DefinitionRecord]) -> OpSource | None:
    """The source of `namespace::op` as the dump holds it; None where that is not whole, or needs a package."""
    space = name.partition("::")[0]
    for definition in definitions:
        program = cut(definition.program, {space}) if space in definition.spaces and not definition.missing else None
        source = _source(program, program.program) if program is not None else None
        if program is not None and source is not None:
            reads = definition.argv[1:] and re.search(r"\bargv\b|\bparse_(known_)?args\b", program.program)
            words = [f"sys.argv[1:] = {definition.argv[1:]}  # as in the run"] if reads else []
            return OpSource((*words, *source.statements), source.imports)
    return None


def _source(program: CutProgram, text: str) -> OpSource | None:
    """The cut program as source for a repro; None where `text`, the part that the repro will hold, imports more than
    torch brings along."""
    for statement in ast.walk(syntax.parsed(text)):
        names: list[str] = []
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            names = ["." * statement.level + (statement.module or "")]
        if any(name.partition(".")[0] not in _ROOTS for name in names):
            return None
    return OpSource(tuple(program.statements), tuple(sorted({*program.imports} - {"import torch"})))


def registered(record: GraphRecord, definitions: Sequence[DefinitionRecord] = ()) -> Registered | None:
    """The registrations of all custom operators of a graph; None where it has none. `definitions`: those of the dump,
    where it is trusted. Raises CannotExpressError."""
    calls = custom_targets(record)
    if not calls:
        return None
    blocks: list[str] = []
    imports: set[str] = set()
    remarks: list[str] = []
    synthesised: list[str] = []
    for name, recorded_calls in calls.items():
        source = source_of(name) or recorded_source(name, definitions)
        if source is not None:
            blocks += source.statements
            imports |= set(source.imports)
            remarks.append(f"torch.ops.{name.replace('::', '.')} is registered below as the run's own program does.")
            continue
        synthesised.append(
            stand_in(name, recorded_calls, schema=known_schema(name), grad=record.stage in ("dynamo", "pre_grad"))
        )
        remarks.append(
            f"STAND-IN: torch.ops.{name.replace('::', '.')} could not be imported; what stands below has its "
            "recorded shapes, and other values."
        )
    if synthesised:
        blocks += [HELPER, *synthesised]
    return Registered("\n\n\n".join(dict.fromkeys(blocks)), _merged(imports), tuple(remarks), bool(synthesised))


def known_schema(name: str) -> str:
    """The schema of an operator that is registered in this process, without its name; else empty."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    space, _, op = name.partition("::")
    op, _, overload = op.partition(".")
    packet: Any = getattr(getattr(cast("Any", torch).ops, space), op, None)
    operator: Any = getattr(packet, overload or "default", None)
    return "" if operator is None else f"({str(operator._schema).partition('(')[2]}"


def unregistered(record: GraphRecord, where: str = "") -> dict[str, EnvironmentLackError]:
    """Each target that a graph calls and this process lacks, and why; raises as loading does for what the graph may not
    call.

    Imports torch.
    """
    from ...dumps.torchside import targets
    from ...dumps.torchside.triton_kernels import KernelReader

    errors: dict[str, EnvironmentLackError] = {}
    for node in nodes(record.graph):
        place = f"{where}: node {node.name}".removeprefix(": ")
        if node.op == "call_method":
            targets.check_method(node.target, place)
        for target in [*([node.target] if node.op == "call_function" else []), *contents(given(node), "function")]:
            try:
                if str(target) in TRITON_CALLS:
                    KernelReader(record.kernels, where).kwargs(node, dict(node.kwargs), place)
                else:
                    targets.resolve(str(target), place)
                    targets.check_getattr(str(target), node.args, node.kwargs, place)
            except EnvironmentLackError as error:
                errors.setdefault(str(target), error)
    return errors


def refuse_others(record: GraphRecord, where: str = "") -> None:
    """Raises as loading does for each target but custom operators that are not registered here. Imports torch."""
    for target, error in unregistered(record, where).items():
        if not is_custom(target):
            raise error


def _merged(imports: set[str]) -> tuple[str, ...]:
    """The statements in order, one for all imports from the same module."""
    plain = [statement for statement in imports if not statement.startswith("from ")]
    names: dict[str, list[str]] = {}
    for statement in sorted(imports - set(plain)):
        module, _, name = statement.removeprefix("from ").partition(" import ")
        names.setdefault(module, []).append(name)
    return tuple(sorted([*plain, *(f"from {module} import {', '.join(given)}" for module, given in names.items())]))


def custom_targets(record: GraphRecord) -> dict[str, list[OpCall]]:
    """ "namespace::op[.overload]" -> its recorded calls, those of nested graphs too."""
    calls_of_op: dict[str, list[OpCall]] = {}
    for body in bodies(record.graph):
        calls = [(node, target) for node in body.nodes if (target := _called(node)) is not None]
        values, arguments = {node.name: node.value for node in body.nodes}, used(body.nodes) if calls else set[str]()
        for node, target in calls:
            if target == node.target:
                outputs, listed, nothing = results(node.value, used=node.name in arguments)
                call = OpCall(node.args, node.kwargs, values, outputs, listed, [], nothing)
            else:
                call = _functionalized(node, values)
            calls_of_op.setdefault(_qualified(target), []).append(call)
    return calls_of_op


def _called(node: NodeRecord) -> str | None:
    """The custom operator that a node calls, itself or inside `auto_functionalized_v2`; None for any other node."""
    if node.op != "call_function":
        return None
    if is_custom(node.target):
        return node.target
    inside = node.target == "higher_order.auto_functionalized_v2" and node.args
    tag, function = tag_of(node.args[0]) if inside else ("", "")
    return function if tag == "function" and is_custom(function) else None


def _functionalized(node: NodeRecord, values: dict[str, Value | None]) -> OpCall:
    """The call inside `auto_functionalized_v2`: its outputs come first, then the new values of what it writes to."""
    kwargs: dict[str, Arg] = {}
    written: list[str] = []
    bases = cast("list[Arg]", node.kwargs.get("_all_bases", []))
    for key, arg in node.kwargs.items():
        if key.startswith("_") and key.endswith("_base_index") and isinstance(arg, int):
            own = key.removeprefix("_").removesuffix("_base_index")
            kwargs[own] = bases[arg]
            written.append(own)
        elif not key.startswith("_"):
            kwargs[key] = arg
    items = list(node.value.items) if isinstance(node.value, SequenceValue) else []
    outputs: list[Value | None] = [*items[: len(items) - len(bases)]]
    nothing = not any(isinstance(output, TensorValue) for output in outputs)
    return OpCall([], kwargs, values, outputs, False, written, nothing)


def _qualified(target: str) -> str:
    parts = dotted(target, "the operator").split(".")
    overload = "" if len(parts) < 3 or parts[2] == "default" else f".{parts[2]}"
    return f"{parts[0]}::{parts[1]}{overload}"
