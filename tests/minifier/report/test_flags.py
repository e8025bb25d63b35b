"""What a repro answers on its command line: 1, 0, 2 or 125; its fault asked away; changes that may stand in it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from graphdbg.dumps.program.entering import plain_change
from graphdbg.dumps.schema import Ambient
from graphdbg.minifier.report.bundle import COMMAND_PROGRAM
from graphdbg.minifier.report.trying import candidates, offs
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import ACCURACY, CRASH, call, case_of, node, record_of, relu_record, tensor

PLANTED = Path(__file__).resolve().parents[2] / "planted"
WORKAROUND = """import torch
from torch._inductor.lowering import make_fallback
make_fallback(torch.ops.aten.relu.default, warn=False, override_decomp=True)
torch.compiler.config.cache_key_tag = "without aten.relu.default\""""


@pytest.mark.parametrize(("flags", "code"), [((), 2), (("--git-bisect",), 125)])
def test_a_missing_package_is_no_answer(flags: tuple[str, ...], code: int, tmp_path: Path) -> None:
    program = tmp_path / "repro.py"
    program.write_text(next(candidates(case_of(relu_record()))).text)
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')")
    done = subprocess.run([sys.executable, str(program), *flags], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "cannot tell: ImportError('there is no torch here')" in done.stdout


@pytest.mark.parametrize(
    ("command", "flags", "code"),
    [
        ("exit 3", (), 1),
        ("exit 0", (), 0),
        ("exit 4", (), 2),
        ("exit 4", ("--git-bisect",), 125),
        ("exit 3", ("--without-fault",), 2),
    ],
)
def test_a_command_of_the_users(command: str, flags: tuple[str, ...], code: int, tmp_path: Path) -> None:
    program = tmp_path / "repro.py"
    program.write_text(COMMAND_PROGRAM.format(command=command, ending="exit code 3", which="0a1b2c3d"))
    assert subprocess.run([sys.executable, str(program), *flags], capture_output=True, check=False).returncode == code


def test_what_is_asked_away_first() -> None:
    plain, planted = case_of(relu_record(None)), case_of(relu_record())
    assert [off.off for off in offs(plain)] == ["eager"]
    assert [off.off for off in offs(planted)] == ["left out", "eager"]
    assert [off.off for off in offs(replace(planted, workaround=WORKAROUND))] == ["left out", "work-around", "eager"]
    assert [off.off for off in offs(replace(plain, workaround=WORKAROUND))] == ["work-around", "eager"]
    assert [off.off for off in offs(replace(plain, imports=("mine",)))] == ["left out", "eager"]
    assert [off.off for off in offs(replace(plain, imports=("mine",), needs_imports=True))] == ["eager"]


def test_each_way_stands_in_the_program() -> None:
    case = case_of(relu_record())
    texts = {off.off: next(candidates(off)).text for off in offs(replace(case, workaround=WORKAROUND))}
    assert "if FAULT:\n    torch._inductor.config.cpp.inject_relu_bug" in texts["left out"]
    assert "if not FAULT:  # the work-around\n    from torch._inductor.lowering" in texts["work-around"]
    assert "--without-fault: with the work-around under `if not FAULT`." in texts["work-around"]
    assert 'torch.compile(graph, backend="inductor" if FAULT else "eager"' in texts["eager"]


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "torch._inductor.config.x = __import__('os').system('x')",
        "make_fallback(print(1))",
        "torch._inductor.config.x = 1; import os",
        "torch.ops.load_library('x')",
        "",
        "from torch._inductor.lowering import os",
    ],
)
def test_a_text_of_a_file_is_no_work_around(line: str) -> None:
    assert plain_change(f"{WORKAROUND}\n{line}" if line else "") == ""


def test_known_changes() -> None:
    for code in (WORKAROUND, "import torch._inductor.config\ntorch._inductor.config.cpp.simdlen = 1"):
        assert plain_change(code) == code


def test_what_is_written_is_compared_also_where_nothing_is_returned() -> None:
    copy = call("copy_", "aten.copy_.default", node("x"), node("y"), value=tensor(4))
    silent = next(candidates(case_of(record_of({"x": tensor(4), "y": tensor(4)}, [copy], []), ACCURACY))).text
    assert "    return [*function(*inputs), *inputs]" in silent
    assert "eager = run(graph, make_inputs())" in silent
    plain, frames = tensor(4, 4), structs.replace(tensor(4, 4), stride=[2, 1])
    for inputs, wide in (
        ({"x": tensor(4, storage=0), "y": tensor(4, storage=0)}, "widened(make_inputs())"),
        ({"x": frames, "y": plain}, "widened(make_inputs())"),
        ({"x": plain, "y": plain}, "[x.double() for x in make_inputs()]"),
    ):
        text = next(candidates(case_of(record_of(inputs, [copy], []), ACCURACY))).text
        assert f"exact = run(graph, {wide})" in text


def test_float64_inputs_keep_what_lies_between_elements_where_it_may_be_read() -> None:
    spaced = structs.replace(tensor(4), stride=[2])
    for target, shape, wide in (
        ("aten.as_strided_copy.default", spaced, "widened(make_inputs())"),
        ("aten.as_strided_copy.default", tensor(4), "[x.double() for x in make_inputs()]"),
        ("aten.neg.default", spaced, "[x.double() for x in make_inputs()]"),
    ):
        reading = call("out", target, node("x"), *([[2], [1]] if "strided" in target else []), value=tensor(2))
        text = next(candidates(case_of(record_of({"x": shape}, [reading], ["out"]), ACCURACY))).text
        assert f"exact = graph(*{wide})" in text, text


def test_a_broken_promise_of_an_operator_is_looked_for_by_torchs_own_comparison() -> None:
    failure = Signature("metadata", "run", detail="stride")
    text = next(candidates(case_of(relu_record(None), failure, rung="debug_nop"))).text
    assert "with CrossRefFakeMode(only_check_ops_with_meta=False):" in text


OLDER = """import torch._prims_common as common
check = common.check_significant_strides
def older(a, b, *, only_cuda=True, allow_rhs_unbacked=False):
    return check(a, b, only_cuda=older.__kwdefaults__["only_cuda"], allow_rhs_unbacked=allow_rhs_unbacked)
common.check_significant_strides = older
"""
"""Torch 2.11 asks about strides without a word of the CPU's."""


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", OLDER], ids=["torch 2.13", "torch 2.11"])
def test_strides_on_the_cpu_are_compared_by_each_torch(before: str, tmp_path: Path) -> None:
    silu = call("silu", "aten.silu.default", node("x"), value=tensor(4, 8))
    record = record_of({"x": tensor(4, 8)}, [silu], ["silu"], ambient=Ambient(grad=False))
    case = replace(
        case_of(record, Signature("metadata", "run", detail="stride"), rung="debug_nop"), imports=("planted_strides",)
    )
    text = next(candidate.text for candidate in candidates(case) if candidate.case.imports)
    (tmp_path / "repro.py").write_text(before + text)
    environ = os.environ | {"PYTHONPATH": str(PLANTED)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "repro.py")], capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 1, done.stderr
    assert "Stride mismatch" in done.stderr


def test_another_exception_is_raised_on() -> None:
    text = next(candidates(case_of(relu_record(), CRASH))).text
    assert "    if ERROR not in text or not like(WORDS, text):\n        raise" in text
