"""What the oracle makes of each way a child can end. The server is a stand-in; real children are in test_minify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from graphdbg.dumps.errors import RefusedError
from graphdbg.dumps.names import outputs
from graphdbg.dumps.user_kernels import UserKernel
from graphdbg.minifier import oracle as oracle_module
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.oracle import Oracle
from graphdbg.minifier.search.problem import Candidate, CannotJudgeError, Ruling
from graphdbg.toolkit.isolation import TaskResult
from graphdbg.toolkit.isolation.protocol import ChildError
from graphdbg.toolkit.verdicts import ladder_words
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict import NO_REFERENCE, OK, Verdict, cannot_tell, judged, skipped

from ..dumps.graphs import chain

WRONG = Signature("accuracy", "compare", size=0.5)
ATOMS = {
    "nodes": [["a"], ["b", "c"]],
    "order": ["x", "a", "b", "c", "output"],
    "parents": [[], [0]],
    "bypasses": [[], []],
    "random": [],
    "labels": ["(('call_function', 'relu.default', ()),)", "(('call_function', 'mm.default', ()),)"],
}


class Coming:
    """A query on its way, answered when it is waited for."""

    def __init__(self, answer: Callable[[], TaskResult]) -> None:
        self.answer = answer


class Server:
    """Answers every query with what it was given; the last one again and again where it died, since that is asked
    again."""

    def __init__(self, *answers: TaskResult) -> None:
        self.answers = list(answers)
        self.limits: list[float] = []
        self.home = self

    def submit(self, function: str, payload: dict[str, Any], limit_s: float, **_: Any) -> Coming:
        return Coming(lambda: self.answer(limit_s))

    def answer(self, limit_s: float) -> TaskResult:
        self.limits.append(limit_s)
        return self.answers[0] if [item.status for item in self.answers] == ["lost"] else self.answers.pop(0)


def done(signature: Signature | None, **more: Any) -> TaskResult:
    record = OK if signature is None else judged(signature)
    value = {
        "signature": msgspec.to_builtins(signature),
        "nodes": 3,
        "input_bytes": 8,
        "record": record.plain(),
        **more,
    }
    return TaskResult(0, "done", value=value, seconds=2.0)


def oracle(*answers: TaskResult, signature: Signature | None = WRONG, match: str | None = None) -> Oracle:
    result = Oracle(Path("case"), Path("work"), Server(*answers), MinifyOptions(match=match), signature=signature)  # type: ignore[arg-type]
    result.atoms = ATOMS
    return result


CRASH = Signature("crash", "compile", "ValueError", "no such thing", raw="no such thing")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (done(WRONG), Ruling.SAME),
        (done(None), Ruling.PASS),
        (done(CRASH), Ruling.OTHER),
        (done(Signature("nondeterministic", "eager")), Ruling.INVALID),
        (done(Signature("error", "eager", "RuntimeError")), Ruling.INVALID),
        (TaskResult(0, "done", value={"invalid": "does not build"}), Ruling.INVALID),
        (TaskResult(0, "signal", signal="SIGSEGV", stage="run"), Ruling.OTHER),
        (TaskResult(0, "signal", signal="SIGSEGV", stage="eager"), Ruling.INVALID),
        (TaskResult(0, "timeout", stage="compile"), Ruling.TIMEOUT),
        (TaskResult(0, "memory", stage="compile"), Ruling.OTHER),
        (TaskResult(0, "exception", stage="build", error=ChildError("KeyError", "x")), Ruling.INVALID),
        (TaskResult(0, "lost"), Ruling.INFRA),
    ],
)
def test_verdicts(answer: TaskResult, verdict: Ruling) -> None:
    assert oracle(answer).test(Candidate.of([0])).verdict is verdict


def test_memory_that_nobody_wrote_is_the_same_failure_at_any_size() -> None:
    garbage = Signature("accuracy", "compare", size=2.7e17)
    small, rounding = (Signature("accuracy", "compare", size=size) for size in (0.0045, 1e-5))
    assert oracle(done(small), signature=garbage).test(Candidate.of([0])).verdict is Ruling.SAME
    assert oracle(done(rounding), signature=garbage).test(Candidate.of([0])).verdict is Ruling.OTHER


def original(seen: Oracle) -> Any:
    """One judgement of the whole case."""
    return seen.settle([seen.whole()])[0]


def test_segfaults_and_hangs_are_reproduced_by_their_like() -> None:
    segfault = TaskResult(0, "signal", signal="SIGSEGV", stage="run")
    seen = oracle(segfault, segfault, signature=None)
    assert original(seen).verdict is Ruling.SAME
    assert seen.test(Candidate.of([1])).size == (4, 0)
    hang = TaskResult(0, "timeout", stage="compile")
    seen = oracle(hang, hang, done(None), signature=None)
    assert original(seen).verdict is Ruling.SAME
    assert seen.test(Candidate.of([1])).verdict is Ruling.SAME
    assert seen.test(Candidate.of([0])).verdict is Ruling.PASS


def test_the_first_run_sets_the_time_limit_and_the_failure_names_hints() -> None:
    crash = Signature("crash", "compile", "LoweringError", "target: aten.relu.default", raw="target: aten.relu.default")
    seen = oracle(done(crash), done(crash), signature=None)
    original(seen)
    seen.find_hints()
    assert list(seen.hints) == [0]
    seen.test(Candidate.of([0]))
    assert seen.server.limits == [600.0, 30.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("returned", "hints"), [(["sin_0", "sin_1"], [1]), (["sin_1"], [])])
def test_a_wrong_output_beside_others_is_a_hint(
    returned: list[str], hints: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = chain(nodes=4)
    record.graph.nodes[-1].args = [{"tuple": [{"node": name} for name in returned]}]
    monkeypatch.setattr(oracle_module, "load_graph", lambda _: SimpleNamespace(record=record))
    name = next(name for node, name in outputs(record) if node == "sin_1")
    asked = oracle(signature=Signature("accuracy", "compare", size=0.5, raw=f"{name}: relative error 0.5"))
    asked.atoms = ATOMS | {"of_node": {"sin_0": 0, "sin_1": 1}}
    monkeypatch.setattr(asked, "prepare", lambda: None)
    asked._prepared = ""
    asked.find_hints()
    assert list(asked.hints) == hints


def test_match_pins_the_text_in_place_of_the_signature() -> None:
    other = Signature("crash", "run", "KeyError", "thing 7 is odd", raw="thing 7 is odd")
    assert oracle(done(other), signature=CRASH).test(Candidate.of([0])).verdict is Ruling.OTHER
    assert oracle(done(other), signature=CRASH, match="thing").test(Candidate.of([0])).verdict is Ruling.SAME


def test_a_case_that_cannot_be_loaded_is_told_as_such() -> None:
    refused = TaskResult(
        0, "exception", error=ChildError("graphdbg.dumps.errors.RefusedError", "graph.json: os.system")
    )
    with pytest.raises(RefusedError, match=r"os\.system"):
        original(oracle(refused))
    with pytest.raises(RefusedError):
        oracle(refused).prepare()


def test_a_rung_that_cannot_run_here_is_told_as_what_is_missing() -> None:
    record = skipped("Triton is not installed").plain()
    seen = oracle(
        TaskResult(0, "done", value={"signature": None, "nodes": 3, "input_bytes": 8, "record": record}), signature=None
    )
    answer = original(seen)
    assert (answer.verdict, answer.detail, answer.record) == (
        Ruling.INVALID,
        "skipped, because Triton is not installed",
        record,
    )
    refusal = seen.refusal([answer])
    assert isinstance(refusal, CannotJudgeError) and refusal.exit_code == 4
    assert "inductor is skipped, because Triton is not installed" in str(refusal)


def test_a_graph_that_passes_is_followed_by_the_check_of_its_own_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"signature": None, "nodes": 3, "input_bytes": 8, "record": None}
    seen: Any = oracle(TaskResult(0, "done", value=value), signature=None)
    answer = original(seen)
    seen.case, seen.named = tmp_path, "r/0_0/inference"
    kernel, graph = object.__new__(UserKernel), SimpleNamespace(stage="inference")
    monkeypatch.setattr(oracle_module, "load_graph", lambda path: graph)
    monkeypatch.setattr(oracle_module, "own", lambda saved: [])
    monkeypatch.setattr(ladder_words, "of", lambda saved: [kernel])
    refusal = seen.refusal([answer])
    check = "graphdbg kernel r/0_0/inference --check --trust"
    assert check in str(refusal) and refusal.verdict.next == ["graphdbg triage r/0_0/inference", check]


@pytest.mark.parametrize(
    ("value", "code", "word"),
    [
        ({"record": cannot_tell("no float64", NO_REFERENCE).plain()}, 4, "cannot_tell"),
        ({"invalid": "eager cannot run it"}, 4, "cannot_tell"),
        ({"record": Verdict("rounding", reason="2e-7").plain()}, 1, "rounding"),
        ({"record": None}, 1, "ok"),
    ],
)
def test_what_could_not_be_judged_is_not_said_to_pass(value: dict[str, Any], code: int, word: str) -> None:
    seen = oracle(
        TaskResult(0, "done", value={"signature": None, "nodes": 3, "input_bytes": 8, **value}), signature=None
    )
    refusal = seen.refusal([original(seen)])
    assert (refusal.exit_code, refusal.verdict.verdict) == (code, word)
    assert ("does not fail" in str(refusal)) == (code == 1)
    assert refusal.verdict.next == ["graphdbg triage " + (seen.named or str(seen.case))]
