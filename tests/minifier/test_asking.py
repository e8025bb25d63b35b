"""Limits of a query, who runs beside whom, amounts near their threshold, options that contradict each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from graphdbg.dumps.errors import UsageError
from graphdbg.minifier.asking import Pace, Querying, SharedLock, seconds_in
from graphdbg.minifier.commands.minify import seconds_of
from graphdbg.minifier.options import MinifyOptions
from graphdbg.toolkit.isolation import TaskResult
from graphdbg.toolkit.recorder.options import size_of
from graphdbg.toolkit.verdicts.signature import Signature


class Coming:
    """A query on its way, answered when it is waited for."""

    def __init__(self, answer: Callable[[], TaskResult]) -> None:
        self.answer = answer


class Server:
    """Answers with what it was given, and notes limits and how many asked at once."""

    def __init__(self, *answers: TaskResult) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, dict[str, float]]] = []
        self.inside = self.most = 0

    def submit(self, function: str, payload: dict[str, Any], limit_s: float, **more: Any) -> Coming:
        return Coming(lambda: self.call(function, payload, limit_s, **more))

    def call(self, function: str, payload: dict[str, Any], limit_s: float, **more: Any) -> TaskResult:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.asked.append((limit_s, dict(more.get("stage_limits") or {})))
        time.sleep(0.02)
        self.inside -= 1
        return self.answers.pop(0)


def asking(*answers: TaskResult, wanted: Signature | None = None, limit_s: float = 60.0, **options: Any) -> Querying:
    querying = Querying(Server(*answers), MinifyOptions(**options), limit_s)  # type: ignore[arg-type]
    if wanted is not None:
        querying.want(wanted, 1.0)
    return querying


def slow(seconds: float | None) -> TaskResult:
    result = None if seconds is None else Signature("slow", "run", size=seconds)
    return TaskResult(0, "done", value={"signature": msgspec.to_builtins(result)}, seconds=1.0)


HANG = Signature("hang", "run")


def test_the_limit_of_a_hang_follows_what_passes_in_the_stage_that_hangs() -> None:
    item = asking(wanted=HANG)
    assert item.limits_of(300) == {"run": 60.0}
    passed = TaskResult(
        0, "done", value={}, seconds=9.0, marks=[("eager", 0.5), ("compile", 1.0), ("run", 8.0), ("compare", 8.5)]
    )
    item.learn(passed, nodes=3)
    assert item.limits_of(3) == {"run": 5.0}  # not the nine seconds of the whole: a slow compile is no hang
    assert item.limits_of(23) == {"run": 10.0}
    assert item.limits_of_saved() == {}
    item.confirmed = True
    assert item.limits_of_saved() == {"run": 10.0}
    assert item.pace is not None
    item.pace.distrust()
    assert item.limits_of(3) == {"run": 60.0}
    assert item.limits_of_saved() == {}


def test_the_pace_has_bounds() -> None:
    pace = Pace(60.0, jobs=2)
    assert (pace.known, pace.limit_s(5)) == (False, 60.0)
    pace.saw(0.001, 100)
    assert (pace.known, pace.limit_s(50)) == (True, 6.0)
    pace.saw(50.0, 5)
    assert pace.limit_s(5) == 60.0


def test_time_in_a_stage() -> None:
    marks = [("a", 0.0), ("b", 1.0), ("a", 3.0)]
    assert (seconds_in("a", marks, 7.0), seconds_in("b", marks, 7.0), seconds_in("c", marks, 7.0)) == (5.0, 2.0, None)


def test_a_failure_that_is_no_hang_sets_the_limit_unless_the_user_did() -> None:
    crash = Signature("crash", "compile", "ValueError", "x")
    assert asking(wanted=crash, limit_s=600.0).limit_s == 30.0
    assert asking(wanted=crash, limit_s=7.0, time_limit=7.0).limit_s == 7.0


def test_a_query_that_ran_out_of_time_beside_others_is_asked_again_alone() -> None:
    timeout, passed = TaskResult(0, "timeout", stage="compile"), TaskResult(0, "done", value={}, seconds=1.0)
    crash = Signature("crash", "compile", "ValueError", "x")
    assert asking(timeout, passed, wanted=crash, jobs=2).probe({}).status == "done"
    assert asking(timeout, passed, wanted=crash).probe({}).status == "timeout"
    assert asking(timeout, passed, wanted=HANG, jobs=2).probe({}).status == "timeout"


def test_after_a_hang_on_the_device_one_query_runs_at_a_time() -> None:
    item = asking(*[TaskResult(0, "timeout", stage="run")] * 8, wanted=HANG, jobs=4)
    item.learn(TaskResult(0, "timeout"), 3, cuda=True)
    threads = [threading.Thread(target=item.probe, args=({},)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert item.server.most == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("seconds", "verdict", "asked"),
    [([20.0], "slow", 1), ([11.0, 11.5, 12.0], "slow", 3), ([11.0, None], None, 2), ([None], None, 1)],
)
def test_what_is_near_the_threshold_is_measured_again(
    seconds: list[float | None], verdict: str | None, asked: int
) -> None:
    item = asking(*map(slow, seconds), slower_than=10.0)
    signature = item.probe({}).value["signature"]
    assert (signature and signature["kind"]) == verdict
    assert len(item.server.asked) == asked  # type: ignore[attr-defined]


def test_who_is_alone_is_alone() -> None:
    gate, seen = SharedLock(), []

    def together() -> None:
        with gate.together():
            seen.append("in")
            time.sleep(0.05)
            seen.append("out")

    def alone() -> None:
        with gate.alone():
            seen.append("alone")
            time.sleep(0.05)
            seen.append("no longer")

    threads = [threading.Thread(target=work) for work in (together, together, alone, together)]
    for thread in threads:
        thread.start()
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert seen == ["in", "in", "out", "out", "alone", "no longer", "in", "out"]


@pytest.mark.parametrize(
    "given",
    [
        {"hangs": 5.0, "check": "accuracy"},
        {"hangs": 5.0, "slower_than": 3.0},
        {"slower_than": 3.0, "memory_over": 100},
        {"slower_than": 3.0, "match": "x"},
        {"memory_over": 100, "check": "cmd: ./t {case}"},
        {"hangs": 5.0, "time_limit": 3.0},
        {"slower_than": 10.0, "time_limit": 10.0},
        {"memory_over": 100, "memory_limit": 50},
        {"time_limit": 0.0},
        {"hangs": -1.0},
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        MinifyOptions(**given).checked()


@pytest.mark.parametrize(
    "given",
    [
        {"hangs": 5.0},
        {"hangs": 5.0, "check": "hang"},
        {"slower_than": 1.0, "time_limit": 5.0},
        {"match": "x", "time_limit": 9.0},
    ],
)
def test_what_fits_together_is_not(given: dict[str, Any]) -> None:
    assert MinifyOptions(**given).checked() == MinifyOptions(**given)


def test_amounts_are_read_as_they_are_typed() -> None:
    assert [size_of(text) for text in ("500MB", "2G", "2e9")] == [500 << 20, 2 << 30, 2_000_000_000]
    assert seconds_of("2.5") == 2.5
    with pytest.raises(UsageError, match="number of seconds"):
        seconds_of("run/0_0/forward")
