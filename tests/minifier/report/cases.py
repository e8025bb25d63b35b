"""Small records, failures and cases for the tests of the report room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphdbg.dumps.program.case import ReproFacts
from graphdbg.dumps.program.inputs import contiguous
from graphdbg.dumps.schema import (
    FORMAT,
    Ambient,
    GraphBody,
    GraphRecord,
    InputRecord,
    InputsRecord,
    NodeRecord,
    StoredTensor,
    TensorValue,
)
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict_words import happens

from ...dumps.graphs import MemoryTensors

ACCURACY = Signature("accuracy", "compare", size=1.0, raw="output 0: relative error 1")
CRASH = Signature(
    "crash",
    "compile",
    "torch._inductor.exc.CppCompileError",
    "‘compile’ was not declared in this scope",
    detail="C++",
    raw="‘compile’ was not declared in this scope",
)


def tensor(*shape: int, dtype: str = "float32", **more: Any) -> TensorValue:
    """A contiguous value."""
    return TensorValue(dtype, list(shape), list(contiguous(shape)), **more)


def call(name: str, target: str, *args: Any, value: Any = None, op: str = "call_function", **kwargs: Any) -> NodeRecord:
    """A computing node; strings that name a node are written {"node": ...} by the caller."""
    return NodeRecord(name=name, op=op, target=target, args=list(args), kwargs=kwargs, value=value)  # type: ignore[arg-type]


def node(name: str) -> dict[str, str]:
    """A reference to a node."""
    return {"node": name}


def record_of(
    inputs: dict[str, Any], calls: Sequence[NodeRecord], outputs: Sequence[str], *, stage: str = "forward", **more: Any
) -> GraphRecord:
    """A graph of placeholders, calls and one output tuple."""
    nodes = [NodeRecord(name=name, op="placeholder", target=name, value=value) for name, value in inputs.items()]
    out = NodeRecord(name="output", op="output", target="output", args=[{"tuple": [node(name) for name in outputs]}])
    attrs = more.pop("attrs", {})
    body = GraphBody([*nodes, *calls, out], attrs=attrs)
    return GraphRecord(format=FORMAT, id=f"0_0/{stage}", stage=stage, graph=body, **more)


def relu_record(plant: str | None = "accuracy", **more: Any) -> GraphRecord:
    """x -> relu -> output, with the planted bug among its settings."""
    config = {"inductor": {"cpp.inject_relu_bug_TESTING_ONLY": plant}} if plant else {}
    relu = call("relu", "aten.relu.default", node("x"), value=tensor(4, 8))
    return record_of({"x": tensor(4, 8)}, [relu], ["relu"], config=config, ambient=Ambient(grad=False), **more)


def case_of(
    record: GraphRecord,
    failure: Signature = ACCURACY,
    inputs: dict[str, InputRecord] | None = None,
    store: MemoryTensors | None = None,
    rung: str = "inductor",
) -> ReproFacts:
    """A case with what was seen of its inputs."""
    names = [item.name for item in record.graph.nodes if item.op == "placeholder"]
    seen = None
    if inputs is not None:
        rows = [inputs.get(name) or InputRecord(name=name) for name in names]
        seen = InputsRecord(format=FORMAT, inputs=rows)
    return ReproFacts(record, seen, store.get if store else None, failure, rung, happens(failure.kind, failure.detail))


def stored(store: MemoryTensors, data: bytes, value: TensorValue) -> StoredTensor:
    """A tensor kept in a store."""
    return StoredTensor(store.put(data), value)
