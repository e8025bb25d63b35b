"""`--trust`: one option, handed on among the modules to import."""

from __future__ import annotations

import subprocess
import sys

import click
from click.testing import CliRunner

from graphdbg.toolkit.commands.options import trust_option
from graphdbg.toolkit.imports import TRUST, option_words, with_trust, without_trust


@click.command()
@click.option("--import", "imports", multiple=True)
@trust_option
@click.option("--other", default="")
def told(imports: tuple[str, ...], other: str) -> None:
    click.echo(" ".join([*imports, other]))


def test_the_option_is_handed_on_as_a_module() -> None:
    assert CliRunner().invoke(told, ["--import", "mine", "--trust"]).output.split() == ["mine", TRUST]
    assert CliRunner().invoke(told, ["--other", "x"]).output.split() == ["x"]


def test_it_is_written_as_the_option() -> None:
    imports = with_trust(["mine"], True)
    assert with_trust(imports, False) == imports
    assert option_words(imports) == ["--import", "mine", "--trust"]
    assert without_trust(imports) == ("mine",)


def test_importing_the_module_is_the_grant_and_loads_no_torch() -> None:
    check = (
        "import sys; from graphdbg.dumps import trust; assert not trust.given(); import importlib;"
        f"importlib.import_module({TRUST!r}); assert trust.given() and 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
