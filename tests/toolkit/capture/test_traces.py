"""Structured traces of torch's become runs whose graphs equal those of a recording; nothing of their text is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphdbg
from graphdbg import cli
from graphdbg.dumps.errors import UnreadableError, UsageError
from graphdbg.dumps.schema import OF_A_TRACE, TensorValue
from graphdbg.dumps.store import Run
from graphdbg.toolkit.capture.traces import text
from graphdbg.toolkit.capture.traces.run import import_trace

from ...house.answers import checked

PROGRAM = """
import sys
import torch
import torch._inductor.config

kind = sys.argv[1]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = torch.nn.Embedding(32, 16), torch.nn.LayerNorm(16)
        self.qkv, self.last = torch.nn.Linear(16, 48), torch.nn.Linear(16, 32)

    def forward(self, tokens):
        x = self.words(tokens)
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + torch.nn.functional.dropout(torch.softmax(q @ k.transpose(-2, -1), dim=-1), 0.1, self.training) @ v
        return self.last(x.relu())


def train(backend):
    model = torch.compile(Block(), backend=backend)
    for length in (6, 9):
        loss = model(torch.randint(0, 32, (2, length))).sum()
        loss.backward()
    model.eval()
    with torch.no_grad():
        model(torch.randint(0, 32, (2, 9)))


if kind == "ranks":
    torch.distributed.init_process_group("gloo")
if kind == "fails":
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
    try:
        torch.compile(lambda x: x.relu() * 2)(torch.randn(3, 4))
    except Exception as error:
        print(error)
elif kind == "recorded":
    import graphdbg
    with graphdbg.record("recorded"):
        train("aot_eager")
elif kind == "eager":
    torch.randn(3).sin()
else:
    train("inductor" if kind == "inductor" else "aot_eager")
if kind == "ranks":
    torch.distributed.destroy_process_group()
"""


def run(folder: Path, kind: str, **environment: str) -> None:
    (folder / "program.py").write_text(PROGRAM)
    given = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0", "GRAPHDBG": "", **environment}
    done = subprocess.run(
        [sys.executable, "program.py", kind],
        cwd=folder,
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr


def targets(run: Run) -> dict[str, list[tuple[str, str]]]:
    return {saved.id: [(node.name, node.target) for node in saved.record.graph.nodes] for saved in run.graphs()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["aot_eager", "inductor"])
def test_a_trace_has_the_graphs_of_a_recording(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, kind, TORCH_TRACE=str(tmp_path / "trace"))
    result = checked("import TRACE", f"import {tmp_path / 'trace'} -o {tmp_path / 'run'}", capsys)
    graph = f"{tmp_path / 'run'}/0_1/forward"
    said = {
        name: checked(name, f"{name.partition(' ')[0]} {words}", capsys)
        for name, words in (
            ("ls RUN", result["path"]),
            ("ls RUN --why", f"{result['path']} --why"),
            ("show RUN/ID", graph),
            ("triage RUN", f"{result['path']} --max-time 60"),
        )
    }
    assert all(item["inputs"] == OF_A_TRACE for item in (result, *said.values()))
    assert (
        "a trace tells their layout alone" in checked("triage RUN/ID", f"triage {graph} --rungs nop", capsys)["inputs"]
    )
    if kind == "aot_eager":
        run(tmp_path, "recorded")
    else:
        (tmp_path / "recording.py").write_text(PROGRAM)
        command = [sys.executable, "-m", "graphdbg", "dump", "-o", "recorded", "program.py", kind]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=500).returncode == 0
    result, recorded = targets(graphdbg.open_run(tmp_path / "run")), targets(graphdbg.open_run(tmp_path / "recorded"))
    only = {name.partition("/")[2] for name in recorded.keys() - result.keys()}
    assert only <= {"joint_passed"}  # torch prints it of inference alone
    for name, nodes in result.items():
        assert nodes == recorded[name], name
    values = {
        node.name: node.value for node in graphdbg.open_run(tmp_path / "run").graph("0_1/forward").record.graph.nodes
    }
    before = graphdbg.open_run(tmp_path / "recorded").graph("0_1/forward").record
    for node in before.graph.nodes:
        value = values[node.name]
        if isinstance(node.value, TensorValue) and isinstance(value, TensorValue):
            assert (value.dtype, value.shape, value.stride) == (node.value.dtype, node.value.shape, node.value.stride)
    capsys.readouterr()
    assert cli.run(["ls", str(tmp_path / "run")]) == 0
    assert "read from a trace, which has the layout of inputs" in capsys.readouterr().err
    assert cli.run(["ls", str(tmp_path / "run"), "--why"]) == 0
    assert "was 6, is now 9" in capsys.readouterr().out
    assert graphdbg.replay(graphdbg.open_run(tmp_path / "run").graph("0_1/forward"), rung="decomposed").ok


@pytest.mark.slow
def test_a_compile_failure_in_a_trace_is_judged_and_minified(tmp_path: Path) -> None:
    run(tmp_path, "fails", TORCH_TRACE=str(tmp_path / "trace"))
    (trace,) = (tmp_path / "trace").iterdir()
    assert cli.run(["import", str(trace), "-o", str(tmp_path / "run")]) == 0
    saved = graphdbg.open_run(tmp_path / "run").graph("0_0/joint_passed")
    assert (saved.status, "CppCompileError" in (saved.error or "")) == ("failed", True)
    assert saved.record.config["inductor"]["cpp.inject_relu_bug_TESTING_ONLY"] == "compile_error"
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "graphdbg",
        "minify",
        saved.name,
        "-o",
        str(out),
        "--check",
        "crash",
        "--max-time",
        "120",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert graphdbg.load_graph(out / "case").record.graph.nodes[1].target.startswith(("aten.relu", "torch.relu"))


@pytest.mark.slow
def test_two_ranks_are_two_processes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    common = {"TORCH_TRACE": str(tmp_path / "trace"), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "WORLD_SIZE": "2"}
    common |= {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0", "GRAPHDBG": ""}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "program.py",
        "ranks",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | common, capture_output=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    import_trace(tmp_path / "trace", tmp_path / "run")
    result = graphdbg.open_run(tmp_path / "run")
    assert [process.rank for process in result.processes] == [0, 1]
    assert [saved.id for saved in result.graphs() if saved.stage == "dynamo"][::3] == ["0:0_0/dynamo", "1:0_0/dynamo"]
    assert cli.run(["diff", str(tmp_path / "run/0:0_0/joint"), str(tmp_path / "run/1:0_0/joint")]) == 0


@pytest.mark.slow
def test_a_debug_folder(tmp_path: Path) -> None:
    run(tmp_path, "inductor", TORCH_COMPILE_DEBUG="1", TORCH_COMPILE_DEBUG_DIR=str(tmp_path))
    debug = tmp_path / "torch_compile_debug"
    for log in debug.rglob("*.log"):  # of a torch that writes no trace there
        log.unlink()
    result = import_trace(debug, tmp_path / "run")
    outcome = graphdbg.open_run(tmp_path / "run")
    stages = {saved.stage for saved in outcome.graphs()}
    assert stages == {"forward", "backward", "joint_passed"}
    assert (result.kind, result.left_out) == ("folder of TORCH_COMPILE_DEBUG", [])
    assert graphdbg.replay(outcome.graphs()[0], rung="inductor").ok


def entry(kind: str, payload: str = "", sum_of: str | None = None, **fields: object) -> str:
    import hashlib

    named = kind.endswith("runnable")
    header: dict[str, object] = {"artifact": {"name": kind}} if named else {kind: fields}
    header |= {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    if payload:
        header["has_payload"] = hashlib.md5((sum_of or payload).encode()).hexdigest()
    lines = [
        f"V0101 10:00:00.000000 7 torch/x.py:1] {json.dumps(header)}",
        *(f"\t{line}" for line in payload.splitlines()),
    ]
    return "\n".join(lines) + "\n"


GRAPH = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[2, s7][s7, 1]cpu", arg1_1: "Sym(s7)"):
        # File: /home/u/model.py:3 in f, code: return x.sin()
        sin: "f32[2, s7][s7, 1]cpu" = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None
        mul: "Sym(2*s7)" = arg1_1 * 2;  arg1_1 = None
        view: "f32[2*s7][1]cpu" = torch.ops.aten.view.default(sin, [mul]);  sin = mul = None
        return (view,)"""


def test_a_graph_is_read_with_symbols_lines_and_layout(tmp_path: Path) -> None:
    log = tmp_path / "dedicated_log_torch_trace_rank_3_x.log"
    log.write_text(entry("create_symbol", symbol="s7", val="5", vr="[2, int_oo]") + entry("aot_inference_graph", GRAPH))
    result = import_trace(log, tmp_path / "run")
    assert (result.graphs, result.left_out) == (1, [])
    saved = graphdbg.open_run(tmp_path / "run").graph("0_0/inference")
    assert saved.rank == 3
    assert [node.target for node in saved.record.graph.nodes][2:5] == [
        "aten.sin.default",
        "operator.mul",
        "aten.view.default",
    ]
    assert [(symbol.name, symbol.hint, symbol.lower) for symbol in saved.record.symbols] == [("s7", 5, 2)]
    assert saved.record.strings == ['  File "/home/u/model.py", line 3, in f\n    return x.sin()\n']
    assert [tuple(value.shape) for value in saved.module()(*saved.inputs())] == [(10,)]


def test_answers_say_that_values_of_inputs_are_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reported = entry("create_symbol", symbol="s7", val="5", vr="[2, int_oo]") + entry("aot_inference_graph", GRAPH)
    (tmp_path / "t.log").write_text(reported)
    run = f"{tmp_path / 'run'}"
    for name, line in {
        "import TRACE": f"import {tmp_path / 't.log'} -o {run}",
        "ls RUN": f"ls {run}",
        "ls RUN --time": f"ls {run} --time",
        "show RUN/ID": f"show {run}/0_0/inference",
    }.items():
        assert checked(name, line, capsys)["inputs"] == OF_A_TRACE


def test_nothing_of_a_trace_is_run(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    for line in (f"x = open({str(seen)!r}, 'w')", "x = torch.load('x')", "x = torch.ops.aten.from_file.default('x')"):
        graph = GRAPH.replace("        mul:", f"        {line}\n        mul:").replace("(view,)", "(view, x)")
        (tmp_path / "t.log").write_text(entry("aot_inference_graph", graph))
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        try:
            import_trace(tmp_path / "t.log", out)
            with pytest.raises(UnreadableError, match=r"may not be called|not on the list"):
                graphdbg.open_run(out).graphs()[0].module()
        except UsageError as error:
            assert "function of the program's own" in str(error)
    assert not seen.exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is empty"),
        ("hello\n", "does not begin as a structured trace does"),
        (entry("dynamo_start", stack=[]), "there is no graph in it: nothing was compiled"),
        (entry("aot_inference_graph", GRAPH[:300], GRAPH), "does not match the checksum that torch wrote"),
        (entry("aot_inference_graph", "x = (\n1"), "is not Python"),
        (entry("aot_inference_graph", "(" * 5000), "is not Python"),
    ],
)
def test_a_trace_that_holds_nothing_says_so(
    tmp_path: Path, content: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.log").write_text(content)
    assert cli.run(["import", str(tmp_path / "t.log"), "-o", str(tmp_path / "run"), "--trust"]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_cut_trace_gives_what_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = entry("aot_inference_graph", GRAPH)
    (tmp_path / "t.log").write_text(whole + entry("compilation_metrics", fail_type=None)[:70])
    assert cli.run(["import", str(tmp_path / "t.log"), "-o", str(tmp_path / "run")]) == 0
    assert "skipped 1 line that" in capsys.readouterr().err
    assert cli.run(["import", str(tmp_path / "t.log"), "-o", str(tmp_path / "run")]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert cli.run(["import", str(tmp_path), "-o", str(tmp_path / "other")]) == 0
    (tmp_path / "empty").mkdir()
    assert cli.run(["import", str(tmp_path / "empty")]) == 2
    assert "it holds no structured trace" in capsys.readouterr().err


def test_what_a_text_may_hold() -> None:
    body = text.parse(
        'class G(M):\n  class inner_0(M):\n    def forward(self, a: "f32[][]cuda:1"):\n      b = -a\n      return b\n'
        '  def forward(self, L_x_: "bf16[2][1]cpu"):\n    l_x_ = L_x_\n    inner_0 = self.inner_0\n'
        "    y = l_x_.to(dtype = torch.float32, device = device(type='cuda', index=0), memory_format = "
        "torch.channels_last)\n"
        "    z = y[(slice(None, 1, None), Ellipsis)]\n    y += 1;  y_1 = y;  y = None\n    w = y_1.shape\n"
        "    v = torch.clamp(z, -inf, 1e-05)\n    return (v, w, None)"
    ).body
    nodes = {node.name: node for node in body.nodes}
    assert (nodes["l_x_"].target, nodes["inner_0"].op) == ("L_x_", "get_attr")
    assert nodes["y"].op == "call_method"
    assert nodes["y"].kwargs["device"] == {"device": "cuda:0"}
    assert nodes["z"].args[1] == {"tuple": [{"slice": [None, 1, None]}, {"ellipsis": True}]}
    assert (nodes["y_1"].target, nodes["w"].target) == ("operator.iadd", "builtins.getattr")
    assert nodes["v"].args[1:] == [{"float": "-inf"}, 1e-05]
    assert body.subgraphs["inner_0"].nodes[1].target == "operator.neg"


def test_functions_have_the_names_of_records() -> None:
    """FX prints them under the name of the binding; records have the public one."""
    import torch

    from graphdbg.dumps.torchside import targets

    private = torch._C  # pyright: ignore[reportPrivateUsage]
    for home, path in (
        (private._nn, ["_C", "_nn"]),
        (private._special, ["_C", "_special"]),
        (private._fft, ["_C", "_fft"]),
        (private._linalg, ["_C", "_linalg"]),
        (torch, []),
    ):
        for name in dir(home):
            function = getattr(home, name)
            if name.startswith("_") or type(function) is not type(torch.mm):
                continue
            known = targets.name_of(function)
            if known.startswith(("torch.nn", "torch.special", "torch.fft", "torch.linalg")):
                assert text.saved_name(["torch", *path, name]) == known


def test_a_runnable_tells_inputs_and_settings() -> None:
    content = text.read(
        "s3 = 4\nimport torch\ntorch._inductor.config.triton.cudagraphs = True\ntorch._dynamo.config.repro_level = 2\n"
        "class Repro(torch.nn.Module):\n    def forward(self, arg0_1, arg1_1):\n        return (arg1_1,)\n"
        "def load_args(reader):\n    reader.symint(4)  # arg0_1\n"
        "    buf0 = reader.storage(None, 8*s3 + 8, device=device(type='cuda', index=0), dtype_hint=torch.float16)\n"
        "    reader.tensor(buf0, (2, s3), dtype=torch.float16, storage_offset=2, is_leaf=True)  # arg1_1\n"
        "load_args._version = 0\n"
    )
    assert content.config == {"inductor": {"triton.cudagraphs": True}}
    value = content.inputs["arg1_1"]
    assert isinstance(value, TensorValue)
    assert (value.dtype, value.shape, value.stride, value.offset, value.device) == (
        "float16",
        [2, 4],
        [4, 1],
        2,
        "cuda:0",
    )
    assert value.storage_bytes == 40
