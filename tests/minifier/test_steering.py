"""Orders to a search that runs: what each does, and that a killed search, resumed, ends as the one that was let be. No
torch."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from graphdbg.minifier.agenda import Agenda
from graphdbg.minifier.events import STEPS, Best, Happening, QueryAnswered, Restarted, Steered, Stepped
from graphdbg.minifier.minified import Minified
from graphdbg.minifier.steering import CONTROL_FILE, Order, Orders, append
from tests.minifier.abstract import Abstract, core, run
from tests.minifier.generated import needs, transformer

CORE = {30, 170, 270}
JOBS = pytest.mark.parametrize("jobs", [1, 4])
Script = dict[int, list[Order]]
"""The number of a judgement -> the orders that are given while it runs."""


@pytest.fixture(autouse=True)
def no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cut here are processes; waiting for the disk is most of what such a small search costs."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def orders(*texts: str) -> list[Order]:
    built: list[Order] = []
    for text in texts:
        what, _, more = text.partition(" ")
        built.append(Order.new(what, number=int(more)) if what == "restart" else Order.new(what, step=more))
    return built


def problem(out: Path, script: Script, hanging: set[int] | None = None, **more: Any) -> Abstract:
    """Three atoms of 300 are needed; orders come as the script says, and some judgements end only by being aborted."""

    def judging(number: int) -> None:
        for order in script.get(number, ()):
            append(out, order)

    abstract = Abstract(transformer(300), needs(CORE), on_judging=judging, **more)
    abstract.hanging = hanging or set()
    return abstract


def steered(
    out: Path, script: Script, jobs: int = 1, hanging: set[int] | None = None, **more: Any
) -> tuple[Minified, list[Happening]]:
    out.mkdir(exist_ok=True)
    messages: list[Happening] = []
    item = problem(out, script, hanging)
    result = run(item, out, steered=True, tell=messages.append, jobs=jobs, **more)
    assert not item.doubled, "two threads asked one candidate"
    return result, messages


def steps(items: list[Happening]) -> list[str]:
    return [event.step for event in items if isinstance(event, Stepped)]


def states(items: list[Happening]) -> list[tuple[str, str]]:
    return [(event.what, event.state) for event in items if isinstance(event, Steered)]


def end(result: Minified) -> tuple[Any, ...]:
    return core(result), result.history, result.queries, result.verified, sorted(result.notes)


# -- what each does


@JOBS
def test_without_orders_nothing_changes(tmp_path: Path, jobs: int) -> None:
    plain = run(Abstract(transformer(300), needs(CORE)), tmp_path / "plain", jobs=jobs)
    result, reported = steered(tmp_path / "out", {}, jobs)
    assert end(result) == end(plain)
    assert not states(reported)


@JOBS
def test_skip_ends_the_query_in_flight_and_goes_on_with_the_next_step(tmp_path: Path, jobs: int) -> None:
    began = time.monotonic()
    result, reported = steered(tmp_path / "out", {5: orders("skip")}, jobs, hanging={5})
    assert time.monotonic() - began < 10
    assert states(reported) == [("skip", "applied")]
    assert core(result) == CORE
    place = next(place for place, event in enumerate(reported) if isinstance(event, Steered))
    skipped = next(event for event in reversed(reported[:place]) if isinstance(event, Stepped))
    following = next(event for event in reported[place:] if isinstance(event, Stepped))
    assert (skipped.step, following.step) == ("windows", "chunks")
    asked = [event for event in reported if isinstance(event, QueryAnswered)]
    assert len(asked) == result.queries, "what was ended is not counted"


@JOBS
def test_pause_frees_the_machine_and_resume_asks_again(tmp_path: Path, jobs: int) -> None:
    out, reported = tmp_path / "out", list[Happening]()
    out.mkdir()
    item = problem(out, {6: orders("pause")}, {6})
    plain = run(Abstract(transformer(300), needs(CORE)), tmp_path / "plain", jobs=jobs)

    def later() -> None:
        deadline = time.monotonic() + 20
        while not states(reported) and time.monotonic() < deadline:
            time.sleep(0.01)
        before = item.judging
        time.sleep(0.5)
        assert item.judging == before, "nothing is asked in a pause"
        append(out, Order.new("resume"))

    thread = threading.Thread(target=later)
    thread.start()
    result = run(item, out, steered=True, tell=reported.append, jobs=jobs)
    thread.join()
    assert states(reported) == [("pause", "applied"), ("resume", "applied")]
    assert end(result) == end(plain)
    assert not item.doubled
    again = run(problem(out, {}), out, resume=True, steered=True, jobs=jobs)
    assert end(again) == end(plain), "a pause is not carried out again"


@JOBS
def test_disable_and_enable(tmp_path: Path, jobs: int) -> None:
    script = {4: orders("disable windows", "disable polish", "enable polish", "disable values")}
    result, reported = steered(tmp_path / "out", script, jobs, hanging={4})
    assert states(reported) == [
        ("disable", "applied"),
        ("disable", "applied"),
        ("enable", "applied"),
        ("disable", "applied"),
    ]
    assert "values" not in steps(reported)
    assert {"windows", "polish"} <= set(steps(reported))
    assert core(result) == CORE


def test_raise_makes_a_step_the_next_but_nothing_impossible(tmp_path: Path) -> None:
    script = {4: orders("raise polish", "raise explain", "raise hint", "raise nonsense")}
    result, reported = steered(tmp_path / "out", script)
    assert states(reported)[0] == ("raise", "applied")
    assert {state for _, state in states(reported)[1:]} == {"refused"}
    order = steps(reported)
    assert order.index("polish") < order.index("chunks") < order.index("explain")
    assert core(result) == CORE


def test_nothing_is_raised_above_the_switches() -> None:
    agenda = Agenda(["switches", "windows", "dims"], set())
    agenda.promote("dims")
    assert agenda.ahead() == ["switches", "dims", "windows"]
    assert agenda.next() == 0
    agenda.promote("windows")
    assert agenda.ahead() == ["windows", "dims"]
    assert agenda.refusal("raise", "switches") == "switches has begun already; restart N runs all steps again"


@JOBS
def test_cancel_verifies_and_concludes_with_the_best(tmp_path: Path, jobs: int) -> None:
    result, reported = steered(tmp_path / "out", {9: orders("cancel")}, jobs, hanging={9})
    assert states(reported) == [("cancel", "applied")]
    assert result.stopped == "cancelled"
    assert result.verified == (3, 3)
    assert core(result) >= CORE
    again = run(problem(tmp_path / "out", {}), tmp_path / "out", resume=True, steered=True, jobs=jobs)
    assert again.stopped is None, "a cancel is not carried out again"
    assert core(again) == CORE


@JOBS
def test_restart_keeps_what_was_found_and_the_smallest(tmp_path: Path, jobs: int) -> None:
    # Once all is found, everything that would find it again is disabled: the restarted branch ends with a larger case.
    left_out = [f"disable {step}" for step in STEPS if step != "hint"]
    every = {"max_queries": 10_000}  # then every judgement that begins is counted
    calm, _ = steered(tmp_path / "calm", {}, jobs, **every)
    last = calm.queries - 3
    script = {last: orders(*left_out, "restart 1")}
    result, reported = steered(tmp_path / "out", script, jobs, hanging={last}, **every)
    restarted = [event for event in reported if isinstance(event, Restarted)]
    assert [event.number for event in restarted] == [1]
    assert core(result) == core(calm), "the smallest is never lost"
    assert any("is the smallest and is kept" in note for note in result.notes)
    assert len(result.history) >= len([event for event in reported if isinstance(event, Best)])


def test_a_restart_from_the_original_finds_it_again_without_asking(tmp_path: Path) -> None:
    calm, _ = steered(tmp_path / "calm", {}, 1)
    last = calm.queries  # the last run of the verification
    result, reported = steered(tmp_path / "out", {last: orders("restart 0")}, 1, hanging={last})
    bests = [event for event in reported if isinstance(event, Best)]
    assert [event.case for event in bests[: len(bests) // 2]] == [event.case for event in bests[len(bests) // 2 :]]
    assert [event.number for event in bests] == list(range(1, len(bests) + 1))
    assert core(result) == core(calm)
    searched = [event for event in reported if isinstance(event, QueryAnswered) and event.purpose == "search"]
    assert len({event.case for event in searched}) == len(searched)


def test_steps_can_be_left_out_from_the_start(tmp_path: Path) -> None:
    result, reported = steered(tmp_path / "out", {}, without=("windows", "polish"))
    assert not {"windows", "polish"} & set(steps(reported))
    assert core(result) == CORE
    _, again = steered_again(tmp_path / "out", 1, without=("windows", "polish"))
    assert not {"windows", "polish"} & set(steps(again))
    assert len(states(again)) == 2


def test_orders_are_read_once_and_nonsense_is_left_out(tmp_path: Path) -> None:
    append(tmp_path, Order.new("skip"))
    reader = Orders(tmp_path)
    order = Order.new("disable", step="dims")
    append(tmp_path, order)
    append(tmp_path, order)
    with (tmp_path / CONTROL_FILE).open("a") as file:
        file.write('[1]\nnonsense\n{"what": "skip"}\n{"id": "x", "what": "explode"}\n{"id": "torn", ')
    append(tmp_path, Order.new("pause"))
    assert [order.words for order in reader.new()] == ["disable dims", "pause"]
    assert reader.new() == []


# -- killed and resumed


def keys(journal: Path) -> list[tuple[str, int]]:
    lines = map(json.loads, journal.read_bytes().splitlines())
    return [(line["case"], line["run"]) for line in lines if line["event"] == "answer"]


def steered_again(out: Path, jobs: int, **more: Any) -> tuple[Minified, list[Happening]]:
    messages: list[Happening] = []
    return run(problem(out, {}), out, resume=True, steered=True, tell=messages.append, jobs=jobs, **more), messages


LAST = -1
"""Stands for the number of the first judgement of the saved case; after the last one nothing is left to order."""


def scripts() -> dict[str, Script]:
    chance = random.Random(3)
    built: dict[str, Script] = {
        "skip twice": {5: orders("skip"), 14: orders("skip")},
        "other steps": {4: orders("disable windows", "raise polish"), 20: orders("enable windows")},
        "back": {12: orders("restart 1"), 30: orders("restart 0", "disable chunks")},
        "in the verification": {LAST: orders("restart 2")},
    }
    kinds = ["skip", "restart 0", "restart 2"]
    kinds += [f"{what} {step}" for what in ("disable", "enable", "raise") for step in STEPS]
    for number in range(6):
        built[f"random {number}"] = {at: orders(chance.choice(kinds)) for at in chance.sample(range(4, 45), 6)}
    return built


@pytest.mark.long
@JOBS
@pytest.mark.parametrize(
    ("name", "every"),
    [
        *((name, 7) for name in scripts() if "random" not in name),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in scripts()),
    ],
)
def test_killed_after_any_line_it_ends_as_if_it_had_not_been(tmp_path: Path, name: str, every: int, jobs: int) -> None:
    script = scripts()[name]
    if LAST in script:
        calm, _ = steered(tmp_path / "calm", {}, jobs)
        script[calm.queries - calm.verified[1] + 1] = script.pop(LAST)
    whole, _ = steered(tmp_path / "whole", script, jobs, hanging={5} if name == "skip twice" else None)
    lines = (tmp_path / "whole" / "events.jsonl").read_bytes().splitlines(keepends=True)
    assert any(b'"event":"steered"' in line for line in lines)
    for count in range(2, len(lines), every):
        out = tmp_path / f"cut-{count}"
        out.mkdir()
        # What was ordered after the kill is ordered again at the same place, as the log of the whole one has it.
        later = [line for line in lines[count:] if b'"event":"steered"' in line]
        (out / "events.jsonl").write_bytes(b"".join([*lines[:count], *later]))
        result, _ = steered_again(out, jobs)
        assert end(result) == end(whole), f"killed after {count} of {len(lines)} lines"
        if LAST not in scripts()[name]:  # else the same case is verified twice, which is asked twice
            answered = keys(out / "events.jsonl")
            assert len(answered) == len(set(answered)), "what was known is not asked again"
