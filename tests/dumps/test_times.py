"""Where the time of a run went: each compile by phase, why it was compiled, and graph breaks, from the journals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.store import open_run
from graphdbg.dumps.why.times import keep_steady, of_run

from .graphs import new_run

SCRIPT = """
import torch

@torch.compile(backend="aot_eager")
def f(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y * x.shape[0]

f(torch.randn(3, requires_grad=True)).sum().backward()
f(torch.randn(5, requires_grad=True)).sum().backward()
"""


@pytest.mark.long
def test_compiles_are_told_by_phase_and_cause(recorded_script: Callable[..., Path]) -> None:
    result = of_run(open_run(recorded_script(SCRIPT)))
    causes = [item.cause.partition(":")[0] for item in result]
    assert causes.count("first") == 1
    assert causes.count("recompile") >= 1
    assert any("size" in item.cause for item in result if item.cause.startswith("recompile"))
    assert all(item.dynamo_s is not None and item.aot_s is not None and item.cache == "off" for item in result)
    assert sum(item.breaks for item in result) >= 1
    assert [item.compile_s for item in result] == sorted((item.compile_s for item in result), reverse=True)


def test_a_backward_that_is_compiled_with_its_forward_is_counted_once(tmp_path: Path, monkeypatch) -> None:
    _, process = new_run(tmp_path / "myrun")
    clock = iter(range(1, 100))
    monkeypatch.setattr("time.time", lambda: float(next(clock)))
    process.journal.event("why", what="frame", compile="0_0", function="f", file="m.py", line=1)
    stages = {"dynamo": 9.0, "forward": 3.0, "backward": 4.0}
    for stage in stages:
        process.journal.event("captured", graph=f"0_0/{stage}", stage=stage)
        process.journal.event("compiling", graph=f"0_0/{stage}")
    for stage in reversed(stages):
        process.journal.event("compiled", graph=f"0_0/{stage}", seconds=stages[stage])
    (result,) = of_run(open_run(tmp_path / "myrun"))
    assert (result.aot_s, result.inductor_s, result.backward_s) == (2.0, 3.0, 4.0)
    assert [(phase, end - start) for phase, start, end in result.spans] == [
        ("dynamo", 1.0),
        ("aot", 7.0),
        ("inductor", 4.0),
        ("backward", 1.0),
    ]


@pytest.mark.long
def test_the_table_has_what_was_measured(
    recorded_script: Callable[..., Path], capsys, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = open_run(recorded_script(SCRIPT))
    assert command(["ls", str(run.path), "--time"]) == 0
    assert "--symptom slow" in capsys.readouterr().err
    keep_steady(run, {of_run(run)[0].id: (0.002, 0.004)})
    assert command(["ls", str(run.path), "--time"]) == 0
    assert "2.00 ms" in (text := capsys.readouterr().out)
    assert "4.00 ms" in text
