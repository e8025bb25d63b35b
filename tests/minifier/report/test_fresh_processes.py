"""The real thing: emitted programs in fresh processes, with the bug, without it, and where they cannot tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphdbg.dumps.program.repro import Script
from graphdbg.dumps.schema import GraphRecord
from graphdbg.minifier.report import verify
from graphdbg.minifier.report.trying import candidates
from graphdbg.toolkit.isolation import fresh
from graphdbg.toolkit.isolation.cache import toolchain_seed
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import ACCURACY, CRASH, call, case_of, node, record_of, relu_record, tensor


def laid(folder: Path, script: Script) -> Path:
    """The program on disk."""
    path = folder / "repro.py"
    path.write_text(script.text)
    return path


def scripts(record: GraphRecord, failure: Signature, *, trust: bool = False) -> dict[str, Script]:
    """The seeded programs by how they enter."""
    case = replace(case_of(record, failure), trust=trust)
    return {script.entry: script for script in candidates(case) if script.way == "seeded"}


@pytest.fixture(scope="module")
def seed() -> Path | None:
    """The toolchain probes, where a fork server has left some."""
    return toolchain_seed()


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["torch.compile", "compile_fx_inner"])
def test_wrong_numbers(entry: str, tmp_path: Path, seed: Path | None) -> None:
    trial = fresh.run_once(laid(tmp_path, scripts(relu_record("accuracy"), ACCURACY)[entry]), seed=seed)
    assert trial.code == fresh.BUG, trial.output
    assert "BUG: output 0 is" in trial.output


@pytest.mark.slow
def test_gone_without_the_bug_and_unsure_of_another_failure(tmp_path: Path, seed: Path | None) -> None:
    gone = laid(tmp_path, scripts(relu_record(None), ACCURACY)["torch.compile"])
    assert fresh.run_once(gone, seed=seed).code == fresh.GONE
    other = Signature("crash", "compile", "ValueError", "something else", raw="something else")
    unsure = laid(tmp_path, scripts(relu_record("compile_error"), other)["torch.compile"])
    trial = fresh.run_once(unsure, seed=seed)
    assert trial.code == fresh.UNSURE, trial.output
    assert "BUG:" not in trial.output


@pytest.mark.slow
def test_a_compile_error_and_its_layer(tmp_path: Path, seed: Path | None) -> None:
    program = laid(tmp_path, scripts(relu_record("compile_error"), CRASH)["torch.compile"])
    trial = fresh.run_once(program, seed=seed)
    assert trial.code == fresh.BUG, trial.output
    codes = verify.probe(program)
    assert codes == {"eager": 0, "aot_eager": 0, "aot_eager_decomp_partition": 0}


@pytest.mark.slow
def test_a_missing_op_or_device_is_no_bug(tmp_path: Path) -> None:
    for target, value in (("aten.no_such_op.default", tensor(2)), ("aten.relu.default", tensor(2, device="cuda:99"))):
        record = record_of({"x": value}, [call("y", target, node("x"))], ["y"])
        trial = fresh.run_once(laid(tmp_path, scripts(record, ACCURACY)["torch.compile"]))
        assert trial.code == fresh.UNSURE, trial.output


@pytest.mark.slow
def test_a_setting_that_this_torch_lacks_is_no_bug(tmp_path: Path) -> None:
    record = relu_record(None)
    record.config["inductor"] = {"no_such_setting": 1}
    script = scripts(record, ACCURACY, trust=True)["torch.compile"]  # else what is unknown is left out
    assert "no_such_setting" in script.text.partition('"""')[2].partition('"""')[2]
    trial = fresh.run_once(laid(tmp_path, script))
    assert trial.code == fresh.UNSURE, trial.output
