"""`ls --why` on journals written here: wording, grouping, damage, other processes, other versions."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.cli import run as command
from graphdbg.dumps import why
from graphdbg.dumps.journal import Event
from graphdbg.dumps.schema import SymbolRecord
from graphdbg.dumps.store import open_run
from graphdbg.dumps.why import wording
from graphdbg.dumps.why.events import Reader
from graphdbg.dumps.wording import AND_THEN, in_short
from graphdbg.dumps.writer import ProcessWriter

from .graphs import chain, new_run

BREAK = """Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling builtin `print`.
    Consider another way.
  Hint: Please report an issue to PyTorch.

  Developer debug context: builtin print

 For more details about this graph break, please visit: https://example.org/gb0059.html"""

GUARD = (
    "0/0: n == 1                      # x = x + n  # mp/model.py:13 in step (HINT: an integer.)\n"
    'User stack trace:\n  File "/home/u/model.py", line 13, in step\n    x = x + n\n'
    '  File "/v/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in relu\n    return 1'
)


def note(process: ProcessWriter, what: str, **fields: Any) -> None:
    process.journal.event("why", what=what, **fields)


def frame(process: ProcessWriter, compile_id: str, name: str = "M.step", line: int = 10, cached: int = 0) -> None:
    note(process, "frame", compile=compile_id, function=name, file="/home/u/model.py", line=line, cached=cached)


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessWriter:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    _, process = new_run(Path("myrun"))
    note(process, "begin")
    return process


def told() -> why.Why:
    return why.of_run(open_run("myrun"))


def text() -> str:
    return why.render(told())


def flat(paragraphs: str) -> str:
    """The text with its lines joined."""
    return " ".join(paragraphs.split())


def test_a_guard_whose_line_of_code_was_left_out() -> None:
    result = wording.guard("0/0: n == 1 # model.py:13 in step (HINT: an integer.)")
    assert (result.text, result.of, result.hint) == ("n == 1", "0_0", "an integer.")
    assert result.place is not None
    assert (result.place.file, result.place.line, result.place.code_text) == ("model.py", 13, "")


def test_a_graph_break_in_pieces() -> None:
    result = wording.graph_break(BREAK, "resumed", [])
    assert result.title == "Failed to trace builtin operator"
    assert result.explanation == "Dynamo does not know how to trace builtin operator `print`"
    assert result.hints[0].startswith("Avoid calling builtin `print`.")
    assert not any("report an issue" in hint for hint in result.hints)
    assert result.link == "https://example.org/gb0059.html"
    other = wording.graph_break("something else\nwent wrong", "resumed", [])
    assert (other.title, other.explanation, other.hints) == ("something else", "went wrong", [])


def test_what_an_operator_raised_on_fake_tensors_is_the_explanation() -> None:
    call = "call_function <function cross_entropy at 0x7f0e53>(*(FakeTensor(..., size=(s37, 33)), 1), **{})"
    text = f"Dynamo failed to run FX node with fake tensors: {call}: got ValueError('Expected batch_size (4) (8).')"
    text = f"RuntimeError when making fake tensor call\n  Explanation: {text}\n  Hint: Double check it.\n"
    said = "cross_entropy raises ValueError: Expected batch_size (4) (8)."
    assert wording.graph_break(text, "resumed", []).explanation == said
    assert in_short(text) == f"RuntimeError when making fake tensor call: {said[:-1]}"
    text = "TypeError when making fake tensor call\n  Explanation: \n  Hint: Double check it.\n\n"
    text += "  Developer debug context: TypeError add: must be bool, not SymBool\n"
    assert wording.graph_break(text, "resumed", []).explanation == "TypeError add: must be bool, not SymBool"
    text += f"\n{AND_THEN}\n\ngraph break in loop\n  Explanation: It is in a loop.\n"
    explained = "TypeError add: must be bool, not SymBool. It is in a loop."
    assert wording.graph_break(text, "resumed", []).explanation == explained


def test_a_tensor_in_place_of_none_is_no_string() -> None:
    result = wording.guard("0/0: cache.k is None")
    result.now = {"cache.k": "<Tensor>"}
    assert wording.gloss(result) == ""
    result.now = {"cache.k": "a"}
    assert "string" in wording.gloss(result)


def test_a_guard_in_pieces() -> None:
    result = wording.guard(GUARD)
    assert (result.text, result.of, result.hint) == ("n == 1", "0_0", "an integer.")
    assert result.place is not None
    assert (result.place.file, result.place.line, result.place.code) == ("/home/u/model.py", 13, "x = x + n")
    assert wording.guard("not in this form").text == "not in this form"


@pytest.mark.parametrize(
    ("guard", "said"),
    [
        ("tensor 'x' size mismatch at index 0. expected 2, actual 3", "x.size()[0] was 2, is now 3"),
        ("tensor 'x' dtype mismatch. expected Float, actual Double", "dtype of tensor x was Float, is now Double"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=1", "requires_grad of tensor x was True"),
        ("GLOBAL_STATE changed: grad_mode ", "GLOBAL_STATE changed: grad_mode"),
        ("L['self']._modules['a'].step == 3", "guard self.a.step == 3 failed"),
    ],
)
def test_failed_guards_as_clauses(guard: str, said: str) -> None:
    assert wording.failed(wording.guard(f"0/0: {guard}")) == said


def test_values_in_clauses() -> None:
    result = wording.guard("0/0: lr == 0.5")
    result.now = {"lr": 1 / 3, "mask": "<Tensor>", "name": "a"}
    assert wording.failed(result) == "guard lr == 0.5 failed, lr is now 0.333333, mask is now <Tensor>, name is now 'a'"


def test_guards_of_one_cause_are_alike() -> None:
    assert wording.alike("self.lr == 0.5") == wording.alike("self.lr == 1e-05")
    assert wording.alike("s == 'a b'") == wording.alike("s == ''")
    kept = "tensor 'x' dtype mismatch. expected Float, actual Double"
    assert wording.alike(kept) == "dtype of tensor x changed" != wording.alike(kept.replace("'x'", "'y'"))
    assert wording.alike("d['a'] == 1") != wording.alike("d['b'] == 1")
    sizes = [
        f"tensor 'x' size mismatch at index {dim}. expected 2, actual {now}" for dim, now in ((0, 3), (0, 4), (1, 4))
    ]
    assert len({wording.alike(size) for size in sizes}) == 2


def test_a_break_and_what_follows_it(process: ProcessWriter) -> None:
    frame(process, "0_0")
    note(
        process,
        "break",
        compile="0_0",
        then="resumed",
        text_id=0,
        text=BREAK,
        stack=[["/home/u/model.py", 12, "step", "self.say(x)"], ["/home/u/model.py", 5, "say", "print(1)"]],
    )
    note(process, "restart", compile="0_0", error="SpeculationRestartAnalysis")
    process.save_graph(chain("0_0_a1/forward"))
    frame(process, "1_0", "M.torch_dynamo_resume_in_step_at_12", 12)
    note(
        process,
        "break",
        compile="1_0",
        then="frame skipped",
        text_id=0,
        stack=[["/home/u/model.py", 14, "step", "print(2)"]],
    )
    frame(process, "2_0", "say", 4)
    out = text()
    assert "3 compiled" not in out
    assert "M.step  u/model.py:10\n" in out or "M.step  " in out
    assert "0_0  first compile [0_0_a1: forward 5 nodes]" in out
    assert "graph break at line 12, in say (line 5): print(1)" in out
    assert "1_0  goes on at line 12 after the graph break" in out
    assert "Failed to trace builtin operator (see 0_0)" in out
    assert "the whole function runs uncompiled" in out
    assert "2_0  first compile, by itself: the caller broke off at line 12" in out
    assert [len(function.compiles) for function in told().processes[0].functions] == [2, 1]


def test_five_hundred_recompiles_are_one_entry(process: ProcessWriter) -> None:
    frame(process, "0_0")
    for number in range(1, 500):
        frame(process, f"0_{number}", cached=number)
        reason = f"0/{number - 1}: self.step == {number}      # x * self.step  # model.py:13 in step"
        note(process, "recompile", compile=f"0_{number}", reasons=[reason], of=number, now={"self.step": number + 1})
    frame(process, "0_500", cached=500)
    note(process, "recompile", compile="0_500", reasons=["0/499: self.step == 500"], of=500, now={"self.step": 501})
    note(process, "limit", compile="0_500", limit="recompile_limit", value=500)
    start = time.perf_counter()
    out = text()
    assert time.perf_counter() - start < 2
    assert len(out.splitlines()) < 20
    out = flat(out)
    assert "499 x recompile of M.step: self.step == …" in out
    assert "499 recompiles at one guard: guard self.step == 1 failed, self.step is now 2" in out
    assert "its values: 2, 3, 4, 5, 6, 7, 8, 9 and 491 more" in out
    assert "GIVEN UP at 0_500: torch._dynamo.config.recompile_limit = 500" in out
    assert (
        why.hint("myrun", open_run("myrun").processes)
        == "499 recompiles, 1 recompile limit reached: graphdbg ls myrun --why"
    )


def test_what_else_failed_is_said_with_its_line(process: ProcessWriter) -> None:
    frame(process, "0_0")
    for number in range(1, 5):
        frame(process, f"0_{number}", cached=number)
        size = f"0/{number - 1}: tensor 'x' size mismatch at index 0. expected {number}, actual {number + 1}"
        older = ["0/0: self.step == 0      # x * self.step  # model.py:13 in step"] if number > 2 else []
        also = [[f"self.step == {number - 1}", number]]
        note(process, "recompile", compile=f"0_{number}", reasons=[size, *older], of=number, also=also)
    out = flat(text())
    assert "4 x recompile of M.step: x.size()[0] changed" in out
    assert "4 x recompile of M.step: guard self.step == … failed as well" in out
    assert "4 recompiles first at one guard: x.size()[0] was 1, is now 2" in out
    needed = "also in 4 of 4: guard self.step == 0 failed, self.step is now 1, needed at line 13: x * self.step"
    assert needed in out.replace("model.py:13", "line 13")
    assert "; also: guard self.step == 0 failed" in why.repeated(open_run("myrun"))[0].text


def test_parts_of_ddp(process: ProcessWriter) -> None:
    frame(process, "0_0")
    process.save_graph(chain("0_0/dynamo"))
    for part in (1, 2):
        note(process, "part", compile="0_0", part=part, of=2, parameters=2, bytes=2**21, names=["L['self'].a.weight"])
        process.save_graph(chain(f"0_0/forward{'.1' * (part == 2)}"))
        note(process, "part end", compile="0_0")
    process.save_graph(chain("0_0/backward"))
    out = text()
    assert "DDP part 2 of 2 (2 parameters, 2.0 MiB: self.a.weight ...)\n           0_0/forward.1" in out
    assert "compiled when the backward first ran, in this order: 0_0/backward" in out


def test_symbols_with_ranges_and_what_was_assumed(process: ProcessWriter) -> None:
    frame(process, "0_0")
    note(process, "symbols", compile="0_0", symbols=[["s0", "L['x'].size()[0]", 8, 2, None], "damage", [1]])
    record = chain("0_0/forward")
    record.symbols = [SymbolRecord(name="s0", hint=8, lower=2, upper=64, source="L['x'].size()[0]")]
    process.save_graph(record)
    assert "dynamic: x.size()[0] = s0 (8 here, from 2 to 64)" in text()


def test_graphs_that_a_limit_left_out(process: ProcessWriter) -> None:
    frame(process, "0_0")
    process.journal.event("captured", "0_0/forward", nodes=5)
    process.journal.event("left_out", "0_0/forward", reason="--only forward")
    assert "0_0  first compile [not kept: --only forward]" in text()


def test_an_id_used_again_after_a_reset(process: ProcessWriter) -> None:
    for stage in ("dynamo", "dynamo.1"):
        frame(process, "0_0")
        process.save_graph(chain(f"0_0/{stage}"))
    first, second = told().processes[0].functions[0].compiles
    assert ([line.local for line in first.graphs], second.kind) == (["0_0/dynamo"], "reset")
    assert [line.local for line in second.graphs] == ["0_0/dynamo.1"]


def test_ranks_that_tell_the_same_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run, first = new_run(Path("myrun"))
    for process in (first, run.process(name="other")):
        note(process, "begin")
        frame(process, "0_0")
        process.save_graph(chain("0_0/forward"))
    out = text()
    assert out.count("M.step") == 1
    assert out.startswith("== ") and "other" in out.splitlines()[0]


def test_damage_and_old_runs(process: ProcessWriter, tmp_path: Path) -> None:
    note(process, "break", compile="7_0", then="resumed", text_id=99)
    note(process, "a kind of tomorrow", compile="7_0")
    assert "no reason was given" in text()
    with process.journal.path.open("ab") as file:
        file.write(b'{"t": 1, "kind": "why", "what": "fra')
    assert "no reason was given" in text()
    _, old = new_run(Path("old"))
    old.save_graph(chain("0_0/forward"))
    assert "Nothing says why" in why.render(why.of_run(open_run("old")))
    assert why.hint("old", open_run("old").processes) == ""


def test_texts_from_a_dump_cannot_move_the_cursor(process: ProcessWriter) -> None:
    frame(process, "0_0", "\x1b[2Jstep")
    note(process, "failed", compile="0_0", error="\x1b]0;x", text_id=0, text="\x1b[31mred")
    assert "\x1b" not in text()


def test_the_command(process: ProcessWriter, capsys: pytest.CaptureFixture[str]) -> None:
    frame(process, "0_0")
    process.save_graph(chain("0_0/forward"))
    assert command(["ls", "myrun", "--why", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in document["graphs"]] == ["0_0/forward"]
    assert document["why"][0]["functions"][0]["compiles"][0]["graphs"][0]["id"] == "0_0/forward"
    frame(process, "0_1", cached=1)
    assert command(["ls", "myrun/0_0/forward", "--why"]) == 0
    of_one = capsys.readouterr().out
    assert "first compile" in of_one and "no recompile" not in of_one, "of one compile nothing is counted"
    assert command(["ls", "--why"]) == 2
    assert "--why needs a run" in capsys.readouterr().err


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.lists(st.lists(st.integers() | st.text(max_size=4)))
)
KINDS = "begin, frame, recompile, limit, break, restart, failed, symbols, part, part end, skip"
KEYS = "compile, function, file, line, reasons, now, stack, text, text_id, symbols, names, of"
kinds, keys = st.sampled_from(KINDS.split(", ")), st.sampled_from(KEYS.split(", "))


@given(st.lists(st.tuples(kinds, st.dictionaries(keys, values)), max_size=8))
def test_no_field_whatever_its_value_raises(many: list[tuple[str, dict[str, Any]]]) -> None:
    reader = Reader("pid1", None, [])
    for what, fields in many:
        reader.take(Event(0.0, "why", None, {**fields, "what": what}))
    why.render(why.Why([reader.finish()]))


@pytest.mark.parametrize(
    "unit", [": got a('", "Dynamo failed to run FX node with fake tensors: x <function a(: got b('"]
)
def test_a_long_text_of_dynamo_is_read_in_one_pass(unit: str) -> None:
    text = f"R\n  Explanation: Dynamo failed to run FX node with fake tensors: x a({unit * 3000}"
    began = time.process_time()
    assert in_short(text).startswith("R: Dynamo failed")
    assert time.process_time() - began < 2.0
