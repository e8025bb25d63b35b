"""Records of any size that look like transformers' forward graphs, and changed copies of them. Made without torch.

>>> record = layered(10_000)
>>> other = scattered(renumbered(record), 200, seed=1)
"""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec

from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, InputRecord, NodeRecord, TensorValue

BATCH, WIDTH = 8, 64
LINES = {12: "h = self.norm(x)", 13: "h = self.up(h)", 14: "h = F.gelu(h)", 15: "return x + self.down(h)"}


def value(*shape: int, dtype: str = "float32") -> TensorValue:
    """A contiguous value."""
    stride = [1]
    for size in reversed(shape[1:]):
        stride.insert(0, stride[0] * size)
    return TensorValue(dtype, list(shape), stride[: len(shape)] if shape else [])


class _Builder:
    def __init__(self) -> None:
        self.inputs: list[NodeRecord] = []
        self.nodes: list[NodeRecord] = []
        self.strings: list[str] = []
        self.records: list[InputRecord] = []
        self.layer = 0
        self._places: dict[str, int] = {}

    def text(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.strings)
            self.strings.append(text)
        return self._places[text]

    def input(self, source: str, *shape: int) -> NodeRecord:
        name = f"primals_{len(self.inputs) + 1}"
        self.inputs.append(NodeRecord(name=name, op="placeholder", target=name, value=value(*shape)))
        self.records.append(InputRecord(name=name, role="parameter", source=source))
        return self.inputs[-1]

    def call(self, target: str, *args: Any, line: int, shape: tuple[int, ...] = (BATCH, WIDTH)) -> NodeRecord:
        frames = [(9, "x = block(x)"), (line, LINES[line])]
        stack = self.text(
            "".join(f'  File "/home/me/model.py", line {at}, in forward\n    {code}\n' for at, code in frames)
        )
        module = self.text(f"L['self'].blocks.{self.layer}: model.Block")
        name = f"{target.split('.')[1]}_{len(self.nodes)}"
        encoded = [{"node": arg.name} if isinstance(arg, NodeRecord) else arg for arg in args]
        self.nodes.append(
            NodeRecord(
                name=name,
                op="call_function",
                target=target,
                args=encoded,
                value=value(*shape),
                stack=stack,
                module=module,
                seq_nr=len(self.nodes),
                original_aten=target,
                from_node=[name],
            )
        )
        return self.nodes[-1]


def layered(nodes: int, graph_id: str = "0_0/forward") -> GraphRecord:
    """Layers of normalisation, matrix multiplication, gelu and a residual, until there are `nodes` nodes or a few
    more."""
    make = _Builder()
    x = make.input("L['x']", BATCH, WIDTH)
    item, wide, call = (BATCH, 1), (BATCH, 4 * WIDTH), make.call
    while len(make.inputs) + len(make.nodes) + 1 < nodes:
        weight = make.input(f"L['self'].blocks[{make.layer}].up", 4 * WIDTH, WIDTH)
        down = make.input(f"L['self'].blocks[{make.layer}].down", WIDTH, 4 * WIDTH)
        sub = call("aten.sub.Tensor", x, call("aten.mean.dim", x, [-1], True, line=12, shape=item), line=12)
        var = call("aten.mean.dim", call("aten.mul.Tensor", sub, sub, line=12), [-1], True, line=12, shape=item)
        safe = call("aten.add.Tensor", var, 1e-5, line=12, shape=item)
        norm = call("aten.mul.Tensor", sub, call("aten.rsqrt.default", safe, line=12, shape=item), line=12)
        turned = call("aten.permute.default", weight, [1, 0], line=13, shape=(WIDTH, 4 * WIDTH))
        up = call("aten.mm.default", norm, turned, line=13, shape=wide)
        half = call("aten.mul.Tensor", up, 0.5, line=14, shape=wide)
        erf = call(
            "aten.erf.default",
            call("aten.mul.Tensor", up, 0.7071067811865476, line=14, shape=wide),
            line=14,
            shape=wide,
        )
        gelu = call("aten.mul.Tensor", half, call("aten.add.Tensor", erf, 1, line=14, shape=wide), line=14, shape=wide)
        back = call("aten.permute.default", down, [1, 0], line=15, shape=(4 * WIDTH, WIDTH))
        x = call("aten.add.Tensor", x, call("aten.mm.default", gelu, back, line=15), line=15)
        make.layer += 1
    output = NodeRecord(name="output", op="output", target="output", args=[{"tuple": [{"node": x.name}]}])
    return GraphRecord(
        format=FORMAT,
        id=graph_id,
        stage=graph_id.split("/")[1].split(".")[0],
        inputs=make.records,
        strings=make.strings,
        graph=GraphBody(nodes=[*make.inputs, *make.nodes, output]),
    )


def copied(record: GraphRecord) -> GraphRecord:
    """A copy that shares nothing."""
    return copy.deepcopy(record)


def renumbered(record: GraphRecord, prefix: str = "n") -> GraphRecord:
    """The same graph with other names for all nodes."""
    names = {node.name: f"{prefix}{len(record.graph.nodes) - index}" for index, node in enumerate(record.graph.nodes)}
    result = copied(record)
    for node in result.graph.nodes:
        node.name = names[node.name]
        node.args, node.kwargs = _named(node.args, names), _named(node.kwargs, names)
    for item in result.inputs:
        item.name = names[item.name]
    return result


def _named(arg: Any, names: dict[str, str]) -> Any:
    if isinstance(arg, list):
        return [_named(item, names) for item in arg]
    if isinstance(arg, dict):
        if list(arg) == ["node"]:
            return {"node": names[arg["node"]]}
        return {key: _named(item, names) for key, item in arg.items()}
    return arg


def calls(record: GraphRecord) -> list[int]:
    """The positions of the call nodes."""
    return [index for index, node in enumerate(record.graph.nodes) if node.op == "call_function"]


def insert_after(record: GraphRecord, index: int, target: str = "aten.neg.default") -> NodeRecord:
    """Puts a node behind another one, whose users then use it instead; returns it."""
    nodes = record.graph.nodes
    origin = nodes[index]
    name = f"{origin.name}_{len(nodes)}_inserted"
    result = msgspec.structs.replace(origin, name=name, target=target, args=[{"node": origin.name}], kwargs={})
    _swap(nodes[index + 1 :], origin.name, name)
    nodes.insert(index + 1, result)
    return result


def remove(record: GraphRecord, index: int) -> NodeRecord:
    """Takes a node out; its users use its first input instead."""
    gone = record.graph.nodes.pop(index)
    _swap(record.graph.nodes[index:], gone.name, gone.args[0]["node"])
    return gone


def _swap(nodes: list[NodeRecord], old: str, new: str) -> None:
    for node in nodes:
        node.args, node.kwargs = _named(node.args, _Swap(old, new)), _named(node.kwargs, _Swap(old, new))


class _Swap(dict[str, str]):
    def __init__(self, old: str, new: str) -> None:
        super().__init__({old: new})

    def __missing__(self, name: str) -> str:
        return name


def scattered(record: GraphRecord, count: int, seed: int = 0) -> GraphRecord:
    """A copy with `count` changes all over it: other targets, other constants, nodes put in, nodes taken out."""
    rng = random.Random(seed)
    result = copied(record)
    for index in sorted(rng.sample(calls(result)[20:], count), reverse=True):
        kind, node = rng.randrange(4), result.graph.nodes[index]
        if kind == 0:
            node.target = "aten.tanh.default" if node.target != "aten.tanh.default" else "aten.sin.default"
        elif kind == 1:
            node.kwargs = {"alpha": rng.random()}
        elif kind == 2:
            insert_after(result, index)
        else:
            remove(result, index)
    return result
