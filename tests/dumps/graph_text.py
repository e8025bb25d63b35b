"""Small graphs as text for tests of comparisons: one node a line, `name: [shape]` is an input, `@` the user's line.

>>> record = graph('''
... x: [8, 4]
... half = aten.mul.Tensor(x, 0.5) [8, 4] @ model.py:3
... return half
... ''')
"""

from __future__ import annotations

import ast
import re
from typing import Any

from graphdbg.dumps.diff.compare import GraphDiff, compare
from graphdbg.dumps.schema import (
    FORMAT,
    GraphBody,
    GraphRecord,
    InputRecord,
    NodeRecord,
    SymbolRecord,
    SymValue,
    TensorValue,
)

_CALL = re.compile(
    r"(?P<name>\w+) = (?P<target>[\w.]+)\((?P<args>.*?)\)(?: (?P<dtype>\w+)?(?P<shape>\[.*?\]))?(?: @ (?P<line>\S+))?"
)
_INPUT = re.compile(r"(?P<name>\w+): (?:(?P<dtype>\w+)? ?(?P<shape>\[.*?\])|(?P<symbol>\w+))(?: = (?P<source>\S+))?")


def graph(text: str, graph_id: str = "0_0/forward", **fields: Any) -> GraphRecord:
    """The record of a graph written as text; `fields` are further fields of the record."""
    strings: list[str] = []
    nodes: list[NodeRecord] = []
    inputs: list[InputRecord] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("return "):
            names = [{"node": name.strip()} for name in line.removeprefix("return ").split(",")]
            nodes.append(NodeRecord(name="output", op="output", target="output", args=[{"tuple": names}]))
        elif match := _CALL.fullmatch(line):
            nodes.append(_call(match, strings, {node.name for node in nodes}))
        elif match := _INPUT.fullmatch(line):
            value = SymValue("int", match["symbol"]) if match["symbol"] else tensor(match["dtype"], match["shape"])
            nodes.append(NodeRecord(name=match["name"], op="placeholder", target=match["name"], value=value))
            inputs.append(InputRecord(name=match["name"], source=match["source"] or ""))
        else:
            raise ValueError(line)
    return GraphRecord(
        format=FORMAT,
        id=graph_id,
        stage=graph_id.split("/")[1].split(".")[0],
        graph=GraphBody(nodes=nodes),
        strings=strings,
        inputs=inputs,
        **fields,
    )


def _call(match: re.Match[str], strings: list[str], names: set[str]) -> NodeRecord:
    args, kwargs = [], {}
    for part in re.split(r", (?![^\[]*\])", match["args"]) if match["args"] else []:
        key, equals, value = part.rpartition("=")
        encoded = _argument(value if equals else part, names)
        if equals:
            kwargs[key] = encoded
        else:
            args.append(encoded)
    stack = -1
    if match["line"]:
        file, _, line = match["line"].partition(":")
        stack = len(strings)
        strings.append(f'  File "/home/me/{file}", line {line}, in forward\n    code of line {line}\n')
    return NodeRecord(
        name=match["name"],
        op="call_function",
        target=match["target"],
        args=args,
        kwargs=kwargs,
        stack=stack,
        value=tensor(match["dtype"], match["shape"]) if match["shape"] else None,
    )


def _argument(text: str, names: set[str]) -> Any:
    if text.startswith("["):
        return [_argument(item, names) for item in text[1:-1].split(", ")]
    return {"node": text} if text in names else ast.literal_eval(text)


def tensor(dtype: str | None, shape: str) -> TensorValue:
    """A contiguous value of a shape written as [8, s0]; strides of symbolic shapes are left at 1."""
    sizes: list[int | str] = [int(size) if size.isdigit() else size for size in shape[1:-1].split(", ") if size]
    stride: list[int | str] = []
    step = 1
    for size in reversed(sizes):
        stride.insert(0, step)
        step *= size if isinstance(size, int) else 1
    return TensorValue(dtype or "float32", sizes, stride)


def symbol(name: str, source: str = "L['x'].size()[0]", hint: int = 8) -> SymbolRecord:
    """A size of an input."""
    return SymbolRecord(name, hint=hint, lower=2, source=source)


def told(graph_diff: GraphDiff) -> list[str]:
    """A comparison as lines: what departs, in what, and what it follows from."""
    lines = []
    for departure in graph_diff.departures:
        a = ",".join(graph_diff.a.nodes[i].name for i in departure.a)
        b = ",".join(graph_diff.b.nodes[j].name for j in departure.b)
        origin = None if departure.follows is None else graph_diff.departures[departure.follows]
        follows = "" if origin is None else f" follows {_first(graph_diff, origin)}"
        changes = "".join(f"; {change.text()}" for change in departure.changes)
        lines.append(f"{departure.kind} {a or '-'} | {b or '-'}{changes}{follows}")
    return lines


def _first(graph_diff: GraphDiff, departure: Any) -> str:
    return graph_diff.a.nodes[departure.a[0]].name if departure.a else graph_diff.b.nodes[departure.b[0]].name


def compared(a: str, b: str) -> list[str]:
    """What the comparison of two graphs, both written as text, tells."""
    return told(compare(graph(a), graph(b)))
