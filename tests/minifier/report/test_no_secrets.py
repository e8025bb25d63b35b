"""A report holds no credential and no absolute path; what was redacted opens, fails as before, and is reported and
minified."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.pack.making import pack, secrets_of
from graphdbg.dumps.pack.redact import Redactor
from graphdbg.dumps.secrets import Secrets
from graphdbg.dumps.store import Run, load_graph, resolve_graph
from graphdbg.minifier.report import bundle
from graphdbg.minifier.report.issue import render
from graphdbg.toolkit.replaying.replay import replay

from ...dumps.planted_secrets import CODE, KINDS, PATHS, TEXT, paths_in, planted_run, secrets_in
from .cases import relu_record
from .test_issue import FACTS


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("DATABASE_PASSWORD", KINDS["variable of this process"].secret)
    monkeypatch.chdir(tmp_path)
    return planted_run(tmp_path / "myrun", relu_record())


def written(run: Run, out: Path) -> Path:
    """The texts of a report, with everything planted in them, in an archive as `report` writes it."""
    saved = run.graph("0_0/forward")
    redactor = Redactor(secrets=secrets_of(run))
    facts = replace(FACTS, graph=saved.record, log=TEXT, title=TEXT, symptom=TEXT, versions=TEXT)
    files = {"issue.md": render(facts, redactor).encode(), "repro.py": CODE.encode()}
    members, _ = bundle.gather(saved, files, redactor.secrets)
    bundle.write_zip(out, members)
    return out


def test_no_secret_and_no_absolute_path_is_reported(run: Run) -> None:
    archive = written(run, Path("artifacts.zip"))
    with zipfile.ZipFile(archive) as file:
        names = {"case/graph.json", "case/graph.py", "case/inputs.json", "code/output_code.py", "journal.jsonl"}
        assert names <= set(file.namelist())
        file.extractall("unzipped")
    assert secrets_in(archive) == set()
    assert paths_in(archive) == []
    before, after = run.graph("0_0/forward").record, load_graph("unzipped/case").record
    assert before.graph.nodes == after.graph.nodes and before.config["inductor"] == after.config["inductor"]


def test_the_test_finds_them_where_they_are_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Secrets, "text", lambda self, text: text)
        assert set(KINDS) - secrets_in(written(run, Path("secrets.zip"))) <= {"assignment"}
    monkeypatch.setattr("graphdbg.dumps.pack.redact.Places.name", lambda self, path: path)
    assert len(paths_in(written(run, Path("paths.zip")))) > len(PATHS)


@pytest.mark.long
def test_a_packed_run_opens_and_runs(run: Run) -> None:
    packed = resolve_graph(f"{pack(run.path, Path('bug.zip')).file}/0_0/forward")
    assert packed.record.graph.nodes == run.graph("0_0/forward").record.graph.nodes
    assert replay(packed, rung="nop").verdict.verdict == "ok"


@pytest.mark.slow
def test_a_packed_run_is_minified_and_reported(run: Run) -> None:
    pack(run.path, Path("bug.zip"))
    with pytest.raises(SystemExit) as end:
        command(["minify", "bug.zip/0_0/forward", "-o", "small"])
    assert end.value.code == 0
    assert command(["report", "myrun/0_0/forward", "-o", "out"]) == 0
    with zipfile.ZipFile("texts.zip", "w") as archive:
        for path in (*Path("out").glob("*.py"), *Path("out").glob("*.md")):
            archive.write(path, path.name)
    for archive in (Path("texts.zip"), Path("out/artifacts.zip")):
        assert (secrets_in(archive), paths_in(archive)) == (set(), [])
