"""A stand-in for a custom operator that nobody can import: registered under its name, with the shapes that were
recorded.

Its schema is what the process knows of it, else what the recorded calls show; sizes come from its arguments where they
are theirs. Its values are synthesised, and the head of the repro says so. Imports no torch.

For example:

    stand_in("mine::scale", calls, {}).splitlines()[0]
    # 'torch.library.define("mine::scale", "(Tensor a0, float a1) -> Tensor")'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ..arguments import KINDS
from ..schema import Arg, ConstValue, SequenceValue, SymValue, TensorValue, Value
from ..walk import tag_of
from .inputs import contiguous
from .text import CannotExpressError, OperatorFormError, identifier, quoted

HELPER = """\
def made_up(like):
    \"""Values for a stand-in: not those of the operator.\"""
    return like.copy_(torch.linspace(0, 1, like.numel(), device=like.device).reshape(like.shape))"""


@dataclass
class OpCall:
    """One recorded call: arguments by position and by name, the recorded values of nodes, and what it gives back."""

    args: list[Arg]
    kwargs: dict[str, Arg]
    values: Mapping[str, Value | None]
    result: list[Value | None]
    listed: bool = False
    """Whether a list is given back."""
    written: list[str] = field(default_factory=list[str])
    """Names of arguments that are written to."""
    nothing: bool = False
    """Whether nothing is given back."""


def stand_in(name: str, calls: Sequence[OpCall], *, schema: str = "", grad: bool = False) -> str:
    """The registration; raises CannotExpressError where the calls do not determine the operator. `schema`: if it is
    known."""
    own = name.replace("::", "_").replace(".", "_")
    first = calls[0]
    names = [f"a{index}" for index in range(len(first.args))] + [identifier(key, name) for key in first.kwargs]
    if any(len(recorded.args) != len(first.args) or list(recorded.kwargs) != list(first.kwargs) for recorded in calls):
        raise OperatorFormError(f"the operator {name} is called in several ways, so that no stand-in can be written")
    columns = [[[*recorded.args, *recorded.kwargs.values()][at] for recorded in calls] for at in range(len(names))]
    types = [
        _type([_kind(arg, call.values) for arg, call in zip(column, calls, strict=True)], name) for column in columns
    ]
    written = set(first.written) or (
        {n for n, t in zip(names, types, strict=True) if t == "Tensor"} if first.nothing else set()
    )
    schema = schema or _schema(names, types, written, first)
    outputs = [] if first.nothing else [_output(at, calls, names, columns, name) for at in range(len(first.result))]
    takes = ", ".join(names)
    outputs_made = [f"made_up({recorded})" for recorded in outputs]
    lines = [f"torch.library.define({quoted(name)}, {quoted(schema)})", "", ""]
    lines += [f'@torch.library.impl({quoted(name)}, "default")', f"def {own}({takes}):"]
    lines += [f"    made_up({recorded})" for recorded in names if recorded in written]
    lines += [f"    return {_returned(outputs_made, first)}"] if outputs_made else ["    pass"] * (not written)
    lines += ["", "", f"torch.library.register_fake({quoted(name)}, lambda {takes}: {_returned(outputs, first)})"]
    if grad and outputs and not written:
        nothing = ", ".join("None" for _ in names) + ("," if len(names) == 1 else "")
        lines.append(f"torch.library.register_autograd({quoted(name)}, lambda *_: ({nothing}))")
    return "\n".join(lines)


def _returned(texts: Sequence[str], call: OpCall) -> str:
    if not texts:
        return "None"
    if call.listed:
        return f"[{', '.join(texts)}]"
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _schema(names: Sequence[str], types: Sequence[str], written: set[str], call: OpCall) -> str:
    texts: list[str] = []
    for at, (name, kind) in enumerate(zip(names, types, strict=True)):
        texts.append(f"{kind}(w{at}!) {name}" if name in written else f"{kind} {name}")
    if len(call.args) < len(names):
        texts.insert(len(call.args), "*")
    kinds = ["Tensor" if isinstance(output, TensorValue) else "SymInt" for output in call.result]
    result = (
        "()"
        if call.nothing
        else "Tensor[]"
        if call.listed
        else kinds[0]
        if len(kinds) == 1
        else f"({', '.join(kinds)})"
    )
    return f"({', '.join(texts)}) -> {result}"


def _kind(arg: Arg, values: Mapping[str, Value | None]) -> str:
    """The schema's type of one argument; empty for None."""
    if arg is None:
        return ""
    for kind, text in ((bool, "bool"), (int, "SymInt"), (float, "float"), (str, "str")):
        if isinstance(arg, kind):
            return text
    if isinstance(arg, list):
        return _list_kind(cast("list[Arg]", arg), values)
    ((tag, content),) = cast("dict[str, Any]", arg).items()
    if tag == "node":
        value = values.get(content)
        return (
            {"int": "SymInt", "float": "float", "bool": "bool"}[value.kind] if isinstance(value, SymValue) else "Tensor"
        )
    if tag == "tuple":
        return _list_kind(content, values)
    if tag == "sym":
        return "SymInt" if content[0] == "int" else "float"
    if tag in KINDS and KINDS[tag].schema:
        return KINDS[tag].schema
    raise OperatorFormError(f"a custom operator has an argument of kind {tag!r}, for which no stand-in can be written")


def _list_kind(items: Sequence[Arg], values: Mapping[str, Value | None]) -> str:
    kinds = {_kind(item, values) for item in items}
    return f"{_merged(kinds)}[]" if kinds else "SymInt[]"


def _merged(kinds: set[str]) -> str:
    optional = "?" if "" in kinds else ""
    kinds = kinds - {""}
    if kinds == {"SymInt", "float"}:
        kinds = {"float"}
    if len(kinds) > 1:
        raise OperatorFormError(f"a custom operator is given {' and '.join(sorted(kinds))} in one place")
    return (kinds.pop() if kinds else "Tensor") + optional


def _type(kinds: Sequence[str], name: str) -> str:
    try:
        return _merged(set(kinds))
    except CannotExpressError as error:
        raise OperatorFormError(f"no stand-in for {name}: {error}") from error


def _output(at: int, calls: Sequence[OpCall], names: Sequence[str], columns: Sequence[Sequence[Arg]], name: str) -> str:
    """An expression that makes an uninitialised output: like an argument, else of sizes that are an argument's or a
    number."""
    wanted: list[TensorValue] = []
    for call in calls:
        value = call.result[at]
        if not isinstance(value, TensorValue):
            raise OperatorFormError(
                f"the operator {name} gives back more than tensors, so that no stand-in can be written"
            )
        wanted.append(value)
    given = {
        own: tensors
        for own, column in zip(names, columns, strict=True)
        if len(tensors := [_tensor(arg, call) for arg, call in zip(column, calls, strict=True)]) == len(calls)
        and all(tensor is not None for tensor in tensors)
    }
    dtype = f"dtype=torch.{identifier(wanted[0].dtype, name)}"
    for own, tensors in given.items():
        if all(
            t is not None and (t.shape, t.stride) == (w.shape, w.stride) for t, w in zip(tensors, wanted, strict=True)
        ):
            same = all(t is not None and t.dtype == w.dtype for t, w in zip(tensors, wanted, strict=True))
            return f"torch.empty_like({own}{'' if same else f', {dtype}'})"
    sizes: list[str] = []
    for dim in range(len(wanted[0].shape)):
        extent = next(
            (
                f"{own}.size({place})"
                for own, tensors in given.items()
                for place in range(8)
                if all(
                    t is not None and place < len(t.shape) and t.shape[place] == w.shape[dim]
                    for t, w in zip(tensors, wanted, strict=True)
                )
            ),
            None,
        )
        extents = {w.shape[dim] for w in wanted}
        if extent is None and len(extents) == 1 and isinstance(wanted[0].shape[dim], int):
            extent = str(wanted[0].shape[dim])
        if extent is None:
            raise OperatorFormError(f"a size of what the operator {name} gives back is no size of its arguments")
        sizes.append(extent)
    device = next(iter(given), "")
    if not all(isinstance(d, int) for d in wanted[0].shape) or wanted[0].stride == contiguous(
        cast("list[int]", wanted[0].shape)
    ):
        allocation = f"torch.empty(({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    else:
        allocation = f"torch.empty_strided({tuple(wanted[0].shape)}, {tuple(wanted[0].stride)}"
    return f"{allocation}, {dtype}{f', device={device}.device' if device else ''})"


def _tensor(arg: Arg, call: OpCall) -> TensorValue | None:
    tag, name = tag_of(arg)
    value = call.values.get(name) if tag == "node" else None
    return value if isinstance(value, TensorValue) else None


def results(value: Value | None, *, used: bool) -> tuple[list[Value | None], bool, bool]:
    """What a recorded value says: (outputs, whether they are a list, whether there are none)."""
    if isinstance(value, SequenceValue) and used:
        return list(value.items), value.kind == "list", False
    if not used or value is None or isinstance(value, ConstValue):
        return [], False, True
    return [value], False, False
