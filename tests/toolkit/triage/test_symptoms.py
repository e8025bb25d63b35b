"""What a run suffers from: found in its journals or named, and the verdict that its sequence comes to."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.errors import RanksMissingError
from graphdbg.dumps.store import open_run
from graphdbg.toolkit.commands.replay import facts
from graphdbg.toolkit.commands.triage import run_table
from graphdbg.toolkit.live.process_groups import peers
from graphdbg.toolkit.recorder.watching import write_exit
from graphdbg.toolkit.replaying.replay import How
from graphdbg.toolkit.triage import run as screening
from graphdbg.toolkit.triage import symptoms
from graphdbg.toolkit.triage.ladder import Steady, triage
from graphdbg.toolkit.triage.ranking import GraphRow, RunTriage
from graphdbg.toolkit.triage.symptoms import (
    SYMPTOMS,
    _about_nan,
    died,
    in_flight,
    noticed,
    ranks,
    recompiles,
    steady,
    triage_symptom,
    waits,
)
from graphdbg.toolkit.verdicts import own_passes
from graphdbg.toolkit.verdicts.ladder_words import whole_program
from graphdbg.toolkit.verdicts.outcome import Outcome
from graphdbg.toolkit.verdicts.own_passes import OwnPass
from graphdbg.toolkit.verdicts.verdict import NOT_JUDGED, OK, Verdict
from tests.dumps.graph_text import graph
from tests.dumps.test_diff_command import write_run

AGAIN = """
import torch
@torch.compile(backend="eager")
def f(x, tag):
    return x * len(tag)
for i in range(CALLS): f(torch.ones(2), "t" * i)
"""
ROOT = """
import torch
torch.manual_seed(0)
@torch.compile(backend="aot_eager")
def f(x):
    h = x * 2
    return torch.sqrt(h).sum()
with torch.no_grad(): f(torch.randn(4))
"""


@pytest.fixture(scope="module")
def limited(recorded_script):
    return open_run(recorded_script(AGAIN.replace("CALLS", "10")))


@pytest.fixture(scope="module")
def negative(recorded_script):
    return open_run(recorded_script(ROOT, inputs="first"))


def _triage(run, symptom, server, *, asked=True):
    return triage_symptom(run, symptom, "asked for", asked=asked, max_time_s=100, server=server)


def test_ranks_that_call_the_same_are_told_apart_by_what_differs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "x: [8, 4]\nrelu = aten.relu.default(x) [8, 4] @ model.py:5\nreturn relu"
    write_run("two", *([graph(words)] for words in (text, text.replace("[8, 4]", "[6, 4]"))), ranks=True)
    said, verdict = ranks(open_run("two"))
    assert verdict is not None and verdict.where is not None and verdict.where.node == "x"
    assert "in 1:0_0/forward: x: input: shape: [8, 4] -> [6, 4]" in said


REDUCED = """
x: [8, 4]
sent = _c10d_functional.all_reduce.default(x) [8, 4] @ ranks.py:10
half = aten.mul.Tensor(sent, 0.5) [8, 4] @ ranks.py:11
return half
"""
ALONE = "x: [8, 4]\nhalf = aten.mul.Tensor(x, 0.5) [8, 4] @ ranks.py:11\nreturn half"


@pytest.fixture
def parted(tmp_path, monkeypatch):
    """A run that was ended, of two ranks: the second compiled a function again, without the collective."""
    monkeypatch.chdir(tmp_path)
    first = [graph(REDUCED, "0_0/forward")]
    write_run("two", first, [*first, graph(ALONE, "0_1/forward")], ranks=True)
    return open_run("two")


def test_of_ranks_that_were_ended_the_collective_is_named_that_one_calls_alone(parted):
    assert ranks(parted)[1].kind == "metadata"
    for process in parted.processes:
        write_exit(process.path, process.record.pid, -15)
    verdict = ranks(open_run("two"))[1]
    assert (verdict.verdict, verdict.kind, verdict.fault) == ("fails", "hang", "model")
    reason = "rank 1 compiled 0_1, and rank 0 did not; 0:0_0/forward calls all_reduce (ranks.py:10), and "
    assert verdict.reason == reason + "1:0_1/forward does not"
    assert verdict.next == ["graphdbg diff two/0:0_0/forward two/1:0_1/forward"]
    assert whole_program(open_run("two")) == "graphdbg diff two"
    assert whole_program(parted) == "graphdbg triage -- python train.py"


def test_a_run_that_was_ended_is_not_ok_where_ranks_differ(parted, monkeypatch):
    for process in parted.processes:
        write_exit(process.path, process.record.pid, -15)
    monkeypatch.setattr(symptoms, "triage_run", lambda *_, **__: RunTriage([], [], [], summary="No graph fails."))
    ended = triage_symptom(open_run("two"), "ranks", "", asked=False, max_time_s=1)
    assert ended.verdict.kind == "hang" and "later executions are not in the journal" in ended.summary


def test_ranks_that_would_wait_for_each_other_are_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, other = graph(REDUCED), graph(ALONE)
    group = {"dict": [["backend", "gloo"], ["ranks", [0, 1]], ["rank", 0], ["world_size", 2]]}
    for record in (first, other):
        record.graph.meta["process_groups"] = {"dict": [["0", group]]}
    write_run("two", [first], [other], ranks=True)
    alone = "0:0_0/forward calls all_reduce (ranks.py:10), and 1:0_0/forward does not"
    with pytest.raises(RanksMissingError, match=re.escape(alone)) as raised:
        peers(open_run("two").graph("0:0_0/forward"))
    assert "graphdbg diff two/0:0_0/forward two/1:0_0/forward shows" in str(raised.value)


def test_the_next_command_shows_how_ranks_differ_where_nothing_fails(parted, monkeypatch):
    monkeypatch.setattr(symptoms, "triage_run", lambda *_, **__: RunTriage([], [], [], verdict=OK))
    result = triage_symptom(parted, "ranks", "", asked=False, max_time_s=1)
    assert (result.verdict.exit_code, result.verdict.next[0]) == (
        0,
        "graphdbg diff two/0:0_0/forward two/1:0_1/forward",
    )


@pytest.mark.parametrize(("without_s", "fault"), [(0.01, "custom_pass"), (1.0, "compiler")])
def test_a_pass_of_the_users_is_at_fault_where_a_graph_is_quick_without_it(parted, monkeypatch, without_s, fault):
    stages = ["dynamo", "forward", "post_grad_forward"]
    write_run("slow", [graph(ALONE, f"0_0/{stage}") for stage in stages])
    for row, nodes in zip((slow := open_run("slow")).rows, (3, 3, 9), strict=True):
        row.nodes = nodes
    times = {("slow_passes",): Steady(1.0, 0.01, 30, True), (): Steady(without_s, 0.01, 30, without_s > 0.5)}
    monkeypatch.setattr(symptoms, "measure", lambda saved, server, how: times[how.imports])
    monkeypatch.setattr(symptoms, "_slow_compile", lambda *_: None)
    mine = OwnPass("post_grad_custom_post_pass", "clip", "team/slow_passes.py", 3)
    monkeypatch.setattr(symptoms, "passes", lambda saved, all: [mine])
    row = GraphRow("inductor", OK, id="0_0/dynamo", stage="dynamo")
    text, verdict = steady(slow, RunTriage([row], [], []), How(imports=("slow_passes",)))
    assert (verdict.kind, verdict.fault) == ("slow", fault)
    said = "0_0/dynamo takes 10.00 ms without the run's own pass clip in slow_passes.py:3 (post_grad_custom_post_pass)"
    assert (said in text and said in verdict.reason) == (fault == "custom_pass")
    shown = ["graphdbg diff slow/0_0/forward slow/0_0/post_grad_forward", "graphdbg ls slow --time"]
    assert verdict.next == (shown if fault == "custom_pass" else shown[1:])


@pytest.mark.parametrize("failing", [False, True])
def test_what_was_asked_for_is_in_the_answer_and_another_failure_beside_it(parted, monkeypatch, failing):
    wrong = Verdict("fails", "wrong_numbers", "compiler", "inductor")
    row = GraphRow("stages", wrong if failing else OK, id="0:0_0/forward", stage="forward")
    graphs = RunTriage([row], [], [], verdict=row.verdict, summary="It is wrong." if failing else "No graph fails.")
    monkeypatch.setattr(symptoms, "triage_run", lambda *_, **__: graphs)
    small = GraphRow("inductor", OK, id="0:0_0/dynamo", stage="dynamo", needed_bytes=3 << 20, eager_bytes=1 << 20)
    monkeypatch.setattr(symptoms, "_runnable", lambda *_: ["1:0_1/forward"])
    monkeypatch.setattr(symptoms, "replay", lambda *_, **__: SimpleNamespace(**_measures(small)))
    result = triage_symptom(parted, "memory", "asked for", asked=True, max_time_s=1)
    assert result.verdict.failed == failing
    assert "3.0 MiB for compile and first run of 1:0_1/forward, 1.0 MiB for eager's own run" in result.summary
    assert (
        result.summary.startswith("Looked at: the memory")
        == result.summary.endswith("Besides: It is wrong.")
        == failing
    )
    assert result.summary.count("Looked at: ") == 1


def _measures(row):
    return {name: getattr(row, name) for name in ("verdict", "needed_bytes", "eager_bytes", "control_bytes")}


def test_a_run_whose_graphs_need_the_users_own_is_triaged_again_with_what_was_asked(parted, capsys, monkeypatch):
    monkeypatch.setattr(own_passes, "left_out", lambda run: ("your pass clip", "--trust"))
    unjudged = Verdict("cannot_tell", reason="without the pass")
    rows = [GraphRow("inductor", unjudged, id="0_0/dynamo", stage="dynamo", address="two/0_0/dynamo")]
    monkeypatch.setattr(symptoms, "triage_run", lambda *_, **__: RunTriage(rows, [], [], verdict=unjudged))
    with pytest.raises(SystemExit):
        command(["triage", "two", "--symptom", "memory"])
    captured = capsys.readouterr()
    text = "without --trust the graphs are compiled without your pass clip: "
    assert text + "graphdbg triage two --trust --symptom memory" in captured.err
    assert "fidelity" not in captured.out and "seconds" not in captured.out


def test_a_recompile_limit_is_noticed_and_told_with_the_guards_line(limited, server):
    assert noticed(limited).symptom == "recompiles"
    verdict = _triage(limited, "recompiles", server).verdict
    assert (verdict.verdict, verdict.kind, verdict.fault) == ("fails", "slow_compile", "model")
    assert verdict.where.line.endswith(":5") and "recompile_limit = 8 is reached" in verdict.reason
    assert verdict.next == [f"graphdbg ls {limited.path} --why"]


def test_of_an_error_in_the_journal_what_is_told_ends_at_a_word_and_all_of_it_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run("run", [graph("x: [4, 2]\ny = aten.relu.default(x) [4, 2]\nreturn y", "0_0/dynamo")])
    run, words = open_run("run"), "RuntimeError: " + "word " * 40
    results = []
    for error in (words, f"{words}: can't allocate memory"):
        monkeypatch.setattr(run, "rows", [SimpleNamespace(id="0_0/dynamo", status="failed", error=error)])
        results.append(noticed(run))
    assert [item.symptom for item in results] == ["crash", "memory"]
    assert all(item.why.endswith(" word…") for item in results)


def test_a_process_that_ended_at_the_recompile_limit_has_that_symptom(limited, monkeypatch):
    results = []
    for error in ("FailOnRecompileLimitHit: Hard failure due to fullgraph=True", "KeyError: 3"):
        monkeypatch.setattr(limited.processes[0], "uncaught", error)
        results.append(noticed(limited).symptom)
    assert results == ["recompiles", "crash"]


def test_a_nan_of_eagers_own_is_named_where_it_was_asked_for(negative, server):
    assert noticed(negative).symptom == "wrong"
    verdict = _triage(negative, "nan", server).verdict
    assert (verdict.verdict, verdict.kind, verdict.fault) == ("fails", "nan", "model")
    assert verdict.where.node == "sqrt" and verdict.where.line.endswith(":7")
    assert _triage(negative, "wrong", server).verdict.verdict == "ok"


@pytest.mark.long
def test_a_healthy_run_is_ok_under_a_symptom_with_what_was_looked_at(recorded, server):
    for symptom in ("memory", "crash", "nan", "recompiles", "slow"):
        result = _triage(open_run(recorded), symptom, server)
        assert (result.verdict.verdict, result.symptom) == ("ok", symptom), result.summary
        assert result.verdict.reason and result.verdict.exit_code == 0


UNVECTORISED = """
import torch
import torch._inductor.config as config
config.cpp.simdlen = config.cpp.threads = 1
@torch.compile
def f(x):
    return x.exp().exp().log1p().log1p().exp().sum(-1)
f(torch.randn(300, 4000))
"""


@pytest.mark.slow
def test_a_graph_that_is_slower_than_eager_is_named_with_its_line(recorded_script, server):
    result = _triage(open_run(recorded_script(UNVECTORISED)), "slow", server)
    assert (result.verdict.verdict, result.verdict.kind, result.verdict.fault) == ("fails", "slow", "compiler")
    assert result.verdict.where.name == "" and result.verdict.where.line.endswith(":5")
    assert result.times[0].run_s > result.times[0].eager_s


def test_a_program_that_did_not_end_well_is_not_said_to_be_fine(recorded, tmp_path, server):
    whole = open_run(shutil.copytree(recorded, tmp_path / "run"))
    for process in whole.processes:  # as `graphdbg dump` notes it
        write_exit(process.path, process.record.pid, 1)
    run = open_run(tmp_path / "run")
    result = noticed(run)
    assert result.symptom == "crash" and "exit code 1" in result.why
    judged = triage_symptom(run, *result, asked=False, max_time_s=100, server=server)
    assert judged.verdict.verdict == "cannot_tell" and judged.verdict.next[0].startswith("graphdbg triage -- ")
    assert judged.verdict.reason.endswith("the cause is outside of them, or in a later execution of one")


def test_a_program_that_ended_badly_is_judged_next_where_a_graph_cannot_be(recorded, tmp_path, monkeypatch):
    whole = open_run(shutil.copytree(recorded, tmp_path / "run"))
    for process in whole.processes:
        write_exit(process.path, process.record.pid, 1)
    again = "graphdbg dump --inputs last -- train.py"
    unjudged = Verdict("cannot_tell", reason="it calls Python", next=[again])
    monkeypatch.setattr(symptoms, "triage_run", lambda *_, **__: RunTriage([], [], [], verdict=unjudged))
    run = open_run(tmp_path / "run")
    program, *others = triage_symptom(run, *noticed(run), asked=False, max_time_s=100).verdict.next
    assert program.startswith("graphdbg triage -- ") and others == [again]


@pytest.mark.parametrize(("name", "asked"), [("SIGTERM", []), ("SIGSEGV", ["run"])])
def test_the_stages_of_a_compile_that_was_ended_from_outside_are_not_compared(tmp_path, monkeypatch, name, asked):
    monkeypatch.chdir(tmp_path)
    write_run("run", [graph("x: [4, 2]\ny = aten.relu.default(x) [4, 2]\nreturn y", "0_0/dynamo")])
    whole, result = open_run("run"), []
    end = SimpleNamespace(signal=name, process=whole.processes[0])
    monkeypatch.setattr(screening.deaths, "endings", lambda processes: [end])
    monkeypatch.setattr(screening, "judge_stages", lambda *_, **__: result.append("run"))
    work = screening._TriageInProgress(whole, SimpleNamespace(start_s=0.0), How(), 100, result.append)
    (candidate,) = screening.candidates(whole, ())
    candidate.graph.status = "compiling"
    assert not work._parted(candidate, 1.0) and result == asked


@pytest.mark.parametrize("asked", [False, True])
def test_where_no_graph_had_time_the_next_command_gives_more(tmp_path, monkeypatch, asked):
    monkeypatch.chdir(tmp_path)
    write_run("run", [graph("x: [4, 2]\ny = aten.relu.default(x) [4, 2]\nreturn y", "0_0/dynamo")])
    unjudged = Verdict("cannot_tell", reason="the time was over", detail=NOT_JUDGED)
    monkeypatch.setattr(symptoms, "triage_run", lambda *_, **__: RunTriage([], [], [], verdict=unjudged))
    result = triage_symptom(open_run("run"), "wrong", "", asked=asked, max_time_s=100, imports=("myop",))
    flags = " --symptom wrong" * asked
    assert result.verdict.next == [f"graphdbg triage run --import myop{flags} --max-time 400"]


def test_a_graph_that_eager_refuses_is_left_to_the_whole_program(tmp_path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    write_run("run", [graph("x: [4, 2]\ny = torch.softmax(x, 3) [4, 2]\nreturn y", "0_0/dynamo")])
    run = open_run("run")
    results = [triage_symptom(run, *noticed(run), asked=False, max_time_s=100, server=server)]
    results.append(triage(run.graphs()[0], server=server))
    assert [triaged.verdict.next[-1] for triaged in results] == ["graphdbg triage -- python train.py"] * 2


def test_the_command_takes_the_symptoms_of_the_table():
    from graphdbg.toolkit.commands.triage import triage

    option = next(param for param in triage.params if param.name == "symptom")
    assert list(option.type.choices) == list(SYMPTOMS)


def test_one_recompile_that_makes_a_size_variable_is_ordinary(recorded_script):
    text = "import torch\nf = torch.compile(lambda x: x * 2, backend='eager')\nfor n in (3, 4, 5): f(torch.ones(n))\n"
    assert recompiles(open_run(recorded_script(text)))[1] is None


def test_a_program_that_was_ended_may_have_been_in_a_later_execution_of_a_graph(recorded, tmp_path):
    whole = open_run(shutil.copytree(recorded, tmp_path / "run"))
    for process in whole.processes:
        write_exit(process.path, process.record.pid, -15)
    text, verdict = in_flight(open_run(tmp_path / "run"))
    assert "run for the first time" in text and verdict is not None
    assert verdict.reason.endswith("outside of graphs, or in a later execution of a graph")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-11, "ended by SIGSEGV, but here it ends and is right: the inputs"),
        (-9, "right: it was slow, or what it waited for is"),
    ],
)
def test_a_graph_in_flight_at_a_death_waited_only_where_it_was_killed_from_outside(recorded, tmp_path, code, said):
    whole = open_run(shutil.copytree(recorded, tmp_path / "run"))
    graph = whole.graphs()[0]
    for process in whole.processes:
        write_exit(process.path, process.record.pid, code)
        with (process.path / "journal.jsonl").open("a") as journal:
            journal.write(json.dumps({"t": 2e9, "kind": "running", "graph": graph.local_id}) + "\n")
    _, verdict = in_flight(open_run(tmp_path / "run"))
    assert verdict is not None and said in verdict.reason


def test_an_error_that_dynamo_raised_has_its_line_and_no_graph(recorded_script, tmp_path):
    text = """
    import torch
    f = torch.compile(lambda x: x.relu() + torch.ones(3), backend="eager")
    try:
        f(torch.ones(3))
        f(torch.ones(4))
    except torch._dynamo.exc.TorchRuntimeError:
        pass
    """
    run = open_run(shutil.copytree(recorded_script(text), tmp_path / "run"))
    said = "Dynamo raised the error at train.py:3, as it traced <lambda> (0_1), before there was a graph"
    assert said not in died(run)[0]
    (process,) = run.processes
    with (process.path / "journal.jsonl").open("a") as journal:
        uncaught = {"t": 2e9, "kind": "note", "uncaught": True, "message": "TorchRuntimeError: add raises"}
        journal.write(json.dumps(uncaught) + "\n")
    run = open_run(tmp_path / "run")
    assert in_flight(run) == (f"Looked at: {said}.", None)
    assert died(run)[1].reason.endswith(f"no graph fails by itself: {said}")


def test_the_compile_that_raised_what_ended_the_program_is_named(recorded_script, tmp_path):
    text = """
    import torch
    def gate(x):
        return x.sigmoid().add_(1) * 2  # its gradient needs what sigmoid gave
    try:
        torch.compile(gate, backend="aot_eager")(torch.ones(3, requires_grad=True))
    except torch._dynamo.exc.BackendCompilerFailed:
        pass
    """
    run = open_run(shutil.copytree(recorded_script(text), tmp_path / "run"))
    assert in_flight(run)[0].startswith("Looked at: no graph was being compiled")
    with (run.processes[0].path / "journal.jsonl").open("a") as journal:
        message = "BackendCompilerFailed: backend='aot_eager' raised:\nRuntimeError: one of the variables"
        journal.write(json.dumps({"t": 2e9, "kind": "note", "uncaught": True, "message": message}) + "\n")
    said = "Looked at: the compile of gate (0_0) raised the error that ended the program."
    assert in_flight(open_run(tmp_path / "run")) == (said, None)


def test_rounding_is_no_answer_to_a_nan_on_synthesised_inputs(limited):
    rounding = Verdict("rounding", reason="far apart")
    row = GraphRow("inductor", rounding, id="0_0/dynamo", stage="dynamo", inputs="synthesised inputs")
    verdict = _about_nan(limited, RunTriage([row], [], [], verdict=rounding))
    assert verdict.reason == "no output of a graph is NaN on synthesised inputs; far apart"
    assert "--when nan" in verdict.next[0]


def test_what_the_allocator_kept_of_an_earlier_run_is_counted_again():
    text = "import torch; from graphdbg.toolkit.replaying.costs import PeakMemory; peak = PeakMemory()\n"
    text += "for _ in range(3): torch.ones(4 << 20)\n"
    text += "with peak.watched(): torch.ones(4 << 20)\nprint(peak.bytes)"
    answer = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert int(answer.stdout) > 12 << 20


def test_a_rank_that_waits_for_one_that_recorded_nothing_says_for_which():
    row = SimpleNamespace(id="0_0/dynamo", status="running", lost=True, since=None, rank=0, process="p", error=None)
    groups = {"0": {"backend": "gloo", "ranks": [0, 1], "rank": 0, "world_size": 2}}
    saved = SimpleNamespace(record=SimpleNamespace(graph=SimpleNamespace(meta={"process_groups": groups})))
    ranked = SimpleNamespace(rank=0, name="p")
    run = SimpleNamespace(rows=[row], processes=[ranked], graph=lambda name: saved, address="run", path=Path("run"))
    text, verdict = waits(run)
    assert text == "rank 0 was running 0_0/dynamo when it ended, and waits for rank 1."
    assert verdict.verdict == "cannot_tell" and verdict.next == ["graphdbg ls run"]


def test_what_a_graph_needed_is_printed_beside_eagers():
    rows = facts(Outcome(needed_bytes=3 << 20, eager_bytes=1 << 20))
    assert ("memory", "3.0 MiB for compile and first run, 1.0 MiB for eager's own run") in rows
    assert "memory" not in dict(facts(Outcome()))


def test_columns_in_which_nothing_is_known_are_left_out():
    wrong = Verdict("fails", "wrong_numbers", "custom_pass", reason="clip changes it")
    row = GraphRow("stages", wrong, id="0_0/backward", stage="backward")
    said = "id verdict 0_0/backward fails: wrong numbers clip changes it"
    assert run_table(RunTriage([row], [], [])).split() == said.split()
    row.error = 0.5
    assert run_table(RunTriage([row], [], [])).split()[:3] == ["id", "verdict", "error"]


def test_what_is_said_of_several_graphs_is_said_at_the_first():
    why = Verdict("cannot_tell", reason="the op 'mine.own' is not registered in this process")
    rows = [GraphRow("inductor", why, id=f"0_0/{stage}", stage=stage) for stage in ("forward", "backward")]
    text = run_table(RunTriage(rows, [], []))
    assert text.count("mine.own") == 1 and text.rstrip().endswith("0_0/backward  cannot tell  as 0_0/forward")


@pytest.mark.parametrize(
    ("words", "limit_s"), [((), 300.0), (("--max-time", "300"), 75.0), (("--max-time", "300", "--limit", "90"), 90.0)]
)
def test_a_run_that_hung_is_judged_within_a_part_of_the_time(recorded, monkeypatch, words, limit_s):
    seen = []

    def heard(run, *given, limit_s, **how):
        seen.append(limit_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(symptoms, "triage_symptom", heard)
    assert command(["triage", str(recorded), "--symptom", "hangs", *words]) == 130
    assert seen == [limit_s]
