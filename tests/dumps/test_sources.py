"""Copies of the user's files: kept once each, bounded, found again, left out by `pack` unless they are wanted."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from graphdbg.dumps import sources
from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.index import processes
from graphdbg.dumps.pack.making import pack
from graphdbg.dumps.sources import Sources, SourceWriter
from graphdbg.dumps.store import open_run
from graphdbg.toolkit.recorder.flight import keep_sources

from .autograd_run import MODEL, autograd_run
from .graphs import chain, new_run


def test_a_copy_is_kept_once_and_found_by_its_path(tmp_path: Path) -> None:
    writer = SourceWriter(tmp_path)
    assert writer.keep("/home/ann/a.py", "x = 1\n") and writer.keep("/home/ann/b.py", "x = 1\n")
    assert not writer.keep("/home/ann/a.py", "x = 2\n")
    assert len(list((tmp_path / sources.FOLDER).iterdir())) == 1 and writer.disk_bytes == 8192
    there = Sources(tmp_path)
    assert there.text("/home/ann/a.py") == there.text("/home/ann/b.py") == "x = 1\n"
    assert there.text("/home/ann/c.py") is None and there.why_not("/home/ann/c.py") == "the run kept no copy of it"


def test_large_copies_are_compressed_and_odd_characters_survive(tmp_path: Path) -> None:
    text = "# ä\ud800\n" + "x = 1\n" * 20_000
    SourceWriter(tmp_path).keep("<ipython-input-3>", text)
    there = Sources(tmp_path)
    path = there.path("<ipython-input-3>")
    assert path is not None and path.suffix == ".gz" and path.stat().st_size < 4000
    assert there.text("<ipython-input-3>") == text.replace("\ud800", "\\ud800")


def test_what_is_too_much_is_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_FILE_BYTES", 100)
    monkeypatch.setattr(sources, "MOST_BYTES", 150)
    monkeypatch.setattr(sources, "MOST_FILES", 3)
    writer = SourceWriter(tmp_path)
    sizes = {"a": 101, "b": 90, "c": 90, "d": 9, "e": 8, "f": 1}
    kept = [writer.keep(f"/{name}.py", name * size) for name, size in sizes.items()]
    assert kept == [False, True, False, True, True, False]
    there = Sources(tmp_path)
    assert there.why_not("/a.py") == "it has 101 bytes"
    assert there.why_not("/c.py") == "150 bytes are kept already"
    assert there.why_not("/f.py") == "3 files are kept already"


def test_a_torn_list_and_a_damaged_copy(tmp_path: Path) -> None:
    writer = SourceWriter(tmp_path)
    writer.keep("/a.py", "a = 1\n")
    writer.keep("/b.py", "b = 1\n")
    with (tmp_path / sources.LIST).open("ab") as file:
        file.write(b'{"file":"/c.py","sha":"../../etc/passwd"}\n{"file":"/d.')
    there = Sources(tmp_path)
    assert set(there.records) == {"/a.py", "/b.py", "/c.py"}
    assert there.path("/c.py") is None and there.text("/c.py") is None
    path = there.path("/b.py")
    assert path is not None
    path.write_text("b = 2\n")
    with pytest.raises(UnreadableError, match="changed since the recording"):
        there.text("/b.py")


def test_the_recorder_keeps_the_files_of_the_user_alone(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine.py", tmp_path / "lib/site-packages/theirs/code.py"
    theirs.parent.mkdir(parents=True)
    for path in (mine, theirs):
        path.write_text("first\nsecond\n")
    record = chain()
    record.strings = [
        f'  File "{mine}", line 2, in f\n    second\n  File "{theirs}", line 1, in g\n    first\n',
        '  File "/nowhere/gone.py", line 1, in f\n    gone\n',
        "no stack",
    ]
    _, process = new_run(tmp_path / "run")
    keep_sources(process, record)
    keep_sources(process, record)
    assert set(Sources(process.path).records) == {str(mine)}
    assert Sources(process.path).text(str(mine)) == "first\nsecond\n"
    process.close()


def test_pack_leaves_copies_out_unless_they_are_wanted(tmp_path: Path) -> None:
    model = tmp_path / "secret_home" / "model.py"
    autograd_run(tmp_path / "run", model)
    result = pack(tmp_path / "run", tmp_path / "without.zip")
    assert ("copies of your source files", 0, 0, 1) in result.rows
    assert not [name for name in zipfile.ZipFile(result.file).namelist() if "source" in name]
    result = pack(tmp_path / "run", tmp_path / "with.zip", source=True)
    assert ("copies of your source files", 1, 0, 0) in result.rows
    with zipfile.ZipFile(result.file) as file:
        file.extractall(tmp_path / "out")
    (run,) = (tmp_path / "out").iterdir()
    (process,) = processes(run)
    assert Sources(process.path).text("model.py") == MODEL
    saved = open_run(run).graph("0_0/forward")
    assert any('File "model.py"' in text for text in saved.record.strings)
    assert "secret_home" not in (process.path / sources.LIST).read_text()
