"""Progress: counts that add up, the live view as a picture, plain lines with a sign of life, the documented JSON
events."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from graphdbg.minifier.events import (
    Answered,
    Best,
    Conditions,
    Cut,
    Ended,
    Happening,
    QueryAnswered,
    QueryStarted,
    Restarted,
    Said,
    Started,
    Steered,
    Stepped,
    from_json,
)
from graphdbg.minifier.minified import Minified
from graphdbg.minifier.progress.outcome import sentences, summary
from graphdbg.minifier.progress.plain import PlainLines, render
from graphdbg.minifier.progress.plot import BRAILLE
from graphdbg.minifier.progress.telling import doing, queries_text
from graphdbg.minifier.search.problem import Answer, Ruling
from graphdbg.minifier.story import Story

SAME, PASS, OTHER = Ruling.SAME, Ruling.PASS, Ruling.OTHER


def events() -> list[Happening]:
    def asked(
        number: int, purpose: str, step: str, nodes: int, verdict: Ruling, improved: bool = False
    ) -> QueryAnswered:
        answer = Answer(
            verdict, "accuracy in compare: output 0" if verdict is SAME else "", nodes, 100 * nodes, seconds=2.0
        )
        return QueryAnswered(number, purpose, step, improved, case="0-3", **answer.to_json())

    return [
        Started("myrun/0_0/forward", "small", {"max_time": 600.0, "jobs": 1}, known=2),
        Stepped("sanity", 0),
        asked(1, "sanity", "sanity", 353, SAME),
        asked(2, "sanity", "sanity", 353, SAME),
        Stepped("windows", 2),
        asked(3, "search", "windows", 200, PASS),
        asked(4, "search", "windows", 180, SAME, improved=True),
        Best(4, "0-3", 180, 18_000),
        asked(5, "search", "windows", 90, OTHER),
        asked(6, "search", "windows", 20, SAME, improved=True),
        Stepped("verification", 6),
        asked(7, "verification", "verification", 20, SAME),
    ]


def story(until: int | None = None) -> Story:
    seen = Story()
    for place, event in enumerate(events()[:until]):
        seen.take({**event.to_json(), "time": 100.0 + 2 * place})
    return seen


def test_counts_add_up_in_plain_words() -> None:
    assert queries_text(story().asked, story().verdicts) == (
        "7 queries: 2 sanity, 4 search (2 failed the same way, 1 passed, 1 failed in another way), 1 verification"
    )
    assert queries_text({"sanity": 1}, {}) == "1 query: 1 sanity"


def test_the_guess_of_what_is_left_falls() -> None:
    left = [seen.left_s(seen.last) for seen in (story(6), story(11), story(12))]
    assert left[0] > left[1] > left[2] > 0
    assert story(6).queries_left() < 60


def picture(seen: Story, width: int) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(render(seen, width, seen.last))
    return console.export_text().rstrip("\n").splitlines()


def test_the_live_view_fits_and_shows_all() -> None:
    for width in (60, 80, 120):
        lines = picture(story(), width)
        assert {len(line) for line in lines} == {width}
        text = "\n".join(lines)
        assert "myrun/0_0/forward -> small" in text
        assert "checking the saved case in fresh processes" in text
        assert "20 of 353 nodes" in text
        assert "●●·●x●●" in [re.sub("[│ ]", "", line) for line in lines]
        assert "of 10:00" in text
        assert "2 answers were known from before" in re.sub(r"\s*│\n│\s*", " ", text)
        curve = [line for line in lines if any(BRAILLE < ord(letter) < BRAILLE + 256 for letter in line)]
        assert len(curve) > 1 and "353 nodes" in curve[0], "the nodes over the queries are drawn, from the top"
    assert "checking that it fails" in "\n".join(picture(Story(), 80))


def test_plain_lines_begin_at_once_and_never_fall_silent() -> None:
    said: list[str] = []
    seen = Story()
    with PlainLines(said.append, seen, quiet_s=0.05) as lines:
        for event in events():
            seen.hear(replace(event, time=time.time()))
            lines.take(event)
        assert (
            said[0] == "minifying myrun/0_0/forward into small: checking that it fails; 2 answers are known from before"
        )
        assert said[1] == (
            "query 4: 180 of 353 nodes, 17.6 KiB of inputs (looking for the place: windows of neighbouring nodes)"
        )
        before = len(said)
        deadline = time.monotonic() + 5
        while len(said) < before + 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert said[-1].startswith("after 0 s: checking the saved case in fresh processes; 7 queries: 2 sanity")
    ended = len(said)
    time.sleep(0.1)
    assert len(said) == ended


def test_orders_are_told_and_a_pause_shows() -> None:
    seen = story()
    seen.take(Steered("1", "pause", "applied", queries=6).to_json())
    assert doing(seen) == "paused: checking the saved case in fresh processes"
    said: list[str] = []
    with PlainLines(said.append, seen) as lines:
        for event in (
            Steered("2", "resume", "applied", queries=6),
            Steered("3", "skip", "applied", step="windows", queries=7),
            Steered("4", "restart", "refused", "the history has 0 (the original) to 2", number=9),
        ):
            seen.hear(event)
            lines.take(event)
    assert not doing(seen).startswith("paused")
    assert said == [
        "resume: done, after 6 queries",
        "skip: done, after 7 queries (looking for the place: windows of neighbouring nodes)",
        "restart 9: refused, the history has 0 (the original) to 2",
    ]


def test_the_document_names_every_event_and_field(checkout: Path) -> None:
    text = (checkout / "docs" / "minify-events.md").read_text()
    more = [
        Conditions({"case": "c0ffee"}, {"graph": "myrun/0_0/forward"}),
        Cut("c0ffee"),
        Answered(1, case="0-3", **Answer(PASS).to_json()),
        QueryStarted(3, "search", "windows", "0-3"),
        Said("it fails"),
        Steered("a1", "skip", "refused", "why"),
        Restarted(9, "0-3", 180, 18_000, 1),
        Ended("reduced"),
    ]
    for event in [*events(), *more]:
        line = event.to_json()
        assert from_json(line) == event
        row = next(row for row in text.splitlines() if row.startswith(f"| `{line['event']}`"))
        assert all(f"`{field}`" in row for field in line if field != "event"), row


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            {
                "repro": "shows",
                "repro_path": "repro.py",
                "issue": "issue.md",
                "repro_told": "shows the failure in 3 of 3",
            },
            "it fails, and repro.py shows the failure in 3 of 3",
        ),
        (
            {
                "repro": "passes",
                "repro_path": "repro.py",
                "issue": "issue.md",
                "repro_told": "shows the failure in 0 of 1",
            },
            "it fails, and no repro shows it: repro.py shows the failure in 0 of 1",
        ),
        ({"repro": "none", "repro_path": None, "issue": "small/issue.md"}, "it fails, and no repro shows it"),
    ],
)
def test_the_first_line_says_whether_a_repro_shows_it(report: dict[str, str | None], line: str) -> None:
    assert sentences(summary(Minified(3, [], None, 2, 8), report))[0] == line
