"""What a dump can make us compute or unpack has bounds, checked before: expressions, gzip, JSON, files with holes,
packs."""

from __future__ import annotations

import gzip
import io
import resource
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from graphdbg.dumps import archive, opening, reading
from graphdbg.dumps.errors import RefusedError, UnreadableError
from graphdbg.dumps.expr import parse
from graphdbg.dumps.expr_bounds import check
from graphdbg.dumps.graph_folder import encode, write_graph_folder
from graphdbg.dumps.schema import GraphRecord, GuardRecord
from graphdbg.dumps.store import load_graph

from ..dumps.graphs import chain

NUMBERS = {"s0": 8, "s1": 5, "u0": None}

PRODUCT = "*".join(f"(s{number} + {number})" for number in range(2, 12))
TOO_LARGE = {
    "a power of powers": "Eq(((2**4096)**4096)**4096, 5)",
    "an exponential of an exponential": "ceiling(tan(exp(exp(20))))",
    "a division of a long product": f"FloorDiv({PRODUCT}, s0 + 3)",
    "a rest of a long product": f"PythonMod({PRODUCT}, 6)",
    "a division of divisions": "FloorDiv(" * 12 + "s0*s1 + 1" + ", s0 + s1)" * 12,
    "a rest of a long sum": f"PythonMod({' + '.join(f's{n}*s{n + 1}*{n + 2}' for n in range(60))}, 6)",
    "a shift": "Eq(1 << (1 << 40), 1)",
    "a power of a known symbol": "(s0**s0)**(s0**s0)",
    "a root of a long number": f"sqrt({'7' * 390})",
    "a logarithm of a long number": "floor(log(3**2000 + 7)/log(3))",
    "the denominators of a sum": "+".join(f"1/{2 * number + 3}" for number in range(900)),
    "a power of a sum": "(s0 + s1 + u0 + 1)**40",
    "many things compared": f"Or({', '.join(f'Lt(s0 + {n}, s1*{n})' for n in range(400))})",
    "maxima in maxima": "Max(" * 3 + ", ".join(f"s{n}" for n in range(300)) + ")" * 3,
    "much that is fine alone": " + ".join(
        f"PythonMod({' + '.join(f's{n}' for n in range(40))}, {k})" for k in range(2, 9)
    ),
}

FINE = (
    "s0*s1 + 1",
    "((s0 + 31)//32)*32",
    "Eq(Mod(s0*s1, 8*s0), 0)",
    "2**s0",
    "2**u0",
    "exp(u0)",
    "u0**20",
    "sqrt(s0*s1)",
    "9223372036854775807",
    "(((s0 - 1)//8) + 1)**2*(((s1 - 1)//8) + 1)**2",
    "Max(1, s0, s1 - 3)",
    "ToFloat(s0)/2.5",
    "Piecewise((1, s0 < 4), (s1, True))",
    "s0**2*s1**3//(s0 + s1)",
    f"({' + '.join(f'u{n}' for n in range(60))})//8",
    " + ".join(f"s{n}*s{n + 1}" for n in range(400)),
    "log(s0)/log(2.0)",
)


@pytest.mark.parametrize("what", TOO_LARGE)
def test_an_expression_with_a_result_too_large_is_refused_before_it_is_computed(what: str) -> None:
    tree = parse(TOO_LARGE[what])
    begun = time.perf_counter()
    with pytest.raises(RefusedError, match=r"^refused "):
        check(tree, NUMBERS)
    assert time.perf_counter() - begun < 0.5


@pytest.mark.parametrize("text", FINE)
def test_what_programs_have_as_sizes_passes(text: str) -> None:
    check(parse(text), NUMBERS)


def write(folder: Path, record: GraphRecord) -> Path:
    write_graph_folder(folder, record)
    return folder


def test_a_guard_that_would_not_end_is_refused_where_the_graph_is_built(tmp_path: Path) -> None:
    load_graph(write(tmp_path / "first", chain())).module()  # imports torch
    record = chain()
    record.guards = [GuardRecord("Eq(((2**4096)**4096)**4096, 5)")]
    write(tmp_path / "case", record)
    begun = time.perf_counter()
    with pytest.raises(RefusedError, match=r"graph\.json.*refused Pow: its result may have more than 4096 bits"):
        load_graph(tmp_path / "case").module()
    assert time.perf_counter() - begun < 5


def bomb(size: int) -> bytes:
    """A gzip file of that many spaces."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as file:
        for _ in range(size >> 20):
            file.write(b" " * (1 << 20))
    return out.getvalue()


@pytest.fixture(scope="session")
def large() -> bytes:
    return bomb(160 << 20)


MEMORY = """
import sys
from pathlib import Path
from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.store import load_graph
try:
    load_graph(Path(sys.argv[1])).record
except GraphdbgError as error:
    print(error)
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


def told_and_memory(case: Path) -> tuple[str, int]:
    """What reading a case says, and the kilobytes that it took at most."""
    done = subprocess.run([sys.executable, "-c", MEMORY, case], capture_output=True, text=True, check=True, timeout=60)
    *reported, peak = done.stdout.splitlines()
    return "\n".join(reported), int(peak)


def test_a_small_gzip_file_does_not_become_gigabytes(tmp_path: Path, large: bytes) -> None:
    assert len(large) < 1 << 20
    (tmp_path / "graph.json.gz").write_bytes(large)
    reported, peak = told_and_memory(tmp_path)
    assert "unpack to more than 128.0 MiB" in reported
    assert peak < 300_000


def test_a_gzip_file_that_lies_of_its_size_does_not_either(tmp_path: Path, large: bytes) -> None:
    (tmp_path / "graph.json.gz").write_bytes(large[:-4] + (5).to_bytes(4, "little"))
    reported, peak = told_and_memory(tmp_path)
    assert "unpack to more than 128.0 MiB" in reported
    assert peak < 600_000


@pytest.mark.parametrize("value", [b"[],", b"{},", b"0,"])
def test_a_text_of_brackets_is_not_decoded(value: bytes) -> None:
    text = b'{"format":1,"config":{"a":{"b":[' + value * (20 << 20) + b"0]}}}"
    with pytest.raises(UnreadableError, match=r"values would take .* of memory"):
        reading.refuse_many(text, len(text) // 100, "graph.json")


def test_a_large_graph_is_read(tmp_path: Path) -> None:
    record = chain(nodes=8_000)
    for node in record.graph.nodes:
        node.meta = {"note": "x" * 4000}
    data = encode(record)
    name, packed = reading.packed("graph.json", data)
    assert len(data) > 40 * len(packed)
    (tmp_path / name).write_bytes(packed)
    assert reading.read_bytes(tmp_path / "graph.json") == data
    assert msgspec.json.decode(data)["format"] == record.format


@pytest.mark.parametrize(
    "name", ["process.json", "journal.jsonl", "sources.jsonl", "graphs/0_0/forward/graph.json", "exit.json"]
)
def test_a_file_with_holes_is_not_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run/pid1" / name
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate(3 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OSError, match=r"it is a sparse file \(3\.0 GiB long"):
        opening.read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_zeros_that_a_copy_left_out_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(5 << 20)
    assert opening.read(path) == bytes(5 << 20)


def members(out: Path, contents: Iterator[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(out, "w", method, compresslevel=1) as packed:
        packed.writestr("run/run.json", '{"format":1}')
        for name, data in contents:
            packed.writestr(name, data)
    return out


def temporary_folders(place: Path) -> list[str]:
    return [path.name for path in place.iterdir() if path.name.startswith("graphdbg-zip-")]


def test_a_pack_is_held_against_its_size_before_anything_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    zeros = bytes(64 << 20)
    out = members(tmp_path / "a.zip", ((f"run/pid1/{number}", zeros) for number in range(5)))
    with pytest.raises(UnreadableError, match=r"unpack to 320\.0 MiB, and graphdbg unpacks at most 256\.0 MiB"):
        archive.folder_of(out)
    assert temporary_folders(tmp_path) == []


def test_a_member_does_not_unpack_to_more_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    out = members(tmp_path / "a.zip", iter([("run/pid1/a", bytes(8 << 20))]))
    data = out.read_bytes()
    out.write_bytes(data.replace((8 << 20).to_bytes(4, "little"), (9).to_bytes(4, "little")))
    with pytest.raises(UnreadableError, match="Bad CRC"):
        archive.folder_of(out)
    assert sum(path.stat().st_size for path in tmp_path.rglob("a")) < 100


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("run/a", "run/a/b"), "Not a directory|File exists"),
        (("run/a", "run/a"), "File exists"),
        (("run/" + "a" * 300,), "too long"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_pack_with_names_that_no_folder_can_have_is_unreadable(
    tmp_path: Path, names: tuple[str, ...], why: str
) -> None:
    out = members(tmp_path / "a.zip", ((name, b"x") for name in names))
    with pytest.raises(UnreadableError, match=why):
        archive.folder_of(out)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_pack_that_is_compressed_otherwise_is_not_unpacked(tmp_path: Path, method: int) -> None:
    out = members(tmp_path / "a.zip", iter([("run/a", b"x")]), method)
    with pytest.raises(UnreadableError, match="compressed in a way"):
        archive.folder_of(out)


def test_what_is_cut_off_or_damaged_is_told() -> None:
    whole = gzip.compress(b"{}" * 1000)
    for data in (whole[:-9], whole[:30], b"\x1f\x8b" + bytes(40), whole[:20] + b"\xff" * 10 + whole[30:]):
        with pytest.raises(UnreadableError, match=r"cut off|damaged"):
            reading.unpacked(data, "x.gz")
    assert zlib.decompress(whole, 31) == reading.unpacked(whole, "x.gz")
