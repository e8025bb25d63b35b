"""Minifying in isolation, with real processes: a wrong number, interruption, kill and resume, a predicate, refusals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import load_graph
from graphdbg.minifier.minify import _with_settings, minify
from graphdbg.minifier.progress.outcome import summary
from graphdbg.toolkit.verdicts.identity import known_id

BUG = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}


def network() -> tuple[fx.GraphModule, list[Any]]:
    torch.manual_seed(0)

    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for weight in weights[:5]:
            x = torch.tanh(x @ weight) * 0.5 + x
        x = torch.relu(x)
        for weight in weights[5:]:
            x = torch.tanh(x @ weight) * 0.5 + x
        return (x,)

    inputs = [torch.randn(6, 12), *(torch.randn(12, 12) / 3 for _ in range(10))]
    return make_fx(f)(*inputs), inputs


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A case folder that fails in Inductor because of the planted relu bug."""
    gm, inputs = network()
    with inductor_config.patch(BUG):
        return _with_settings(save_graph(gm, inputs, tmp_path_factory.mktemp("cases") / "relu"))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "graphdbg", "minify", *map(str, arguments)]


@pytest.mark.long
def test_wrong_numbers_are_reduced_to_the_relu(tmp_path: Path) -> None:
    gm, inputs = network()
    with inductor_config.patch(BUG):
        result = minify(gm, inputs, out=tmp_path / "out")
    assert [node.target for node in result.module.graph.nodes if node.op == "call_function"] == [torch.relu]
    assert (result.nodes, len(result.inputs)) == (3, 1)
    assert result.input_bytes <= 16
    assert result.queries - result.asked["explanation"] <= 20
    assert result.asked["explanation"] <= 8
    assert result.verified == (3, 3)
    assert result.signature is not None
    assert result.signature.kind == "accuracy"
    assert [step[1] for step in result.history] == sorted((step[1] for step in result.history), reverse=True)
    document = json.loads((tmp_path / "out" / "case" / "case.json").read_text())
    assert document["signature"]["kind"] == "accuracy"
    assert summary(result, {})["signature_id"] == known_id(result.signature, load_graph(tmp_path / "out")) != ""
    assert document["original"]["nodes"] == len(gm.graph.nodes)
    assert document["record"] == result.verdict.plain()
    assert (result.verdict.verdict, result.verdict.kind, result.verdict.layer) == ("fails", "wrong_numbers", "inductor")
    assert load_graph(tmp_path / "out").record.config == {"inductor": {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}}
    assert document["needs"] == result.needs
    verdicts = {(row["what"], row["value"]): row["verdict"] for row in result.needs}
    assert verdicts["setting", "'accuracy'"] == "needed"
    assert [verdict for (what, _), verdict in verdicts.items() if what == "node"] == ["needed"], (
        "another operator passes"
    )
    assert verdicts["dtype", "float32"] == "replaceable"
    assert {verdict for (what, _), verdict in verdicts.items() if what == "dim"} == {"replaceable"}
    changed = [
        line for line in result.neighbour["diff"].splitlines() if line[0] in "+-" and line[:3] not in ("---", "+++")
    ]
    assert len(changed) in (2, 4), "the call, and its name where it is returned"
    assert all(("relu" in line) == (line[0] == "-") for line in changed)


def answers(out: Path) -> list[tuple[str, int]]:
    """What a journal has answers to, a torn last line left out."""
    path = out / "events.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []
    return [(line["case"], line["run"]) for line in lines if line["event"] == "answer"]


@pytest.mark.slow
def test_kills_and_resumes_repeat_nothing_and_end_the_same(case: Path, tmp_path: Path) -> None:
    calm = subprocess.run(
        command(case, "-o", tmp_path / "calm", "--json"), stdout=subprocess.PIPE, text=True, check=True
    )
    out = tmp_path / "out"
    for kill in range(3):
        known = len(answers(out))
        words = command("--resume", "-o", out) if kill else command(case, "-o", out)
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while len(answers(out)) < known + 3:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
    done = subprocess.run(command("--resume", "-o", out, "--json"), stdout=subprocess.PIPE, text=True, check=True)
    assert len(answers(out)) == len(set(answers(out)))
    first, last = json.loads(done.stdout.splitlines()[0]), json.loads(done.stdout.splitlines()[-1])
    assert (first["event"], first["graph"]) == ("start", str(case))
    assert first["known"] >= 9
    wanted = json.loads(calm.stdout.splitlines()[-1])
    for field in ("nodes", "input_bytes", "queries", "history", "verified", "verdicts"):
        assert last[field] == wanted[field], field
    assert (out / "repro.py").exists()
    assert not (out / ".work").exists()


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_and_says_where(case: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(case, "-o", out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("query"):
            os.kill(process.pid, signal.SIGINT)
            break
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert stdout.strip() == str(out / "case")
    assert f"graphdbg minify --resume -o {out}" in stderr
    assert "2 sanity, " in stderr
    assert len(load_graph(out).record.graph.nodes) < len(network()[0].graph.nodes)


@pytest.mark.slow
def test_a_case_that_does_not_fail_exits_1_and_bad_usage_2(tmp_path: Path) -> None:
    gm, inputs = network()
    save_graph(gm, inputs, tmp_path / "case")
    done = subprocess.run(command(tmp_path / "case", "-o", tmp_path / "out"), capture_output=True, text=True)
    assert done.returncode == 1
    assert "does not fail under inductor" in done.stderr
    assert f"graphdbg triage {tmp_path / 'case'}" in done.stderr
    assert not (tmp_path / "out").exists()
    done = subprocess.run(command(tmp_path / "case", "--check", "nonsense"), capture_output=True, text=True)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    done = subprocess.run(command("--resume", "-o", tmp_path / "none"), capture_output=True, text=True)
    assert done.returncode == 2
    assert "nothing to resume" in done.stderr


@pytest.mark.slow
def test_a_match_that_does_not_match_tells_the_failure(case: Path, tmp_path: Path) -> None:
    done = subprocess.run(command(case, "-o", tmp_path / "out", "--match", "nosuch"), capture_output=True, text=True)
    assert done.returncode == 1
    assert "it fails, but --match 'nosuch' does not match: accuracy in compare: " in done.stderr


def test_a_predicate_runs_in_this_process_and_its_exceptions_propagate() -> None:
    gm, inputs = network()
    processes: set[int] = set()

    def has_relu(gm: fx.GraphModule, inputs: Any) -> bool:
        processes.add(os.getpid())
        return any(node.target is torch.ops.aten.relu.default for node in gm.graph.nodes)

    result = minify(gm, inputs, check=has_relu)
    assert (result.nodes, [tuple(value.shape) for value in result.inputs]) == (3, [(1,)])
    assert result.inputs[0].tolist() == [1.0]
    assert processes == {os.getpid()}
    with pytest.raises(ZeroDivisionError):
        minify(gm, inputs, check=lambda gm, inputs: 1 // 0)
    with pytest.raises(UsageError, match="does not fail"):
        minify(gm, inputs, check=lambda gm, inputs: False)


def test_a_predicate_that_raises_at_other_sizes_keeps_those_that_it_knows() -> None:
    gm, inputs = network()
    width = inputs[0].shape[-1]

    def fails(gm: fx.GraphModule, inputs: Any) -> bool:
        if inputs[0].shape[-1] != width:
            raise LookupError("no such kernel")
        return any(node.target is torch.ops.aten.relu.default for node in gm.graph.nodes)

    result = minify(gm, inputs, check=fails)
    assert (result.nodes, result.inputs[0].shape[-1]) == (3, width)
    assert result.verdicts["invalid"] > 0


def test_the_command_imports_no_torch() -> None:
    code = "import sys, graphdbg.minifier.commands.minify, graphdbg.minifier.minify; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"False\s*", done.stdout)
