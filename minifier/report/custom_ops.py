"""Custom operators of a graph, registered in the repro itself: by their own source where this process has it, else stood in for.

Must not import torch, and must not pass a stand-in for the operator: `Registered.told` goes to the head of the program.

>>> custom_targets(record)                                                             # doctest: +SKIP
{'mine::scale': [OpCall(...)]}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from ...dumps.errors import EnvironmentLackError
from ...dumps.schema import Arg, GraphBody, GraphRecord, NodeRecord, SequenceValue, TensorValue, Value
from ...dumps.torchside.allowlist import OP_HOMES
from .op_sources import source_of
from .op_stubs import HELPER, OpCall, results, stand_in
from .program import dotted

_WORDS = """aten prim prims higher_order operator _operator math builtins torch quantized _quantized mkldnn mkldnn_prepacked
    onednn mkl sparse xnnpack prepacked c10d debugprims inductor static_runtime nvprims aoti_torch streams nnapi"""
_WITH_TORCH = frozenset(_WORDS.split())
"""Namespaces whose operators `import torch` registers."""


@dataclass(frozen=True)
class Registered:
    """A block of the program, imports that it needs, sentences for the head, and whether it holds stand-ins."""

    block: str
    imports: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    stands_in: bool = False


def registered(record: GraphRecord) -> Registered | None:
    """The registrations of all custom operators of a graph; None where it has none. Raises CannotExpressError."""
    calls = custom_targets(record)
    if not calls:
        return None
    blocks: list[str] = []
    imports: set[str] = set()
    told: list[str] = []
    made_up: list[str] = []
    for name, found in calls.items():
        source = source_of(name)
        if source is not None:
            blocks += source.statements
            imports |= set(source.imports)
            told.append(f"torch.ops.{name.replace('::', '.')} is registered below as the user's module does.")
            continue
        made_up.append(stand_in(name, found, grad=record.stage in ("dynamo", "pre_grad")))
        told.append(
            f"STAND-IN: torch.ops.{name.replace('::', '.')} could not be imported; what stands below has its recorded shapes, "
            "and other values."
        )
    if made_up:
        blocks += [HELPER.strip(), *made_up]
    return Registered("\n\n\n".join(dict.fromkeys(blocks)), _merged(imports), tuple(told), bool(made_up))


def refuse_others(record: GraphRecord) -> None:
    """Raises what loading the graph would for each target but custom operators that are not registered here. Imports torch."""
    from ...dumps.torchside.targets import resolve

    for body in _bodies(record.graph):
        for node in body.nodes:
            for target in [*([node.target] if node.op == "call_function" else []), *_functions([node.args, node.kwargs])]:
                try:
                    resolve(target, f"node {node.name}")
                except EnvironmentLackError:
                    if not _custom(target):
                        raise


def _merged(imports: set[str]) -> tuple[str, ...]:
    """The statements in order, one for all that comes from the same module."""
    plain = [one for one in imports if not one.startswith("from ")]
    names: dict[str, list[str]] = {}
    for one in sorted(imports - set(plain)):
        module, _, name = one.removeprefix("from ").partition(" import ")
        names.setdefault(module, []).append(name)
    return tuple(sorted([*plain, *(f"from {module} import {', '.join(found)}" for module, found in names.items())]))


def custom_targets(record: GraphRecord) -> dict[str, list[OpCall]]:
    """ "namespace::op[.overload]" -> its recorded calls, those of nested graphs too."""
    found: dict[str, list[OpCall]] = {}
    for body in _bodies(record.graph):
        values = {node.name: node.value for node in body.nodes}
        used = {name for node in body.nodes for name in _names([node.args, list(node.kwargs.values())])}
        for node in body.nodes:
            called = _called(node)
            if called is not None:
                target, call = called
                found.setdefault(_qualified(target), []).append(call(values, node.name in used))
    return found


def _called(node: NodeRecord) -> Any:
    """(target, maker of its OpCall) for a node that calls a custom operator."""
    if node.op != "call_function":
        return None
    if _custom(node.target):

        def plain(values: dict[str, Value | None], used: bool) -> OpCall:
            outputs, listed, nothing = results(node.value, used=used)
            return OpCall(node.args, node.kwargs, values, outputs, listed, [], nothing)

        return node.target, plain
    if node.target == "higher_order.auto_functionalized_v2" and node.args:
        function = cast("dict[str, Any]", node.args[0]).get("function", "") if isinstance(node.args[0], dict) else ""
        if function and _custom(function):

            def inside(values: dict[str, Value | None], used: bool) -> OpCall:
                return _functionalized(node, values)

            return function, inside
    return None


def _functionalized(node: NodeRecord, values: dict[str, Value | None]) -> OpCall:
    """The call inside of `auto_functionalized_v2`: its outputs come first, then the new values of what it writes to."""
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
    nothing = not any(isinstance(one, TensorValue) for one in outputs)
    return OpCall([], kwargs, values, outputs, False, written, nothing)


def _qualified(target: str) -> str:
    parts = dotted(target, "the operator").split(".")
    overload = "" if len(parts) < 3 or parts[2] == "default" else f".{parts[2]}"
    return f"{parts[0]}::{parts[1]}{overload}"


def _custom(target: str) -> bool:
    root, _, rest = target.partition(".")
    return bool(rest) and not target.startswith("opaque:") and root not in _WITH_TORCH and root not in OP_HOMES


def _bodies(body: GraphBody) -> Iterator[GraphBody]:
    yield body
    for inner in body.subgraphs.values():
        yield from _bodies(inner)


def _functions(arg: Any) -> Iterator[str]:
    """The functions among the arguments of a node."""
    items = cast("list[Any]", arg) if isinstance(arg, list) else []
    for key, value in cast("dict[str, Any]", arg).items() if isinstance(arg, dict) else ():
        if key == "function" and isinstance(value, str):
            yield value
        items.append(value)
    for item in items:
        yield from _functions(item)


def _names(arg: Any) -> Iterator[str]:
    if isinstance(arg, list):
        for item in cast("list[Any]", arg):
            yield from _names(item)
    elif isinstance(arg, dict):
        for tag, content in cast("dict[str, Any]", arg).items():
            if tag == "node":
                yield content
            else:
                yield from _names(content)
