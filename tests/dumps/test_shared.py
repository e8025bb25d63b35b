"""Texts of a run: compressed when large, one file when equal, gone with the last graph that uses them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from graphdbg.dumps import compressed
from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.shared import SharedFiles
from graphdbg.dumps.store import open_run
from graphdbg.dumps.writer import RunWriter

from .graphs import chain as graph_record


def _text(letter: bytes, size: int = 5000) -> bytes:
    return letter * size


def test_equal_bytes_are_one_file(tmp_path: Path) -> None:
    files = SharedFiles(tmp_path / "shared")
    for number in range(3):
        path = tmp_path / f"{number}.py"
        files.publish(path, files.place(path, _text(b"a")))
    assert len({(tmp_path / f"{number}.py").stat().st_ino for number in range(3)}) == 1
    assert files.written_bytes == 5000


def test_a_race_ends_with_one_file(tmp_path: Path) -> None:
    one, two = SharedFiles(tmp_path / "shared"), SharedFiles(tmp_path / "shared")
    first, second = tmp_path / "first", tmp_path / "second"
    names = one.place(first, _text(b"a")), two.place(second, _text(b"a"))  # both wrote before either published
    one.publish(first, names[0])
    two.publish(second, names[1])
    assert first.samefile(second)
    assert (one.written_bytes, two.written_bytes) == (5000, 0)


def test_replacing_leaves_the_other_graph_alone(tmp_path: Path) -> None:
    files = SharedFiles(tmp_path / "shared")
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        files.replace(path, _text(b"a"))
    files.replace(first, _text(b"b"))
    assert (first.read_bytes(), second.read_bytes()) == (_text(b"b"), _text(b"a"))
    files.replace(first, _text(b"b"))  # the same bytes again: nothing is left lying about
    files.replace(second, _text(b"c"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second", "shared"]
    assert len(list((tmp_path / "shared").iterdir())) == 2  # b and c; a went with its last user
    assert files.written_bytes == 10000


def test_bytes_go_with_the_last_link(tmp_path: Path) -> None:
    files = SharedFiles(tmp_path / "shared")
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        files.replace(path, _text(b"a"))
    files.remove(first)
    assert files.written_bytes == 5000
    files.remove(second)
    assert files.written_bytes == 0
    assert not list((tmp_path / "shared").iterdir())


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("os.link", refuse)
    files = SharedFiles(tmp_path / "shared")
    for path in (tmp_path / "first", tmp_path / "second"):
        files.replace(path, _text(b"a"))
        assert path.read_bytes() == _text(b"a")
    files.remove(tmp_path / "first")
    assert files.written_bytes == 5000


def test_large_graphs_are_compressed_and_read_by_their_plain_name(tmp_path: Path) -> None:
    run = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["x"]))
    process = run.process()
    record = graph_record()
    record.strings.append("a long stack " * 5000)
    process.save_graph(record, process.tensors)
    process.save_code(record.id, {"output_code.py": "x = 1\n" * 9000, "k.cpp": "int a;\n"})
    names = {path.name for path in (process.graph_path(record.id)).rglob("*") if path.is_file()}
    assert {"graph.json.gz", "graph.py", "output_code.py.gz", "k.cpp.gz"} <= names
    saved = open_run(tmp_path / "run").graph(record.id)
    assert saved.record == record
    assert [(file.name, file.read_text()[:6]) for file in saved.code_files()] == [("k.cpp", "int a;"), ("output_code.py", "x = 1\n")]
    record.compile_kwargs["is_backward"] = True
    process.amend(record)
    assert not (process.graph_path(record.id) / "graph.json").exists()
    assert open_run(tmp_path / "run").graph(record.id).record.compile_kwargs == {"is_backward": True}


def test_two_processes_store_an_equal_graph_once(tmp_path: Path) -> None:
    run = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["x"]))
    record = graph_record()
    processes = [run.process(rank=rank) for rank in range(2)]
    for process in processes:
        process.save_graph(record, process.tensors)
    first, second = ({p.name: p for p in process.graph_path(record.id).iterdir()} for process in processes)
    assert first.keys() == second.keys()
    assert all(first[name].samefile(second[name]) for name in first if first[name].stat().st_size >= 512)
    processes[0].remove_graph(record.id)
    assert open_run(tmp_path / "run").graph(f"1:{record.id}").record == record
    processes[1].remove_graph(record.id)
    assert not list((tmp_path / "run/shared").iterdir())


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data[: len(data) // 2], "cut off"),
        (lambda data: data[:20] + b"\0" * 40 + data[60:], "damaged"),
        (lambda data: b"not gzip at all" * 10, "damaged"),
    ],
)
def test_a_spoilt_file_is_named(tmp_path: Path, spoil: object, why: str) -> None:
    path = tmp_path / "graph.json.gz"
    path.write_bytes(spoil(gzip.compress(bytes(range(256)) * 200)))  # type: ignore[operator]
    with pytest.raises(UnreadableError, match=why):
        compressed.read(tmp_path / "graph.json")


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "MOST_BYTES", 1 << 20)
    (tmp_path / "graph.json.gz").write_bytes(gzip.compress(b"\0" * (1 << 22)))
    with pytest.raises(UnreadableError, match="unpacks to more than"):
        compressed.read(tmp_path / "graph.json")
