"""What each part of a finished case is needed for: asked after the search, told as it was answered, and never kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.pack.redact import Redactor
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord
from graphdbg.minifier.casefile import CaseFile
from graphdbg.minifier.events import Best, Happening, QueryAnswered
from graphdbg.minifier.minified import Minified
from graphdbg.minifier.needs import MOST, MOST_FLAKY, certify, sentences, unneeded
from graphdbg.minifier.report.issue import IssueFacts, Report, render
from graphdbg.minifier.search.problem import Answer, Candidate, Ruling
from graphdbg.toolkit.verdicts import verdict
from graphdbg.toolkit.verdicts.signature import Signature
from tests.minifier.abstract import Abstract, run
from tests.minifier.generated import Shape, needs, transformer

HERE = Path(__file__).parent

CORE = (30, 170)
ROWS = [
    ["names", "n30", "relu", "n170", "mul", "x_1", "x"],
    ["0", "probes size 8 9 0.0", "dim", "{x_1}.shape[0]", "8", "9"],
    ["0", "dtypes float32 float64", "dtype", "dtype of {x_1}", "float32", "float64"],
    ["0", "probes constant n170 0 3", "constant", "{n170}.other", "2", "3"],
    ["0", "probes operator n30 abs 0", "node", "{n30}", "aten.relu.default", "abs in its place"],
    ["0", "switches config a b", "setting", "a.b", "1", "its default"],
    ["1", "probes size 8 7 0.0", "dim", "{x_1}.shape[0]", "8", "7"],
    ["1", "dtypes float32 bfloat16", "dtype", "dtype of {x_1}", "float32", "bfloat16"],
    ["1", "probes size 8 16 0.0", "dim", "{x_1}.shape[0]", "8", "16"],
    ["2", "dims 8 4", "dim", "{x_1}.shape[0]", "8", "4"],
    ["-", "", "dim", "{x_1}.shape[1]", "3", ""],
]
FAILING = ("dtypes float32 float64", "probes size 8 16 0.0")
"""Probes that fail the same way; that of the setting fails otherwise, the others pass."""


@dataclass
class Explained(Abstract):
    """Two of 300 atoms are needed; probes answer as FAILING says."""

    rows: list[list[str]] = field(default_factory=lambda: ROWS)
    asked_for: list[Candidate] = field(default_factory=list[Candidate])

    def together(self, candidate: Candidate) -> tuple[list[str], list[str]]:
        return [], ["names"]

    def propose(self, name: str, candidate: Candidate) -> list[list[str]]:
        if name == "names" and not candidate.edits:
            return [["names canonical"]]
        if name != "probes":
            return []
        self.asked_for.append(candidate)
        return self.rows

    def test(self, candidate: Candidate) -> Answer:
        answer = super().test(candidate)
        if "switches config a b" in candidate.edits:
            return Answer(Ruling.OTHER, "crash: another", answer.nodes, failure={"kind": "crash", "message": "another"})
        return answer


def fails(shape: Shape, candidate: Candidate) -> bool:
    probes = [edit for edit in candidate.edits if edit != "names canonical"]
    return needs(CORE)(shape, candidate) and all(edit in FAILING for edit in probes)


def explained(out: Path, tell: Any = None, **more: Any) -> tuple[Explained, Minified]:
    problem = Explained(
        transformer(300), fails, **{name: more.pop(name) for name in ("rows", "log", "chance") if name in more}
    )
    return problem, run(problem, out, tell=tell or (lambda event: None), **more)


def row(result: Minified, name: str) -> dict[str, Any]:
    return next(row for row in result.needs if row["name"] == name)


def tried(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item["value"], item["verdict"]) for item in row["tried"]]


def test_each_part_is_told_as_it_was_answered(tmp_path: Path) -> None:
    messages: list[Happening] = []
    problem, result = explained(tmp_path / "out", messages.append)
    assert problem.asked_for == [Candidate.of(CORE)], "the case before its nodes were renamed"
    size = row(result, "x.shape[0]")
    assert (size["verdict"], tried(size)) == ("replaceable", [("9", "pass"), ("7", "pass"), ("16", "same")])
    dtype = row(result, "dtype of x")
    assert (dtype["verdict"], tried(dtype)) == ("replaceable", [("float64", "same")]), "one answer is enough"
    relu = row(result, "relu")
    assert relu["verdict"] == "needed"
    assert tried(relu) == [("abs in its place", "pass"), ("left out, before shapes and values were changed", "pass")]
    assert row(result, "mul.other")["verdict"] == "needed"
    setting = row(result, "a.b")
    assert (setting["verdict"], setting["signature"]) == ("unknown", "crash: another"), "another failure proves no need"
    tied = row(result, "x.shape[1]")
    assert (tied["verdict"], tied["tried"], tied["why"][:4]) == ("unknown", [], "tied")
    assert result.others == [] and result.also == [], "failures that only our questions make were not met on the way"
    assert result.asked["explanation"] == 7
    assert sum(result.asked.values()) == result.queries
    assert sum(result.verdicts.values()) == result.asked["search"]
    purposes = [event.purpose for event in messages if isinstance(event, QueryAnswered) and event.step == "needs"]
    assert purposes == ["explanation"] * 7


def test_sizes_that_were_changed_one_by_one_are_not_told_together(tmp_path: Path) -> None:
    rows = [
        ["names"],
        ["0", "probes size 8 9 0.0,0.1", "dim", "{x}.shape[0], {x}.shape[1]", "8", "9"],
        ["0", "probes size 8 16 0.0", "dim", "{x}.shape[0]", "8", "16"],
        ["0", "probes size 8 9 0.1", "dim", "{x}.shape[1]", "8", "9"],
    ]
    _, result = explained(tmp_path / "out", rows=rows)
    assert [(row["name"], row["verdict"]) for row in result.needs] == [
        ("x.shape[1]", "needed"),
        ("x.shape[0]", "replaceable"),
    ]


def test_what_is_asked_never_changes_the_case(tmp_path: Path) -> None:
    messages: list[Happening] = []
    _, result = explained(tmp_path / "out", messages.append)
    _, plain = explained(tmp_path / "plain", rows=[])
    assert result.history == plain.history
    assert (result.nodes, result.verified) == (plain.nodes, plain.verified)
    assert json.loads((tmp_path / "out" / "case" / "case").read_text())["edits"] == ["names canonical"]
    assert not any("probes" in event.case or "dtypes" in event.case for event in messages if isinstance(event, Best))
    assert plain.needs == [] and plain.queries == result.queries - 7


@dataclass
class LetsGo(Explained):
    """Once shapes have changed, one of the two needed atoms can be left out."""

    def propose(self, name: str, candidate: Candidate) -> list[list[str]]:
        rows = super().propose(name, replace(candidate, edits=candidate.edits[1:]) if name == "names" else candidate)
        return rows[:1] if name == "probes" and CUT in candidate.edits else rows

    def test(self, candidate: Candidate) -> Answer:
        answer = super().test(candidate)
        return replace(answer, nodes=answer.nodes - 1) if CUT in candidate.edits else answer


CUT = "probes cut n30"


def test_from_a_part_that_was_left_out_after_all_the_search_goes_on(tmp_path: Path) -> None:
    def without(shape: Shape, candidate: Candidate) -> bool:
        return fails(shape, replace(candidate, edits=tuple(edit for edit in candidate.edits if edit != CUT)))

    rows = [ROWS[0], ["0", CUT, "node", "{n30}", "aten.relu.default", "left out"]]
    _, plain = explained(tmp_path / "plain", rows=[])
    problem = LetsGo(transformer(300), without, rows=rows)
    result = run(problem, tmp_path / "out")
    assert problem.asked_for == [Candidate.of(CORE), replace(Candidate.of(CORE), edits=(CUT,))]
    assert result.nodes == plain.nodes - 1
    assert json.loads((tmp_path / "out" / "case" / "case").read_text())["edits"] == [CUT, "names canonical"]
    assert not any(part["verdict"] == "replaceable" for part in result.needs)


@pytest.mark.parametrize("jobs", [1, 4])
def test_workers_and_resuming_tell_the_same_and_ask_nothing_twice(tmp_path: Path, jobs: int) -> None:
    log = tmp_path / "log"
    _, result = explained(tmp_path / "out", log=log, jobs=jobs)
    assert result.needs == explained(tmp_path / "calm")[1].needs
    probes = [
        line
        for line in log.read_text().splitlines()
        if '"probes ' in line or '"dtypes ' in line or '"switches ' in line
    ]
    assert len(probes) == len(set(probes)) == 7
    _, again = explained(tmp_path / "out", log=log, jobs=jobs, resume=True)
    assert (again.needs, again.queries, again.asked) == (result.needs, result.queries, result.asked)
    assert len([line for line in log.read_text().splitlines() if '"probes ' in line]) == 5


def test_a_budget_that_is_over_ends_the_questions_and_not_the_search(tmp_path: Path) -> None:
    _, whole = explained(tmp_path / "whole")
    _, result = explained(tmp_path / "out", max_queries=whole.queries - 4)
    assert result.stopped is None and result.verified == (3, 3) and result.queries == whole.queries - 4
    asked = [row for row in result.needs if row["tried"]]
    assert sum(len(row["tried"]) for row in asked) < sum(len(row["tried"]) for row in whole.needs)
    _, none = explained(tmp_path / "none", max_queries=whole.queries - 7)
    assert none.stopped is None and none.verified == (3, 3)
    assert row(none, "x.shape[0]")["why"].startswith("not asked: "), row(none, "x.shape[0]")
    assert "--max-queries" in row(none, "x.shape[0]")["why"]


def test_the_step_can_be_left_out(tmp_path: Path) -> None:
    problem, result = explained(tmp_path / "out", steered=True, without=("needs",))
    assert problem.asked_for == [] and result.needs == [] and result.stopped is None


def many(count: int) -> list[list[str]]:
    return [
        ROWS[0],
        *(["0", f"probes constant n30 {at} 3", "constant", f"{{n30}}.a{at}", "2", "3"] for at in range(count)),
    ]


def test_questions_are_bounded(tmp_path: Path) -> None:
    problem, result = explained(tmp_path / "out", rows=many(40))
    assert result.asked["explanation"] == MOST
    silent = [row for row in result.needs if not row["tried"]]
    assert len(silent) == 40 - MOST and all(row["why"].startswith("not asked: ") for row in silent)
    problem, result = explained(tmp_path / "flaky", rows=many(40), chance=0.6)
    asked = sum(bool(row["tried"]) for row in result.needs)
    assert asked == MOST_FLAKY and problem.signature is not None
    assert result.asked["explanation"] > 2 * MOST_FLAKY, "each that passes is asked as often as a flaky failure needs"


class Named:
    def __init__(self, problem: Explained, signature: Signature) -> None:
        self.settled = problem.settle
        self.problem, self.signature = problem, signature

    def __call__(self, answers: Sequence[Answer]) -> list[Answer]:
        result = self.settled(answers)
        self.problem.signature = self.signature
        return result


@pytest.mark.parametrize(
    ("signature", "name", "verdict", "why"),
    [
        (Signature("accuracy", "compare", size=1.0), "dtype of x", "unknown", "another dtype is compared"),
        (
            Signature("crash", "compile", message="m"),
            "values of x",
            "unknown",
            "not asked: it fails before anything is run",
        ),
        (Signature("accuracy", "compare", size=1.0), "values of x", "unknown", "other values may still fail"),
    ],
)
def test_what_says_nothing_is_not_taken_for_a_proof(
    tmp_path: Path, signature: Signature, name: str, verdict: str, why: str
) -> None:
    rows = [
        ROWS[0],
        ["0", "dtypes float32 bfloat16", "dtype", "dtype of {x_1}", "float32", "bfloat16"],
        ["0", "values 0 randn", "values", "values of {x_1}", "ones", "randn"],
        ["1", "probes fill 0 arange", "values", "values of {x_1}", "ones", "arange"],
    ]
    problem = Explained(transformer(300), fails, rows=rows)
    problem.settle = Named(problem, signature)  # pyright: ignore[reportAttributeAccessIssue]
    result = row(run(problem, tmp_path / "out"), name)
    assert (result["verdict"], result["why"][: len(why) or None]) == (verdict, why)


def test_dimensions_that_are_answered_together_are_not_asked_alone(tmp_path: Path) -> None:
    rows = [
        ROWS[0],
        ["0", "probes size 8 16 0.0", "dim", "{x_1}.shape[0], {x_1}.shape[1]", "8", "16"],
        ["1", "probes size 8 9 0.0", "dim", "{x_1}.shape[0]", "8", "9"],
        ["1", "probes size 8 9 0.1", "dim", "{x_1}.shape[1]", "8", "9"],
    ]
    _, result = explained(tmp_path / "out", rows=rows)
    assert [row["name"] for row in result.needs] == ["x.shape[0], x.shape[1]"]
    assert result.asked["explanation"] == 1


def test_it_is_told_in_few_lines_and_in_the_issue(tmp_path: Path) -> None:
    _, result = explained(tmp_path / "out")
    lines = sentences(result.needs)
    assert len(lines) == 3
    assert lines[0].startswith("needed: ") and "relu (aten.relu.default) [abs in its place, left out" in lines[0]
    assert "x.shape[0] = 8 [9, 7: passes; 16: fails the same way]" in lines[1]
    many = sentences([row for row in result.needs if row["verdict"] == "needed" for _ in range(9)])
    assert many[0].count("]; ") == 5 and many[0].endswith("; and 13 more")
    failing = verdict.fails("crash", "inductor", "")
    known = CaseFile(needs=result.needs)
    known.unneeded = unneeded(
        ["dims 8 4", "values 0 ones", "switches config inductor cpp.simdlen", "dtypes float16 float32"]
    )
    known.neighbour = {"path": "passes", "difference": "with x.shape[0] = 9", "diff": "--- a\n+++ b\n-x = 8\n+x = 9"}
    report = Report(HERE, HERE / "issue.md", nodes=3, original_nodes=9)
    graph = GraphRecord(format=FORMAT, id="0_0/forward", stage="forward", graph=GraphBody([]))
    text = render(IssueFacts(report, graph, known, failing, "t", "s", "l", "forward", "e", "", ""), Redactor())
    assert "| `x.shape[0]` = `8` | replaceable | 9, 7: passes; 16: fails the same way |" in text
    assert "| `mul.other` = `2` | **needed** | 3: passes |" in text
    assert "fails in another way (crash: another)" in text
    assert "- Gone, and it still fails: the original sizes, recorded values, inductor.cpp.simdlen, float16." in text
    assert "```diff\n--- a\n+++ b\n-x = 8\n+x = 9\n```" in text


class FailsWhateverGoes:
    """An engine for which every cut fails, but none is better than the case that it has."""

    best = Candidate.of(range(40))

    def ask(self, candidate: Candidate, *, afresh: bool = False) -> bool:
        return True


def test_cuts_that_fail_and_are_no_better_come_to_an_end() -> None:
    engine: Any = FailsWhateverGoes()
    assert len(certify(engine, engine.best).keep) == 1
