"""The plain scripts that a program's repro becomes, and its issue."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphdbg.cli import run as graphdbg
from graphdbg.minifier.program import command, cutting
from graphdbg.minifier.program.cutting import ProgramCutting, constructors, entries, replaced, scripts
from graphdbg.toolkit.isolation.fresh import FreshRun
from graphdbg.toolkit.program.concluding import ProgramTriage, Repro
from graphdbg.toolkit.program.records import Call
from graphdbg.toolkit.program.repro import PROGRAM
from graphdbg.toolkit.verdicts.verdict import Verdict

STEP = """
def step(x, scale=1.0):
    x.mul_(scale)
    return {"loss": (x * 3).sum(), "shown": x.detach() + 1, "name": "step"}
"""
CALL = "    yield step, (x,), {'scale': 2.0}, lambda: {'x': x}, "


def repro(calls: str, definitions: str = STEP, backend: str = "eager", settings: str = "") -> str:
    words = {"function": "step", "place": "train.py:3", "number": 0, "reason": "it is off", "version": "2"}
    words |= {"imports": "import torch", "settings": settings, "definitions": definitions, "calls": calls}
    return PROGRAM.format(
        **words, backend=backend, compiled={"fullgraph": True}, raises="", strides=False, tolerance=0.1
    )


def run(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any], *flags: str) -> object:
    """The exit code of a script where `torch.compile` does to a function what `fault` says."""
    path = folder / "repro.py"
    path.write_text(script)
    monkeypatch.setattr(torch, "compile", lambda function, **options: fault(function))
    monkeypatch.setattr(sys, "argv", [str(path), *flags])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        return error.code
    return 0


def wrong(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(x: torch.Tensor, **named: Any) -> Any:
        with torch.no_grad():
            x.mul_(5.0)
        result = function(x, **named)
        return result | {"name": "other", "shown": result["shown"].double()} if isinstance(result, dict) else result * 2

    return called


def raises(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*_: Any, **named: Any) -> Any:
        raise ArithmeticError("no")

    return called


@pytest.mark.parametrize(
    ("kind", "said", "returned"),
    [
        ("values", "result['loss'] is off by 4, relative to its size", "return result['loss']"),
        ("values", "['x'] afterwards is off by 4, relative to its size", "return x"),
        ("values", "result['name'] is 'other', eager's is 'step'", "return result['name']"),
        ("metadata", "result['shown'] is (torch.float64, (3,), 0), eager's is (torch.float32, (3,), 0)", ".dtype"),
        ("error raises ArithmeticError", "it raises ArithmeticError, eager raises nothing", ""),
    ],
)
def test_what_differs_is_compared_in_a_few_lines(
    kind: str, said: str, returned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "    T = {}\n    x = torch.tensor([1.0, 2.0, 3.0])\n"
    script = next(scripts(repro(text + CALL + "{}"), kind, said))
    assert returned in script and "def leaves" not in script and "repro.pt" not in script
    assert "result = call(x, **{'scale': 2.0})" in script
    fault = raises if kind.startswith("error") else wrong
    assert str(run(script, tmp_path, monkeypatch, fault)).startswith("BUG: ")
    assert run(script, tmp_path, monkeypatch, fault, "--without-fault") == 0
    assert kind.startswith("error") or "flush=True" in script  # or large tensors come behind BUG in a log
    assert run(script, tmp_path, monkeypatch, lambda function: function) == 0


def test_annotations_go_first_and_are_not_evaluated_where_they_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = STEP.replace("(x, scale=1.0)", "(x: Tensor, scale: Optional[float] = 1.0) -> dict[str, Any]")
    result = "    x = torch.tensor([1.0, 2.0, 3.0])\n"
    text = repro(result + CALL + "{}", typed)
    bare, whole = scripts(text, "values", "result['loss'] is off by 4, relative to its size")
    assert "Optional" not in bare and "__future__" not in bare and "scale: Optional[float]=1.0" in whole
    for script in (bare, whole):
        assert str(run(script, tmp_path, monkeypatch, wrong)).startswith("BUG: ")


def test_a_missing_error_and_a_gradient_of_one_of_several_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = "\ndef step(x):\n    raise ArithmeticError\n"
    text = repro("    x = 1\n    yield step, (x,), {}, lambda: {'x': x}, {}", refuses)
    script = next(scripts(text, "missing error", "it raises nothing, eager raises ArithmeticError"))
    assert str(run(script, tmp_path, monkeypatch, lambda function: lambda x: x)).startswith("BUG: ")
    assert run(script, tmp_path, monkeypatch, lambda function: function) == 0
    square = "\ndef step(x):\n    return x.detach(), x * x\n"
    result = "    T = torch.load(HERE / 'repro.pt')\n    x = T['x'].requires_grad_()\n"
    text = repro(result + "    yield step, (x,), {}, lambda: {'x': x}, {0: T['given_0']}", square)
    alone, second, several = scripts(text, "values", "gradient of ['x'] is off by 1, relative to its size")
    torch.save({"x": torch.tensor([2.0]), "given_0": torch.ones(1)}, tmp_path / "repro.pt")
    doubled: Any = lambda function: lambda x: [part * 2 for part in function(x)]  # noqa: E731
    with pytest.raises(RuntimeError, match="gradients"):
        run(alone, tmp_path, monkeypatch, doubled)
    with pytest.raises(RuntimeError, match="does not require grad"):
        run(second, tmp_path, monkeypatch, doubled)
    assert str(run(several, tmp_path, monkeypatch, doubled)).startswith("BUG: ")
    assert run(several, tmp_path, monkeypatch, lambda function: function) == 0


def test_calls_of_one_function_share_what_is_compiled() -> None:
    text = "    x = torch.ones(2)\n"
    script = next(scripts(repro(text + CALL + "{}\n" + CALL + "{}"), "values", "result['loss'] is off by 1, relative"))
    assert script.count("compile(step)") == 1 and script.count("result = call(") == 2


def test_a_module_is_made_by_its_class_and_entries_of_dictionaries_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # with a GPU each is tried there, too
    linear = "rebuilt(torch.nn.Linear, {'_parameters': {'weight': w}, 'in_features': 3, 'out_features': 4})"
    norm = (
        "rebuilt(torch.nn.LayerNorm, {'_parameters': {'weight': w, 'bias': b}, 'normalized_shape': (3,), 'eps': 1e-05})"
    )
    text = f"def run(compile):\n    a = {linear}\n    b = {norm}\n    return rebuilt(Net, {{'inner': a}})\n"
    first, second = constructors(text)
    assert (
        "a = torch.nn.Linear(in_features=3, out_features=4, bias=False)" in first and "torch.nn.LayerNorm, {" in first
    )
    assert "b = torch.nn.LayerNorm(normalized_shape=(3,))" in second
    without = [text.partition("b = ")[0] for text in entries(text)]
    assert any("{'in_features': 3, 'out_features': 4}" in part for part in without)
    assert any("rebuilt(torch.nn.Linear, {})" in part for part in without)


def test_what_has_no_expression_has_no_script() -> None:
    text = "    x = torch.ones(2)\n"
    for said in (
        "result[odd key] is off by 1, relative",
        "['it'] scale is off by 1, relative",
        "x is in one of both alone",
    ):
        assert not list(scripts(repro(text + CALL + "{}"), "values", said))


def test_a_tensor_stands_in_the_text_and_the_file_is_no_longer_read() -> None:
    text = "    T = torch.load(HERE / 'repro.pt')\n    x = T['x'].narrow(0, 0, (T['x'].shape[0] + 1) // 2).clone()\n"
    script = next(scripts(repro(text + CALL + "{}"), "values", "result['loss'] is off by 1, relative to its size"))
    assert "repro.pt" in script and "import pathlib" in script
    forms = list(replaced(script, "x", torch.tensor([1.5, float("inf"), 3.0], dtype=torch.float64)))
    assert [form.partition("x = ")[2].partition("\n")[0] for form in forms] == [
        "torch.ones(2, dtype=torch.float64)",
        "torch.zeros(2, dtype=torch.float64)",
        "torch.randn(2, dtype=torch.float64)",
        "torch.tensor([1.5, float('inf')], dtype=torch.float64)",
    ]
    assert not any("repro.pt" in form or "pathlib" in form for form in forms)
    parameter = next(replaced("w = T['w']", "w", torch.nn.Parameter(torch.ones(()), False)))
    assert parameter == "w = torch.nn.Parameter(torch.ones(()), False)"


def test_the_plainest_script_that_shows_it_replaces_the_repro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = "    T = torch.load(HERE / 'repro.pt', weights_only=True)\n    x = T['x']\n    y = T['y']\n"
    program = tmp_path / "repro.py"
    program.write_text(repro(result + CALL + "{}"))
    torch.save({"x": torch.arange(40.0), "y": torch.ones(2)}, tmp_path / "repro.pt")
    ran: list[str] = []

    def run_once(path: Path, *flags: str, **_: Any) -> FreshRun:
        text = path.read_text()
        ran.append(text)
        if "def leaves" in text:
            return FreshRun(1, "FAILS (values): call 1 of 1: result['loss'] is off by 3, relative to its size", 0.0)
        return FreshRun(0 if flags or "torch.ones(40)" in text or "zeros(40)" in text else 1, "BUG: it is wrong\n", 0.0)

    monkeypatch.setattr(cutting, "run_once", run_once)
    cut = ProgramCutting(program, float("inf"))
    cut.straighten()
    cut.inline()
    assert "x = torch.randn(40)" in program.read_text() and "y = torch.ones(2)" in program.read_text()
    assert not (tmp_path / "repro.pt").exists() and cut.asked == 5


def test_what_was_cut_before_an_interrupt_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = "    x = torch.ones(2)\n    unused = 1\n"
    program = tmp_path / "repro.py"
    program.write_text(repro(result + CALL + "{}"))

    def run_once(path: Path, *flags: str, **_: Any) -> FreshRun:
        text = path.read_text()
        if "def leaves" in text:
            return FreshRun(1, "FAILS (values): call 1 of 1: result['loss'] is off by 3, relative to its size", 0.0)
        if "unused" not in text:
            raise KeyboardInterrupt
        return FreshRun(0 if flags else 1, "BUG: it is wrong\n", 0.0)

    monkeypatch.setattr(cutting, "run_once", run_once)
    monkeypatch.setattr(command, "programs", contextlib.nullcontext)
    verdict = Verdict("fails", "wrong_numbers", "compiler", "dynamo", "it is off")
    shows = Repro("shows", str(program), (1, 1, 1), 0)
    triaged = ProgramTriage(verdict, [], {}, ["python", "train.py"], str(tmp_path), repro=shows)
    assert command.cut_repro(triaged, None, as_json=False) == 130
    assert "def leaves" not in program.read_text() and "unused" in program.read_text()


def test_what_no_repro_shows_has_a_next_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longer = "graphdbg triage --max-time 400 -- python train.py"
    verdict = Verdict("fails", "wrong_numbers", "compiler", "dynamo", "it is off", next=[longer])
    late = Repro("passes", str(tmp_path / "repro.py"), (None,), why="the time was over")
    triaged = ProgramTriage(verdict, [], {}, ["python", "train.py"], str(tmp_path), repro=late)
    assert command.cut_repro(triaged, None, as_json=False) == 1
    assert f"next: {longer}" in capsys.readouterr().err
    assert command.cut_repro(triaged, None, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["next"] == [longer]


def test_options_are_checked_before_the_program_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "triage_program", lambda *_, **__: pytest.fail("the program ran"))
    assert graphdbg(["minify", "--check", "nosuch", "--", "python", "train.py"]) == 2
    assert "there is no check 'nosuch'" in capsys.readouterr().err


def test_an_issue_of_a_program_holds_the_repro_and_what_it_printed(tmp_path: Path) -> None:
    (tmp_path / "repro.py").write_text("print(1)\n")
    (tmp_path / "repro.pt").write_bytes(b"0" * 2048)
    call = Call("1:1", "step", "/home/ann/train.py", 3, 0)
    verdict = Verdict(
        "fails", "crash", "compiler", "dynamo", "step() raises UserError: Could not guard on it; eager does not"
    )
    triaged = ProgramTriage(verdict, [call], {}, ["python", "train.py"], str(tmp_path), at=call)
    shows = Repro("shows", str(tmp_path / "repro.py"), (1, 1, 1), 0, 'File "/home/ann/x.py"\nBUG: it raises')
    text = command.write_issue(triaged, shows, tmp_path).read_text()
    assert "[dynamo] torch.compile fails: step() (UserError)" in text and "```python\nprint(1)\n```" in text
    assert "3 of 3 fresh processes" in text and "repro.pt (2.0 KiB), which must be attached" in text
    assert "Could+not+guard+on+it%22" in text and "BUG: it raises" in text and "/home/ann" not in text
