"""`--trust`: one option, handed on among the modules to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.commands.options import trust_option
from graphdbg.toolkit.isolation.imports import TRUST, checked, import_modules, option_words, with_trust, without_trust


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


def test_a_path_is_a_module_and_what_cannot_be_imported_is_told_with_its_line(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("good_ops.py").write_text("value = 1\n")
    Path("bad_syntax.py").write_text("x = 1\ndef f(:\n")
    Path("bad_import.py").write_text("x = 1\nimport no_such_module_of_mine\n")
    [path] = checked(["./good_ops.py"])
    assert path == str(tmp_path / "good_ops.py")
    assert option_words([path]) == ["--import", "good_ops.py"]
    import_modules([path])
    assert sys.modules["good_ops"].value == 1
    for name in ("bad_syntax", "./bad_syntax.py"):
        with pytest.raises(UsageError, match=r"\(bad_syntax\.py:2\)"):
            checked([name])
    for name in ("no_such_module_of_mine", "./none.py"):
        with pytest.raises(UsageError, match="cannot import"):
            checked([name])
    with pytest.raises(UsageError, match=r"No module named 'no_such_module_of_mine' \(bad_import\.py:2\)"):
        import_modules(checked(["bad_import"]))


def test_importing_the_module_is_the_grant_and_loads_no_torch() -> None:
    check = (
        "import sys; from graphdbg.dumps import trust; assert not trust.given(); import importlib;"
        f"importlib.import_module({TRUST!r}); assert trust.given() and 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
