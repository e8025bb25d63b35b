"""Faults of Dynamo and AOTAutograd outside the graphs, and of graphs, found beside eager. The programs are those of
tests/matrix/planted_calls.py, with a backend that compiles in no time, and the shadow alone unless a test says
otherwise."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from graphdbg.dumps.errors import NotRegisteredError
from graphdbg.toolkit.blame.bisect import INTERRUPTED
from graphdbg.toolkit.isolation.imports import TRUST
from graphdbg.toolkit.program import judging
from graphdbg.toolkit.program.concluding import departs
from graphdbg.toolkit.program.judging import JudgedCall, judge_graphs
from graphdbg.toolkit.program.records import FILE, FROZEN, OPTIONS, VARIABLE, Call, CallRung, Program, departing, read
from graphdbg.toolkit.verdicts.verdict import Verdict, Where, fails
from graphdbg.toolkit.verdicts.verdict_words import first_line
from tests.matrix import planted_calls
from tests.models import called_programs


def shadowed(tmp_path: Path, program: str, fault: str = "", backend: str = "eager", **options: int | bool) -> Program:
    """What the shadow of a program leaves; nothing judges its graphs."""
    quick = program.replace("@torch.compile\n", f"@torch.compile(backend='{backend}')\n")
    quick = quick.replace("torch.compile(net", f"torch.compile(net, backend='{backend}'")
    case = called_programs.Case(fault, quick, "", "", "", "")
    (tmp_path / "found").mkdir()
    environment = os.environ | {VARIABLE: str(tmp_path / "found"), OPTIONS: json.dumps(options)}
    done = subprocess.run(
        planted_calls.laid(case, tmp_path), cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return read(tmp_path / "found" / FILE)


def finding(program: Program) -> tuple[str, Verdict]:
    """The rung and the verdict, as if its graphs were right."""
    call = departing(program)
    assert call is not None and call.failed is not None, [row.verdict for call in program.calls for row in call.rows]
    return call.failed.rung, departs(call, JudgedCall(Verdict("ok")), ["python", "prog.py"])


@pytest.mark.parametrize(
    ("fault", "said", "following"),
    [
        ("custom_pass", ". Correct it in the program, then judge it again", "graphdbg triage -- python prog.py"),
        ("compiler", "it is wrong", "graphdbg ls run"),
    ],
)
def test_a_graph_that_fails_in_the_program_alone_has_a_next_step(fault: Any, said: str, following: str) -> None:
    row = CallRung("inductor", fails("wrong_numbers", "inductor", "result is off by 2"), value="result")
    call = Call("1:1", "step", "prog.py", 3, 0, rows=[CallRung("eager"), row], run="run")
    judged = Verdict("fails", "wrong_numbers", fault, "inductor", "it is wrong", Where("gelu", "run/0_0/forward"))
    result = departs(call, JudgedCall(judged, run=str(Path("run").absolute())), ["python", "prog.py"])
    assert result.reason.endswith(said) and result.next == [following], result


def test_parameters_that_freezing_made_constants_of_are_what_an_old_compile_holds() -> None:
    row = CallRung("inductor", fails("wrong_numbers", "inductor", "result is off by 2"), value="result")
    call = Call("1:1", "step", "prog.py", 3, 1, rows=[CallRung("eager"), row], fresh="agrees")
    cached = "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1"
    for notes, said in (([FROZEN], "freezing made constants of the parameters"), ([], f"which {cached} leaves out")):
        call.notes = notes
        verdict = departs(call, JudgedCall(Verdict("ok")), ["python", "prog.py"])
        assert said in verdict.reason
    assert verdict.next == ["graphdbg minify -- python prog.py", f"{cached} graphdbg triage -- python prog.py"]


@pytest.mark.long
def test_a_call_compiled_with_freezing_says_so(tmp_path: Path) -> None:
    program = "import torch\nnet = torch.nn.Linear(4, 4)\nstep = torch.compile(net, options={'freezing': True})\n"
    program += "for grad in (False, True):\n    with torch.set_grad_enabled(grad):\n        step(torch.ones(2, 4))\n"
    calls = shadowed(tmp_path, program, backend="inductor").calls
    assert [FROZEN in call.notes for call in calls] == [True, False]


def around(tmp_path: Path, name: str, backend: str = "eager", **options: int | bool) -> tuple[str, Verdict]:
    case = called_programs.AROUND[name]
    rung, verdict = finding(shadowed(tmp_path, case.program, case.fault, backend, **options))
    assert verdict.next == ["graphdbg minify -- python prog.py"]
    assert f"{case.function}() (prog.py:" in verdict.reason
    return rung, verdict


@pytest.mark.long
def test_a_missing_guard_shows_under_rungs_that_age_like_the_program(tmp_path: Path) -> None:
    rung, verdict = around(tmp_path, "a guard is missing")
    assert (rung, verdict.layer) == ("dynamo", "dynamo")
    assert "call 2: result is off by 0.33" in verdict.reason
    assert "compiled again it agrees, so this call ran code compiled for an earlier call" in verdict.reason


@pytest.mark.slow  # the guard before it is as missing
def test_a_missing_guard_shows_in_the_program_s_own_call_where_the_rungs_begin_later(tmp_path: Path) -> None:
    rung, verdict = around(tmp_path, "a guard is missing", first=2, last=3)
    assert (rung, verdict.layer) == ("program", "dynamo")
    assert "only in the program's own call" in verdict.reason and "a guard is missing" in verdict.reason


_PYTHON_DRAWS = """
import random
import torch

rng = random.Random(7)


@torch.compile
def step(x):
    return x + {draw}


for shape in ((1,), (1, 5), (2, 2), (2, 3), (3, 3)):
    step(torch.zeros(shape))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "rungs"), [("rng.randint(1, 100)", ["program"]), ("random.random()", []), ("torch.rand(1).mul(0)", [])]
)
def test_a_call_that_uses_old_draws_of_python_s_generators(tmp_path: Path, draw: str, rungs: list[str]) -> None:
    program = shadowed(tmp_path, _PYTHON_DRAWS.format(draw=draw), first=3, last=4)
    call = departing(program)
    assert [row.rung for row in call.rows if row.verdict.failed] == rungs if call is not None else not rungs
    if call is not None:
        assert "a guard is missing" in finding(program)[1].reason


_AFTER_A_COMPILE = """
import torch


@torch.compile
def step(x):
    with torch.inference_mode():
        y = x.view(2, 3) * 2
    return y.clone() + 1


try:
    step(torch.ones(6))
except Exception:
    pass
"""


@pytest.mark.slow
def test_a_failed_compile_that_leaves_torch_unusable_is_judged_all_the_same(tmp_path: Path) -> None:
    rung, verdict = finding(shadowed(tmp_path, _AFTER_A_COMPILE, backend="aot_eager"))
    assert (rung, verdict.kind, verdict.layer) == ("aot_eager", "crash", "aot_autograd")


@pytest.mark.slow
def test_a_lost_side_effect_is_named(tmp_path: Path) -> None:
    rung, verdict = around(tmp_path, "a side effect is lost")
    assert (rung, verdict.layer) == ("dynamo", "dynamo")
    assert "self.count is left as it was, eager makes it 1, from dynamo on" in verdict.reason


@pytest.mark.slow
def test_a_result_that_requires_grad_though_eager_s_does_not(tmp_path: Path) -> None:
    rung, verdict = around(tmp_path, "resumed without a mode")
    assert (rung, verdict.layer) == ("dynamo", "dynamo")
    assert "result requires grad, eager's does not" in verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", ["written inputs", "an output's alias", "a backward's gradients"])
def test_what_aot_autograd_does_around_the_graphs(tmp_path: Path, name: str) -> None:
    import torch._dynamo  # noqa: F401  first: the two import each other
    from torch._functorch._aot_autograd import runtime_wrappers

    if not hasattr(runtime_wrappers, "_codegen_epilogue"):
        pytest.skip("these faults are in functions of a newer torch")
    rung, verdict = around(tmp_path, name, "aot_eager")
    assert (rung, verdict.layer) == ("aot_eager", "aot_autograd")
    assert called_programs.AROUND[name].says in verdict.reason
    assert (
        "the fault is in AOTAutograd's own work, in its tracing or around the graphs (its saved graphs are right by "
        "themselves)" in verdict.reason
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decomposition, backward", "lowering, backward", "third step's values"])
def test_a_fault_in_a_graph_is_named_to_its_op_and_minify_fails_when_pasted(tmp_path: Path, name: str) -> None:
    case = called_programs.GRAPHS[name]
    row = planted_calls.judged(name, case, tmp_path, minify=False)
    assert row["wrong"] == [], row
    words = shlex.split(row["next"][0])
    assert words[:2] == ["graphdbg", "minify"] and words[-2:] == ["--import", "fault"]
    replay = [sys.executable, "-m", "graphdbg", "replay", "--rung", "inductor", *words[2:]]
    done = subprocess.run(replay, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.own_server
def test_where_the_program_cannot_judge_its_graphs_its_modules_are_imported_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = called_programs.GRAPHS["lowering, backward"]
    program = shadowed(tmp_path, case.program, case.fault, "inductor")
    monkeypatch.chdir(tmp_path)
    call = departing(program)
    assert call is not None
    judged = judge_graphs(call, None, lambda text: None, program.modules)
    assert judged.verdict is not None and (judged.failed, judged.verdict.fault) == (True, "custom_pass")
    assert judged.verdict.where is not None
    assert (judged.verdict.where.name, judged.verdict.where.line) == ("lowering aten.cos.default", "fault.py:4")
    assert judged.verdict.next[0].endswith("--import fault")


OWN = """import torch
@torch.library.custom_op("faulty::cut", mutates_args=())
def cut(x: torch.Tensor) -> torch.Tensor:
    return x[:, :2].clone()
@cut.register_fake
def _(x): return torch.empty_like(x)
@torch.compile
def step(x):
    return cut(x) @ torch.ones(2, 3)
try:
    step(torch.randn(4, 8))
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("fake", "says"),
    [
        ("", "the fake function of faulty::cut is wrong. Correct the fake function of faulty::cut"),
        ("raise ValueError('of no use')", "could not be asked. Register or correct the fake function of"),
    ],
)
def test_an_operator_of_the_program_s_own_is_at_fault_and_not_dynamo(fake: str, says: str, tmp_path: Path) -> None:
    program = OWN.replace("return torch.empty_like(x)", fake) if fake else OWN
    rung, verdict = finding(shadowed(tmp_path, program))
    assert rung == "dynamo"
    assert first_line(verdict) == "FAILS: crash at cut, prog.py:9 (custom op)"
    assert says in verdict.reason
    assert verdict.next == ["graphdbg triage -- python prog.py"]


@pytest.mark.parametrize("left_s", [0.0, 50.0, 1e9])
def test_graphs_are_judged_and_blamed_in_the_time_that_is_left(left_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def judged(*_: object, max_time_s: float, **__: object) -> SimpleNamespace:
        asked.append(max_time_s)
        wrong = Verdict("fails", "wrong_numbers", "compiler", "inductor")
        return SimpleNamespace(verdict=wrong, summary="", graphs=[], reproduced=False, stopped="")

    monkeypatch.setattr(judging, "triage_run", judged)
    monkeypatch.setattr(judging, "bisect", judged)
    monkeypatch.setattr(judging, "opened", nullcontext)
    monkeypatch.setattr(judging, "_widest_first", lambda run, verdict: [SimpleNamespace(id="0_0/dynamo")])
    run: Any = None
    judging._judge(JudgedCall(), run, None, (), False, lambda text: None, lambda: False, time.monotonic() + left_s)
    judging_s, *blaming_s = asked
    if left_s > 600.0:
        assert (judging_s, *blaming_s) == (600.0, 240.0)
    else:  # judging has a minute at least
        assert (
            judging_s == 60.0
            and all(49.0 < seconds <= 50.0 for seconds in blaming_s)
            and len(blaming_s) == (left_s > 1)
        )


def test_a_search_that_ends_before_it_found_anything_says_nothing_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Verdict("fails", "wrong_numbers", "compiler", "inductor", next=["graphdbg minify run/0_0/dynamo"])
    ended = SimpleNamespace(reproduced=True, stopped="50 s have passed", findings=[], sentence="Nothing was found")
    monkeypatch.setattr(judging, "triage_run", lambda *_, **__: SimpleNamespace(verdict=wrong, summary="", graphs=[]))
    monkeypatch.setattr(judging, "bisect", lambda *_, **__: ended)
    monkeypatch.setattr(judging, "opened", nullcontext)
    monkeypatch.setattr(judging, "_widest_first", lambda run, verdict: [SimpleNamespace(id="0_0/dynamo")])
    run: Any = None
    judged, lines = JudgedCall(), list[str]()
    judging._judge(judged, run, None, (), False, lines.append, lambda: False, time.monotonic() + 50.0)
    assert judged.verdict == wrong and not judged.op
    assert lines == ["looking for what is to blame in 0_0/dynamo", lines[1]] and lines[1].startswith("not found in the")
    ended.stopped = INTERRUPTED
    judging._judge(judged, run, None, (), False, lines.append, lambda: False, time.monotonic() + 50.0)
    assert lines[-1] == "interrupted before it was found"


@pytest.mark.parametrize(("left_s", "limits"), [(-1.0, []), (40.0, [40.0])])
def test_next_commands_are_tried_in_the_time_that_is_left(
    left_s: float, limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def replayed(graph: object, *, limit_s: float, **_: object) -> SimpleNamespace:
        asked.append(limit_s)
        return SimpleNamespace(verdict=Verdict("fails"))

    monkeypatch.setattr(judging, "replay", replayed)
    monkeypatch.setattr(judging, "minified", lambda verdict, run: SimpleNamespace(id="0_0/dynamo"))
    monkeypatch.setattr(judging, "with_trust_for", lambda saved, command: "")
    monkeypatch.setattr(judging, "opened", nullcontext)
    verdict, run = Verdict("fails", next=["graphdbg minify run/0_0/dynamo"]), cast(Any, None)
    said = judging._importing(run, verdict, {}, lambda text: None, time.monotonic() + left_s)
    assert said.next == verdict.next and asked == pytest.approx(limits, abs=2.0)


def test_a_next_command_says_trust_where_only_that_brings_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def replayed(graph: object, *, imports: Sequence[str], **_: object) -> SimpleNamespace:
        if list(imports) != [TRUST]:
            raise NotRegisteredError("graph.json", "no faulty::cut", "add --trust")
        return SimpleNamespace(verdict=Verdict("fails"))

    graph = SimpleNamespace(id="0_0/dynamo")
    monkeypatch.setattr(judging, "replay", replayed)
    monkeypatch.setattr(judging, "minified", lambda verdict, run: graph)
    monkeypatch.setattr(judging, "with_trust_for", lambda saved, command: "with --trust")
    monkeypatch.setattr(judging, "opened", nullcontext)
    verdict = Verdict("fails", next=["graphdbg minify run/0_0/dynamo", "graphdbg minify -- python prog.py"])
    said = judging._importing(Any, verdict, {}, lambda text: None)  # type: ignore[arg-type]
    assert said.next == ["graphdbg minify run/0_0/dynamo --trust", "graphdbg minify -- python prog.py"]
