"""On a CUDA GPU: an access out of bounds and a kernel that never ends, inside a 300-node model; the device is free
afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

PLANTED = Path(__file__).parent.parent / "planted"
CULPRIT = "planted_cuda.scale.default"


def network(scale: Any) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """About 300 nodes of a transformer-like model; `scale` sits in the middle."""
    torch.manual_seed(0)

    def model(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for number in range(13):
            weight = weights[number % len(weights)]
            hidden = torch.nn.functional.layer_norm(x, (32,))
            mixed = torch.softmax((hidden @ weight) @ hidden.transpose(-1, -2) / 6, -1)
            x = x + torch.tanh(mixed @ hidden) * 0.5
            if number == 6:
                x = scale(x) * 0.5 + 1
        return (x,)

    inputs = [torch.randn(4, 16, 32, device="cuda"), *(torch.randn(32, 32, device="cuda") / 6 for _ in range(4))]
    return make_fx(model)(*inputs), inputs


def used_mib() -> int:
    """Memory in use on all devices."""
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(int(line) for line in done.stdout.split())


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The saved model, made in a process of its own so that this one holds no device."""
    out = tmp_path_factory.mktemp("cuda") / "case"
    code = (
        f"import graphdbg, torch\n"
        f"from tests.planted import planted_cuda_death\n"
        f"from tests.minifier import test_deaths_gpu as here\n"
        f"gm, inputs = here.network(torch.ops.planted_cuda.scale)\n"
        f"print(len(gm.graph.nodes)); graphdbg.save_graph(gm, inputs, {str(out)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PLANTED.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 280
    return out


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "flags"), [("illegal", []), ("hang", ["--hangs", "30"])])
def test_the_culprit_is_found_and_the_device_is_free(case: Path, tmp_path: Path, kind: str, flags: list[str]) -> None:
    case = shutil.copytree(case, tmp_path / "case")  # its own: what one kind came to is kept for the next command
    before, began = used_mib(), time.monotonic()
    module = f"planted_cuda_{kind}"  # the kind in its text: children have no variables of ours
    text = f"import os\nos.environ['PLANTED_CUDA'] = {kind!r}\nimport planted_cuda_death\n"
    (tmp_path / f"{module}.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), str(PLANTED), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "graphdbg", "minify", case, "-o", tmp_path / "out", "--import", module, *flags]
    done = subprocess.run([*map(str, command), "--json"], env=environment, capture_output=True, text=True)
    last = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    messages = {name: last.get(name) for name in ("queries", "nodes", "signature", "verified")}
    print(kind, f"{time.monotonic() - began:.0f} s", messages)
    assert done.returncode == 0, done.stderr
    graph = json.loads((tmp_path / "out" / "case" / "graph.json").read_text())
    targets = [node["target"] for node in graph["graph"]["nodes"] if node["op"] == "call_function"]
    assert targets == [CULPRIT]
    assert last["verified"] == [3, 3]
    assert ("illegal memory access" if kind == "illegal" else "hang in run") in last["signature"]
    end = time.monotonic() + 20
    while used_mib() > before + 8 and time.monotonic() < end:
        time.sleep(0.5)
    assert used_mib() <= before + 8
