# pyright: basic
"""What a child does at one node: reads what the node was given and what it made, eagerly and under a rung, and gives a
Python prompt there where it has a terminal. Judges nothing.

For example: `ask("graphdbg.toolkit.node_values.standing:task", {"path": "case", "node": "mm", ...}, server=server)`.
"""

from __future__ import annotations

import code
import contextlib
import itertools
import math
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from ...dumps.errors import GraphdbgError
from ...dumps.wording import counted
from ..cutting.subgraph import until
from ..isolation.child import TERMINAL, mark, report
from ..judging.judge import judge
from ..live.case import Case, Live
from ..live.eager import attribute, clone_inputs
from ..live.values import Held, Values
from ..numerics.statistics import described
from ..rungs import rung as rung_named
from .child import Tapped, recorded, surroundings, wrong_on_right_inputs
from .measuring import INPUTS, measure, tappable, target_of

FIRST = 6
"""Numbers of a value that are shown."""


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: what is at the node `node`, as plain data; with a terminal, a prompt there after the
    report."""
    mark("load")
    whole = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    name, rung, seed = payload["node"], payload["rung"], payload["seed"]
    near = _until(whole, name)
    case = near if rung == "eager" else whole
    mark("eager")
    try:
        eager, lost = recorded(case, seed)
    except GraphdbgError as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001  whatever eager raises is why there are no values
        return {"refused": f"eager itself fails: {type(error).__name__}: {error}".splitlines()[0]}
    node = next(candidate for candidate in case.gm.graph.nodes if candidate.name == name)
    seen = _Seen(case, eager)
    names = [*dict.fromkeys(argument.name for argument in node.all_input_nodes), name]
    got = (
        _compiled(case, rung, [tapped for tapped in tappable(case.gm, eager) if tapped in names], seed)
        if rung != "eager"
        else None
    )
    mark("compare")
    rows: dict[str, dict[str, Any]] = {}
    with surroundings(case.spec):
        lacks = measure(case, eager, got, set(names), seed=seed, report=lambda row: rows.update({row["name"]: row}))
        wrong = wrong_on_right_inputs(case, rung, got, seed) if got else None
    shown = []
    for near_name in names:
        row = rows.get(near_name, {})
        kept = {key: row.get(key) for key in ("error", "eager_error", "reason")}
        value = seen.value(near_name) if near_name == name else seen.as_read(name, near_name)
        other = {} if got is None or near_name not in got else {rung: sheet(got[near_name])}
        shown.append(
            {"name": near_name, "values": {"eager": sheet(value)} | other}
            | {k: v for k, v in kept.items() if v is not None}
        )
    here = next((departure for departure in wrong or () if departure["name"] == name), None)
    answer = {
        "target": target_of(node),
        "inputs": shown[:-1],
        "value": shown[-1],
        "wrong": here,
        "no_reference": lacks,
        "notes": [*case.notes, *lost],
    }
    if payload.get(TERMINAL):
        report(answer)
        _prompt(
            payload,
            near,
            seen,
            {near_name: got[near_name] for near_name in names if near_name in got} if got is not None else {},
        )
    return answer


def _until(case: Live, name: str) -> Live:
    """The case up to a node, which it returns; the whole for an output."""
    node = next(candidate for candidate in case.gm.graph.nodes if candidate.name == name)
    if node.op == "output":
        return case
    gm = until(case.gm, name)
    return replace(case, gm=gm, inputs=case.inputs[: len(gm.graph.find_nodes(op="placeholder"))])


def _compiled(case: Live, rung: str, names: list[str], seed: int) -> dict[str, torch.Tensor]:
    tapped = Tapped(rung_named(rung), names)
    if names:
        judge(case, tapped, seed=seed)
    return tapped.got


class _Seen(Mapping[str, Any]):
    """Eager's values by node name, read when they are looked at."""

    def __init__(self, case: Live, eager: Values) -> None:
        self.case, self.eager = case, eager
        nodes = [node for node in case.gm.graph.nodes if node.op != "output"]
        self.nodes = {node.name: node for node in nodes}
        self.given = dict(zip((node.name for node in nodes if node.op == "placeholder"), case.inputs, strict=False))

    def __getitem__(self, name: str) -> Any:
        if name not in self.nodes:
            raise KeyError(name)
        return self.value(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"<eager's values of {counted(len(self), 'node')}: {', '.join(itertools.islice(self.nodes, 4))}, ...>"

    def value(self, name: str) -> Any:
        """The node's value at the time it ran."""
        return self._at(name, self.eager.produced.get(name, -1))

    def as_read(self, user: str, name: str) -> Any:
        """The node's value as another node read it."""
        return self._at(name, self.eager.read.get((user, name), self.eager.produced.get(name, -1)))

    def _at(self, name: str, version: int) -> Any:
        node = self.nodes.get(name)
        if (name, version) in self.eager.trees:
            return _loaded(self.eager.trees[name, version])
        if node is not None and node.op in INPUTS:
            return self.given[name] if node.op == "placeholder" else attribute(self.case.gm, str(node.target))
        return None


def _loaded(tree: Any) -> Any:
    if isinstance(tree, Held):
        return tree.load().detach()
    if isinstance(tree, (list, tuple)):
        return type(tree)(_loaded(part) for part in tree)
    return tree


def sheet(value: Any) -> list[dict[str, Any]]:
    """A value as plain data: a row for each tensor in it, and for each other part."""
    if isinstance(value, (list, tuple)):
        return [row for part in value for row in sheet(part)]
    if not isinstance(value, torch.Tensor):
        return [{"text": repr(value)}]
    numbers, plain = described([value]), value.layout is torch.strided
    places = itertools.islice(itertools.product(*map(range, value.shape)), FIRST)
    dense = (
        value.detach()
        if plain and not value.is_quantized
        else value.detach().to_dense()
        if not plain
        else value.dequantize()
    )
    return [
        {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "stride": list(value.stride()) if plain else None,
            "min": numbers.min,
            "max": numbers.max,
            "mean": numbers.mean,
            "nan": numbers.nan,
            "inf": numbers.inf,
            "first": [_number(dense[place].item()) for place in places],
        }
    ]


def _number(value: Any) -> Any:
    """The number in a form that JSON has: no infinity, NaN or complex number."""
    finite = isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))
    return value if finite else str(value)


def _prompt(payload: Mapping[str, Any], near: Live, seen: _Seen, got: dict[str, torch.Tensor]) -> None:
    """A Python prompt at the terminal, with what is at the node under short names. What is changed there changes
    nothing."""
    name = payload["node"]
    node = next(candidate for candidate in near.gm.graph.nodes if candidate.name == name)
    read = {argument.name: seen.as_read(name, argument.name) for argument in node.all_input_nodes}
    inputs = dict(zip(read, clone_inputs(list(read.values())), strict=True))
    there: dict[str, Any] = {
        "torch": torch,
        "fx": fx,
        "node": node,
        "gm": near.gm,
        "graph_inputs": clone_inputs(near.inputs),
        "inputs": inputs,
        "value": seen.value(name),
        "eager": seen,
    }
    if got:
        there["compiled"] = got
    lines = [
        f"At {name} = {node.format_node() or ''}".split(" : ")[0] if node.op == "output" else f"At {_call(node)}",
        "inputs   what it was given, by name        value  what eager makes of it",
        "eager    eager's values by name            gm     the graph up to here: gm(*graph_inputs)",
        "node     its fx.Node; torch, fx            Ctrl-D ends",
    ]
    if got:
        lines.insert(3, f"compiled what {payload['rung']} makes of them, by name")
    os.environ["TERM"] = payload.get("term") or "dumb"
    _complete(there)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(SystemExit):
        code.InteractiveConsole(there, "<prompt>").interact("\n".join(lines), "")


def _call(node: fx.Node) -> str:
    arguments = [*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())]
    return f"{node.name} = {target_of(node)}({', '.join(arguments)})"[:100]


def _complete(there: dict[str, Any]) -> None:
    with contextlib.suppress(ImportError):
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(there).complete)
        readline.parse_and_bind("tab: complete")
