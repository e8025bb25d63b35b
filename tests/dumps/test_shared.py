"""Texts of a run: compressed when large, one file when equal, gone with the last graph that uses them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from graphdbg.dumps import kernels, opening, reading, sidecar
from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.graph_folder import GraphText, encode
from graphdbg.dumps.schema import FORMAT, GraphRecord, NodeRecord, RunRecord
from graphdbg.dumps.store import open_run
from graphdbg.dumps.writer import RunWriter, SharedFiles

from .graphs import chain as graph_record


def _text(letter: bytes, size: int = 5000) -> bytes:
    return letter * size


def _files(run: Path, name: str = "pid1") -> SharedFiles:
    (run / name).mkdir(parents=True, exist_ok=True)
    return SharedFiles(run, name)


def _write(files: SharedFiles, name: str, data: bytes) -> Path:
    path = files.run / files.process / name
    files.publish(path, files.place(path, data))
    return path


def test_equal_bytes_are_one_file(tmp_path: Path) -> None:
    files = _files(tmp_path)
    paths = [_write(files, f"{number}.py", _text(b"a")) for number in range(3)]
    assert len({path.stat().st_ino for path in paths}) == 1
    assert files.disk_bytes == 8192


def test_another_process_finds_them(tmp_path: Path) -> None:
    first = _write(_files(tmp_path, "rank0"), "a.py", _text(b"a"))
    other = _files(tmp_path, "rank1")
    assert _write(other, "b.py", _text(b"a")).samefile(first)
    assert other.disk_bytes == 0


def test_what_was_written_at_the_same_moment_is_united_at_the_end(tmp_path: Path) -> None:
    item, two = _files(tmp_path, "rank0"), _files(tmp_path, "rank1")
    first, second = tmp_path / "rank0/a", tmp_path / "rank1/a"
    names = item.place(first, _text(b"a")), two.place(second, _text(b"a"))  # both wrote before either listed it
    item.publish(first, names[0])
    two.publish(second, names[1])
    assert not first.samefile(second)
    two.unite()
    item.unite()
    assert first.samefile(second)
    assert (item.disk_bytes, two.disk_bytes) == (8192, 0)


def test_a_list_that_is_out_of_date_does_no_harm(tmp_path: Path) -> None:
    first, second = _files(tmp_path, "rank0"), _files(tmp_path, "rank1")
    path = _write(first, "a", _text(b"a"))
    first.replace(path, _text(b"b"))
    gone = _write(first, "c", _text(b"c"))
    first.remove(gone)
    assert _write(second, "a", _text(b"a")).read_bytes() == _text(b"a")
    assert _write(second, "c", _text(b"c")).read_bytes() == _text(b"c")
    assert path.read_bytes() == _text(b"b")
    assert sorted(p.name for p in (tmp_path / "rank1").iterdir()) == ["a", "c", "files.txt"]


def test_replacing_leaves_the_other_graph_alone(tmp_path: Path) -> None:
    files = _files(tmp_path)
    first, second = tmp_path / "pid1/first", tmp_path / "pid1/second"
    for path in (first, second):
        files.replace(path, _text(b"a"))
    files.replace(first, _text(b"b"))
    assert (first.read_bytes(), second.read_bytes()) == (_text(b"b"), _text(b"a"))
    files.replace(first, _text(b"b"))  # the same bytes again: nothing is left lying about
    files.replace(second, _text(b"c"))
    assert sorted(path.name for path in (tmp_path / "pid1").iterdir()) == ["files.txt", "first", "second"]
    assert files.disk_bytes == 16384


def test_bytes_go_with_the_last_link(tmp_path: Path) -> None:
    files = _files(tmp_path)
    first, second = _write(files, "first", _text(b"a")), _write(files, "second", _text(b"a"))
    files.remove(first)
    assert files.disk_bytes == 8192
    files.remove(second)
    assert files.disk_bytes == 0


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("os.link", refuse)
    files = _files(tmp_path)
    for name in ("first", "second"):
        files.replace(tmp_path / "pid1" / name, _text(b"a"))
        assert (tmp_path / "pid1" / name).read_bytes() == _text(b"a")
    files.unite()
    files.remove(tmp_path / "pid1/first")
    assert files.disk_bytes == 8192


def test_large_graphs_are_compressed_and_read_by_their_plain_name(tmp_path: Path) -> None:
    run = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["x"]))
    process = run.process()
    record = graph_record()
    record.strings.append("a long stack " * 5000)
    process.save_graph(record, process.tensors)
    whole = "k = async_compile.cpp('int a;')\n" + "x = 1\n" * 9000
    process.save_code(record.id, {**kernels.split(whole), "other.txt": "y"})
    process.write_programs()
    names = {path.name for path in (process.graph_path(record.id)).rglob("*") if path.is_file()}
    assert {"graph.json.gz", "graph.py", "output_code.py.gz", "other.txt.gz"} <= names
    assert "k.cpp.gz" not in names  # it is told apart when it is read
    saved = open_run(tmp_path / "run").graph(record.id)
    assert saved.record == record
    texts = {file.name: file.read_text() for file in saved.code_files()}
    assert texts == {"k.cpp": "int a;", "other.txt": "y", "output_code.py": whole}
    record.compile_kwargs["is_backward"] = True
    process.amend(record)
    assert not (process.graph_path(record.id) / "graph.json").exists()
    assert open_run(tmp_path / "run").graph(record.id).record.compile_kwargs == {"is_backward": True}


@pytest.mark.parametrize("nodes", [0, 1, 2, 900, sidecar.MANY_NODES])
def test_an_amended_text_is_the_one_of_a_record_saved_whole(tmp_path: Path, nodes: int) -> None:
    process = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["x"])).process()
    record = graph_record()
    record.graph.nodes = [NodeRecord(name=f"n{i}", op="call_function", target="aten.sin.default") for i in range(nodes)]
    text = GraphText(record)
    path = process.save_graph(record, process.tensors, text)
    record.compile_kwargs["is_backward"] = True
    for node in record.graph.nodes[-1:]:
        node.meta["user_visible_output_idxs"] = [0]
    process.amend(record, text)
    name, data = reading.packed("graph.json", encode(record))
    assert name == ("graph.json.gz" if nodes >= 900 else "graph.json")
    assert (path / name).read_bytes() == data
    assert reading.read_record(path / "graph.json", GraphRecord) == record
    tables = [sidecar.read_table(path / sidecar.TABLE)] if nodes >= sidecar.MANY_NODES else []
    assert tables == [sidecar.build(record) for _ in path.glob(f"{sidecar.TABLE}*")]


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
    assert not open_run(tmp_path / "run").graphs()


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
        reading.read(tmp_path / "graph.json")


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "FREELY_BYTES", 1 << 20)
    (tmp_path / "graph.json.gz").write_bytes(gzip.compress(b"\0" * (1 << 22)))
    with pytest.raises(UnreadableError, match="unpack to more than"):
        reading.read(tmp_path / "graph.json")
