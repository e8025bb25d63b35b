"""`pack`: nothing that was planted leaves, what compilers need stays, damage is named, and the search finds what is
left."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.atomic import write_file
from graphdbg.dumps.graph_folder import encode
from graphdbg.dumps.pack import records
from graphdbg.dumps.pack.making import pack
from graphdbg.dumps.pack.records import Machine, Texts
from graphdbg.dumps.pack.redact import Places
from graphdbg.dumps.process import FILE, ProcessRecord
from graphdbg.dumps.schema import (
    FORMAT,
    DefinitionRecord,
    GraphRecord,
    InputRecord,
    InputsRecord,
    RunRecord,
    StoredTensor,
)
from graphdbg.dumps.store import Run, load_graph, open_run, resolve
from graphdbg.dumps.wording import shown_path
from graphdbg.dumps.writer import ProcessWriter, RunWriter
from graphdbg.toolkit.verdicts.ladder_words import address, run_address

from .graphs import MemoryTensors, chain, tensor_value

HOME, USER, HOST = "/home/anneliese", "anneliese", "node17.cluster.acme.internal"
TOKEN = "hf_abcdefghijklmnopqrstuvwx"
WEIGHTS, TOKENS = b"weights that nobody may have" * 40, b"and tokens of a customer" * 40
LINE = "loss = secret_sauce(batch)"
STACK = (
    f'  File "{HOME}/gpt/train.py", line 31, in step\n    {LINE}\n           ^^^^^^^^^^\n'
    f'  File "{HOME}/gpt/model/block.py", line 12, in forward\n    return secret_sauce.activate(h)\n'
)
ERROR = (
    f"CppCompileError: g++ -I{HOME}/include -o /tmp/torchinductor_{USER}/ab/c.so failed on {HOST}\n"
    '  File "/opt/env/lib/python3.12/site-packages/torch/_inductor/lowering.py", line 9, in lower\n    '
    f"return public(x)\n{STACK}"
)
CODE = (
    f"# File: {HOME}/gpt/train.py:31 in step, code: {LINE}\n"
    f"# kernel path: /tmp/torchinductor_{USER}/ab/c.py\nimport torch\nbuf0 = aten.sin(arg0)\n"
)
PLANTED = (
    HOME[1:],
    USER,
    HOST,
    "node17",
    TOKEN,
    "hunter22",
    "secret_sauce",
    "acme",
    WEIGHTS.decode(),
    TOKENS.decode(),
    "customers.csv",
)


def planted(graph_id: str, tensors: MemoryTensors) -> GraphRecord:
    record = chain(graph_id, storage=tensors.put(WEIGHTS))
    record.strings = [STACK]
    record.compile_kwargs = {
        "cache": f"{HOME}/.cache",
        "what": {"opaque": ["Thing", f"<Thing at {HOME}/customers.csv>"]},
    }
    record.config = {"inductor": {"debug_dir": f"{HOME}/debug", "max_autotune": True}}
    return record


def fill(process: ProcessWriter) -> None:
    tensors = MemoryTensors()
    for stage in ("joint", "forward"):
        process.save_graph(planted(f"0_0/{stage}", tensors), tensors)
        process.journal.event("compiling", graph=f"0_0/{stage}")
    value = tensor_value(2, 3)
    stored = StoredTensor(tensors.put(TOKENS), value)
    item = InputRecord(name="x", value=value, statistics={"min": -1.5, "max": 2.5}, stored=stored)
    process.save_inputs("0_0/joint", InputsRecord(format=FORMAT, policy="first", inputs=[item]), tensors)
    process.save_code(
        "0_0/joint", {"output_code.py": CODE, "mine.py": f"# Original path: {HOME}/k.py\ndef acme_kernel(): ...\n"}
    )
    process.journal.event("ran", graph="0_0/joint")
    process.journal.event("failed", graph="0_0/forward", seconds=1.25, message=ERROR)
    frame = [f"{HOME}/gpt/train.py", 31, "step", LINE]
    process.journal.event("why", what="break", stack=[frame], text=f"Graph break at {HOME}/gpt/train.py:31")
    reason = "L['u'] == 'acme and others'  # u = customers.csv  # train.py:9 in f"
    process.journal.event("why", what="recompile", reasons=[reason], now={"L['u']": "acme"})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of a process that is gone, full of things that nobody may see."""
    monkeypatch.chdir(tmp_path)
    words = [
        "python",
        f"{HOME}/gpt/train.py",
        "--data=/data/acme/customers.csv",
        "--api-key",
        "hunter22",
        f"--user={USER}",
    ]
    environment = {
        "OMP_NUM_THREADS": "4",
        "HF_TOKEN": TOKEN,
        "TRITON_INTERPRET": f"{HOME}/x",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    writer = RunWriter.create("myrun", RunRecord(format=FORMAT, command=words, environment=environment, started=5.0))
    process = writer.process("rank3_pid7", rank=3)
    fill(process)
    process.close()
    record = ProcessRecord(format=FORMAT, name=process.name, pid=7, host=HOST, rank=3, started=6.0, argv=words[1:])
    write_file(process.path / FILE, encode(record))
    return open_run("myrun")


def members(path: Path) -> dict[str, bytes]:
    """All members, unpacked to the last layer."""
    results: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            results[name] = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            if ".msgpack" in name:
                results[name] = json.dumps(msgspec.msgpack.decode(results[name])).encode()
    return results


def unzipped(path: Path, folder: Path) -> Run:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return open_run(folder / path.name.partition(".")[0])


def test_packing_needs_no_torch(run: Run) -> None:
    body = (
        "import sys\nfrom graphdbg.cli import run\nassert run(['pack', 'myrun']) == 0\nassert 'torch' not in "
        "sys.modules"
    )
    subprocess.run([sys.executable, "-c", body], check=True, timeout=60, capture_output=True)


def test_a_packed_file_may_have_any_name(run: Run, tmp_path: Path) -> None:
    packed = resolve(str(pack(run.path, tmp_path / "bug.gdbg").file))
    assert isinstance(packed, Run)
    assert [row.id for row in packed.rows] == [row.id for row in run.rows]


def test_nothing_that_was_planted_is_in_any_member(run: Run, tmp_path: Path) -> None:
    packed = pack(run.path, tmp_path / "bug.zip")
    result = members(packed.file)
    left = [(name, word) for name, data in result.items() for word in PLANTED if word.encode() in data or word in name]
    assert left == []
    assert packed.leaks == []
    assert packed.unreadable == []
    assert not [name for name in result if "tensors" in name]


def test_the_packed_run_lists_the_same_rows_and_tables(run: Run, tmp_path: Path) -> None:
    packed = unzipped(pack(run.path, tmp_path / "bug.zip").file, tmp_path / "elsewhere")
    assert [{**row.fixed(), "error": None} for row in packed.rows] == [
        {**row.fixed(), "error": None} for row in run.rows
    ]
    assert [row.since for row in packed.rows] == [row.since for row in run.rows]
    for before, after in zip(run.graphs(), packed.graphs(), strict=True):
        columns = [list(before.table.rows()), list(after.table.rows())]
        assert {row.where for row in columns[1]} == {"", "block.py:12"}
        assert {row.code for row in columns[1]} == {""}
        for row in columns[0] + columns[1]:
            row.code = ""
        assert columns[0] == columns[1]
        assert before.record.graph.nodes == after.record.graph.nodes
        assert before.record.symbols == after.record.symbols


def test_what_compilers_need_stays(run: Run, tmp_path: Path) -> None:
    packed = unzipped(pack(run.path, tmp_path / "bug.zip").file, tmp_path / "elsewhere")
    saved = packed.graph("0_0/forward")
    assert saved.record.strings == [
        '  File "train.py", line 31, in step\n  File "model/block.py", line 12, in forward\n'
    ]
    assert saved.error is not None
    assert "site-packages/torch/_inductor/lowering.py" in saved.error and "return public(x)" in saved.error
    assert "-o <cache>/ab/c.so failed on <host-1>" in saved.error
    assert saved.record.config == {"inductor": {"debug_dir": "<path>", "max_autotune": True}}
    joint = packed.graph("0_0/joint")
    assert joint.inputs_record is not None
    assert joint.inputs_record.inputs[0].statistics == {"min": -1.5, "max": 2.5}
    assert [(file.name, file.read_text()) for file in joint.code_files()] == [
        (
            "output_code.py",
            "# File: train.py:31 in step\n# kernel path: <cache>/ab/c.py\nimport torch\nbuf0 = aten.sin(arg0)\n",
        )
    ]
    assert packed.record.command == [
        "python",
        "train.py",
        "--data=<path>.csv",
        "--api-key",
        "<secret>",
        "--user=<user>",
    ]
    assert packed.record.environment == {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0,1"}
    (process,) = packed.processes
    assert (process.record.host, process.record.pid, process.rank) == ("<host-1>", 7, 3)


def test_tensors_and_source_are_kept_on_request(run: Run, tmp_path: Path) -> None:
    packed = unzipped(pack(run.path, tmp_path / "bug.zip", tensors=True, source=True).file, tmp_path / "elsewhere")
    saved = packed.graph("0_0/joint")
    assert bytes(saved.tensors.get(saved.record.graph.attrs["w"].storage)) == WEIGHTS
    assert LINE in saved.record.strings[0] and HOME not in saved.record.strings[0]
    assert [file.name for file in saved.code_files()] == ["mine.py", "output_code.py"]
    assert USER not in saved.code_files()[1].read_text()


def test_a_graph_that_was_in_flight_stays_so(run: Run, tmp_path: Path) -> None:
    process = RunWriter.create(run.path, run.record, join=True).process("pid8")
    process.save_graph(chain())
    process.journal.event("running", graph="0_0/forward")
    live = pack(run.path, tmp_path / "live.zip")
    assert unzipped(live.file, tmp_path / "1").processes[1].liveness == "unknown"
    write_file(
        process.path / FILE, encode(ProcessRecord(format=FORMAT, name="pid8", pid=2**22 + 1, host=_here(), started=1.0))
    )
    before = open_run(run.path).rows[-1]
    after = unzipped(pack(run.path, tmp_path / "dead.zip").file, tmp_path / "2").rows[-1]
    assert before.lost and after.lost
    assert (before.error, before.status) == (after.error, after.status)


def test_what_is_damaged_is_named_and_left_out(run: Run, tmp_path: Path) -> None:
    folder = run.graph("0_0/forward").path
    for path in folder.glob("graph.json*"):
        path.write_bytes(path.read_bytes()[:50])
    with (folder.parents[2] / "journal.jsonl").open("a") as journal:
        journal.write('{"t": 1, "ki')
    (run.path / "run.json").write_text("{")
    packed = pack(run.path, tmp_path / "bug.zip")
    assert packed.graphs == 1
    for what in ("run.json", "graph 0_0/forward", "the last line is torn"):
        assert any(what in sentence for sentence in packed.unreadable), packed.unreadable
    again = unzipped(packed.file, tmp_path / "elsewhere")
    rows = [(row.local, row.status, row.saved) for row in again.rows]
    assert rows == [("0_0/joint", "ran", True), ("0_0/forward", "failed", False)]


def test_what_is_left_is_found_and_named(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = chain("1_0/forward")
    record.graph.nodes[0].target = USER
    RunWriter.create(run.path, run.record, join=True).process("pid8").save_graph(record)
    assert command(["pack", "myrun", "-o", "bug.zip", "--json"]) == 1
    captured = capsys.readouterr()
    document: dict[str, Any] = json.loads(captured.out)
    assert {leak["text"] for leak in document["leaks"]} == {USER}
    assert any("1_0/forward/graph.json" in leak["member"] for leak in document["leaks"])
    assert f"STILL THERE: user name '{USER}' in bug/pid8/graphs/1_0/forward" in captured.err


def test_operators_and_passes_whose_source_stays_out_are_named(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "own", RunRecord(format=FORMAT, command=["python", "train.py"]))
    record = chain()
    mine = {"inductor.post_grad_custom_pre_pass": "Cheap()"}
    record.definitions = [DefinitionRecord("__main__", "train.py", "import torch\n", ["acme"], mine)]
    process = writer.process("pid7")
    process.save_graph(record)
    process.close()
    left_out = pack(tmp_path / "own", tmp_path / "bug.zip").own
    assert left_out == ["operators of acme", "Cheap (post_grad_custom_pre_pass)"]
    assert pack(tmp_path / "own", tmp_path / "more.zip", source=True).own == []


def test_the_command_prints_a_table_and_never_overwrites(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path for path in run.path.rglob("*"))
    assert command(["pack", "myrun"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0].split() == ["what", "kept", "changed", "left", "out"]
    assert captured.out.splitlines()[-1] == "myrun.graphdbg.zip"
    assert "before you send it" in captured.err
    assert "shapes, constants, statistics of tensors, generated code, and what errors say" in captured.err
    data = Path("myrun.graphdbg.zip").read_bytes()
    assert command(["pack", "myrun"]) == 2
    assert Path("myrun.graphdbg.zip").read_bytes() == data
    assert command(["pack", "myrun", "-o", "again.zip"]) == 0
    assert sorted(path for path in run.path.rglob("*")) == before
    assert sorted(path.name for path in Path().iterdir()) == ["again.zip", "myrun", "myrun.graphdbg.zip"]


def test_the_file_stands_for_the_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    pack(run.path, Path("bug.zip"))
    assert command(["ls", "bug.zip", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["graphs"]] == ["0_0/joint", "0_0/forward"]
    assert command(["show", "bug.zip/0_0/forward"]) == 0
    assert "block.py:12" in capsys.readouterr().out
    assert command(["ls", "nothing.zip"]) == 2


def test_a_graph_in_the_file_has_an_address_that_lasts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(run.path, Path("bug.zip"))
    packed = resolve("bug.zip")
    assert isinstance(packed, Run)
    assert [packed.name, run_address(packed), packed.graph("0_0/j").name] == ["bug.zip", "bug.zip", "bug.zip/0_0/joint"]
    assert shown_path(packed.graph("0_0/j").path).startswith("bug.zip/")
    assert load_graph(address(packed.graph("0_0/j"))).id == "0_0/joint"
    monkeypatch.chdir(tmp_path.parent)
    assert packed.name == f"{tmp_path.name}/bug.zip"


@pytest.mark.parametrize("names", [["bug/../../x"], ["/bug/x"], ["x"], ["a/run.json", "b/run.json"], ["bug/x"]])
def test_an_archive_of_something_else_is_refused(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        for name in names:
            archive.writestr(name, b"{}")
    assert command(["ls", str(tmp_path / "odd.zip")]) == 2
    assert "cannot open" in capsys.readouterr().err
    (tmp_path / "odd.zip").write_bytes(b"PK\x03\x04 no zip")
    assert command(["ls", str(tmp_path / "odd.zip")]) == 2


TEXTS = Texts(
    Places(["/home/ann/gpt/train.py", "/home/ann/gpt/model/block.py", "/data/lib/own.py"]),
    Machine(homes={"/home/ann"}, users={"ann", "max"}, hosts={"node17", "vm"}, folders={"/scratch/runs/r1"}),
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("L['n'] == 3  # y = f(secret)  # home/ann/gpt/train.py:10 in g", "L['n'] == 3  # train.py:10 in g"),
        (
            "call_function f [ConstantVariable(str: 'secret')] {}",
            "call_function f [ConstantVariable(str: '<text>')] {}",
        ),
        ("cannot open '/data/my files/x y.csv'", "cannot open '<path>.csv'"),
        (
            'File "/data/lib/own.py", line 1, in f\n  secret\nError: no',
            'File "<folder-2>/own.py", line 1, in f\nError: no',
        ),
        ("/usr/bin/g++ -I/home/ann/x -L/usr/lib/x86", ".../g++ -I<path> -L<path>"),
        ("see https://ann:hunter22@node17.acme.org/x", "see https://<secret>@<host-1>/x"),
        ("connect to 10.1.2.3:29500 failed", "connect to <address>:29500 failed"),
        ("out in /scratch/runs/r1 and scratch/runs/r1", "out in <path> and <path>"),
        ("tmp0 / tmp1 // 64 + x0/64/32L", "tmp0 / tmp1 // 64 + x0/64/32L"),
        ("aten.max.dim of max, vm and annotate", "aten.max.dim of max, vm and annotate"),
        ("y = q@k.transpose(-1, -2)", "y = q@k.transpose(-1, -2)"),
        ("L['self'].blocks.0: __main__.Block", "L['self'].blocks.0: __main__.Block"),
    ],
)
def test_text(text: str, wanted: str) -> None:
    assert TEXTS.text(text) == wanted
    assert TEXTS.text(wanted) == wanted


KERNEL = """
# Original path: /home/ann/gpt/train.py:7
add_kernel_0 = async_compile.triton('add_kernel', '''
@triton_heuristics.user_autotune(custom_kernel=True)
@triton.jit
def add_kernel(secret): ...
''', device_str='cuda')
call()
"""


def test_a_kernel_of_the_users_own_is_cut_out() -> None:
    reported = TEXTS.generated(KERNEL)
    assert reported is not None
    assert "secret" not in reported
    assert "add_kernel_0 = async_compile.triton('add_kernel', '''''', device_str='cuda')\ncall()" in reported
    assert TEXTS.generated("@triton_heuristics.user_autotune(custom_kernel=True)\ndef add_kernel(secret): ...") is None
    record = chain()
    record.strings.append("def add_kernel(secret): ...")
    record.graph.nodes[1].meta["triton_source"] = {"string": 1}
    assert records.graph(record, TEXTS, keep=lambda name: False).strings[1] == ""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["python", "-c", "print('secret')"], ["python", "-c", "<program>"]),
        (["train.py", "--lr", "3e-4", "--fp16"], ["train.py", "--lr", "3e-4", "--fp16"]),
        (["model/block.py", "conf/acme.yaml", "../x"], ["model/block.py", "<path>.yaml", "<path>"]),
        (["data.path=/data/acme", "s3://bucket/key", "--token=abc"], ["data.path=<path>", "<url>", "--token=<secret>"]),
        (["0123456789abcdef0123456789abcdef01234567"], ["<secret>"]),
    ],
)
def test_command_lines(words: list[str], wanted: list[str]) -> None:
    assert TEXTS.command(words) == wanted


def _here() -> str:
    from graphdbg.dumps.process import host_name

    return host_name()
