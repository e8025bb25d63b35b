"""What is known of a minification by looking at its folder: while it runs, after it ended or died, or from an older
version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdbg.cli import run as cli
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.pack.redact import Redactor
from graphdbg.dumps.process import describe
from graphdbg.dumps.sidecar import build
from graphdbg.minifier.events import Happening
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.progress import telling
from graphdbg.minifier.progress.candidates import AtomNames, difference, node_lines, parsed, state, whole
from graphdbg.minifier.progress.outcome import ended, sentences
from graphdbg.minifier.progress.watched import Watched, watched
from graphdbg.minifier.report.issue import Preview
from graphdbg.minifier.search.problem import Candidate
from graphdbg.minifier.starting import Start, proposed
from graphdbg.minifier.story import Story
from graphdbg.toolkit.verdicts.verdict import OK, cannot_tell, fails

from ..dumps.graphs import chain
from .followed import session

NOW = 2_000_000_000.0


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished one."""
    folder = tmp_path_factory.mktemp("followed") / "out"
    session(folder)
    return folder


def read(path: Path) -> Watched:
    result = watched(path)
    while result.read():
        pass
    return result


def line(**event: object) -> bytes:
    return json.dumps(event).encode() + b"\n"


def test_every_event_is_there_right_after_it_was_written(tmp_path: Path) -> None:
    result, seen = Watched(tmp_path / "out"), []
    kinds: set[str] = set()

    def then(event: Happening) -> None:
        result.read()
        data = event.to_json()
        kinds.add(data["event"])
        if data["event"] == "asking":
            flight = result.story.flight()
            assert flight is not None and any(item.case == data["case"] for item in result.story.flying.values())
        elif data["event"] == "query":
            assert result.story.queries[-1].case == data["case"] and not any(
                item.case == data["case"] for item in result.story.flying.values() if data["purpose"] == "search"
            )
            seen.append(result.story.best)

    done = session(tmp_path / "out", then=then)
    story = result.story
    assert {"start", "step", "asking", "query", "best", "say", "end"} <= kinds
    assert result.state == "ended" and len(story.queries) == done.queries == len(seen)
    assert [(item.queries, item.nodes, item.input_bytes) for item in story.history] == done.history
    assert [item.number for item in story.history] == list(range(len(done.history)))
    assert story.best == (done.nodes, done.input_bytes) and story.original == done.original
    assert dict(story.asked) == done.asked and dict(story.verdicts) == done.verdicts
    assert sum(step.asked for step in story.steps.values()) == len(story.queries) == len(story.points)
    assert story.points[-1] == story.best and not story.flying
    assert [nodes for nodes, _ in story.points] == sorted((nodes for nodes, _ in story.points), reverse=True)


def test_a_line_is_read_when_it_is_whole_and_damage_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(event="start", graph="g", out="o") + b'{"event": "query", "queries": 1, "ver')
    result = watched(tmp_path)
    assert result.story.graph == "g" and not result.read() and not result.story.queries
    with path.open("ab") as file:
        file.write(b'dict": "same", "purpose": "sanity", "nodes": 9}\n' + b"\xff\xfe nonsense\n[1, 2]\n")
        file.write(line(event="query", nodes="many", queries=2) + line(event="new thing", x=1))
        file.write(line(event="step", step="windows"))
    assert result.read() and len(result.story.queries) == 1 and result.story.original == (9, 0)
    assert result.damage == 2 and result.story.step == "windows"


def test_a_process_that_goes_on_tells_all_again(out: Path, tmp_path: Path) -> None:
    lines = (out / "events.jsonl").read_bytes().splitlines(keepends=True)
    half = len(lines) // 2
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines[:half]))
    content = read(tmp_path)
    first = len(content.story.queries)
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b"".join(lines))
    while content.read():
        pass
    whole_story = read(out).story
    assert 0 < first < len(whole_story.queries) == len(content.story.queries)
    assert content.story.history == whole_story.history
    (tmp_path / "events.jsonl").unlink()
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines[:half]))  # another file of the same name
    content.read()
    assert len(content.story.queries) == first


def test_the_state_says_whether_it_lives(out: Path, tmp_path: Path) -> None:
    lines = (out / "events.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines[:-1]))  # without its end
    here = describe("minify")

    def standing(record: object) -> str:
        (tmp_path / "process.json").write_bytes(msgspec.json.encode(record))
        content = read(tmp_path)
        return telling.standing(content, NOW)

    assert standing(here).startswith("running: ")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    record = msgspec.structs.replace(here, pid=gone.pid, start_ticks=1)
    queries = len(read(out).story.queries)
    assert standing(record) == f"died at query {queries}; R resumes: nothing that was asked is asked again"
    assert "another host" in standing(msgspec.structs.replace(here, host="elsewhere"))
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines))
    assert standing(record) == f"ended after {queries} queries"


def test_a_folder_that_vanishes_keeps_what_was_read(out: Path, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.mkdir()
    (path / "events.jsonl").write_bytes((out / "events.jsonl").read_bytes())
    content = read(path)
    count = len(content.story.queries)
    (path / "events.jsonl").unlink()
    path.rmdir()
    content.read()
    assert content.state == "gone" and len(content.story.queries) == count > 0
    with pytest.raises(UsageError, match="no such folder"):
        watched(path)


def test_steering_is_asked_for_until_it_is_acknowledged(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(
        line(event="start", graph="g", out="o", time=NOW - 60) + line(event="step", step="windows", queries=0)
    )
    orders = [{"id": "a", "what": "disable", "step": "polish"}, {"id": "b", "what": "raise", "step": "sanity"}]
    orders.append({"id": "c", "what": "pause"})
    (tmp_path / "control.jsonl").write_text("".join(json.dumps(order) + "\n" for order in orders))
    content = read(tmp_path)
    assert list(content.wishes.values()) == ["disable polish", "raise sanity", "pause"]
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(line(event="steered", id="a", what="disable", step="polish", state="applied"))
        file.write(
            line(event="steered", id="b", what="raise", step="sanity", state="refused", why="it is always first")
        )
    content.read()
    assert list(content.wishes.values()) == ["pause"] and content.story.steps["polish"].mark == "disabled"
    assert content.story.steps["sanity"].mark == "" and content.story.steers["b"].why == "it is always first"
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(line(event="steered", id="c", what="pause", state="applied"))
    content.read()
    assert content.story.paused and not content.wishes


def test_a_restart_goes_on_from_the_state_it_names_and_keeps_the_others() -> None:
    story = Story()
    query = {"event": "query", "purpose": "search", "step": "atoms", "verdict": "same", "improved": True}
    story.take({"event": "start"})
    story.take(
        {"event": "query", "purpose": "sanity", "step": "sanity", "case": "original", "verdict": "same", "nodes": 50}
    )

    def smaller(case: str, nodes: int, number: int) -> None:
        story.take({**query, "case": case, "nodes": nodes})
        story.take({"event": "best", "case": case, "nodes": nodes, "input_bytes": 0, "number": number})

    smaller("0-30", 30, 1)
    smaller("0-20", 20, 2)
    story.take({"event": "restarted", "number": 1, "queries": 3, "case": "0-30", "nodes": 30, "input_bytes": 0})
    assert story.best == (30, 0) and len(story.history) == 3
    story.take({"event": "best", "case": "1-29", "nodes": 29, "input_bytes": 0, "number": 3})  # was known from before
    smaller("5-30", 25, 4)
    assert [(item.nodes, item.after) for item in story.history] == [(50, None), (30, 0), (20, 1), (29, 1), (25, 3)]
    assert "(from 1)" in telling.history_line(story.history[3], story)


def test_a_guess_of_the_rest_respects_the_limits(out: Path) -> None:
    story = read(out).story
    story.options, story.step = {"max_queries": len(story.queries) + 2, "jobs": 1}, "windows"
    story._recent = [2.0]
    assert story.left_s(story.began) == 4.0
    story.options = {"max_time": 10.0}
    assert story.left_s(story.began + 9) == 1.0 and story.left_s(story.began + 99) == 0.0


CANDIDATES = st.builds(
    Candidate,
    st.frozensets(st.integers(0, 40)),
    st.frozensets(st.integers(0, 40)),
    st.none() | st.frozensets(st.integers(0, 40)),
    st.lists(st.text(max_size=12)).map(tuple),
)


@settings(max_examples=30)
@given(CANDIDATES)
def test_the_text_of_a_candidate_is_read_back(candidate: Candidate) -> None:
    assert parsed(candidate.text()) == candidate


@settings(max_examples=30)
@given(CANDIDATES, CANDIDATES)
def test_a_difference_names_each_part_that_differs_once(best: Candidate, other: Candidate) -> None:
    atoms = AtomNames([(f"n{number}",) for number in range(41)], {})
    lines = difference(best, other, atoms)
    names = {
        line.sign: {item.text for item in lines if item.sign == line.sign and item.text.startswith("n")}
        for line in lines
    }
    assert names.get("-", set()) == {f"n{atom}" for atom in best.keep - other.keep}
    assert names.get("+", set()) == {f"n{atom}" for atom in other.keep - best.keep}
    assert names.get(" ", set()) | names.get("~", set()) <= {f"n{atom}" for atom in best.keep & other.keep}


def test_what_is_no_candidate_is_none() -> None:
    assert parsed("original") is None and parsed("x-y") is None and parsed("1-2 edits nonsense") is None


def test_nodes_are_named_and_far_ones_counted() -> None:
    table = build(chain(nodes=22))
    atoms = AtomNames([(f"sin_{number}",) for number in range(20)], node_lines(table))
    everything = whole(atoms)
    lines = difference(everything, everything.keeping(atom for atom in range(20) if atom != 10), atoms)
    assert [(line.sign, line.text.split("  ")[0]) for line in lines] == [
        ("@", "7 more that both keep"),
        *((" ", f"sin_{n} = aten.sin.default(sin_{n - 1})") for n in (7, 8, 9)),
        ("-", "sin_10 = aten.sin.default(sin_9)"),
        *((" ", f"sin_{n} = aten.sin.default(sin_{n - 1})") for n in (11, 12, 13)),
        ("@", "6 more that both keep"),
    ]
    edited = replace(everything.keeping([3]), edits=("dims 4 1",))
    assert [line.text for line in state(edited, atoms)][-1] == "sizes of 4 made 1"
    assert [line.text for line in difference(edited, edited, atoms)][-1] == "both: sizes of 4 made 1"
    assert "both" not in "".join(line.text for line in difference(everything, edited, atoms))


def test_the_result_is_told_from_the_event_and_from_the_folder(out: Path, tmp_path: Path) -> None:
    content = read(out)
    done = ended(out, content.story)
    assert (done["nodes"], done["original_nodes"]) == (content.story.best[0], content.story.original[0])  # type: ignore[index]
    content.story.take(
        {
            "event": "done",
            "nodes": 3,
            "input_bytes": 4,
            "original_nodes": 50,
            "original_input_bytes": 400,
            "verified": [3, 3],
            "signature": "crash",
            "difference": "without relu",
            "report_rate": "3 of 3 fresh processes",
            "notes": ["a note"],
            "parts": [{"name": "relu", "verdict": "pass", "signature": ""}],
        }
    )
    reported = sentences(ended(tmp_path, content.story))
    assert reported[0] == "50 nodes, 400 B of inputs -> 3 nodes, 4 B of inputs"
    assert "verified: the saved case fails the same way in 3 of 3 fresh processes" in reported
    assert "without relu it passes" in reported
    assert "the nearest case that passes: without relu" in reported and reported[-1] == "a note"


def test_a_start_is_proposed_checked_and_said_as_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    start = Start("case", "out", MinifyOptions())
    texts = {**start.texts(), "check": "crash", "jobs": "2", "max_time": "60", "out": "small"}
    words = start.with_texts(texts).words()
    assert words == ["minify", "case", "-o", "small", "--check", "crash", "-j", "2", "--max-time", "60", "--json"]
    wrong = {"jobs": "x", "max_queries": "0", "rung": "nowhere", "check": "cmd: nothing", "match": "(", "out": ""}
    for name, text in wrong.items():
        with pytest.raises(UsageError):
            start.with_texts({**texts, name: text})
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "x").touch()
    with pytest.raises(UsageError, match="exists already"):
        start.with_texts(texts)
    with pytest.raises(UsageError):
        proposed("nowhere")


def test_what_is_proposed_follows_the_last_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no rung fails nothing is begun with what is proposed, and what helps is said; with the user's own check it
    is."""
    monkeypatch.chdir(tmp_path)
    write_graph_folder(tmp_path / "graph", chain())
    wrong = fails("wrong_numbers", "decomposed", "relative error 2")
    start = proposed("graph", verdict=wrong, rung="decomposed", imports=("my_ops",))
    assert start.words()[4:] == ["--rung", "decomposed", "--import", "my_ops", "--json"]
    assert start.why == "last verdict at rung decomposed: FAILS: wrong numbers (compiler: aot autograd)"
    stages = proposed("graph", verdict=wrong.then("graphdbg diff a b"), rung="stages")
    right = proposed("graph", verdict=OK.then("graphdbg dump --inputs last -- train.py"))
    unsure = proposed("graph", verdict=cannot_tell("eager is not deterministic"))
    for result, said in (
        (stages, "graphdbg diff a b"),
        (right, "--inputs last"),
        (unsure, "eager is not deterministic"),
    ):
        with pytest.raises(UsageError, match=said):
            result.with_texts({**result.texts(), "out": "other"})
        assert result.with_texts({**result.texts(), "check": "crash"}).words()[-3:-1] == ["--check", "crash"]


def test_a_preview_counts_what_was_replaced_and_finds_what_was_not(tmp_path: Path) -> None:
    repro = "# .../train.py\nx = torch.ops.aten.relu.default(y)\n"
    lines = "The operations come from these lines:\n\n```\n<tmp>/train.py:3 in f: return x\n.../net.py:4 in g: y\n```\n"
    (tmp_path / "repro.py").write_text(repro)
    (tmp_path / "issue.md").write_text(f"shows it in 2 of 3 fresh processes\n{repro}\n{lines}")
    redactor = Redactor(home="/somewhere/ann", user="ann", folders=[])
    result = Preview.of(tmp_path, redactor)
    assert dict(result.replaced) == {"folder": 2, "scratch folder": 1}  # what stands in both files counts once
    assert (result.shown, result.times) == (2, 3) and not result.leaks
    shared = "what will be shared: 2 source lines of 2 files (<tmp>/train.py, .../net.py), 1 operation"
    assert result.sentences()[0].startswith(shared)
    (tmp_path / "issue.md").write_text("see /somewhere/ann/secret.py")
    again = Preview.of(tmp_path, redactor)
    assert again.leaks and any(sentence.startswith("STILL THERE") for sentence in again.sentences())
    assert not Preview.of(tmp_path / "nowhere").is_there


def test_a_command_says_how_it_stands(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = read(out).story
    assert cli(["steer", str(out)]) == 0
    printed = capsys.readouterr().out
    assert (
        printed.startswith("ended after ") and printed.count("query ") >= len(story.history) and "  best\n" in printed
    )
    assert cli(["steer", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["state"] == "ended" and facts["queries"] == len(story.queries) and tuple(facts["best"]) == story.best
    assert cli(["steer", str(out.parent)]) == 2


def test_following_imports_no_torch() -> None:
    program = (
        "import sys, graphdbg.minifier.progress.watched, graphdbg.minifier.progress.candidates, "
        "graphdbg.minifier.starting, "
        "graphdbg.minifier.progress.outcome, graphdbg.minifier.report.issue; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], env=dict(os.environ)).returncode == 0


def test_a_long_history_is_taken_in_quickly(tmp_path: Path) -> None:
    with (tmp_path / "events.jsonl").open("wb") as file:
        file.write(line(event="start", graph="g", out="o"))
        for number in range(5_000):
            file.write(
                line(event="query", queries=number, purpose="search", step="atoms", case="0-9", verdict="pass", nodes=9)
            )
    began, result = time.process_time(), Watched(tmp_path)
    bites = 0
    while result.read():
        bites += 1
    assert len(result.story.queries) == 5_000 and bites > 1
    assert time.process_time() - began < 3.0
