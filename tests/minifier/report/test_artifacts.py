"""artifacts.zip: the same bytes for the same report, redacted, with the graph's own journal lines, never over another
file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.schema import FORMAT, InputRecord, InputsRecord, RunRecord
from graphdbg.dumps.secrets import Secrets
from graphdbg.dumps.store import SavedGraph, open_run
from graphdbg.dumps.writer import RunWriter
from graphdbg.minifier.report import bundle

from .cases import relu_record, stored, tensor

SECRETS = Secrets()


@pytest.fixture
def saved(tmp_path: Path) -> SavedGraph:
    """A recorded graph with a stack, stored inputs, generated code, and another graph beside it."""
    run = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["train.py"]))
    process = run.process("main")
    for graph in ("0_0", "1_0"):
        record = relu_record(strings=["/home/ann/model.py"])
        record.id = f"{graph}/forward"
        process.save_graph(record, process.tensors)
        process.journal.event("captured", graph=record.id, place="/home/ann/x")
    held = stored(process.tensors, bytes(range(128)), tensor(4, 8))
    inputs = InputsRecord(format=FORMAT, inputs=[InputRecord(name="x", value=tensor(4, 8), stored=held)])
    process.save_inputs("0_0/forward", inputs)
    process.save_code("0_0/forward", {"kernel.cpp": "// /home/ann/cache/kernel"})
    return open_run(tmp_path / "run").graph("0_0/forward")


def test_members(saved: SavedGraph) -> None:
    members, notes = bundle.gather(saved, {"repro.py": b"x"}, SECRETS)
    assert {"repro.py", "case/graph.json", "case/inputs.json", "code/kernel.cpp", "journal.jsonl"} <= set(members)
    assert sum(name.startswith("case/tensors/") for name in members) == 1
    assert not notes
    for name, data in members.items():
        assert b"/home/ann" not in data, name
    assert b"0_0/forward" in members["journal.jsonl"]
    assert b"1_0/forward" not in members["journal.jsonl"]


def test_large_tensors_are_left_out_and_named(saved: SavedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_TENSOR_BYTES", 10)
    members, notes = bundle.gather(saved, {}, SECRETS)
    assert not any(name.startswith("case/tensors/") for name in members)
    assert "left out of artifacts.zip for its size" in notes[0]


def test_the_same_report_gives_the_same_bytes(saved: SavedGraph, tmp_path: Path) -> None:
    members, _ = bundle.gather(saved, {"repro.py": b"x", "issue.md": b"y"}, SECRETS)
    for name in ("a.zip", "b.zip"):
        bundle.write_zip(tmp_path / name, dict(reversed(members.items())) if name == "b.zip" else members)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert zipfile.ZipFile(tmp_path / "a.zip").namelist() == sorted(members)


def test_an_existing_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "artifacts.zip"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        bundle.write_zip(path, {"a": b""})
    assert path.read_text() == "mine"
