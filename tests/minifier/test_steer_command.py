"""`graphdbg steer` on a real minification: a query that hangs is ended, a second process is refused, a kill loses no
order."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.live import save_graph
from graphdbg.dumps.process import start_ticks
from graphdbg.minifier.progress.watched import watched

pytestmark = pytest.mark.slow

CHECK = """
import json, os, sys, time
folder = sys.argv[1]
with open("asked", "a") as file:
    file.write("x")
if os.path.getsize("asked") in (5, 8):
    open("hung", "w").write(str(os.getpid()))
    time.sleep(1000)
nodes = json.load(open(folder + "/graph.json"))["graph"]["nodes"]
sys.exit(any("relu" in node.get("target", "") for node in nodes))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = torch.sin(x) + 1
        x = torch.relu(x)
        for _ in range(20):
            x = torch.cos(x) + 1
        return x

    folder = tmp_path_factory.mktemp("steer")
    inputs = [torch.randn(4, 6)]
    save_graph(make_fx(f)(*inputs), inputs, folder / "case")
    (folder / "check.py").write_text(CHECK)
    return folder


def words(*more: str) -> list[str]:
    return [sys.executable, "-m", "graphdbg", *more]


def steer(place: Path, *order: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(words("steer", "out", *order, "--json"), cwd=place, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def hung(place: Path) -> int:
    """The process of the check that hangs, once there is one."""
    deadline = time.monotonic() + 60
    while not (place / "hung").exists() or not (place / "hung").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pid = int((place / "hung").read_text())
    (place / "hung").unlink()
    return pid


def test_a_running_minification_is_steered_killed_and_resumed(place: Path) -> None:
    check = f"cmd: {shlex.quote(sys.executable)} check.py {{case}}"
    again = ("minify", "--resume", "-o", "out", "--check", check)
    first = subprocess.Popen(words("minify", "case", "-o", "out", "--check", check), cwd=place, stderr=subprocess.PIPE)
    try:
        pid = hung(place)
        refused = subprocess.run(words(*again), cwd=place, capture_output=True, text=True)
        assert refused.returncode == 2
        assert f"out is in use: process {first.pid} on " in refused.stderr
        code, reported, _ = steer(place, "skip")
        assert (code, reported["state"], reported["step"]) == (0, "applied", "windows")
        assert start_ticks(pid) is None, "the command that hung is gone"
        pid = hung(place)
        code, reported, _ = steer(place, "disable", "values")
        assert (code, reported["state"]) == (0, "waiting"), "no query is ended for another step's sake"
        code, reported, _ = steer(place, "pause")
        assert (code, reported["state"]) == (0, "applied")
        assert start_ticks(pid) is None
        code, reported, said = steer(place, "raise", "windows")
        assert (code, reported["state"]) == (1, "refused")
        assert "has begun already" in said
    finally:
        first.kill()
        first.communicate()
    code, _, said = steer(place, "skip")
    assert code == 2
    assert "no minification runs in out" in said
    assert "graphdbg minify --resume -o out" in said
    done = subprocess.run(words(*again, "--json", "--full"), cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["what"], line["state"]) for line in lines if line["event"] == "steered"] == [
        ("skip", "applied"),
        ("disable", "applied"),
    ]
    steps = [line["step"] for line in lines if line["event"] == "step"]
    assert "values" not in steps
    assert lines[-1]["nodes"] == 3
    assert lines[-1]["verified"] == [3, 3]
    followed = watched(place / "out")
    assert followed.story.life == 2
    assert followed.state == "ended"
