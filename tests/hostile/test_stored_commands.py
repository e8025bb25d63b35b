"""What a folder of a minification says is run, a command or modules, is shown and waits until the user says it or
trusts it. Each payload leaves a file where it is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.cli import run
from graphdbg.dumps import trust
from graphdbg.dumps.live import save_graph
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.starting import again, proposed, resumed
from graphdbg.toolkit.isolation.imports import TRUST

Told = Callable[..., tuple[int, str]]


@pytest.fixture
def graphdbg_said(capfd: pytest.CaptureFixture[str]) -> Told:
    def command(*words: object) -> tuple[int, str]:
        try:
            code = run([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return code, out + err

    return command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_server: Any) -> Path:
    """The current folder: a case, and a module that leaves a file. The worker's server begins before, in a folder of
    its own."""
    one_server.lend("inductor")
    monkeypatch.chdir(tmp_path)
    save_graph(make_fx(lambda x: (x.sin(),))(torch.ones(2)), [torch.ones(2)], tmp_path / "case", stage="inference")
    (tmp_path / "their_ops.py").write_text(f"open({str(tmp_path / 'IMPORTED')!r}, 'w')\n")
    return tmp_path


def begun(place: Path, directory: Path | None = None, **options: Any) -> Path:
    """OUT of a minification that was killed before its first answer."""
    from graphdbg.dumps.store import load_graph
    from graphdbg.minifier.log import Log
    from graphdbg.minifier.minify import _header  # pyright: ignore[reportPrivateUsage]

    asked = MinifyOptions(**options)
    about = {"graph": str(place / "case"), "options": asked.to_json(), "directory": str(directory or place)}
    out = place / "out"
    out.mkdir()
    Log(out).begin(_header(load_graph(place / "case"), asked), about)
    return out


def test_a_command_of_the_journal_runs_after_it_was_said_again(here: Path, graphdbg_said: Told) -> None:
    check = "cmd: touch RAN; exit 0; {case}"
    begun(here, check=check)
    code, text = graphdbg_said("minify", "--resume", "-o", "out")
    assert code == 2, text
    assert f"runs the command 'touch RAN; exit 0; {{case}}' in '{here}': its journal asks for this" in text
    assert f"graphdbg minify --resume -o out --check '{check}' (or --trust)" in text
    assert not (here / "RAN").exists()
    code, text = graphdbg_said("minify", "--resume", "-o", "out", "--check", "cmd: true {case}")
    assert code == 2, text
    assert "check was" in text
    assert not (here / "RAN").exists()
    code, text = graphdbg_said("minify", "--resume", "-o", "out", "--check", check)
    assert code == 1, text  # it passes
    assert "does not fail" in text
    assert (here / "RAN").exists()


def test_or_with_trust(here: Path, graphdbg_said: Told) -> None:
    begun(here, check="cmd: touch RAN; exit 0; {case}")
    code, text = graphdbg_said("minify", "--resume", "-o", "out", "--trust")
    assert code == 1, text
    assert (here / "RAN").exists()


def test_the_folder_that_a_command_runs_in_is_the_users_or_trusted(here: Path, graphdbg_said: Told) -> None:
    theirs = here / "theirs"
    theirs.mkdir()
    (theirs / "t.sh").write_text(f"touch {here}/RAN\n")
    begun(here, theirs, check="cmd: sh ./t.sh {case}")
    code, text = graphdbg_said("minify", "--resume", "-o", "out", "--check", "cmd: sh ./t.sh {case}")
    assert code == 2, text
    assert f"in '{theirs}'" in text
    assert "then run graphdbg minify --resume -o out --trust if you trust it" in text
    assert not (here / "RAN").exists()


def test_modules_of_the_journal_are_imported_after_they_were_said_again(here: Path, graphdbg_said: Told) -> None:
    begun(here, imports=("their_ops",))
    code, text = graphdbg_said("minify", "--resume", "-o", "out", "--max-queries", "1")
    assert code == 2, text
    assert "resuming out imports 'their_ops': its journal asks for this" in text
    assert "graphdbg minify --resume -o out --import their_ops (or --trust)" in text
    assert not (here / "IMPORTED").exists()


@pytest.mark.slow  # each has a server of its own, which looks for modules here
@pytest.mark.parametrize("words", [("--import", "their_ops"), ("--trust",)])
def test_modules_that_were_said_again_or_are_trusted_are_imported(
    here: Path, graphdbg_said: Told, words: tuple[str, ...]
) -> None:
    trust.bind(begun(here, imports=("their_ops",)))
    trust.bind(here / "case")  # of the user's own: what is not writes no file here
    graphdbg_said("minify", "--resume", "-o", "out", *words, "--max-queries", "1")
    assert (here / "IMPORTED").exists()
    (here / "IMPORTED").unlink()
    known = {"rung": "nop", "options": MinifyOptions(imports=("their_ops",)).to_json()}
    (here / "case" / "case.json").write_text(json.dumps(known))
    graphdbg_said("report", "case", *words)
    assert (here / "IMPORTED").exists()


def test_what_is_said_again_is_the_same_search(here: Path) -> None:
    begun(here, check="cmd: true {case}", imports=("their_ops",), seed=3)
    old = MinifyOptions(check="cmd: true {case}", imports=("their_ops",), seed=3)
    _, trusting, _ = resumed(Path("out"), MinifyOptions(imports=(TRUST,)), {"trust"})
    assert trusting == old  # the trust is for these, the graph's own source is not run
    _, typed, _ = resumed(Path("out"), MinifyOptions(check=old.check, imports=old.imports), {"check", "imports"})
    assert typed == old
    assert again(Path("out"), old) == "graphdbg minify --resume -o out --import their_ops --check 'cmd: true {case}'"


def test_a_report_imports_no_module_that_a_case_names(here: Path, graphdbg_said: Told) -> None:
    failure = {"kind": "crash", "stage": "compile", "type": "X"}
    known = {
        "signature": failure,
        "rung": "nop",
        "check": "auto",
        "options": MinifyOptions(imports=("their_ops",)).to_json(),
    }
    (here / "case" / "case.json").write_text(json.dumps(known))
    code, text = graphdbg_said("report", "case")
    assert code == 2, text
    assert "reporting case imports 'their_ops': its case.json names these modules" in text
    assert "graphdbg report case --import their_ops (or --trust)" in text
    assert not (here / "IMPORTED").exists()


def test_a_screen_proposes_nothing_that_runs(here: Path) -> None:
    asked = MinifyOptions(check="cmd: touch RAN; {case}", imports=("their_ops",), rung="nop")
    (here / "case" / "case.json").write_bytes(msgspec.json.encode({"options": asked.to_json()}))
    start = proposed("case")
    assert start.words()[4:] == ["--rung", "nop", "--json"]
    assert start.why == "as it was found, without its command and their_ops: what is run has to be said by you"
