"""A failure that needs dynamic sizes keeps them: the repro marks the dimension that must be dynamic, and says which it
is."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from graphdbg.dumps.program import repro
from graphdbg.dumps.program.function import program_of
from graphdbg.dumps.program.repro import Script
from graphdbg.dumps.schema import SymbolRecord, SymValue, TensorValue
from graphdbg.minifier.report.trying import candidates, fixed, marked

from .cases import ACCURACY, call, case_of, node, record_of

PLANTED = Path(__file__).parents[2] / "planted"


def value(*shape: Any, strides: tuple[Any, ...]) -> TensorValue:
    return TensorValue("float32", list(shape), list(strides))


def tanh_record() -> Any:
    """tanh of a tensor of two symbols, with the first one's size as an input too, as AOTAutograd has it."""
    inputs = {"n": SymValue("int", "s0", 6), "x": value("s0", "s1", strides=("s1", 1))}
    calls = [
        call("tanh", "aten.tanh.default", node("x"), value=inputs["x"]),
        call("twice", "operator.mul", node("n"), 2),
    ]
    symbols = [SymbolRecord("s0", hint=6), SymbolRecord("s1", hint=4)]
    return record_of(inputs, calls, ["tanh", "twice"], stage="inference", symbols=symbols)


def scripts() -> list[Script]:
    return list(candidates(case_of(tanh_record(), ACCURACY)))


def test_dimensions_that_can_be_dynamic() -> None:
    record = tanh_record()
    marks = repro.symbolic_dims(record, {"s0": 6, "s1": 4})
    assert marks == [repro.MarkedSize("x", 0, "s0"), repro.MarkedSize("x", 1, "s1")]
    assert repro.symbolic_dims(record, {"s0": 6, "s1": 1}) == marks[:1], "a size of one is never dynamic"
    tried = [sizing.marks for sizing in repro.narrower(record, {"s0": 6, "s1": 4})]
    assert tried == [(marks[0],), (marks[1],), tuple(marks)]
    assert repro.narrower(record_of({"x": value(2, strides=(1,))}, [], ["x"]), {}) == []


def test_a_size_that_is_an_input_is_computed_instead() -> None:
    inside = repro.sizes_inside(tanh_record())
    program = program_of(inside)
    assert program.parameters == ["x"]
    built: dict[str, Any] = {"torch": torch}
    exec(f"import operator\n{program.source}", built)
    assert built["graph"](torch.ones(3, 4))[1] == 6


def test_programs_say_which_dimension() -> None:
    first, second = scripts()[:2]
    assert "dynamic=True" in first.text
    said = "x, dimension 0, and x, dimension 1, were symbolic when recorded; this compiles with dynamic=True."
    assert first.text.splitlines()[1] == said
    assert "    torch._dynamo.mark_dynamic(inputs[0], (0, 1))  # x\n    return inputs\n" in second.text
    plain = fixed(first)
    assert plain is not None and "dynamic=False" in plain.text and "mark_dynamic" not in plain.text
    assert fixed(plain) is None
    item = next(marked(first, needed=True))
    sentence = "x, dimension 0, must be dynamic (mark_dynamic): with fixed sizes the failure is not there."
    assert item.text.splitlines()[1] == sentence
    assert "    torch._dynamo.mark_dynamic(inputs[0], 0)  # x\n    return inputs\n" in item.text
    assert 'torch.compile(graph, backend="inductor" if FAULT else "eager", fullgraph=True)' in item.text
    assert "must be" not in next(marked(first, needed=False)).text, "nothing is claimed that no run has shown"


@pytest.mark.long
def test_the_marked_program_shows_it_and_the_fixed_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch._inductor.lowering import lowerings

    tanh = torch.ops.aten.tanh.default
    monkeypatch.setitem(lowerings, tanh, lowerings[tanh])  # put back afterwards
    runpy.run_path(str(PLANTED / "planted_dynamic.py"))
    first = scripts()[0]
    plain, item = fixed(first), next(marked(first, needed=True))
    assert plain is not None
    codes: list[int] = []
    for number, script in enumerate((plain, item)):
        (tmp_path / f"{number}.py").write_text(script.text)
        torch._dynamo.reset()
        graphs, plans = (
            torch._inductor.config.patch(fx_graph_cache=False),
            torch._functorch.config.patch(enable_autograd_cache=False),
        )
        with graphs, plans, torch.no_grad():  # kernels are kept: their key is their text
            try:
                runpy.run_path(str(tmp_path / f"{number}.py"))
                codes.append(0)
            except SystemExit as end:
                codes.append(1 if isinstance(end.code, str) else int(end.code or 0))
    assert codes == [0, 1], capsys.readouterr().out


PROGRAM = """
import torch, planted_dynamic

def f(x, w, b):
    y = (x @ w + b).relu()
    return (torch.tanh(y * 0.5) + 1).sum(-1), y.mean()

x = torch.randn(6, 4)
torch._dynamo.mark_dynamic(x, 0)
torch._dynamo.mark_dynamic(x, 1)
w, b = torch.randn(4, 5), torch.randn(5)
torch._dynamo.mark_dynamic(w, 0)
torch.compile(f)(x, w, b)
"""


@pytest.mark.slow
def test_from_a_run_to_a_repro_in_fresh_processes(tmp_path: Path) -> None:
    """Recorded, loaded, minimised and run, each in a process of its own."""
    (tmp_path / "prog.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(PLANTED)}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=500
        )

    graphdbg = (sys.executable, "-m", "graphdbg")
    assert run(*graphdbg, "dump", "--inputs", "all", "-o", "run", "--", sys.executable, "prog.py").returncode == 0
    minified = run(*graphdbg, "minify", "run/0_0/inference", "--import", "planted_dynamic", "-o", "out")
    assert minified.returncode == 0, minified.stderr
    text = (tmp_path / "out/repro.py").read_text()
    sentence = next(line for line in text.splitlines()[:4] if "must be dynamic" in line)
    assert ", dimension 0, must be dynamic (mark_dynamic): with fixed sizes the failure is not there." in sentence
    assert "dimension 1" not in text
    shown = run(sys.executable, "out/repro.py")
    assert shown.returncode == 1 and "BUG" in shown.stderr, shown.stdout + shown.stderr
    without = tmp_path / "fixed.py"
    without.write_text(text.replace("    torch._dynamo.mark_dynamic", "    # "))
    assert run(sys.executable, str(without)).returncode == 0, "the mark is what shows it"
    assert "must be dynamic" in (tmp_path / "out/issue.md").read_text()
