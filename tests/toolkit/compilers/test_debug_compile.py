"""debug_compile: a folder that runs by itself, the command that shrinks it, never anybody else's path."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import aot_function
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg import GraphdbgError, load_graph
from graphdbg.toolkit.compilers import debug_compile, nop


@pytest.mark.long
def test_forward_and_backward_lie_in_numbered_folders_that_run(tmp_path: Path) -> None:
    folder, out = tmp_path / "de bug", io.StringIO()
    x = torch.ones(3, 4, requires_grad=True)
    compiler = debug_compile.to(folder, stream=out)
    aot_function(lambda x: (x.t() * x.shape[0]).sin(), fw_compiler=compiler, dynamic=True)(x).sum().backward()
    assert sorted(entry.name for entry in folder.iterdir()) == ["1_forward", "2_backward"]
    reported = out.getvalue()
    assert "it runs: " in reported
    for name in ("1_forward", "2_backward"):
        assert f"graphdbg minify {shlex.quote(str(folder / name))} --rung torchscript" in reported
        saved = load_graph(folder / name)
        assert saved.stage == name[2:]
        assert [tensor.shape for tensor in saved.inputs() if isinstance(tensor, torch.Tensor)]
    done = subprocess.run(
        [sys.executable, folder / "1_forward" / "graph.py"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "torch.float32 (4, 3) stride (1, 4)" in done.stdout


@pytest.mark.slow
def test_the_command_that_is_printed_is_one_that_shrinks(tmp_path: Path) -> None:
    out = io.StringIO()
    gm = make_fx(lambda x: x.sin() + 1)(torch.ones(3))
    debug_compile.to(tmp_path / "other", compiler=nop, stream=out)(gm, [torch.ones(3)])
    (command,) = [line.partition(": ")[2] for line in out.getvalue().splitlines() if "shrink it" in line]
    words = shlex.split(command)
    assert words[:2] == ["graphdbg", "minify"]
    done = subprocess.run(
        [sys.executable, "-m", "graphdbg", *words[1:], "--max-time", "60"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 1, done.stderr  # a case that does not fail
    assert "does not fail" in done.stderr


def test_what_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(GraphdbgError, match="it is there already"):
        debug_compile.to(tmp_path / "mine")
    gm = make_fx(torch.sin)(torch.ones(3))
    with pytest.raises(GraphdbgError, match="exists"):
        debug_compile(gm, [torch.ones(3)], tmp_path / "mine")
    late = debug_compile.to(tmp_path / "late", stream=io.StringIO())
    (tmp_path / "late").mkdir()
    with pytest.raises(GraphdbgError, match="it is there already"):
        late(gm, [torch.ones(3)])
    assert not list((tmp_path / "late").iterdir())


def test_as_a_plain_compiler_it_makes_a_new_folder_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    gm = make_fx(lambda x: [x.add_(1)])(torch.ones(3))
    x = torch.ones(3)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    for number in (1, 2):
        compiled = debug_compile(gm, [x])
        assert (tmp_path / f"graphdbg-debug-{number}" / "graph.py").is_file()
    assert torch.equal(x, torch.ones(3))  # the run was on a copy
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(compiled([x])[0], torch.full((3,), 2.0))
    assert capsys.readouterr().out.count("it runs: 1 output\n") == 2


def test_the_folder_is_there_when_the_compiler_fails(tmp_path: Path) -> None:
    def broken(gm: Any, inps: Any) -> Any:
        raise RuntimeError("broken on purpose")

    out = io.StringIO()
    with pytest.raises(RuntimeError, match="broken on purpose"):
        debug_compile.to(tmp_path / "new", compiler=broken, stream=out)(
            make_fx(torch.sin)(torch.ones(3)), [torch.ones(3)]
        )
    assert (tmp_path / "new" / "1_inference" / "graph.json").is_file()
    assert "--rung inductor" in out.getvalue()
