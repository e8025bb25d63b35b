"""`graphdbg ls RUN`: one row for each compile, with its function, its worst status and what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.store import open_run
from graphdbg.dumps.why.show import Compiled, of_rows
from graphdbg.dumps.writer import ProcessWriter

from .graphs import chain, new_run
from .test_why import frame, note


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessWriter:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    _, process = new_run(Path("myrun"))
    note(process, "begin")
    return process


def graph(process: ProcessWriter, name: str, *states: str, **last: object) -> None:
    process.save_graph(chain(name))
    for state in states:
        process.journal.event(state, graph=name, **(last if state == states[-1] else {}))


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert command(["ls", "myrun", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_row_says_function_stages_and_seconds(process: ProcessWriter, capsys: pytest.CaptureFixture[str]) -> None:
    frame(process, "0_0", "Net.forward", 12)
    graph(process, "0_0/dynamo", "compiling", "compiled", seconds=3.0)
    graph(process, "0_0/joint", "compiling", "compiled", seconds=1.0)
    for stage in ("forward", "forward.1", "backward"):
        graph(process, f"0_0/{stage}", "compiling", "compiled", seconds=0.5)
        process.journal.event("ran", graph=f"0_0/{stage}")
    frame(process, "0_1", "a_function_whose_name_is_" + "very_" * 12 + "long", 4711)
    graph(process, "0_1/dynamo", "compiling", "compiled", seconds=1.0)
    graph(process, "ca0_0/compiled_autograd", "compiling", "compiled")
    process.close()
    head, first, second, third = listed(capsys)
    assert head == "compile  status    stages               nodes  seconds  function"
    assert first == "0_0      ran       forward x2+backward      5     3.50  Net.forward, model.py:12"
    assert second.startswith("0_1      compiled  dynamo                   5     1.00  …")
    assert second.endswith("ng, model.py:4711") and len(second) == 80
    assert third.startswith("ca0_0    compiled  compiled_autograd        5 ")
    assert [line.split()[0] for line in listed(capsys, "--filter", "net.forward")[1:]] == ["0_0"]
    assert len(listed(capsys, "--stages")) == 8


def test_a_module_of_a_library_has_no_line_of_the_program(process, capsys) -> None:
    file = "/site-packages/torch/_dynamo/external_utils.py"
    note(process, "frame", compile="0_0", function="wrap_inline.<locals>.inner", of="Sequential", file=file, line=67)
    graph(process, "0_0/dynamo", "compiling", "compiled", seconds=3.0)
    process.close()
    assert listed(capsys)[1].endswith("  Sequential") and "Sequential  first" in listed(capsys, "--time")[1]


def test_what_failed_or_died_is_seen_at_once(process: ProcessWriter, capsys: pytest.CaptureFixture[str]) -> None:
    frame(process, "0_0")
    graph(process, "0_0/dynamo", "compiling", "failed", type="InductorError", message="as below")
    graph(process, "0_0/forward", "compiling", "failed", type="LoweringException", message="no lowering\nfor sin")
    frame(process, "1_0")
    graph(process, "1_0/dynamo", "ran")
    graph(process, "1_0/forward", "compiling")
    process.close()
    lines = listed(capsys)
    assert lines[1].startswith("0_0      failed ")
    assert lines[2] == "  0_0/forward: LoweringException: no lowering"
    assert lines[3].startswith("1_0      compiling, ")
    assert lines[4].startswith("  1_0/forward: process ")
    assert max(map(len, lines)) <= 80
    assert command(["ls", "myrun"]) == 0
    assert "next: graphdbg replay myrun/0_0/forward" in capsys.readouterr().err, "the nearest to the error"


def test_the_worst_of_its_graphs(process: ProcessWriter) -> None:
    graph(process, "0_0/joint", "compiling", "compiled")
    graph(process, "0_0/forward", "compiling", "ran")
    graph(process, "0_1/forward", "ran")
    graph(process, "0_1/backward")
    process.close()
    result: list[Compiled] = of_rows(open_run("myrun"))
    assert [(item.id, item.worst.status, item.bad, item.function(40)) for item in result] == [
        ("0_0", "ran", False, ""),
        ("0_1", "captured", False, ""),
    ]
