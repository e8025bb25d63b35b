"""`graphdbg check` on saved graphs: exit codes, the report, JSON, a graph with custom ops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import graphdbg
from tests.planted.lying_ops import OPS


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two saved graphs with dynamic shapes: `healthy`, and `lies` with two origins."""
    folder = tmp_path_factory.mktemp("cases")
    inputs = [torch.randn(6, 6)]
    healthy = make_fx(lambda x: [torch.cos(x.t())], tracing_mode="symbolic")(*inputs)
    lies = make_fx(lambda x: [torch.cos(OPS.stride(x + 1)), OPS.mutation(x * 2, x)], tracing_mode="symbolic")(*inputs)
    graphdbg.save_graph(healthy, inputs, folder / "healthy")
    graphdbg.save_graph(lies, inputs, folder / "lies")
    return folder


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphdbg", "check", *arguments]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "planted")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_a_healthy_graph_exits_with_0(cases: Path) -> None:
    done = check(cases, "healthy")
    said = "OK\n\nNo mismatch: all 3 values are what their metadata says."
    assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr


@pytest.mark.long
def test_a_graph_that_lies_exits_with_1_and_prints_all_findings(cases: Path) -> None:
    done = check(cases, "lies", "--import", "lying_ops", "--json")
    assert done.returncode == 1, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    origins = [row for row in document["findings"] if row["origin"]]
    assert [row["node"] for row in origins] == ["stride", "mutation"]
    assert document["text"] == "2 origins, 1 inherited."
    assert (document["verdict"], document["kind"], document["where"]["node"]) == ("fails", "metadata", "stride")
    assert "expected (6, 1), got (1, 6) with s" in origins[0]["sentence"]
    assert origins[0]["mismatches"][0]["traced"].startswith("(s")
    inherited = next(row for row in document["findings"] if not row["origin"])
    assert (inherited["op"], inherited["under"]) == ("aten.cos.default", ["stride"])


@pytest.mark.slow
def test_an_op_that_is_not_registered_is_the_users_mistake(cases: Path) -> None:
    done = check(cases, "lies")
    assert done.returncode in (2, 3)
    assert "lying::stride" in done.stderr
    assert "Traceback" not in done.stderr
