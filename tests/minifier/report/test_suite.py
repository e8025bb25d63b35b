"""A repro as a test of PyTorch's kind: its text, that it fails for a bug and passes without; the compiler is hardly
asked."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import torch

from graphdbg.cli import run as graphdbg
from graphdbg.dumps.program.repro import script_of
from graphdbg.dumps.program.suite import eager_of, failed_as, suite_of
from graphdbg.dumps.program.text import CannotExpressError
from graphdbg.minifier.report import as_test
from graphdbg.toolkit.verdicts.identity import identity
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import ACCURACY, CRASH, call, case_of, node, record_of, relu_record, tensor

COMPILED = "torch.compile(graph, backend='inductor', fullgraph=True, dynamic=False)"
RELU = record_of({"x": tensor(4, 8)}, [call("y", "torch.relu", node("x"), value=tensor(4, 8))], ["y"])


def text_of(failure: Signature, record: object = None, form: int = 0) -> str:
    """The test of a graph that calls relu, or of another."""
    script = script_of(case_of(record or RELU, failure), "torch.compile", "seeded")  # type: ignore[arg-type]
    return suite_of(script.text, failure, "relu_fails", form, "It is wrong.")


def run(text: str, compiled: str = "") -> unittest.TestResult:
    """Runs the tests of a text; `compiled` stands in for what compiles. Dynamo may skip the code of no file."""
    module = ModuleType("test_text")
    assert not compiled or COMPILED in text
    exec(compile(text.replace(COMPILED, f"({compiled})") if compiled else text, __file__, "exec"), module.__dict__)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    assert result.testsRun == 1
    return result


@pytest.mark.parametrize(
    ("failure", "wrong", "right"),
    [
        (ACCURACY, "lambda x: (x.relu() + 1,)", "lambda x: (x.relu(),)"),
        (
            Signature("accuracy", "compare", detail="signed zero"),
            "lambda x: (torch.where(x > 0, x, -0.0),)",
            "lambda x: (x.relu(),)",
        ),
        (Signature("nan", "compare", detail="nan"), "lambda x: (x.relu() / 0 * 0,)", "lambda x: (x.relu(),)"),
        (Signature("metadata", "compare", detail="dtype"), "lambda x: (x.relu().double(),)", "lambda x: (x.relu(),)"),
        (
            Signature("metadata", "compare", detail="stride"),
            "lambda x: (x.relu().t().contiguous().t(),)",
            "lambda x: (x.relu(),)",
        ),
        (Signature("metadata", "compare", detail="mutation"), "lambda x: (x.relu_(),)", "lambda x: (x.relu(),)"),
    ],
)
def test_it_fails_for_what_differs_from_eager_and_passes_else(failure: Signature, wrong: str, right: str) -> None:
    text = text_of(failure)
    assert len(run(text, wrong).failures) == 1
    calm = run(text, right)
    assert (calm.failures, calm.errors) == ([], [])


def test_a_crash_is_an_error_of_the_test() -> None:
    text = text_of(CRASH)
    assert "ZeroDivisionError" in run(text, "lambda x: (1 / 0,)").errors[0][1]
    assert run(text, "lambda x: (x.relu(),)").wasSuccessful()


def test_a_missing_error_is_awaited_from_both() -> None:
    record = record_of({"x": tensor(4, 8)}, [call("y", "torch.index_select", node("x"), 5, node("x"))], ["y"])
    text = text_of(Signature("missing_error", "compare", "IndexError", "out of range", detail="x"), record)
    assert "did not raise" not in str(run(text, "lambda x: graph(x)").failures)
    assert len(run(text, "lambda x: (x,)").failures) == 1


def test_settings_and_modes_are_those_of_the_test_alone() -> None:
    text = text_of(ACCURACY, relu_record())
    assert "@torch._inductor.config.patch({\"cpp.inject_relu_bug_TESTING_ONLY\": 'accuracy'})" in text
    assert "@torch.no_grad()" in text
    assert "sys" not in text and "excepthook" not in text
    before = torch.is_grad_enabled()
    assert run(text, "lambda x: (x.relu(),)").wasSuccessful()
    assert torch.is_grad_enabled() is before


def test_a_death_is_seen_from_outside() -> None:
    text = text_of(Signature("signal", "run", detail="SIGSEGV"))
    assert f"def run_compiled():\n    torch.set_grad_enabled(False)\n    list({COMPILED}(*make_inputs()))" in text
    assert 'multiprocessing.get_context("spawn").Process(target=run_compiled)' in text


@pytest.mark.parametrize("kind", ["slow", "memory"])
def test_what_is_measured_is_no_test(kind: str) -> None:
    script = script_of(case_of(RELU, ACCURACY), "torch.compile", "seeded")
    with pytest.raises(CannotExpressError, match="no test is written for a failure of the kind"):
        suite_of(script.text, Signature(kind, "run", message="3"), "relu")  # type: ignore[arg-type]


def test_a_program_of_somebody_else_is_refused() -> None:
    with pytest.raises(CannotExpressError, match="not one of graphdbg's"):
        suite_of("import torch\nprint(1)\n", ACCURACY, "relu")


def test_a_smaller_error_is_asked_for_more_closely() -> None:
    text = text_of(ACCURACY, form=1)
    assert len(run(text, "lambda x: (x.relu() * (1 + 4e-6),)").failures) == 1


def test_with_the_backend_eager_it_passes() -> None:
    assert run(eager_of(text_of(ACCURACY))).wasSuccessful()


def test_how_unittest_ends_is_told_apart() -> None:
    assert failed_as("...\nFAILED (failures=1)\n", "accuracy", "")
    assert not failed_as("ModuleNotFoundError: torch\nFAILED (errors=1)", "accuracy", "")
    assert failed_as("x.CppCompileError: y\nFAILED (errors=1)", "crash", "x.CppCompileError")
    assert not failed_as("ModuleNotFoundError: torch\nFAILED (errors=1)", "crash", "x.CppCompileError")
    assert failed_as("AssertionError: odd shape\nFAILED (failures=1)", "crash", "AssertionError")
    assert not failed_as("OK", "accuracy", "")


@pytest.mark.slow
def test_a_planted_bug_fails_as_a_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole command on a case: the test is written, fails three times, and is run again by unittest."""
    folder = tmp_path / "out" / "case"
    folder.mkdir(parents=True)
    (folder / "graph.json").write_bytes(msgspec.json.encode(relu_record()))
    about = {"signature": msgspec.to_builtins(ACCURACY), "original": {"nodes": 9}}
    (folder / "case.json").write_text(json.dumps(about))
    assert graphdbg(["report", str(tmp_path / "out"), "--as-test", "-o", str(tmp_path / "test"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    failure = identity(ACCURACY, [("call_function", "aten.relu.default")], reduced=True)
    assert (document["failed"], document["times"], document["passes_in_eager"], document["signature_id"]) == (
        3,
        3,
        True,
        failure.id,
    )
    assert len(run((tmp_path / "test" / as_test.NAME).read_text()).failures) == 1
    assert graphdbg(["report", str(tmp_path / "out"), "--as-test", "-o", str(tmp_path / "test")]) == 2
