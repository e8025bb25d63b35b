"""A graph that the inner compiler adopts is written twice and encoded once: the second time only what was added."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import graphdbg
from graphdbg.dumps.graph_folder import GRAPH_FILE, encode
from graphdbg.dumps.schema import GraphRecord, NodeRecord
from graphdbg.dumps.writer import ProcessWriter


def test_nodes_of_adopted_graphs_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    seen: list[NodeRecord] = []
    amended: list[str] = []
    encode_json, amend = msgspec.json.encode, ProcessWriter.amend

    def counting(thing: Any) -> bytes:
        nodes = thing.graph.nodes if isinstance(thing, GraphRecord) else thing if isinstance(thing, list) else []
        seen.extend(node for node in nodes if isinstance(node, NodeRecord))
        return encode_json(thing)

    def noting(self: ProcessWriter, record: GraphRecord, *args: Any) -> Path:
        amended.append(record.id)
        return amend(self, record, *args)

    monkeypatch.setattr(msgspec.json, "encode", counting)
    monkeypatch.setattr(ProcessWriter, "amend", noting)
    torch.compiler.reset()
    with graphdbg.record(str(tmp_path / "run"), inputs="none"):
        torch.compile(lambda x: x.sin() + 1)(torch.ones(2))
    torch.compiler.reset()
    assert amended == ["0_0/inference", "0_0/joint_passed"]
    times, nodes = Counter(map(id, seen)), {id(node): node for node in seen}
    assert {(node.op == "output", times[key]) for key, node in nodes.items()} == {(False, 1), (True, 1), (True, 2)}
    saved = {graph.local_id: graph for graph in graphdbg.open_run(tmp_path / "run").graphs()}
    assert len(saved) == 5
    for local in amended:
        record = saved[local].record
        assert (
            record.compile_kwargs["is_inference"] is True and "user_visible_output_idxs" in record.graph.nodes[-1].meta
        )
        assert (saved[local].path / GRAPH_FILE).read_bytes() == encode(record)
