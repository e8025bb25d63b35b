"""Lines are appended whole and read on whole, whatever happens to the file in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphdbg.dumps.lines import BITE_BYTES, LineWriter, Tail, append, objects


def test_a_tail_hands_out_whole_lines_in_bites(tmp_path: Path) -> None:
    path = tmp_path / "out"
    long = b"x" * (2 * BITE_BYTES)
    path.write_bytes(b"one\ntw")
    tail = Tail(path, bite=BITE_BYTES)
    assert (tail.read(), tail.more, tail.fresh) == ([b"one"], False, True)
    with path.open("ab") as file:
        file.write(b"o\n" + long + b"\nlast")
    got = tail.read()
    while tail.more:
        got += tail.read()
    assert got == [b"two", long]
    assert (tail.read(), tail.more, tail.fresh) == ([], False, False)
    assert tail.read(last=True) == [b"last"]
    assert tail.read(last=True) == []


def test_another_file_is_read_from_its_start(tmp_path: Path) -> None:
    path, other = tmp_path / "out", tmp_path / "other"
    tail = Tail(path)
    assert (tail.read(), tail.there) == ([], False)
    path.write_bytes(b"one\nhal")
    assert (tail.read(), tail.there) == ([b"one"], True)
    other.write_bytes(b"a longer one\nthen two\n")
    other.replace(path)
    assert (tail.read(), tail.fresh) == ([b"a longer one", b"then two"], True)
    path.write_bytes(b"short\n")
    assert (tail.read(), tail.fresh) == ([b"short"], True)
    path.unlink()
    assert (tail.read(), tail.there) == ([], False)
    path.write_bytes(b"born again\n")
    assert (tail.read(), tail.fresh) == ([b"born again"], True)


def test_reading_can_begin_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    append(path, b"before")
    tail, later = Tail(path, at=None), Tail(path, at=3)
    append(path, b"after")
    assert (tail.read(), later.read()) == ([b"after"], [b"ore", b"after"])


def test_what_a_dead_process_left_half_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b'{"whole": 1}\n{"tor')
    append(path, b'{"whole": 2}')
    writer = LineWriter(path)
    assert writer.write(b"[3]") == 4 and not writer.torn
    writer.close()
    assert path.read_bytes() == b'{"whole": 1}\n{"tor\n{"whole": 2}\n[3]\n'
    assert list(objects(Tail(path).read())) == [{"whole": 1}, {"whole": 2}]


def test_a_file_that_others_make_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        append(tmp_path / "none", b"line", create=False)
