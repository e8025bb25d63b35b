"""bisect on a recorded model: each planted fault is named, its work-around holds, and nothing of the user's is
touched."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdbg.dumps.graph_folder import JOURNAL_FILE
from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.blame.bisect import INTERRUPTED, bisect
from graphdbg.toolkit.blame.bisect_asking import same_failure
from graphdbg.toolkit.blame.bisect_records import Bisection, Clock, OutOfTime
from graphdbg.toolkit.blame.bisect_words import next_for
from graphdbg.toolkit.isolation import JUDGING, ForkServer
from graphdbg.toolkit.verdicts.signature import Signature

pytestmark = pytest.mark.long  # all share one recording

PLANTED = Path(__file__).resolve().parents[2] / "planted"

SCRIPT = """
import sys
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    def forward(self, x):
        h = torch.tanh(self.one(x)) * 1.25
        return self.two(torch.nn.functional.silu(h)).relu()
compiled = torch.compile(Net())
if len(sys.argv) > 1:
    compiled(torch.randn(4, 8)).square().mean().backward()
else:
    with torch.no_grad():
        compiled(torch.randn(4, 8))
"""


@pytest.fixture(scope="module")
def recorded(recorded_script: Callable[..., Path]) -> Path:
    return recorded_script(SCRIPT, name="net.py", inputs="first")


@pytest.fixture(scope="module")
def server(warm_inductor_cache: Path) -> Iterator[ForkServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLANTED))
        with ForkServer(warm_inductor_cache, threads=2, preload=JUDGING) as server:
            yield server


def found(graph: Path, server: ForkServer, planted: str, **options: object) -> Bisection:
    return bisect(load_graph(graph), imports=[planted], server=server, **{"by": "pass", **options})  # type: ignore[arg-type]


def test_a_graph_that_does_not_fail(recorded: Path, server: ForkServer) -> None:
    result = bisect(load_graph(recorded / "0_0/inference"), server=server)
    assert (result.reproduced, result.verdict.exit_code, result.findings, result.probes) == (False, 0, [], [])
    assert "nothing to bisect" in result.sentence
    assert result.verdict.next == [f"graphdbg triage {recorded}"]


def test_a_joint_pass_of_the_users(recorded: Path, server: ForkServer) -> None:
    result = found(recorded / "0_0/inference", server, "planted_joint_pass")
    first = result.findings[0]
    assert (first.kind, first.subsystem, first.name, first.alone) == (
        "pass",
        "joint_graph_passes",
        "joint_custom_post_pass",
        True,
    )
    assert first.applications[0].label == "planted_joint_pass.Larger"
    assert first.workaround is not None
    assert first.workaround.verified
    assert first.workaround.code == "torch._inductor.config.joint_custom_post_pass = None"
    record = result.verdict
    assert (record.verdict, record.fault, record.layer) == ("fails", "custom_pass", None)
    assert record.workaround == first.workaround.code
    assert ", run " in result.sentence
    rows = {row.subsystem: row for row in result.rows}
    assert rows["post_grad_passes"].verdict == "same"
    assert rows["lowerings"].verdict == "same"
    assert rows["pre_grad_passes"].reason.startswith("not run at this stage")
    assert rows["decomposition"].verdict is None
    assert "itself is wrong" in result.meaning


@pytest.mark.slow
def test_a_pass_of_inductors_own(recorded: Path, server: ForkServer) -> None:
    result = found(recorded / "0_0/inference", server, "planted_builtin_pass")
    first = result.findings[0]
    assert (first.subsystem, first.name, first.alone) == (
        "joint_graph_passes, post_grad_passes",
        "remove_noop_ops",
        True,
    )
    assert [row.verdict for row in result.rows if row.subsystem in first.subsystem.split(", ")] == ["same", "same"]
    assert first.workaround is not None
    assert first.workaround.verified
    assert first.workaround.code.endswith("disabled_passes = 'remove_noop_ops'")
    assert first.workaround.also == []
    assert len(result.findings) == 1


@pytest.mark.slow
def test_a_decomposition(recorded: Path, server: ForkServer) -> None:
    result = found(recorded / "0_0/dynamo", server, "planted_decomposition")
    first = result.findings[0]
    assert result.backend == "aot_eager_decomp_partition"
    assert (first.kind, first.name, first.alone) == ("decomposition", "aten.silu.default", True)
    assert first.workaround is not None
    assert first.workaround.verified
    assert "decompositions.pop(torch.ops.aten.silu.default)" in first.workaround.code


def test_a_crashing_lowering(recorded: Path, server: ForkServer) -> None:
    result = found(recorded / "0_0/joint_passed", server, "planted_crash")
    assert "crash" in result.failure
    first = result.findings[0]
    assert (first.kind, first.name, first.alone) == ("lowering", "aten.tanh.default", True)
    assert first.applications[0].label == "tanh"
    assert first.applications[0].line.startswith("net.py:")
    assert first.workaround is not None
    assert first.workaround.verified
    assert "make_fallback(torch.ops.aten.tanh.default" in first.workaround.code
    assert "or the code made for it" in result.sentence


@pytest.mark.slow  # each of the three has a test of its own
def test_the_runs_own_setting_before_the_node_before_the_pass(
    recorded_script: Callable[..., Path], recorded: Path, server: ForkServer
) -> None:
    own = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"
    run = recorded_script(f"import torch._inductor.config\n{own} = 'accuracy'\n{SCRIPT}", name="net.py", inputs="first")
    result = bisect(load_graph(run / "0_0/inference"), server=server)
    assert (result.by, result.verdict.verdict, result.verdict.workaround) == ("setting", "fails", f"{own} = None")
    result = found(recorded / "0_0/inference", server, "planted_lowering", by=None)
    assert (result.by, result.findings, result.to_json()["where"]["node"]) == ("node", [], "tanh")
    assert result.verdict.workaround is not None
    result = found(recorded / "0_0/inference", server, "planted_joint_pass", by=None)
    assert (result.by, result.verdict.fault, result.to_json()["where"]["node"]) == ("pass", "custom_pass", "tanh")


def test_what_nobody_is_convicted_of_cannot_be_told(recorded: Path, server: ForkServer) -> None:
    result = found(recorded / "0_0/inference", server, "planted_lowering", max_time_s=0.001)
    assert (result.verdict.verdict, result.verdict.exit_code, result.by) == ("cannot_tell", 4, "")
    assert result.verdict.reason.startswith("it fails (")
    assert result.verdict.next == [f"graphdbg bisect {recorded}/0_0/inference --by pass"]


def test_a_node_that_was_seen_wrong_before_the_time_was_over_is_named(
    recorded: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def over(clock: Clock) -> None:
        raise OutOfTime("the time is over")

    def narrate(text: str) -> None:
        if "wrong: tanh" in text:
            monkeypatch.setattr(Clock, "check", over)

    graph = recorded / "0_0/inference"
    result = found(graph, server, "planted_lowering", by="node", narrate=narrate)
    assert (result.verdict.verdict, result.by, result.stopped) == ("fails", "node", "the time is over")
    assert result.sentence.startswith("First wrong node: `tanh`") and "fails alone" not in result.sentence


def test_time_that_is_over_and_an_interrupt_leave_what_was_found(recorded: Path, server: ForkServer) -> None:
    result = found(recorded / "0_0/joint_passed", server, "planted_crash", max_time_s=0.001)
    assert result.reproduced
    assert "--max-time" in result.stopped
    assert "before the search ended" in result.sentence
    messages: list[str] = []

    def narrate(text: str) -> None:
        messages.append(text)
        if len(messages) == 3:
            raise KeyboardInterrupt

    result = found(recorded / "0_0/joint_passed", server, "planted_crash", narrate=narrate)
    assert result.stopped == INTERRUPTED
    assert [row.verdict for row in result.rows if row.subsystem == "post_grad_passes"] == ["same"]
    assert "before the search ended" in result.sentence


def test_what_is_minified_is_reported_next(tmp_path: Path) -> None:
    (tmp_path / "small" / "case").mkdir(parents=True)
    saved: Any = SimpleNamespace(run=None, path=tmp_path / "small" / "case", name="small/case")
    assert next_for(saved) == "graphdbg minify small/case"
    (tmp_path / "small" / JOURNAL_FILE).touch()
    assert next_for(saved) == "graphdbg report small"


def test_an_output_that_was_wrong_behind_another_is_the_same_failure() -> None:
    wanted = Signature("accuracy", "compare", size=3e9, raw="loss: relative error 3e+09")
    errors = {"loss": 3e9, "grad of w": 0.05, "mul_2, m.py:3": 1e-7}
    assert same_failure(wanted, errors, Signature("accuracy", "compare", size=1e9, raw="loss: relative error 1e+09"))
    assert same_failure(
        wanted, errors, Signature("accuracy", "compare", size=0.05, raw="grad of w: relative error 0.05")
    )
    assert not same_failure(
        wanted, errors, Signature("accuracy", "compare", size=1.3, raw="mul_2, m.py:3: relative error 1.3")
    )
    assert not same_failure(wanted, errors, Signature("crash", "compile", raw="grad of w: no"))


def digest(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() + str(path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def users_cache(folder: Path) -> Path:
    """An Inductor cache with a kernel and a bisection of the user's own in it."""
    (folder / "bisect" / "inductor").mkdir(parents=True)
    (folder / "bisect" / "bisect_status.txt").write_text("backend=inductor\nsubsystem=lowerings\n")
    (folder / "bisect" / "inductor" / "lowerings_run_state.txt").write_text("test_disable")
    (folder / "ab").mkdir()
    (folder / "ab" / "cabc.py").write_text("kernel = None\n")
    return folder


@pytest.mark.slow
def test_the_command_touches_nothing_of_the_users(recorded: Path, tmp_path: Path) -> None:
    cache = users_cache(tmp_path / "cache")
    before = digest(cache)
    env = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "PYTHONPATH": str(PLANTED),
        "TORCH_BISECT_BACKEND": "inductor",
        "TORCH_BISECT_SUBSYSTEM": "lowerings",
        "TORCH_BISECT_MAX": "0",
    }
    command = [sys.executable, "-m", "graphdbg", "bisect", str(recorded / "0_0/joint_passed"), "--json", "--full"]
    done = subprocess.run(
        [*command, "--import", "planted_post_grad_pass"],
        env=env,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    assert data["findings"][0]["name"] == "post_grad_custom_post_pass"
    assert data["probe_count"] == len(data["probes"])
    assert all(probe["verdict"] in ("same", "gone", "other") and probe["seconds"] > 0 for probe in data["probes"])
    assert data["probes"][0]["disabled"]
    assert "all of post_grad_passes off" in done.stderr
    assert digest(cache) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "stage", "kind", "name"),
    [
        ("planted_pre_grad_pass", "dynamo", "pass", "pre_grad_custom_pass"),
        ("planted_lowering", "inference", "lowering", "aten.tanh.default"),
        ("planted_vectors", "inference", "lowering", "aten.tanh.default"),
        ("planted_codegen", "post_grad_inference", "lowering", "aten.tanh.default"),
        ("planted_pattern", "inference", "pass", "pass_pattern_1"),
    ],
)
def test_more_faults(recorded: Path, server: ForkServer, planted: str, stage: str, kind: str, name: str) -> None:
    result = found(recorded / "0_0" / stage, server, planted)
    first = result.findings[0]
    assert (first.kind, first.name, first.alone) == (kind, name, True)
    assert first.workaround is not None
    assert first.workaround.verified
    if planted == "planted_vectors":
        assert result.findings[1].name == "cpp.simdlen"
    if planted == "planted_pattern":
        assert "larger_tanh" in first.detail
    if planted == "planted_lowering":
        assert all(finding.kind == "lowering" for finding in result.findings)


@pytest.mark.slow
def test_both_halves_of_a_training_graph(recorded_script: Callable[..., Path], server: ForkServer) -> None:
    run = recorded_script(SCRIPT, "backward", name="net.py", inputs="first")
    result = found(run / "0_0/joint", server, "planted_builtin_pass")
    assert result.findings[0].name == "remove_noop_ops"
    result = found(run / "0_0/dynamo", server, "planted_lowering")
    assert {application.half for application in result.findings[0].applications} == {"forward", "backward"}
    assert result.findings[0].alone


@pytest.mark.slow
def test_ctrl_c_prints_what_was_found(recorded: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "graphdbg",
        "bisect",
        str(recorded / "0_0/inference"),
        "--by",
        "pass",
        "--import",
        "planted_lowering",
    ]
    running = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(PLANTED)},
        cwd=tmp_path,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stderr is not None
    for line in running.stderr:
        if "all of lowerings off" in line:
            break
    time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "without lowerings" in out
    assert "stopped      interrupted" in out


@pytest.mark.slow
def test_a_kernel_that_is_wrong_only_when_fused(recorded_script: Callable[..., Path], server: ForkServer) -> None:
    source = """
import torch
@torch.compile
def step(x):
    y = torch.tanh(x)
    return y.relu(), (y * x).sigmoid()
step(torch.randn(16, 32))
"""
    run = recorded_script(source, name="pair.py", inputs="first")
    result = found(run / "0_0/inference", server, "planted_fusion", by=None)
    assert [finding.kind for finding in result.findings][:2] == ["fusion", "lowering"]
    assert "First wrong node: `tanh`" in result.sentence
    assert "only fused with `relu`, `mul`" in result.sentence
    assert result.verdict.where is not None
    assert result.verdict.where.node == "tanh"
