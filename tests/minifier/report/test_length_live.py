"""The short programs do what the long ones did: 1 with the planted bug, 0 without it, for gradients, casts, integers,
symbols."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from graphdbg.dumps.program.repro import Script
from graphdbg.dumps.schema import GraphRecord
from graphdbg.minifier.report.trying import candidates, fixed, marked
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import ACCURACY, CRASH, case_of
from .test_length import RECORDS, SMALL_ERROR, with_values

SHAPES = ["plain", "cast", "integers beside", "gradient", "all of it", "dynamic", "dynamic gradient", "autocast"]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What the programs set is theirs alone."""
    graphs, plans = (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    )
    with graphs, plans, torch.enable_grad():
        yield
    torch.set_autocast_enabled("cpu", False)


def exit_code(script: Script, folder: Path) -> int:
    """What the program exits with, run in this process."""
    (folder / "repro.py").write_text(script.text)
    if script.sidecar is not None:
        (folder / "repro.safetensors").write_bytes(script.sidecar)
    torch._dynamo.reset()
    with torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": None}), torch.enable_grad():
        try:
            runpy.run_path(str(folder / "repro.py"))
        except SystemExit as end:
            return 1 if isinstance(end.code, str) else int(end.code or 0)
    return 0


def without_bug(record: GraphRecord) -> GraphRecord:
    return msgspec.structs.replace(record, config={})


@pytest.mark.slow
@pytest.mark.parametrize("failure", [ACCURACY, SMALL_ERROR], ids=["accuracy", "small"])
@pytest.mark.parametrize("shape", SHAPES)
def test_wrong_numbers_and_right_ones(shape: str, failure: Signature, tmp_path: Path) -> None:
    record = RECORDS[shape](4)  # the fourth node of some is the first relu
    for script in candidates(case_of(record, failure)):
        assert exit_code(script, tmp_path) == 1, script.text
    for script in candidates(case_of(without_bug(record), failure)):
        assert exit_code(script, tmp_path) == 0, script.text


@pytest.mark.slow
def test_sizes_fixed_and_marked(tmp_path: Path) -> None:
    first = next(candidates(case_of(RECORDS["dynamic gradient"](3), ACCURACY)))
    narrow = fixed(first)
    assert narrow is not None
    for script in (narrow, *marked(first, needed=False)):
        assert exit_code(script, tmp_path) == 1, script.text


@pytest.mark.slow
def test_values_beside_the_program_and_in_it(tmp_path: Path) -> None:
    ways: dict[tuple[str, bool], int] = {}
    record = without_bug(RECORDS["plain"](2))
    for script in candidates(with_values(case_of(record, ACCURACY))):
        ways[script.way, script.sidecar is not None] = exit_code(script, tmp_path)
    assert ways == {("seeded", False): 0, ("literal", True): 0}


@pytest.mark.slow
def test_other_kinds_are_gone_without_the_bug(tmp_path: Path) -> None:
    kinds = [
        CRASH,
        Signature("nan", "compare", detail="nan"),
        Signature("nan", "compare", detail="no nan"),
        Signature("accuracy", "compare", detail="signed zero"),
        Signature("metadata", "compare", detail="stride"),
        Signature("metadata", "compare", detail="dtype"),
        Signature("metadata", "compare", detail="mutation"),
        Signature("metadata", "compare", detail="no alias"),
        Signature("missing_error", "run", "IndexError", "index out of range", raw="index out of range"),
        Signature("slow", "compile", message="500"),
        Signature("memory", "run", detail="peak", message="50000000000"),
    ]
    for shape in ("plain", "all of it"):
        for failure in kinds:
            for script in candidates(case_of(without_bug(RECORDS[shape](3)), failure)):
                assert exit_code(script, tmp_path) == 0, script.text
