"""Storages by content: written once, verified, readable by safetensors, and never outside their folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps.errors import RefusedError, UnreadableError
from graphdbg.dumps.tensors import TensorStore, hash_bytes

from .graphs import MemoryTensors


@given(st.binary(max_size=300))
def test_what_is_put_is_got_and_memory_names_it_alike(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "store"
    name = TensorStore(folder).put(data)
    assert bytes(TensorStore(folder).get(name)) == data
    memory = MemoryTensors()
    assert memory.put(bytearray(data)) == name
    assert memory.get(name) == data


def test_a_file_is_safetensors(tmp_path: Path) -> None:
    name = TensorStore(tmp_path).put(b"abcdef")
    [(key, entry)] = safetensors.deserialize((tmp_path / name).read_bytes())
    assert (key, entry["dtype"], entry["shape"], bytes(entry["data"])) == ("data", "U8", [6], b"abcdef")


def test_the_same_bytes_are_written_once(tmp_path: Path) -> None:
    store = TensorStore(tmp_path)
    name = store.put(memoryview(b"abcd").cast("B"))
    before = (tmp_path / name).stat().st_mtime_ns
    assert TensorStore(tmp_path).put(b"abcd") == name
    assert (tmp_path / name).stat().st_mtime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "", ".", "a" * 39, "A" * 40, "g" * 40, "a" * 40 + "\n", "a" * 41]
)
def test_names_that_are_no_hash_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedError, match="not a tensor name"):
        TensorStore(tmp_path).get(name)


def damaged(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    with pytest.raises(UnreadableError) as caught:
        TensorStore(folder).get(name)
    assert str(folder / name) in str(caught.value)
    return str(caught.value)


def test_damage_is_told_with_the_file(tmp_path: Path) -> None:
    name = TensorStore(tmp_path).put(b"abcdefgh")
    whole = (tmp_path / name).read_bytes()
    assert "the file is empty" in damaged(tmp_path, name, b"")
    assert "cut off" in damaged(tmp_path, name, whole[:5])
    assert "cut off" in damaged(tmp_path, name, (2**60).to_bytes(8, "little") + whole[8:])
    assert "bytes follow" in damaged(tmp_path, name, whole[:-1])
    assert "hash" in damaged(tmp_path, name, whole[:-1] + b"x")
    assert "header is damaged" in damaged(tmp_path, name, whole[:8] + b"{" * (len(whole) - 16) + whole[-8:])
    for text in (
        b"[]",
        b"{}",
        b'{"data":3}',
        b'{"data":{"dtype":"U8","shape":[8],"data_offsets":[]}}',
        b'{"data":{"data_offsets":"ab"}}',
    ):
        damaged(tmp_path, name, len(text).to_bytes(8, "little") + text + b"abcdefgh")
    (tmp_path / name).unlink()
    with pytest.raises(UnreadableError, match="missing"):
        TensorStore(tmp_path).get(name)


@given(st.binary(max_size=80))
def test_any_file_is_refused_in_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    damaged(folder, hash_bytes(b"something else"), data)


def test_a_limit_is_asked_before_bytes_are_made() -> None:
    store = TensorStore(Path("unused"))
    assert store.accepts(1 << 60)
    store.room = lambda size: size <= 10
    assert store.accepts(10)
    assert not store.accepts(11)
