"""A command to paste has the flags of the command now running, where it takes them and their values."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from graphdbg import cli
from graphdbg.dumps import user_kernels
from graphdbg.toolkit.verdicts import ladder_words
from graphdbg.toolkit.verdicts.verdict import remember, with_flags
from tests.dumps.test_diff_command import write_run


def _told(words: list[str], command: str, imports: tuple[str, ...] = (), case: tuple[str, ...] = ()) -> str:
    """What `graphdbg WORDS` would print where it names a command, by the options that it really has."""
    real = cli.graphdbg.get_command(click.Context(cli.graphdbg), words[0])
    assert real is not None

    def names(**_: object) -> None:
        remember(imports)
        click.echo(with_flags(command, case))

    done = CliRunner().invoke(click.Command(words[0], params=real.params, callback=names), words[1:])
    assert done.exit_code == 0, done.output
    return done.output.strip()


@pytest.mark.parametrize(
    ("words", "command", "text"),
    [
        ("replay r/0 --check nan --seed 3", "graphdbg bisect r/0", "graphdbg bisect r/0 --seed 3 --check nan"),
        ("replay r/0 --device cpu --trust", "graphdbg minify r/0", "graphdbg minify r/0 --trust"),
        ("replay r/0 --rung nop", "graphdbg minify r/0 --rung lazy", "graphdbg minify r/0 --rung lazy"),
        ("kernel r/0 --check", "graphdbg replay r/0", "graphdbg replay r/0"),
        ("check r/0 --seed 1", "graphdbg doctor", "graphdbg doctor"),
        ("triage r --trust", "graphdbg triage -- train.py", "graphdbg triage -- train.py"),
    ],
)
def test_flags_that_a_command_takes_are_handed_on(words: str, command: str, text: str) -> None:
    assert _told(words.split(), command) == text


@pytest.mark.parametrize(
    "command", ["graphdbg triage r", "graphdbg triage r/0_0/dynamo", "graphdbg triage -- train.py"]
)
def test_a_symptom_is_handed_on_to_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_run("r")
    reported = _told(["triage", "r", "--symptom", "slow"], command)
    assert reported == (f"{command} --symptom slow" if command.endswith(" r") else command)


def test_a_command_that_judges_stays_with_minify() -> None:
    words = ["minify", "r/0", "--check", "cmd: ./wrong.sh {case}"]
    assert _told(words, "graphdbg bisect r/0") == "graphdbg bisect r/0"
    assert _told(words, "graphdbg minify case") == "graphdbg minify case --check 'cmd: ./wrong.sh {case}'"


def test_modules_of_a_case_and_modules_that_were_typed() -> None:
    assert _told(["report", "case"], "graphdbg replay case", ("typed",), ("ops",)) == (
        "graphdbg replay case --import typed --import ops"
    )


def test_a_graph_that_calls_own_kernels_is_followed_by_their_check(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = object.__new__(user_kernels.UserKernel)
    run: Any = SimpleNamespace(path=Path("myrun"))
    names = [f"{at}_0/{stage}" for at in (0, 1) for stage in ("dynamo", "inference")]
    graphs: list[Any] = [SimpleNamespace(id=name, stage=name[4:], run=run, process="p") for name in names]
    run.graphs = lambda: graphs
    monkeypatch.setattr(ladder_words, "of", lambda graph: [kernel] if graph.id.startswith("1_0") else [])
    assert [ladder_words.kernel_check(ladder_words.compiled_from(graph)) for graph in graphs] == [
        "",
        "",
        *["graphdbg kernel myrun/1_0/inference --check --trust"] * 2,
    ]
    assert ladder_words.kernel_check(graphs) == "graphdbg kernel myrun/1_0/inference --check --trust"
