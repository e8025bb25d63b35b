"""program.py: a plain program for every kind that has one, clean and short; what fails the same way; and real runs."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.program.case import Case
from graphdbg.dumps.program.plain import endings, program_text
from graphdbg.dumps.program.text import CannotExpressError
from graphdbg.dumps.redact import Redactor
from graphdbg.dumps.schema import SymbolRecord, TensorValue
from graphdbg.minifier.report import bundle, plain_program
from graphdbg.minifier.report.plain_program import fails_so
from graphdbg.minifier.report.trying import Asked, candidates, marked
from graphdbg.minifier.report.verify import Trial
from graphdbg.toolkit.signature import Signature

from .cases import ACCURACY, CRASH, call, case_of, node, record_of, relu_record, tensor
from .test_bundle import case_folder
from .test_length import FAILURES, RECORDS

WITHOUT = {"rounding", "mutation", "alias", "slow", "peak", "out of memory"}
"""Kinds that no plain line shows."""


def texts(case: Case, **more: Any) -> list[str]:
    """The programs that are tried."""
    script = next(candidates(case))
    names = {one.name for one in case.record.graph.nodes}
    return [program_text(case, script, ending, names, **more) for ending in endings(case)]


def test_every_kind_has_a_short_clean_program_or_a_reason(tmp_path: Path) -> None:
    written: set[str] = set()
    for shape, made in RECORDS.items():
        for kind, failure in FAILURES.items():
            case = case_of(made(3), failure)
            try:
                found = texts(case)
            except CannotExpressError as error:
                assert kind in WITHOUT or kind == "small error", (shape, kind, error)
                continue
            for text in found:
                ast.parse(text)
                assert len(text.splitlines()) <= 32 and max(map(len, text.splitlines())) <= 120, (shape, kind, text)
                assert text.startswith("# torch.compile ") and "import graphdbg" not in text
                written.add(text)
    for number, text in enumerate(written):
        (tmp_path / f"program{number}.py").write_text(text)
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    rules = ["--select", "E,F,W,I,B,UP", "--line-length", "130"]
    done = subprocess.run([ruff, "check", "--isolated", "--no-cache", "--quiet", *rules, str(tmp_path)], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[:3000]


def test_a_person_would_write_it_so() -> None:
    calls = [
        call("soft", "aten._softmax.default", node("x"), -1, False, value=tensor(2, 9)),
        call("part", "aten.slice.Tensor", node("soft"), 1, 2, 4, value=tensor(2, 2)),
        call("twice", "aten.mul.Tensor", node("part"), 2.0, value=tensor(2, 2)),
        call("flat", "aten.view.default", node("twice"), [4], value=tensor(4)),
    ]
    record = record_of({"x": tensor(2, 9)}, calls, ["flat"], versions={"torch": "2.13.0"})
    [text] = texts(case_of(record, ACCURACY))
    assert text.partition("import torch\n")[2] == (
        "\n\ndef f(x):\n"
        "    soft = torch.softmax(x, -1)\n"
        "    part = soft[:, 2:4]\n"
        "    twice = part * 2.0\n"
        "    flat = twice.view([4])\n"
        "    return flat\n\n\n"
        "torch.manual_seed(0)\n"
        "x = torch.randn(2, 9)\n"
        "expected = f(x)\n"
        "actual = torch.compile(f)(x)\n"
        "torch.testing.assert_close(actual, expected)\n"
    )
    [control] = texts(case_of(record, ACCURACY), compiled=False)
    assert control == text.replace("torch.compile(f)(x)", "f(x)")
    [aten] = [program_text(case_of(record), next(candidates(case_of(record))), one, set()) for one in endings(case_of(record))]
    assert "torch.ops.aten._softmax.default(x, -1, False)" in aten and "aten names" in aten


@pytest.mark.parametrize("kind", ["accuracy", "missing error", "crash", "signal"])
def test_what_draws_is_seeded_before_each_run(kind: str) -> None:
    draw = call("y", "aten.bernoulli.p", node("x"), 0.5, value=tensor(4))
    for text in texts(case_of(record_of({"x": tensor(4)}, [draw], ["y"]), FAILURES[kind])):
        lines = ast.unparse(ast.parse(text)).splitlines()
        runs = [at for at, line in enumerate(lines) if line.endswith(("f(x)", "torch.compile(f)(x)"))]
        assert runs and all("torch.manual_seed(0)" in "".join(lines[at - 1 : at]) for at in runs), text


def test_gradients_are_compared_after_the_outputs() -> None:
    value = tensor(4, requires_grad=True)
    record = record_of({"x": value}, [call("y", "aten.exp.default", node("x"), value=value)], ["y"], stage="dynamo")
    outputs, sums, tangents = texts(case_of(record, ACCURACY))
    assert "x = torch.randn(4, requires_grad=True)\n" in outputs
    assert "actual = torch.autograd.grad(torch.compile(f)(x).sum(), [x])\n" in sums
    assert "torch.randn_like(out)" in tangents


def test_dynamic_sizes_are_marked() -> None:
    value = TensorValue("float32", ["s0", 4], [4, 1])
    record = record_of({"x": value}, [call("y", "aten.tanh.default", node("x"), value=value)], ["y"],
                       symbols=[SymbolRecord("s0", hint=6)])  # fmt: skip
    case = case_of(record, ACCURACY)
    script = next(candidates(case))
    [ending] = endings(case)
    assert "torch.compile(f, dynamic=True)(x)" in program_text(case, script, ending, {"y"})
    text = program_text(case, next(marked(script, needed=True)), ending, {"y"})
    assert "torch._dynamo.mark_dynamic(x, 0)\n" in text and "torch.compile(f)(x)" in text
    assert "# x, dimension 0, must be dynamic" in text


@pytest.mark.parametrize(
    ("failure", "code", "output", "same"),
    [
        (CRASH, 1, "Traceback\n  x\ntorch.CppCompileError: ‘compile’ was not declared in this scope", True),
        (CRASH, 1, "Traceback\n  x\nCppCompileError: something else", False),
        (CRASH, 1, "  CppCompileError ‘compile’ was not declared in this scope\nValueError: y", False),
        (CRASH, 0, "", False),
        (ACCURACY, 1, "Traceback\n  raise\nAssertionError: Tensor-likes are not close!", True),
        (ACCURACY, 1, "Traceback\n  raise\nRuntimeError: AssertionError", False),
        (FAILURES["signal"], -11, "compiling\n", True),
        (FAILURES["signal"], -11, "", False),
        (FAILURES["signal"], -6, "compiling\n", False),
        (FAILURES["hang"], None, "compiling\n", True),
        (FAILURES["hang"], 1, "compiling\n", False),
    ],
)
def test_what_fails_the_same_way(failure: Signature, code: int | None, output: str, same: bool) -> None:
    case = case_of(relu_record(), failure)
    assert fails_so(case, endings(case)[0], Trial(code, output, 1.0)) is same


def test_what_has_no_plain_program_says_why(tmp_path: Path) -> None:
    asked = Asked(case_folder(tmp_path / "case", relu_record()), 3, Redactor(), lambda _: None, {}, "")
    case = case_of(relu_record(), ACCURACY)
    inner = next(script for script in candidates(case) if script.entry == "compile_fx_inner")
    made = plain_program.write(inner, tmp_path, asked)
    assert made.path is None and "behind AOTAutograd" in made.reason
    many = record_of({"x": tensor(2)}, [call(f"y{at}", "aten.exp.default", node("x")) for at in range(30)], ["y0"])
    script = next(candidates(case_of(many)))
    made = plain_program.write(script, tmp_path, asked)
    assert "30 operations" in made.reason


def test_names_are_checked_with_values(tmp_path: Path) -> None:
    calls = [
        call("y", "aten.mul.Tensor", node("x"), node("x"), value=tensor(4, 8)),
        call("z", "aten.alias.default", node("y"), value=tensor(4, 8)),
    ]
    folder = case_folder(tmp_path / "case", record_of({"x": tensor(4, 8)}, calls, ["z"])).path
    assert plain_program.spelled(str(folder)) == {"y"}


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "failure"), [("accuracy", ACCURACY), ("compile_error", CRASH)])
def test_it_is_written_where_it_fails_in_fresh_processes(plant: str, failure: Signature, tmp_path: Path) -> None:
    saved = case_folder(tmp_path / "case", relu_record(plant))
    report = bundle.emit_report(saved, tmp_path / "out", signature=failure, python=True, narrate=str)
    assert report.python is not None, report.python_reason
    text = report.python.read_text()
    assert "torch.relu(x)" in text and len(text.splitlines()) <= 25
    assert report.issue.read_text().index("`program.py`") < report.issue.read_text().index("`repro.py`")
    assert report.as_json()["python"] == str(report.python)


@pytest.mark.slow
def test_it_is_not_written_where_it_ends_well(tmp_path: Path) -> None:
    case = case_of(relu_record(None), ACCURACY)
    saved = case_folder(tmp_path / "case", relu_record(None))
    made = plain_program.write(next(candidates(case)), tmp_path, Asked(saved, 3, Redactor(), lambda _: None, {}, ""))
    assert made.path is None and "did not show it in run 1 of 3" in made.reason
    assert not (tmp_path / plain_program.NAME).exists()
