"""Nothing that a dump, a folder's name or a key says reaches a terminal as a command: no OSC 52, no cursor, no
direction."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphdbg.cli import run
from graphdbg.dumps import output, tables
from graphdbg.dumps.graph_folder import CODE_FOLDER, write_graph_folder
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.writer import RunWriter

from ..dumps.graphs import chain

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
"""Puts a command into the clipboard, where a terminal allows that."""
CSI_8_BITS, RIGHT_TO_LEFT = "\x9b2J", "\u202egnp.exe"
EVIL = CLIPBOARD + CSI_8_BITS + RIGHT_TO_LEFT
SAID = "\\x1b]52;c;cm0gLXJmIH4=\\x07"


class Terminal(io.StringIO):
    """What a terminal is to who writes to it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Both streams, where all is printed."""
    result = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    for module in (output, tables):
        monkeypatch.setattr(module, "sys", SimpleNamespace(stdout=result, stderr=result))
    return result


def seen(terminal: Terminal) -> str:
    """What was written, of which nothing is a command but our own colours."""
    text = terminal.getvalue()
    for bad in ("\x1b]", "\x07", "\x9b", "\u202e", "\x1b[2J"):
        assert bad not in text, repr(text[max(0, text.index(bad) - 80) : text.index(bad) + 20])
    return text


def case(folder: Path) -> Path:
    write_graph_folder(folder, chain("case/forward"), None)
    return folder


def test_generated_code(tmp_path: Path, terminal: Terminal) -> None:
    folder = case(tmp_path / "case")
    (folder / CODE_FOLDER).mkdir()
    (folder / CODE_FOLDER / "output_code.py").write_text(f"x = 1  # {EVIL}\ny = 2\n")
    assert run(["show", "--code", str(folder)]) == 0
    assert SAID in seen(terminal) and "\x1b[" in terminal.getvalue()  # its own colours stay


def test_generated_code_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = case(tmp_path / "case")
    (folder / CODE_FOLDER).mkdir()
    (folder / CODE_FOLDER / "output_code.py").write_text(f"x = 1  # {EVIL}\x1b[31m\n\ty = 2\n")
    assert run(["show", "--code", str(folder)]) == 0
    assert capsys.readouterr().out == f"x = 1  # {SAID}\\x9b2J\\x202egnp.exe\\x1b[31m\n\ty = 2\n"


def test_the_name_of_a_folder(tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RunWriter.create(Path(f"run{EVIL}"), RunRecord(format=FORMAT, command=["train.py", EVIL])).process().close()
    broken = Path(f"broken{EVIL}")
    broken.mkdir()
    (broken / "run.json").write_text("{")
    assert run(["ls"]) == 0
    run(["ls", f"run{EVIL}"])
    run(["show", "--code", f"run{EVIL}/0_0/forward"])
    assert f"note: cannot read broken{SAID}" in seen(terminal)


def test_a_key_in_a_refusal(tmp_path: Path, terminal: Terminal) -> None:
    folder = case(tmp_path / "case")
    graph = json.loads((folder / "graph.json").read_text())
    graph[EVIL] = 1
    graph["graph"]["nodes"][1]["kwargs"] = {EVIL: 1}
    (folder / "graph.json").write_text(json.dumps(graph))
    assert run(["show", str(folder)]) == 2
    assert SAID in seen(terminal)


def test_an_argument_that_click_quotes(terminal: Terminal) -> None:
    assert run([f"sho{EVIL}"]) == 2
    assert run(["ls", f"--no{EVIL}"]) == 2
    assert SAID in seen(terminal)


def test_a_document_has_the_text_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit({"name": EVIL + "\ud800"}, as_json=True)
    text = capsys.readouterr().out
    assert text.isascii() and json.loads(text) == {"name": EVIL + "\ud800", "next": []}


def test_our_colours_stay_and_what_hides_does_not() -> None:
    bold = "\x1b[1;38;5;4mx\x1b[0m"
    assert tables.visible(bold, colours=True) == bold
    assert tables.visible("\x1b[8mx", colours=True) == "\\x1b[8mx"
    assert tables.visible(bold) == "\\x1b[1;38;5;4mx\\x1b[0m"


def test_without_the_escape_it_gets_there(tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the tests above can fail."""
    monkeypatch.setattr(output, "visible", lambda text, **_: text)
    monkeypatch.chdir(tmp_path)
    output.say(EVIL)
    with pytest.raises(AssertionError):
        seen(terminal)
