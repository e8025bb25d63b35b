"""Every kind of failure inside a model of at least 300 nodes: minified by the commands that a user types, shown with
torch alone.

What each case must show is written in its own file (`kinds/`); see `chain`. The whole of it is slow.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent


def _chain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reach_chain", HERE / "chain.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


chain = _chain()
ASKED = {
    "compile crash",
    "C++ compile error",
    "run-time error",
    "segfault",
    "hang",
    "wrong number forward",
    "wrong gradient",
    "NaN",
    "stride",
    "memory",
    "flaky 0.6",
    "dynamic-shape only",
    "cond body",
    "custom op",
}


def test_there_is_a_case_of_each_kind() -> None:
    kinds = [runpy.run_path(str(path))["KIND"] for path in chain.KINDS.values()]
    assert set(kinds) >= ASKED


@pytest.mark.long
@pytest.mark.parametrize("name", ["transformer", "mixture", "unet", "gru"])
def test_a_host_has_300_nodes(name: str) -> None:
    hosts = runpy.run_path(str(HERE / "hosts.py"))
    assert name in hosts["HOSTS"]
    model, arguments = hosts["host"](name, lambda x: (x, (x,)))
    counts: list[int] = []

    def count(gm: torch.fx.GraphModule, _: Any) -> Any:
        counts.append(len(gm.graph.nodes))
        return gm.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=count, fullgraph=True)(*arguments)
    assert counts[0] >= 300


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(chain.KINDS))
def test_from_a_model_to_a_repro(name: str, tmp_path: Path) -> None:
    row = chain.follow(name, tmp_path / "work")
    assert row.complaints(runpy.run_path(str(chain.KINDS[name]))) == [], row
