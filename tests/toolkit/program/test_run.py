"""`triage -- CMD` runs the program once, leaves its output alone, and says which call departs from eager, and on which
rung."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from click.testing import CliRunner

import graphdbg
from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.commands.triage import triage as command
from graphdbg.toolkit.isolation import launch
from graphdbg.toolkit.program import judging, run
from graphdbg.toolkit.program.comparing import Left, judged, said
from graphdbg.toolkit.program.concluding import concluded
from graphdbg.toolkit.program.judging import JudgedCall
from graphdbg.toolkit.program.records import FILE, LOST, Call, CallRung, Program
from graphdbg.toolkit.program.run import _SupervisedProgram, range_of, triage_program
from graphdbg.toolkit.triage.ranking import GraphRow
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict import DECIDED, Verdict, fails

PROGRAM = """
import sys, torch

def wrong(gm, inputs):
    return lambda *args: tuple(one * 1.5 if isinstance(one, torch.Tensor) else one for one in gm(*args))

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Tanh())
backend = {backend}
step = torch.compile(model, backend=backend)
for number in range(5):
    loss = step(torch.randn(3 + number // 4, 4)).sum()
    loss.backward()
    print(number, loss.item())
print(sum(one.grad.sum().item() for one in model.parameters()))
"""


def asked(tmp_path: Path, text: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON and what the program printed, and what it prints alone."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text))
    words = [
        sys.executable,
        "-m",
        "graphdbg",
        "triage",
        "--json",
        "--full",
        *options,
        "--",
        sys.executable,
        str(script),
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.long
def test_a_healthy_program_agrees_and_prints_what_it_prints_alone(tmp_path: Path) -> None:
    text = PROGRAM.format(backend='"aot_eager"')
    code, result, stderr = asked(tmp_path, text)
    assert (code, result["verdict"], result["first_failing"]) == (0, "ok", None), result["summary"]
    assert [call["number"] for call in result["calls"]] == [0, 1, 2, 4]  # the last compiles again
    rungs = [row["rung"] for row in result["calls"][0]["rows"] if not row["part"]]
    assert rungs == ["eager", "dynamo", "aot_eager"]
    assert any(
        row["part"] == "backward" and row["value"].startswith("gradient of") for row in result["calls"][0]["rows"]
    )
    alone = subprocess.run([sys.executable, str(tmp_path / "train.py")], capture_output=True, text=True, check=True)
    assert alone.stdout in stderr  # with --json it goes there


def test_a_backend_that_is_wrong_is_named_with_function_value_and_size(tmp_path: Path) -> None:
    text = PROGRAM.format(backend="wrong").replace("4, 4)", "4, 4, device='cpu')").replace("4))", "4, device='cpu'))")
    text = text.replace(
        "for number", "torch.set_default_device('meta')  # what of ours follows it holds nothing\nfor number"
    )
    code, result, _ = asked(tmp_path, text)
    assert (code, result["verdict"], result["kind"], result["first_failing"]) == (1, "fails", "wrong_numbers", "wrong")
    assert result["reason"].startswith("Sequential.forward() (train.py:10), call 0: result is off by 0.5")
    assert result["where"]["name"] == "result"
    assert "no graph fails" not in json.dumps(result).lower()


def test_a_program_that_compiles_nothing_cannot_be_judged(tmp_path: Path) -> None:
    code, result, _ = asked(tmp_path, "print(1)")
    assert (code, result["verdict"]) == (4, "cannot_tell")
    assert "torch.compile" in result["reason"]


@pytest.mark.slow  # test_shadow has it inside a process
def test_what_eager_raises_too_is_the_programs_own_and_not_ok(tmp_path: Path) -> None:
    code, result, _ = asked(
        tmp_path,
        """
        import torch
        given = torch.ones(2, requires_grad=True)
        torch.compile(lambda: given.clamp_(-1, 1), backend="eager")()
        """,
    )
    assert (code, result["verdict"], result["exit_code"]) == (4, "cannot_tell", 1), result["summary"]
    assert (
        "eager raises the same in <lambda>() (train.py:4), call 0, so the compiler is not at fault" in result["reason"]
    )
    assert result["reason"].endswith(
        "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation"
    )
    assert result["next"][0].startswith("env TORCHDYNAMO_DISABLE=1 ") and result["next"][0].endswith("train.py")
    assert not result["calls"][0]["notes"]  # Dynamo refused it: it does not run in eager


@pytest.mark.parametrize(
    ("line", "options", "reported", "follows"),
    [
        (
            "ctypes.string_at(0)",
            (),
            "eager was at work when signal SIGSEGV ended the program",
            ["graphdbg dump ", "graphdbg triage "],
        ),
        pytest.param(
            "threading.Event().wait()",
            ("--limit", "3"),
            "eager was still at work after 3 s (see --limit)",
            ["env TORCH"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_call_in_which_eager_dies_or_hangs_is_named_with_its_line(
    line: str, options: tuple[str, ...], reported: str, follows: list[str], tmp_path: Path
) -> None:
    text = f"""
        import ctypes, threading, torch

        def inner():
            {line}

        @torch.compile(backend="eager")
        def step(x):
            return inner() or x
        step(torch.ones(2))
        """
    code, result, _ = asked(tmp_path, text, *options)
    assert (code, result["verdict"]) == (4, "cannot_tell")
    assert result["reason"] == f"step() (train.py:7), call 0: {reported}, in inner (train.py:5)"
    assert [item.startswith(begin) for item, begin in zip(result["next"], follows, strict=True)]


@pytest.mark.parametrize(("whole_s", "calls_s", "kept_s"), [(1000.0, 880.0, 60.0), (120.0, 60.0, 30.0)])
def test_graphs_and_repro_have_their_part_of_the_time(
    whole_s: float, calls_s: float, kept_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(run._SupervisedProgram, "run", lambda program, options, quiet: given.append((program, options)))
    triage_program([sys.executable, "-c", ""], output=tmp_path / "out", max_time_s=whole_s)
    program, options = given[0]
    assert (options["seconds"], program.kept_s) == (calls_s, kept_s)
    call, program.signals, program.until = Call("1:1", "step", "train.py", 3, 0), [], 0.0
    monkeypatch.setattr(run, "judgeable", lambda left: call)
    monkeypatch.setattr(run, "judge_graphs", lambda call, server, *how: given.append(how[-1]) or JudgedCall())
    program._judge(nullcontext())
    assert given[-1] == kept_s


def test_a_rung_at_work_when_the_time_is_over_convicts_nobody(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    os.utime(tmp_path / FILE, (0, 0))
    call = Call("1:1", "step", "train.py", 3, 0, rows=[CallRung("eager")], in_flight="inductor")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        call.key, call.since = f"{child.pid}:1", time.time() - 30.0
        messages: list[str] = []
        program = _SupervisedProgram([], tmp_path, None, messages.append, until=time.monotonic() + 5.0)
        program.read = lambda: Program(calls=[call])
        program._look(child)  # pyright: ignore[reportPrivateUsage]
        assert (
            messages == ["inductor of step() (train.py:3), call 0: 30 s so far, 35 s at most"] and child.poll() is None
        )
        program.until, program.next_look = time.monotonic(), 0.0
        program._look(child)  # pyright: ignore[reportPrivateUsage]
        assert child.wait() < 0
    conclusion = concluded(Program(calls=[call]), tmp_path, JudgedCall(), ["train.py"], 137, program.hung, program.late)
    late = "inductor was at work for 30 s when the time was over (--max-time)"
    assert conclusion.verdict.verdict == "cannot_tell" and late in conclusion.verdict.reason, conclusion.verdict
    assert [step.split()[1] for step in conclusion.verdict.next] == ["dump", "triage"]


def test_where_the_time_is_over_the_same_with_more_of_it_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(program: _SupervisedProgram, options: object, quiet: bool) -> None:
        program.code, program.late = 137, "inductor was at work for 30 s when the time was over (--max-time)"

    call = Call("1:1", "step", "slow.py", 3, 0, rows=[CallRung("eager")], in_flight="inductor")
    monkeypatch.setattr(_SupervisedProgram, "run", run)
    monkeypatch.setattr(_SupervisedProgram, "read", lambda program: Program(calls=[call]))
    triage = triage_program(["true", "slow.py"], calls="1", output=tmp_path / "found", limit_s=300.0, max_time_s=30.0)
    assert triage.verdict.verdict == "cannot_tell" and "when the time was over (--max-time)" in triage.verdict.reason
    assert [step.partition(" -o ")[0] for step in triage.verdict.next[:2]] == [
        "graphdbg triage --max-time 120 --calls 1 --limit 300 -- true slow.py",
        "graphdbg dump",
    ]


def test_where_a_call_departs_and_the_time_is_over_before_more_is_known_that_is_said_and_more_of_it_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(program: _SupervisedProgram, options: object, quiet: bool) -> None:
        program.code, program.late = 138, "inductor was at work for 30 s when the time was over (--max-time)"

    wrong = CallRung("inductor", fails("wrong_numbers", "inductor", "result is off by 2"), "", "result", error=2.0)
    call = Call("1:1", "step", "slow.py", 3, 0, rows=[CallRung("eager"), wrong], in_flight="inductor")
    monkeypatch.setattr(_SupervisedProgram, "run", run)
    monkeypatch.setattr(_SupervisedProgram, "read", lambda program: Program(calls=[call]))
    triage = triage_program(["true", "slow.py"], output=tmp_path / "found", max_time_s=30.0)
    assert triage.verdict.verdict == "fails"
    assert triage.notes == ["the program was ended: inductor was at work for 30 s when the time was over (--max-time)"]
    assert triage.verdict.next == ["graphdbg triage --max-time 120 -- true slow.py"]


def test_calls_that_the_time_did_not_suffice_for_are_said(tmp_path: Path) -> None:
    with graphdbg.shadow(tmp_path / "none", max_time_s=0.0) as shadowed:
        step = torch.compile(lambda x: x + 1, backend="eager")
        step(torch.ones(2))
    assert shadowed.verdict.reason == "the time was over (--max-time) before a call could be looked at", (
        shadowed.verdict
    )
    with graphdbg.shadow(tmp_path / "later", calls="5:7") as shadowed:
        step(torch.ones(2))
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
    assert "--calls names later ones than the 1 that" in shadowed.verdict.reason, shadowed.verdict


def test_what_the_time_did_not_suffice_for_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Call("1:1", "step", "train.py", 3, 0, rows=[CallRung("eager"), CallRung("dynamo")])
    monkeypatch.setattr(_SupervisedProgram, "run", lambda program, options, quiet: None)
    monkeypatch.setattr(_SupervisedProgram, "read", lambda program: Program(calls=[right], missed=2))
    triage = triage_program(["true", "train.py"], output=tmp_path / "found", max_time_s=30.0)
    assert triage.notes == ["the time was over (--max-time) before 2 more calls that were asked for could be looked at"]
    assert triage.verdict.verdict == "ok"
    assert triage.verdict.next[0] == "graphdbg triage --max-time 120 -- true train.py"


def test_what_ended_the_context_of_a_device_is_recorded_with_the_inputs_of_its_step(tmp_path: Path) -> None:
    in_eager = Call("1:1", "step", "train.py", 3, 2, why=f"eager raises AcceleratorError, {LOST}")
    alone, *steps = concluded(Program([in_eager]), tmp_path, JudgedCall(), ["train.py"], 1).verdict.next
    assert alone == "env CUDA_LAUNCH_BLOCKING=1 TORCHDYNAMO_DISABLE=1 python train.py"
    crash = Verdict("fails", "crash", "compiler", "inductor", "it raises AcceleratorError")
    compiled = Call("1:1", "step", "train.py", 3, 0, rows=[CallRung("eager"), CallRung("inductor", crash)])
    compiled.recorded = f"its graphs were not recorded: {LOST}"
    assert concluded(Program([compiled]), tmp_path, JudgedCall(), ["train.py"]).verdict.next == steps
    assert steps[0].startswith("graphdbg dump --when error -o ") and steps[1].startswith("graphdbg triage ")


def test_a_program_that_ends_badly_or_a_call_that_cannot_be_told_is_not_ok(tmp_path: Path) -> None:
    right = Call("1:1", "step", "train.py", 3, 0, rows=[CallRung("eager"), CallRung("dynamo")])
    unlooked = Call("1:2", "step", "train.py", 3, 1, why="it talks to other processes")
    text = "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run."
    over = concluded(Program([right], raised=text), tmp_path, JudgedCall(), ["python", "train.py"], 1).verdict
    assert "clone what has to last" in over.reason and "Error:" not in over.reason
    ended = concluded(Program([right], raised="KeyError: 3"), tmp_path, JudgedCall(), ["python", "train.py"], 1)
    assert ended.verdict.exit_code == 4
    assert ended.verdict.reason == (
        "the program itself ended with code 1 (KeyError: 3); nothing that was compared departs from eager"
    )
    for words in (["train.py", "--big"], ["-m", "train"]):
        bare = concluded(Program([right], raised="KeyError: 3"), tmp_path, JudgedCall(), words, 1).verdict
        none = concluded(Program(), tmp_path, JudgedCall(), words, 1).verdict  # before any compiled call
        assert none.next == bare.next
        assert bare.next == [f"env TORCHDYNAMO_DISABLE=1 python {' '.join(words)}"]
    limit = Program([right], {"step train.py:3": 9}, most=9, raised="FailOnRecompileLimitHit: Hard failure")
    record, judge = concluded(limit, tmp_path, JudgedCall(), ["train.py"], 1).verdict.next
    assert record.startswith("graphdbg dump -o ") and judge.startswith("graphdbg triage ")
    graphs = msgspec.structs.replace(right, cuda_graphs=True)
    died = concluded(Program([graphs]), tmp_path, JudgedCall(), ["python", "train.py"], 139).verdict.reason
    assert died == (
        "the program itself ended with signal SIGSEGV; nothing that was compared departs from eager, with CUDA graphs "
        "off beside it: see whether it ends so with options={'triton.cudagraphs': False} in place of the mode, too"
    )
    stopped = concluded(Program([right]), tmp_path, JudgedCall(), ["python", "train.py"], 143)
    assert "ended with signal SIGTERM" in stopped.verdict.reason and not stopped.verdict.next
    both = concluded(Program([right, unlooked]), tmp_path, JudgedCall(), ["python", "train.py"])
    assert (both.verdict.verdict, both.verdict.reason) == (
        "cannot_tell",
        "step() (train.py:3), call 1: it talks to other processes",
    )
    assert concluded(Program([right]), tmp_path, JudgedCall(), ["python", "train.py"]).verdict.verdict == "ok"


@pytest.mark.parametrize(("text", "calls"), [(None, (0, 3)), ("5", (0, 5)), ("2:4", (2, 4))])
def test_calls(text: str | None, calls: tuple[int, int]) -> None:
    assert range_of(text) == calls


@pytest.mark.parametrize("text", ["0", "x", "3:3", "-1:2"])
def test_calls_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="names no calls"):
        range_of(text)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    with pytest.raises(UsageError, match="exists already"):
        triage_program([str(script)], output=tmp_path)


def test_a_script_that_is_not_there_is_a_wrong_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such script"):
        triage_program(["python", "nothing.py"], output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train.py"], "graphdbg triage -- python train.py"),
        (["train.py", "--steps", "3"], "graphdbg triage -- python train.py --steps 3"),
        (
            ["--limit", "9", "--calls", "4", "train.py", "-n", "a b"],
            "graphdbg triage --limit 9 --calls 4 -- python train.py -n 'a b'",
        ),
        (["python", "train.py", "-x"], "graphdbg triage -- python train.py -x"),
        (["tool", "-x"], "graphdbg triage -- ./tool -x"),
    ],
)
def test_a_command_without_dashes_gets_the_line_that_triages_it(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("tool").write_text("#!/bin/sh\n")
    Path("tool").chmod(0o755)
    error = CliRunner().invoke(command, words).exception
    assert isinstance(error, UsageError) and error.exit_code == 2
    assert f"`{line}`" in str(error)


def test_a_run_whose_name_ends_like_a_script_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.py").mkdir()
    assert "neither a run" in str(CliRunner().invoke(command, ["run.py"]).exception)


def test_a_second_interrupt_does_not_break_off_the_first(tmp_path: Path) -> None:
    program = _SupervisedProgram(["python"], tmp_path, None, lambda text: None)
    program.judging = True
    with pytest.raises(KeyboardInterrupt):
        program._signalled(signal.SIGINT)
    program._signalled(signal.SIGINT)
    assert program.signals == [signal.SIGINT, signal.SIGINT]


@pytest.mark.parametrize(
    ("size", "rung", "fresh", "verdict"),
    [
        (0.9, "inductor", "departs", "rounding"),
        (0.01, "inductor", "departs", "fails"),
        (0.9, "aot_eager", "departs", "fails"),
        (0.9, "inductor", "agrees", "fails"),
    ],
)
def test_a_call_whose_graphs_differ_as_much_by_rounding_does_not_fail(
    size: float, rung: str, fresh: str, verdict: str, tmp_path: Path
) -> None:
    wrong = fails("wrong_numbers", rung, "result is off by 2.6")
    rows = [CallRung("eager"), CallRung(rung, wrong, value="result", error=2.6)]
    call = Call("1:1", "step", "train.py", 3, 0, rows=rows, run="run", fresh=fresh)
    judged = Verdict("rounding", reason="relative error 0.00063 to float64", workaround="x = 1", next=["try"])
    graphs = JudgedCall(judged, size=size)
    conclusion = concluded(Program([call]), tmp_path, graphs, ["python", "train.py"])
    assert conclusion.verdict.verdict == verdict, conclusion.summary
    if verdict == "rounding":
        assert conclusion.verdict.reason == "result differs as its graphs do: relative error 0.00063 to float64"
        assert (conclusion.verdict.workaround, conclusion.verdict.next, conclusion.at) == ("x = 1", ["try"], None)


@pytest.mark.parametrize(("decided", "verdict"), [(True, "rounding"), (False, "fails")])
def test_a_call_that_overflows_as_rounding_decides_in_its_graphs_does_not_fail(
    decided: bool, verdict: str, tmp_path: Path
) -> None:
    wrong = fails("nan", "inductor", "result is inf, eager's is 3.7e+07")
    rows = [CallRung("eager"), CallRung("inductor", wrong, value="result", error=1.0)]
    call = Call("1:1", "step", "train.py", 3, 0, rows=rows, run="run", fresh="departs")
    judged = Verdict("rounding", reason=f"1 of 900 elements overflow, {DECIDED}")
    graphs = JudgedCall(judged, size=0.001, decided=decided)
    assert concluded(Program([call]), tmp_path, graphs, ["python", "train.py"]).verdict.verdict == verdict


def test_a_share_of_elements_is_the_size_of_what_rounding_does(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = f"result: 2 of 4 elements differ from eager's (torch.int64), {DECIDED}"
    rounding = Verdict("rounding", reason=reason)
    seen = Signature("accuracy", "compare", detail="rounding", size=0.5, raw=reason)
    row = GraphRow("inductor", rounding, signature=seen, error=1e-7, id="0_0/inference", stage="inference")
    triage = SimpleNamespace(verdict=rounding, summary="", graphs=[row])
    monkeypatch.setattr(judging, "triage_run", lambda *arguments, **options: triage)
    monkeypatch.setattr(judging, "opened", nullcontext)
    run: Any = None
    judged = JudgedCall()
    judging._judge(judged, run, None, (), False, print, lambda: False, math.inf)
    assert (judged.size, judged.decided) == (0.5, True)


def test_what_the_program_sees_is_told_beside_a_rung_that_fails_otherwise(tmp_path: Path) -> None:
    raised = fails("crash", "decomposed", "it raises RuntimeError: modified in place; eager does not")
    wrong = fails("wrong_numbers", "inductor", "gradient of w is off by 0.45")
    rows = [CallRung("eager"), CallRung("decomposed", raised), CallRung("inductor", wrong, value="gradient of w")]
    call = Call("1:1", "step", "train.py", 3, 0, rows=rows, run="run")
    said = concluded(Program([call]), tmp_path, JudgedCall(), ["python", "train.py"]).summary
    assert "eager does not, from decomposed on (under inductor: gradient of w is off by 0.45)" in said


@pytest.mark.parametrize(("rung", "verdict"), [("decomposed", "cannot_tell"), ("inductor", "fails")])
def test_decompositions_that_take_too_long_in_eager_are_no_hang(tmp_path: Path, rung: str, verdict: str) -> None:
    call = Call("1:1", "step", "train.py", 3, 0, rows=[CallRung("eager")], in_flight=rung)
    hung = f"{rung} was still at work after 628 s (see --limit)"
    result = concluded(Program([call]), tmp_path, JudgedCall(), ["train.py"], 137, hung).verdict
    assert (result.verdict, result.kind) == (verdict, None if rung == "decomposed" else "hang")
    assert [step.split()[1] for step in result.next] == ["dump", "triage"] and hung in result.reason


def test_a_call_whose_graphs_do_not_repeat_themselves_convicts_no_compiler(tmp_path: Path) -> None:
    rows = [
        CallRung("eager"),
        CallRung("inductor", fails("wrong_numbers", "inductor", "off"), value="result", error=2.6),
    ]
    call = Call("1:1", "step", "train.py", 3, 0, rows=rows, run="run", fresh="departs")
    graphs = JudgedCall(Verdict("nondeterministic", reason="eager gives different results in two runs"))
    conclusion = concluded(Program([call]), tmp_path, graphs, ["python", "train.py"])
    said = "result differs, and its graphs by themselves: eager gives different results in two runs"
    assert (conclusion.verdict.verdict, conclusion.at) == (
        "nondeterministic",
        None,
    ) and said in conclusion.verdict.reason


def test_a_killed_process_that_its_device_holds_is_not_waited_for(tmp_path: Path) -> None:
    messages: list[str] = []
    program = _SupervisedProgram([], tmp_path, None, messages.append)
    program.killed = time.monotonic() - 60.0
    held: Any = SimpleNamespace(pid=7, poll=lambda: None)
    with socket.socket(socket.AF_UNIX) as door:
        assert program._attend(door, held) == -signal.SIGKILL  # pyright: ignore[reportPrivateUsage]
    assert messages == ["process 7 was killed and does not end: a kernel of it may still run on a device"]

    def leave(child: subprocess.Popen[bytes]) -> int:
        child.kill()
        return -signal.SIGKILL

    assert launch.run([sys.executable, "-c", "import time; time.sleep(9)"], {}, attend=leave) == 128 + signal.SIGKILL


def test_an_error_is_told_in_whole_words() -> None:
    reported = said(MemoryError("CUDA out of memory. " + "Process 77 has 612.00 MiB memory in use. " * 9))
    assert reported.endswith("Process 77 has …") and len(reported) < 180
    long = "a size " * 29
    reported = said(RuntimeError(f"Dynamo failed to run FX node with fake tensors: mul(): got ValueError('{long}')"))
    assert reported.endswith("size a …)"), "the error inside is not cut in silence"


class CompilationError(Exception):
    """As Triton's: the place, the source up to it, and what is wrong, in words of its own for each caller."""


REFUSED = "at 2:8:\ndef rowsum(x, n):\n    i = tl.arange(0, n)\n        ^\n{}"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (f"CompilationError: {REFUSED.format('n is not defined')}", "ok"),
        ("CompilationError: at 7:1:\ndef triton_poi_fused_0(x):\n ^\nno such type", "fails"),
    ],
)
def test_a_kernel_that_triton_refuses_in_eager_too_is_no_fault_of_the_compiler(error: str, verdict: str) -> None:
    eager = Left({}, CompilationError(REFUSED.format("arange takes constants")))
    row = judged("inductor", "inductor", "", eager, Left({}, RuntimeError(error)), {}, lambda count: {}, {})
    assert row.verdict.verdict == verdict
    assert said(eager.error) == "CompilationError: arange takes constants"
