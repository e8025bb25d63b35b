"""The assembled command line: help, errors as sentences, exit codes, suggestions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from graphdbg import cli
from graphdbg.dumps.errors import EnvironmentLackError, UsageError

DATA_COMMANDS = ("ls", "show", "draw", "diff", "replay", "minify", "report", "pack", "doctor")
"""The commands that print data: each takes --json."""


def command(name: str) -> click.Command:
    result = cli.graphdbg.get_command(click.Context(cli.graphdbg), name)
    assert result is not None
    return result


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (command(name).help or "").strip(), f"the docstring of the command {name} is its help, and is empty"
    bare = [p.name for p in command(name).params if isinstance(p, click.Option) and not p.help and not p.hidden]
    assert not bare, f"options of {name} without help: {bare}"
    assert cli.run([name, "--help"]) == 0
    assert f"graphdbg {name}" in capsys.readouterr().out


def test_help_lists_every_command_once_under_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    shown = capsys.readouterr().out.partition("\n  An error ends with a code")[0].partition("Record:")
    headings: dict[str, list[str]] = {}
    for line in "".join(shown[1:]).splitlines():
        if line.endswith(":") and not line.startswith(" "):
            headings[line[:-1]] = []
        elif line.startswith("  ") and line[2:3].isalpha():
            headings[list(headings)[-1]].append(line.split()[0])
    known = ["Record", "Look", "Judge", "Shrink and share", "Compiler engineers"]
    assert list(headings) == known, "the first word of each row in COMMANDS is one of these headings, in this order"
    listed = [(name, heading) for heading, names in headings.items() for name in names]
    assert sorted(listed) == sorted((name, row[0]) for name, row in cli.COMMANDS.items())


@pytest.mark.parametrize("name", DATA_COMMANDS)
def test_every_command_that_prints_data_takes_json(name: str) -> None:
    has_json = any("--json" in parameter.opts for parameter in command(name).params)
    assert has_json, f"{name} lacks @json_option() of dumps/commands/options.py"


SAME_EVERYWHERE = {"-o": "--output", "-j": "--jobs"}


def test_a_flag_is_spelt_the_same_everywhere() -> None:
    wrong = [
        f"{name}: {option.opts}"
        for name in cli.COMMANDS
        for option in command(name).params
        for short, long in SAME_EVERYWHERE.items()
        if short in option.opts and long not in option.opts
    ]
    assert not wrong, f"these short options have another long name than elsewhere ({SAME_EVERYWHERE}): {wrong}"


def test_a_misspelt_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["minfy"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Did you mean minify?" in captured.err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError("no graph '9_9'", "myrun has 3 graphs", "see `graphdbg ls myrun`"), 2, "See `graphdbg ls myrun`."),
        (EnvironmentLackError("no GPU", "none is visible", "use --device cpu"), 3, "no GPU: none is visible. Use"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.FileError("x.json", "gone"), 2, "x.json"),
    ],
)
def test_a_mistake_is_a_sentence_and_a_code(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, error)
    assert cli.run(["doctor", "--json"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert "Traceback" not in captured.err


def test_a_package_that_is_not_installed_is_a_sentence_and_code_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    monkeypatch.delitem(sys.modules, "graphdbg.tui.web", raising=False)
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    assert cli.run(["tui", "--web"]) == 3
    assert "this command needs textual-serve" in capsys.readouterr().err


def test_a_module_of_graphdbg_that_is_not_there_is_a_defect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "graphdbg.toolkit.commands.doctor", None)
    assert cli.run(["doctor"]) == cli.DEFECT_EXIT
    assert "Traceback" in capsys.readouterr().err


def test_a_defect_shows_its_traceback_and_asks_for_a_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, ZeroDivisionError("planted"))
    assert cli.run(["doctor"]) == cli.DEFECT_EXIT
    captured = capsys.readouterr().err
    assert "ZeroDivisionError: planted" in captured
    assert "report it" in captured


@pytest.mark.parametrize(("value", "code"), [(None, 0), (1, 1), (0, 0)])
def test_what_a_command_returns_is_the_exit_code(value: int | None, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = click.Command("doctor", callback=lambda: value)
    monkeypatch.setattr(cli.Commands, "get_command", lambda self, ctx, name: planted)
    assert cli.run(["doctor"]) == code


def plant(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Puts a command in the place of `doctor` that raises."""

    def callback(as_json: bool) -> None:
        raise error

    option = click.Option(["--json", "as_json"], is_flag=True)
    planted = click.Command("doctor", callback=callback, params=[option])
    monkeypatch.setattr(cli.Commands, "get_command", lambda self, ctx, name: planted)


def test_python_m_graphdbg_is_the_same_command(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "graphdbg", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("graphdbg ")


def test_a_reader_that_closes_early_is_met_with_silence(tmp_path: Path) -> None:
    body = "from graphdbg.dumps.output import emit\nfor _ in range(100): emit('x' * 100_000, as_json=False)"
    with subprocess.Popen(
        [sys.executable, "-c", body], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.read(10)
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(60) == 141


@pytest.mark.parametrize(
    "args",
    [
        ["ls", "nowhere"],
        ["show", "nowhere/0_0/forward"],
        ["diff", "nowhere", "there"],
        ["replay", "nowhere"],
        ["minify", "nowhere/x"],
    ],
)
def test_a_wrong_path_is_a_sentence(
    args: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nowhere" in captured.err
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ls", "show", "replay", "minify", "report", "pack"])
def test_a_script_in_the_place_of_a_run_gets_the_line_that_records_it(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my train.py").touch()
    assert cli.run([name, "my train.py"]) == 2
    assert "graphdbg dump -o myrun 'my train.py'" in capsys.readouterr().err


def test_ls_of_an_empty_folder_is_empty_data(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["ls", "--json"]) == 0
    json.loads(capsys.readouterr().out)
