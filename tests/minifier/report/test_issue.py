"""The issue text: PyTorch's sections in order, nothing of the machine, a log that can be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.pack.redact import Redactor
from graphdbg.minifier.report.issue import IssueFacts, Report, one_line, render, shorten, user_lines
from graphdbg.toolkit.verdicts.verdict import Fault, Verdict, Where

from .cases import call, node, record_of, tensor

FRAME = 'File "/home/ann/model.py", line 3, in forward\n    return x.relu()\n'
GRAPH = record_of({"x": tensor(4, 8)}, [call("y", "aten.relu.default", node("x"))], ["y"], strings=[FRAME])
GRAPH.graph.nodes[1].stack = 0
REPORT = Report(Path("out"), Path("out/issue.md"), entry="torch.compile", nodes=3, original_nodes=318, shown=3, times=3)
FACTS = IssueFacts(
    REPORT,
    GRAPH,
    None,
    Verdict("fails", "wrong_numbers", "compiler", "inductor"),
    title="[inductor] wrong result: aten.relu.default",
    symptom="torch.compile gives a wrong result. relative error 1",
    layer="inductor (eager passes)",
    stage="forward",
    entry="torch.compile",
    log="BUG: output 0",
    versions="PyTorch version: 2.13.0\nPython at /home/ann/venv",
)


@pytest.fixture
def facts(tmp_path: Path) -> IssueFacts:
    """The same with a program."""
    (tmp_path / "repro.py").write_text('"""Shows."""\nprint("/home/ann/x")\n')
    return replace(FACTS, report=replace(REPORT, repro=tmp_path / "repro.py"))


REDACTOR = Redactor(home="/home/ann", user="ann", folders=[])


def test_the_sections_of_the_bug_form_in_order(facts: IssueFacts) -> None:
    text = render(facts, REDACTOR)
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    assert headings == ["### 🐛 Describe the bug", "### Error logs", "### Versions"]


def test_what_a_maintainer_asks_first_is_there(facts: IssueFacts) -> None:
    text = render(facts, REDACTOR)
    for words in (
        "Minimised from 318 to 3 nodes, placeholders and output included; the inputs take 128 B.",
        "in 3 of 3 fresh processes, each with its own compile cache",
        "First failing layer: inductor (eager passes).",
        "Expected: the result of eager mode",
        "```python",
        ".../model.py:3 in forward: return x.relu()",
    ):
        assert words in text, words


def test_nothing_of_the_home_is_left_and_the_warning_comes_first(facts: IssueFacts) -> None:
    text = render(facts, REDACTOR)
    assert "/home/ann" not in text
    assert text.startswith("<!-- Before you publish this")


def test_an_unverified_or_unreduced_case_says_so(facts: IssueFacts) -> None:
    text = render(replace(facts, report=replace(facts.report, shown=1, original_nodes=None)), REDACTOR)
    assert "does not show it reliably:** it did in 1 of 3 fresh processes" in text
    assert "not minimised: 3 nodes" in text


def test_without_a_program_the_reason_is_told() -> None:
    text = render(replace(FACTS, report=replace(REPORT, notes=["no repro.py: a sparse input"])), REDACTOR)
    assert "```python" not in text
    assert "- Note: no repro.py: a sparse input" in text


def test_fences_cannot_be_closed_from_inside(facts: IssueFacts) -> None:
    assert facts.report.repro
    facts.report.repro.write_text("print('```')")
    text = render(replace(facts, log="```\n### Versions"), REDACTOR)
    assert "````python\nprint('```')\n````" in text
    assert "````\n```\n### Versions\n````" in text


def test_comments_cannot_be_closed_from_inside() -> None:
    assert "-->" not in one_line("a --> b", 100)


def test_a_log_keeps_its_errors_and_loses_the_warnings_of_headers() -> None:
    log = "\n".join(
        [
            "Traceback:",
            "In file included from /x/vec512.h:16:",
            "/x/vec512.h: In instantiation of ‘void f()’:",
            "/x/vec512.h:714:31:   required from here",
            "/x/vec512.h:243:7: warning: overflow in conversion",
            "  243 |       0xff,",
            "      |       ^~~~",
            "main.cpp: In function ‘void kernel(float*)’:",
            "main.cpp:28:38: error: ‘compile’ was not declared in this scope",
            "   28 | auto tmp10 = compile error!;",
            "      |              ^~~~~~~",
            "",
        ]
    )
    assert shorten(log).splitlines() == [
        "Traceback:",
        "main.cpp: In function ‘void kernel(float*)’:",
        "main.cpp:28:38: error: ‘compile’ was not declared in this scope",
        "   28 | auto tmp10 = compile error!;",
        "      |              ^~~~~~~",
    ]


def test_a_long_log_says_what_was_left_out() -> None:
    lines = shorten("\n".join(map(str, range(1000)))).splitlines()
    assert len(lines) == 86
    assert lines[25] == "[... 915 lines left out ...]"
    assert (lines[0], lines[-1]) == ("0", "999")
    assert shorten("x" * 1000) == "x" * 400 + " [... 600 characters]"


def test_user_lines_are_the_innermost_of_each_stack_once() -> None:
    frames = [
        'File "/home/ann/model.py", line 3, in forward\n    h = f(x)',
        'File "/home/ann/f.py", line 9, in f\n    return x.relu()',
    ]
    stack = "".join(f"  {frame}\n" for frame in frames)
    built = [call(name, "aten.relu.default", node("x")) for name in ("a", "b")]
    for item in built:
        item.stack = 0
    record = record_of({"x": tensor(2)}, built, ["a"], strings=[stack])
    assert user_lines(record) == ["/home/ann/f.py:9 in f: return x.relu()"]


@pytest.mark.parametrize("fault", ["custom_pass", "custom_op", "model", None])
def test_only_the_compilers_fault_is_told_to_pytorch(facts: IssueFacts, fault: Fault | None) -> None:
    mine = replace(facts, verdict=Verdict("fails", "wrong_numbers", fault, where=Where("P()", line="mypass.py:3")))
    text = render(mine, REDACTOR)
    assert "### 🐛 Describe the bug" not in text
    assert "Not for PyTorch's tracker: " in text and text.count("P(), mypass.py:3.") == 1
    unplaced = render(replace(mine, verdict=Verdict("fails", "wrong_numbers", fault)), REDACTOR)
    assert "Not for PyTorch's tracker: " in unplaced
    assert (".../model.py:3.\n" in unplaced) == (fault != "custom_pass"), "the line of the last operation"


@pytest.mark.parametrize(
    ("more", "says", "code"),
    [
        ({}, "shows", 0),
        ({"shown": 2}, "passes", 1),
        ({"shown": 1, "flaky": True}, "shows", 0),
        ({"shown": 0, "flaky": True}, "passes", 1),
        ({"shown": 0, "unsure": True}, "none", 4),
        ({"repro": None}, "none", 1),
    ],
)
def test_what_the_repro_says_and_the_exit_code(facts: IssueFacts, more: dict[str, Any], says: str, code: int) -> None:
    report = replace(facts.report, **more)
    assert (report.says, report.as_json()["repro"], report.exit_code) == (says, says, code)
