"""Real bugs of torch.compile from a plain user script to a repro in clean processes, by the commands that a user types.

Those runs are slow. The fast tests take the Dynamo graphs of some cases and look at the failure alone. What each case
must show is written in its own file (`cases/`); see `chain`.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from graphdbg.dumps.live import save_graph
from graphdbg.dumps.schema import Ambient
from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.isolation import JUDGING, ForkServer
from graphdbg.toolkit.replaying.replay import replay


def _chain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("real_bugs_chain", Path(__file__).with_name("chain.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


chain = _chain()
ALL = [(number, where) for number in chain.CASES for where in chain.WHERE]
SEEN = (pytest.param("013", marks=pytest.mark.slow), "106")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "where"), ALL)
def test_from_a_script_to_a_repro(number: str, where: str, tmp_path: Path) -> None:
    row = chain.follow(number, where, tmp_path / "work")
    if "IN_NO_GRAPH" in runpy.run_path(str(chain.CASES[number])):
        assert row.rung.startswith("none: No graph fails")
        assert "no graph of" in row.trouble
    else:
        assert row.good, row


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(preload=JUDGING) as item:
        yield item


def captured(number: str, folder: Path) -> tuple[Path, str]:
    """The Dynamo graph of a case, saved with its inputs; and the text of its failure."""
    bug = runpy.run_path(str(chain.CASES[number]))
    torch.manual_seed(0)
    given = bug["inputs"]()
    seen: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, _: Any) -> Any:
        seen.append(gm)
        outputs = [node.meta["example_value"] for node in gm.graph.output_node().args[0]]
        return lambda *_: [torch.zeros(value.shape, dtype=value.dtype) for value in outputs]

    torch._dynamo.reset()
    grad = bug["MODE"] != "no_grad"
    with torch.set_grad_enabled(grad):
        torch.compile(bug["f"], backend=keep, fullgraph=True)(*given)
    path = save_graph(seen[0], list(given), folder / number, stage="dynamo", ambient=Ambient(grad=grad))
    return path, bug["SAYS"]


@pytest.mark.parametrize("number", SEEN)
def test_the_failure_is_seen(number: str, server: ForkServer, tmp_path: Path) -> None:
    path, says = captured(number, tmp_path)
    outcome = replay(load_graph(path), "inductor", outputs=False, server=server)
    assert outcome.signature is not None
    assert re.search(says, outcome.signature.text())
