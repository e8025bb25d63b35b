"""Real bugs of torch.compile from a plain user script to a repro in clean processes, by the commands that a user types.

Slow, but for a few short ones. What each case must show is written in its own file (`cases/`); see `chain`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _chain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("real_bugs_chain", Path(__file__).with_name("chain.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


chain = _chain()
FAST = {("007", "alone")}
ALL = [(number, where) for number in chain.CASES for where in chain.WHERE]


@pytest.mark.parametrize(
    ("number", "where"),
    [pytest.param(*one, marks=[] if one in FAST else [pytest.mark.slow], id="-".join(one)) for one in ALL],
)
def test_from_a_script_to_a_repro(number: str, where: str, tmp_path: Path) -> None:
    row = chain.follow(number, where, tmp_path / "work")
    assert row.good, row
