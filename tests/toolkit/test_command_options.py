"""Options that many commands share are declared once."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import graphdbg
from graphdbg.toolkit.commands.options import import_option, limit_option, rung_option, seed_option, trust_option
from graphdbg.toolkit.isolation.imports import TRUST, run_line

ROOT = Path(graphdbg.__file__).parent


@click.command()
@seed_option
@limit_option("Seconds.", default=None)
@import_option()
@trust_option
def told(seed: int, limit_s: float | None, imports: tuple[str, ...]) -> None:
    click.echo(f"{seed} {limit_s} {' '.join(imports)} {'here' if str(Path.cwd()) in sys.path else ''}")


def test_modules_are_looked_for_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [])
    assert CliRunner().invoke(told, []).output.split() == ["0", "None"]
    Path("mine.py").touch()
    assert CliRunner().invoke(told, ["--import", "mine", "--trust"]).output.split() == [
        "0",
        "None",
        "mine",
        TRUST,
        "here",
    ]
    assert sys.path == [str(tmp_path)]


def test_a_module_of_this_folder_is_found_by_the_repro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    Path("team_passes.py").touch()
    assert run_line("small/repro.py", ["team_passes", "json", TRUST]) == "PYTHONPATH=. python small/repro.py"
    assert run_line("small/repro.py", ["json"]) == "python small/repro.py"
    Path("alone.py").write_text("import torch\n")
    assert run_line("alone.py", ["team_passes"]) == "python alone.py"
    Path("alone.py").write_text("import team_passes  # registers ops\n")
    assert run_line("alone.py", ["team_passes"]) == "PYTHONPATH=. python alone.py"


def test_a_backend_of_torch_is_answered_with_a_rung() -> None:
    @click.command()
    @rung_option
    def judged(rung: str) -> None:
        click.echo(rung)

    assert "aot_eager: use decomposed (what AOTAutograd" in CliRunner().invoke(judged, ["--rung", "aot_eager"]).output
    assert CliRunner().invoke(judged, ["--rung", "nop"]).output == "nop\n"


def test_a_limit_is_more_than_nothing() -> None:
    assert "is not in the range" in CliRunner().invoke(told, ["--limit", "0"]).output
    assert CliRunner().invoke(told, ["--limit", "2"]).output.startswith("0 2.0")


@pytest.mark.parametrize("name", ["--import", "--seed", "--limit", "--json"])
def test_an_option_is_declared_in_one_place(name: str) -> None:
    declared = [
        path.relative_to(ROOT)
        for room in ("dumps", "toolkit", "minifier", "tui")
        for path in (ROOT / room).rglob("commands/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("click.option", "seconds_option")
        and node.args
        and ast.unparse(node.args[0]) == repr(name)
    ]
    assert len(declared) == 1, declared
