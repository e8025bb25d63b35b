"""The ladder names the rung that a planted fault belongs to, and says of every other one why it was not run."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import graphdbg
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.store import load_graph, open_run
from graphdbg.toolkit.commands import triage as command
from graphdbg.toolkit.commands.replay import replay
from graphdbg.toolkit.isolation import ForkServer
from graphdbg.toolkit.replaying.replay import How
from graphdbg.toolkit.rungs import NAMES
from graphdbg.toolkit.triage.ladder import Ladder, chosen
from graphdbg.toolkit.triage.ranking import GraphRow, RunTriage, rank, run_concluded
from graphdbg.toolkit.triage.run import _alike, _boundary, _TriageInProgress, triage_run
from graphdbg.toolkit.verdicts import verdict
from graphdbg.toolkit.verdicts.ladder_records import REAL, RungResult, Triage, row_of
from graphdbg.toolkit.verdicts.ladder_words import concluded
from graphdbg.toolkit.verdicts.outcome import Outcome, OutputError
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict import OK
from graphdbg.toolkit.verdicts.verdict_words import AS_TRACED, word

WRONG = verdict.judged(Signature("accuracy", "compare", size=0.03), "inductor")
CLIMBED = ["eager", "debug_nop", "decomposed", "inductor_nofuse", "inductor"]
"""What a run with no setting of its own used."""


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        ("planted_decomposition", "decomposed"),
        pytest.param("planted_joint_pass", "inductor", marks=pytest.mark.slow),  # test_bisect names it
        pytest.param("planted_post_grad_pass", "inductor", marks=pytest.mark.slow),  # the rung of the joint pass
        ("planted_lowering", "inductor_nofuse"),
        pytest.param("planted_codegen", "inductor_nofuse", marks=pytest.mark.slow),  # the rung of the lowering
        pytest.param("planted_builtin_pass", "inductor", marks=pytest.mark.slow),
    ],
)
def test_the_rung_of_a_planted_fault(recorded: Path, server: ForkServer, fault: str, first: str) -> None:
    triage = graphdbg.triage(load_graph(recorded / "0_0/dynamo"), imports=[fault], server=server)
    assert triage.first_failing == first, triage
    assert [row.rung for row in triage.rows] == CLIMBED
    place = CLIMBED.index(first)
    for row in triage.rows[:place]:
        assert row.passed or (row.verdict.skipped and row.reason), row
    assert all(triage.row(name).passed for name in CLIMBED[:place])
    row = triage.row(first)
    assert row.verdict.kind in ("wrong_numbers", "nan")
    assert (triage.verdict.layer, row.verdict.layer) == (
        ("decomposition" if first == "decomposed" else "inductor"),
    ) * 2
    assert row.seconds > 0
    assert row.peak_bytes > 0
    assert all(later.verdict.skipped for later in triage.rows[place + 1 :])
    assert all(later.reason == f"{first} failed (--all runs this rung as well)" for later in triage.rows[place + 1 :])
    assert fault in triage.summary
    assert f"`{first}`" in triage.summary
    assert "recorded inputs" in triage.summary


@pytest.mark.long
def test_an_error_that_a_decomposition_does_not_raise_is_in_its_layer(
    recorded_script: Callable[..., Path], server: ForkServer
) -> None:
    celu = "import torch\ntorch.compile(lambda x: torch.nn.functional.celu(x, 0.0))(torch.ones(8))\n"
    saved = load_graph(recorded_script(celu, inputs="first") / "0_0/dynamo")
    triage = graphdbg.triage(saved, rungs=["eager", "decomposed"], server=server)
    assert (triage.verdict.kind, triage.verdict.layer) == ("missing_error", "decomposition")


@pytest.mark.long
def test_a_run_names_the_boundary_between_its_graphs(recorded: Path, server: ForkServer) -> None:
    triage = triage_run(open_run(recorded), imports=["planted_decomposition"], server=server)
    assert [(row.id, row.verdict.verdict) for row in triage.graphs] == [
        ("0_0/dynamo", "fails"),
        ("0_0/inference", "ok"),
    ]
    assert triage.boundaries == [
        "0_0/dynamo fails, 0_0/inference is right in itself: "
        "the fault is between the two stages (a decomposition, a joint pass or the partition)."
    ]
    assert triage.ladders[0].first_failing == "decomposed"
    assert "2 graphs were judged, 1 fail" in triage.summary


def test_a_failure_that_further_replays_do_not_show_is_flaky(
    recorded: Path, server: ForkServer, tmp_path: Path
) -> None:
    planted = tmp_path / "at_first.py"
    planted.write_text(
        f"""
import pathlib, torch
from torch._inductor.lowering import lowerings, mul
right, mark = lowerings[torch.ops.aten.tanh.default], pathlib.Path({str(tmp_path / "mark")!r})
def tanh(x):
    wrong = not mark.exists()
    mark.touch()
    return mul(right(x), 1.01) if wrong else right(x)
lowerings[torch.ops.aten.tanh.default] = tanh
"""
    )
    triage = triage_run(open_run(recorded), imports=[str(planted)], server=server)
    assert triage.boundaries == ["0_0/dynamo is flaky: it failed in 1 of 3 replays."]
    assert triage.verdict.failed and triage.verdict.reason.endswith("; it failed in 1 of 3 replays")


def test_a_run_without_time_judges_nothing_and_says_so(recorded: Path) -> None:
    with ForkServer(warm="nothing") as bare:
        triage = triage_run(open_run(recorded), server=bare, max_time_s=0.5)
    assert [row.verdict.verdict for row in triage.graphs] == ["cannot_tell"]
    assert triage.verdict.exit_code == 4
    assert not triage.failed
    assert "Nothing was judged" in triage.summary
    assert "1 cannot be judged (0_0/dynamo)" in triage.summary


def test_the_start_of_a_server_takes_nothing_of_a_runs_time() -> None:
    server: Any = SimpleNamespace(start_s=2.0)  # another's, before
    run: Any = None
    work = _TriageInProgress(run, server, How(), 60.0, lambda text: None)
    assert 59.0 < work.left_s() <= 60.0
    server.start_s += 85.0
    assert 144.0 < work.left_s() <= 145.0


@pytest.mark.long
def test_a_run_that_was_interrupted_says_so_first(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graphdbg.toolkit.triage.ladder.replay", interrupted)
    with ForkServer(warm="nothing") as bare:
        triage = triage_run(open_run(recorded), server=bare)
    assert triage.interrupted
    assert triage.summary.startswith("Interrupted, so not all was judged. Nothing was judged.")


def test_what_fails_otherwise_without_fusion_is_minified_there(recorded: Path) -> None:
    saved = load_graph(recorded / "0_0/inference")
    died = verdict.Verdict("fails", "signal", "compiler", "inductor", "signal in run: SIGSEGV")
    for other, rung in ((WRONG, " --rung inductor_nofuse"), (OK, " --rung inductor_nofuse"), (died, "")):
        rows = [RungResult("eager"), RungResult("inductor_nofuse", died), RungResult("inductor", other)]
        conclusion = concluded(Triage(rows, "inductor_nofuse", inputs="recorded inputs"), saved)
        assert conclusion.verdict.next[-1].endswith(f"/inference{rung}")
        assert conclusion.verdict.next[-1].startswith("graphdbg minify ")


def test_a_signal_that_ends_the_command_is_an_interrupt(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdbg.toolkit.triage.ladder.replay", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    try:
        result = CliRunner().invoke(command.triage, [str(recorded)])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 130
    assert "Interrupted, so not all was judged. Nothing was judged." in result.output


def test_a_graph_without_time_is_skipped_and_never_ok(recorded: Path) -> None:
    with ForkServer(warm="nothing") as bare:
        ladder = Ladder(load_graph(recorded / "0_0/dynamo"), bare, How(), max_time_s=0.5)
        rows = [ladder.climb(name, all=True) for name in NAMES]
        result = ladder.found()
    assert all(row.verdict.skipped for row in rows)
    assert not result.judged
    assert result.summary.startswith("Nothing was judged: the time was over")


def test_the_command_prints_a_table_a_sentence_and_json(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, server: ForkServer
) -> None:
    seen: list[dict[str, object]] = []

    def climb(saved: object, **options: object) -> Triage:
        seen.append(options)
        rows = [
            RungResult("eager", OK, 1e-7, 0.1, eager_error=1e-7),
            RungResult("inductor", WRONG, 0.03, 1.0, eager_error=1e-7),
        ]
        rows[1].signature, rows[1].signature_id = Signature("accuracy", "compare", size=0.03), "0123abcd"
        return concluded(Triage(rows, "inductor", inputs="recorded inputs"), load_graph(recorded / "0_0/dynamo"))

    monkeypatch.setattr("graphdbg.toolkit.triage.ladder.triage", climb)
    graph = str(recorded / "0_0/dynamo")
    done = CliRunner().invoke(command.triage, [graph, "--all", "--seed", "3", "--limit", "9", "--import", "math"])
    assert done.exit_code == 1
    assert seen[0]["all"] is True
    assert (seen[0]["seed"], seen[0]["limit_s"], seen[0]["imports"]) == (3, 9.0, ("math",))
    assert "`eager` is right, `inductor` is wrong (error 0.03; eager's own 1e-07)" in done.stdout
    assert f"Next: graphdbg bisect {graph}" in done.stdout
    document = json.loads(CliRunner().invoke(command.triage, [graph, "--json"]).stdout)
    assert document["first_failing"] == "inductor"
    assert (document["verdict"], document["layer"], document["where"]["graph"]) == ("fails", "inductor", graph)
    assert document["next"] == [f"graphdbg bisect {graph}", f"graphdbg minify {graph}"]
    assert [item.get("signature_id") for item in (document, *document["rows"])] == ["0123abcd", None, "0123abcd"]
    assert done.stdout.startswith("FAILS: wrong numbers (compiler: inductor)\n")
    assert [row["rung"] for row in document["rows"]] == ["eager", "inductor"]
    assert set(document["rows"][0]) >= {
        "rung",
        "verdict",
        "error",
        "seconds",
        "eager_error",
        "peak_bytes",
        "reason",
        "signature",
    }


def test_the_ladder_climbs_what_the_run_used(recorded: Path) -> None:
    saved = load_graph(recorded / "0_0/inference")
    assert chosen(saved) == CLIMBED
    assert chosen(saved, ["inductor", "nop"]) == ["nop", "inductor"]
    assert chosen(saved, all=True) == list(NAMES)
    saved.record.config.setdefault("inductor", {})["triton.cudagraphs"] = True
    assert chosen(saved) == [*CLIMBED, "inductor_cudagraphs"]


def test_a_note_that_holds_for_all_rungs_is_told_once() -> None:
    rows = [RungResult("eager", notes=["drawn again"]), RungResult("inductor", notes=["drawn again", "traced again"])]
    table = command.ladder_table(Triage(rows))
    assert (table.count("drawn again"), table.count("traced again")) == (1, 1)


def test_two_names_are_refused() -> None:
    assert isinstance(CliRunner().invoke(command.triage, ["one", "two"]).exception, UsageError)


def failing(signature: Signature) -> Outcome:
    return Outcome(verdict.died(signature, "inductor"), signature)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome(errors=[OutputError("0", 2e-7, 1e-7), OutputError("1", 1e-8, 1e-8)]), "ok"),
        (Outcome(verdict.skipped("there is no CUDA device here")), "skipped"),
        (Outcome(verdict.cannot_tell("node rand does not run in float64", verdict.NO_REFERENCE)), "cannot tell"),
        (failing(Signature("accuracy", "compare", size=0.1)), "fails: wrong numbers"),
        (failing(Signature("nan", "compare", detail="nan")), "fails: NaN"),
        (failing(Signature("signal", "run", detail="SIGSEGV")), "fails: signal"),
        (failing(Signature("hang", "compile")), "fails: hang"),
        (failing(Signature("memory", "eager")), "cannot tell"),
        (failing(Signature("nondeterministic", "eager")), "cannot tell"),
        (failing(Signature("metadata", "compare", detail="stride")), "fails: metadata"),
    ],
)
def test_each_verdict_has_its_word(outcome: Outcome, said: str) -> None:
    row = row_of(outcome, "inductor")
    assert word(row.verdict) == said
    assert row.failed == said.startswith("fails:")
    if said == "ok":
        assert (row.error, row.eager_error) == (2e-7, 1e-7)


def test_torchscript_alone_is_no_first_failing_rung(recorded: Path, server: ForkServer) -> None:
    ladder = Ladder(load_graph(recorded / "0_0/inference"), server, How(), max_time_s=0.5)
    ladder.rows = {
        "eager": RungResult("eager"),
        "torchscript": RungResult("torchscript", WRONG, 0.5),
        "inductor": RungResult("inductor", OK, 1e-7),
        "triton_interpret": RungResult("triton_interpret", verdict.skipped("Triton is not installed")),
    }
    assert ladder.climb("aot_inductor", all=False).verdict.skipped
    result = ladder.found()
    assert result.first_failing is None
    assert "`torchscript` is wrong" in result.summary
    assert "Not judged for lack of time: aot_inductor" in result.summary


def test_graphs_are_ranked_by_failure_then_by_error_over_eagers() -> None:
    def row(id: str, record: verdict.Verdict, error: float | None = None, **more: Any) -> GraphRow:
        return GraphRow("inductor", record, error, id=id, stage="forward", **more)

    rows = [
        row("fine", OK, 1e-7, eager_error=1e-7),
        row("rough", OK, 9e-7, eager_error=1e-7),
        row("large", WRONG, 3.0, signature=Signature("accuracy", size=3.0)),
        row("late", verdict.cannot_tell("", verdict.NOT_JUDGED)),
        row("dead", verdict.died(Signature("signal", "run"), "inductor")),
        row("small", WRONG, 0.1, signature=Signature("accuracy", size=0.1)),
    ]
    assert [row.id for row in sorted(rows, key=rank)] == ["dead", "large", "small", "late", "rough", "fine"]


def test_a_run_is_told_graph_by_graph(recorded: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdbg.toolkit.triage.run.opened", lambda given: contextlib.nullcontext(server))
    done = CliRunner().invoke(command.triage, [str(recorded), "--json-lines"])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["graph", "end"]
    assert (lines[0]["id"], lines[0]["verdict"], lines[-1]["failing"]) == ("0_0/dynamo", "ok", [])
    assert isinstance(CliRunner().invoke(command.triage, [str(recorded), "--rungs", "egaer"]).exception, UsageError)
    values = CliRunner().invoke(replay, [str(recorded), "--values"])
    assert values.stderr.startswith("taking 0_0/dynamo")


def _inner(id: str, kind: str = "") -> GraphRow:
    seen = Signature(kind) if kind else None
    return GraphRow("inductor", verdict.judged(seen, "inductor") if seen else OK, id=id, stage="", signature=seen)


@pytest.mark.parametrize(
    ("inner", "layer", "says"),
    [
        ([], "inductor", ""),
        ([_inner("b", "crash")], "inductor", "a fails; b fails in another way (fails: crash)."),
        ([_inner("b"), _inner("c")], "decomposition", "a fails, b and c are right in themselves: the fault is between"),
        ([_inner("b"), _inner("c")], "inductor", "a fails, b and c are right in themselves: they fail only together"),
    ],
)
def test_what_is_said_of_the_graphs_inside_one(inner: list[GraphRow], layer: Any, says: str) -> None:
    wide = _inner("a", "accuracy")
    said = _boundary(wide, wide, inner, replace(WRONG, layer=layer))
    assert said.startswith(says) and bool(said) == bool(says)
    killed = _inner("b", "signal")
    assert _alike(wide, killed) and not _alike(killed, wide)


def test_a_layer_is_not_claimed_where_no_ladder_was_climbed(recorded: Path) -> None:
    row = GraphRow("inductor", WRONG, id="0_0/dynamo", stage="dynamo", address="x/0_0/dynamo")
    result = run_concluded(RunTriage([row], [], []), open_run(recorded))
    assert "there was no time for its ladder" in result.summary and result.verdict.layer is None


@pytest.mark.parametrize("reason", ["nothing shows that the compiler is wrong", f"0.3 apart, {verdict.AT_RANDOM}"])
def test_a_node_is_looked_for_where_only_random_roundings_excuse_a_graph(recorded: Path, reason: str) -> None:
    rounded = verdict.Verdict("rounding", reason=reason, where=verdict.Where(graph="x/0_0/dynamo"))
    row = GraphRow("inductor", rounded, inputs=REAL, id="0_0/dynamo", stage="dynamo", address="x/0_0/dynamo")
    *first, last = run_concluded(RunTriage([row], [], []), open_run(recorded)).verdict.next
    assert last == "graphdbg minify x/0_0/dynamo --check rounding"
    node = "graphdbg bisect --by node x/0_0/dynamo --check rounding"
    assert first == [node] * (verdict.AT_RANDOM in reason)
    ladder = concluded(Triage([RungResult("eager", OK), row]), open_run(recorded).graphs()[0], [])
    assert ladder.verdict.next == [line.replace("x/0_0/dynamo", ladder.graph) for line in [*first, last][:1]]


def test_an_interrupted_triage_that_judged_no_graph_says_so(recorded: Path) -> None:
    result = run_concluded(RunTriage([], [], [], interrupted=True), open_run(recorded)).verdict
    assert (result.verdict, result.reason) == ("cannot_tell", "no graph was judged; it was interrupted")


def test_strides_that_are_as_traced_and_not_eagers_are_told_of_a_run_that_is_right(recorded: Path) -> None:
    note = f"strides of mul are (6, 1), eager's are (1, 5); {AS_TRACED}"
    row = GraphRow("inductor", OK, notes=[note], id="0_0/dynamo", stage="dynamo", address="x/0_0/dynamo")
    result = run_concluded(RunTriage([row], [], []), open_run(recorded))
    assert (
        result.summary.startswith(f"In 0_0/dynamo the {note}: ")
        and "graphdbg check x/0_0/dynamo" in result.verdict.next
    )


def test_a_hang_is_minified_as_one(recorded: Path) -> None:
    row = RungResult("inductor", verdict.judged(Signature("hang", "compile"), "inductor"))
    conclusion = concluded(Triage([RungResult("eager", OK), row], "inductor"), load_graph(recorded / "0_0/dynamo"))
    (minify,) = [step for step in conclusion.verdict.next if step.startswith("graphdbg minify ")]
    assert minify.endswith(" --check hang")
