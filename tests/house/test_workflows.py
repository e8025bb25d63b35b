"""What runs on GitHub and not here: workflows, forms and the Action are read by linters, and run what there is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graphdbg
from graphdbg.dumps.private_names import SEEN

from .pythons import NO_WHEEL, OF_TORCH, PYTHONS, TORCHES, pinned_torch
from .source_tree import ROOT
from .test_packaging import project

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
BIN = Path(sys.executable).parent


def read(path: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [(f"{path.stem}.{name}", job) for path in WORKFLOWS for name, job in read(path)["jobs"].items()]


def programs() -> list[tuple[str, dict[str, Any]]]:
    """Each `run:` step, with its job's name."""
    return [(name, step) for name, job in jobs() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.github-issue-forms", FORMS),
        ("vendor.github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_are_of_github_s_schemas(schema: str, files: list[Path]) -> None:
    from check_jsonschema import main
    from click.testing import CliRunner

    done = CliRunner().invoke(main, ["--builtin-schema", schema, *map(str, files)])
    assert files and done.exit_code == 0, done.output


def audited(*inputs: Path) -> subprocess.CompletedProcess[str]:
    command = [BIN / "zizmor", "--offline", "--no-progress", "--strict-collection", "--color=never"]
    command += ["--config", GITHUB / "zizmor.yml", *inputs]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_zizmor_finds_nothing_in_workflows_and_action(tmp_path: Path) -> None:
    done = audited(GITHUB, ROOT / "action")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (GITHUB / "workflows" / "tests.yml").read_text(encoding="utf-8")
    bad = tmp_path / "bad.yml"
    bad.write_text(text.replace("actions/checkout@v4", "somebody/checkout@v4"), encoding="utf-8")
    done = audited(bad)
    assert done.returncode != 0 and "unpinned-uses" in done.stdout


@pytest.mark.parametrize(("name", "step"), programs(), ids=lambda value: value if isinstance(value, str) else "")
def test_programs_of_steps_pass_shellcheck_and_hold_no_expression(
    name: str, step: dict[str, Any], tmp_path: Path
) -> None:
    assert "${{" not in step["run"], name
    program = tmp_path / "step.sh"
    program.write_text(step["run"], encoding="utf-8")
    done = subprocess.run([BIN / "shellcheck", "-s", "bash", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_job_has_the_least_permissions() -> None:
    for path in WORKFLOWS:
        workflow = read(path)
        assert workflow["permissions"] == {"contents": "read"} and workflow["concurrency"], path.name
    assert {name: job["permissions"] for name, job in jobs() if "permissions" in job} == {
        "release.publish": {"id-token": "write"}
    }


def test_steps_run_targets_that_there_are() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = [line for _, step in programs() for line in step["run"].splitlines() if line.startswith("make ")]
    asked = {word for line in lines for word in line.split() if re.fullmatch(r"[a-z][a-z-]*", word)} - {"make"}
    assert asked <= targets and {"lint", "test", "test-pythons", "docs", "docs-test", "wheel"} <= asked
    assert [word for word in OF_TORCH if word.startswith("tests/") and not (ROOT / word).exists()] == []


def test_the_matrix_is_what_the_project_supports() -> None:
    tests = read(GITHUB / "workflows" / "tests.yml")["jobs"]
    assert tuple(tests["tested"]["strategy"]["matrix"]["python"]) == PYTHONS
    others = tests["torches"]["strategy"]["matrix"]
    assert tuple(others["python"]) == PYTHONS
    assert tuple(others["torch"]) == tuple(torch for torch in TORCHES if torch != pinned_torch())
    assert {(pair["python"], pair["torch"]) for pair in others["exclude"]} == NO_WHEEL


def test_what_the_project_supports_is_said_alike() -> None:
    about = project()["project"]
    assert about["requires-python"] == f">={PYTHONS[0]}"
    assert f"torch>={TORCHES[0]}" in about["dependencies"]
    classified = [f"Programming Language :: Python :: {python}" for python in PYTHONS]
    assert [line for line in about["classifiers"] if re.search(r":: 3\.\d+$", line)] == classified
    page = (ROOT / "docs" / "torch-versions.md").read_text(encoding="utf-8")
    (head,) = re.findall(r"^\| stage \|(.*)\| nodes \|$", page, re.MULTILINE)
    shown = tuple(word.strip() for word in head.split("|"))
    assert shown == SEEN and tuple(version.rpartition(".")[0] for version in shown) == TORCHES


@pytest.mark.parametrize(
    ("tag", "date", "why"),
    [
        (f"v{graphdbg.__version__}", "2030-01-31", ""),
        ("v9.9.9", "2030-01-31", f"the tag is v9.9.9, the package is {graphdbg.__version__}"),
        (f"v{graphdbg.__version__}", "unreleased", f"CHANGELOG.md has no date for {graphdbg.__version__}"),
    ],
)
def test_a_release_wants_tag_version_and_changelog_alike(tmp_path: Path, tag: str, date: str, why: str) -> None:
    (step,) = [step for name, step in programs() if name == "release.wheel" and "GITHUB_REF_NAME" in step["run"]]
    shutil.copy(ROOT / "_version.py", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{graphdbg.__version__}] - {date}\n", encoding="utf-8")
    (tmp_path / "step.sh").write_text(step["run"], encoding="utf-8")
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "step.sh"],
        cwd=tmp_path,
        env={**os.environ, "GITHUB_REF_NAME": tag},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == (f"::error::{why}" if why else "") and done.returncode == bool(why)


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_forms_ask_for_what_there_is(form: Path) -> None:
    from graphdbg import cli

    text = form.read_text(encoding="utf-8")
    assert set(re.findall(r"`graphdbg ([a-z]+)", text)) <= set(cli.COMMANDS)
    fields = [field["id"] for field in read(form)["body"] if "id" in field]
    assert len(fields) == len(set(fields)) and ("doctor" in fields) == (form.stem != "feature")


def test_security_sends_reports_to_github_alone() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "private vulnerability reporting" in text and not re.search(r"\S+@\S+\.\w", text)
    for path in re.findall(r"`((?:dumps|toolkit|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
