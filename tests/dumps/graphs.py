"""Small records for the tests of the saved form."""

from __future__ import annotations

from pathlib import Path

from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.schema import (
    FORMAT,
    GraphBody,
    GraphRecord,
    NodeRecord,
    RunRecord,
    StoredTensor,
    SymbolRecord,
    TensorValue,
)
from graphdbg.dumps.tensors import Bytes, check_hash, hash_bytes
from graphdbg.dumps.writer import ProcessWriter, RunWriter

STACK = (
    '  File "/home/me/model.py", line 11, in forward\n    h = self.fc(x)\n'
    '  File "/home/me/model.py", line 12, in act\n    return h.sin()\n'
)


class MemoryTensors:
    """A TensorSink in memory, where a test wants no storages on disk."""

    def __init__(self) -> None:
        self.storages: dict[str, bytes] = {}

    def accepts(self, size_bytes: int) -> bool:
        """Always."""
        return True

    def put(self, data: Bytes) -> str:
        """Keeps a copy of the bytes under their hash."""
        flat = bytes(memoryview(data).cast("B"))
        name = hash_bytes(flat)
        self.storages.setdefault(name, flat)
        return name

    def get(self, name: str) -> bytes:
        """The bytes of that hash; raises UnreadableError when they were never put."""
        if name not in self.storages:
            raise UnreadableError(f"tensor {check_hash(name)} is missing", "it was never stored")
        return self.storages[name]


def tensor_value(*shape: int | str) -> TensorValue:
    """A contiguous float32 value; symbolic sizes get symbolic strides."""
    strides: list[int | str] = []
    step: int | str = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = step * size if isinstance(step, int) and isinstance(size, int) else f"{step}*{size}".removeprefix("1*")
    return TensorValue("float32", list(shape), strides)


def chain(graph_id: str = "0_0/forward", nodes: int = 5, storage: str = "") -> GraphRecord:
    """x -> sin -> sin -> ... -> output, with `nodes` nodes in all and one parameter `w`."""
    built = [NodeRecord(name="x", op="placeholder", target="x", value=tensor_value(2, "s0"))]
    for i in range(nodes - 2):
        args = [{"node": built[-1].name}]
        built.append(
            NodeRecord(
                name=f"sin_{i}",
                op="call_function",
                target="aten.sin.default",
                args=args,
                stack=0,
                value=tensor_value(2, "s0"),
            )
        )
    built.append(NodeRecord(name="output", op="output", target="output", args=[{"tuple": [{"node": built[-1].name}]}]))
    body = GraphBody(nodes=built, attrs={"w": StoredTensor(storage, tensor_value(4), parameter=True)})
    return GraphRecord(
        format=FORMAT,
        id=graph_id,
        stage=graph_id.split("/")[1].split(".")[0],
        graph=body,
        strings=[STACK],
        symbols=[SymbolRecord("s0", hint=3, lower=2)],
    )


def new_run(path: Path) -> tuple[RunWriter, ProcessWriter]:
    """A run with the calling process in it."""
    run = RunWriter.create(path, RunRecord(format=FORMAT, command=["train.py"]))
    return run, run.process()


def stored_chain(graph_id: str = "0_0/forward") -> tuple[GraphRecord, MemoryTensors]:
    """The chain with the bytes of its parameter."""
    tensors = MemoryTensors()
    return chain(graph_id, storage=tensors.put(bytes(range(16)))), tensors
