"""The Action and its script: the steps are run here with files in the place of GitHub's, and read by linters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ...dumps.graphs import chain, new_run
from ...house.source_tree import ROOT

ACTION, SCRIPT, PAGE = ROOT / "action" / "action.yml", ROOT / "action" / "collect.sh", ROOT / "docs" / "ci.md"
BIN = Path(sys.executable).parent


def action() -> dict[str, Any]:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(ACTION.read_text())


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def taken(step: dict[str, Any], folder: Path, **given: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """A step of the Action with these inputs, as a runner takes it; and what it put out."""
    inputs = {name: item["default"] for name, item in action()["inputs"].items()} | given
    asked = {name: re.fullmatch(r"\$\{\{ inputs\.(\S+) \}\}", text) for name, text in step["env"].items()}
    environment = {name: inputs[result[1]] for name, result in asked.items() if result}
    output, reported = folder / "github-output", folder / "github-summary"
    files = {
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(reported),
        "GITHUB_ACTION_PATH": str(ACTION.parent),
    }
    output.write_text("")
    reported.write_text("before\n")
    program = folder / "step.sh"
    program.write_text(step["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **files, **environment},
    )
    return done, dict(line.split("=", 1) for line in output.read_text().splitlines())


def red(folder: Path, test: str) -> Path:
    """What pytest leaves of a red test."""
    place = folder / "graphdbg-pytest" / test
    _, process = new_run(place / "run")
    process.save_graph(chain())
    process.close()
    (place / "minified" / "case").mkdir(parents=True)
    for name, text in {
        "said.txt": f"{test}: fails\n",
        "minified/repro.py": "repro",
        "minified/repro.safetensors": "weights",
        "minified/issue.md": f"The issue of {test}.",
    }.items():
        (place / name).write_text(text)
    return place


def kept(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_of_a_red_job_pack_page_repro_and_issue_are_kept_and_told(tmp_path: Path) -> None:
    red(tmp_path, "test_a-test_b")
    collect, upload = action()["runs"]["steps"]
    done, outputs = taken(collect, tmp_path)
    assert (done.returncode, outputs) == (0, {"found": "1", "folder": "graphdbg-ci"}), done.stderr
    out = tmp_path / "graphdbg-ci"
    assert kept(out) == {
        "summary.md",
        *(f"test_a-test_b/{name}" for name in ("run.zip", "page.html", "repro.py", "issue.md")),
    }
    assert zipfile.ZipFile(out / "test_a-test_b" / "run.zip").testzip() is None
    assert (out / "test_a-test_b" / "page.html").read_text().startswith("<!doctype html>")
    text = (tmp_path / "github-summary").read_text()
    assert text == "before\n" + (out / "summary.md").read_text()
    for said in (
        "    test_a-test_b: fails\n",
        "`python test_a-test_b/repro.py`",
        "The issue of test_a-test_b.",
        "repro.safetensors, values of tensors, which was left out",
    ):
        assert said in text
    assert upload["if"] == "steps.collect.outputs.found != '0'"
    assert upload["with"]["path"] == "${{ steps.collect.outputs.folder }}"

    again, _ = taken(collect, tmp_path)
    assert again.returncode == 2 and "graphdbg-ci is there already" in again.stderr


def look_at_a_red_run(folder: Path) -> None:
    """Called where there is one: see test_plugin."""
    done, outputs = taken(action()["runs"]["steps"][0], folder)
    assert (done.returncode, outputs["found"]) == (0, "2"), done.stderr
    tests = ("test_suite-test_wrong", "test_suite-test_own_mistake-3")
    both = {f"{test}/{name}" for test in tests for name in ("run.zip", "page.html")}
    wrong = {f"test_suite-test_wrong/{name}" for name in ("repro.py", "issue.md")}
    assert kept(folder / "graphdbg-ci") == {"summary.md"} | both | wrong
    text = (folder / "github-summary").read_text()
    assert "### 🐛 Describe the bug" in text and "test_own_mistake[3]: it fails without torch.compile, too" in text
    repro = folder / "graphdbg-ci" / "test_suite-test_wrong" / "repro.py"
    assert subprocess.run([sys.executable, repro], check=False, capture_output=True).returncode == 1


def test_where_nothing_is_red_nothing_is_made_and_no_python_is_started(tmp_path: Path) -> None:
    done, outputs = taken(action()["runs"]["steps"][0], tmp_path, command="/nowhere/graphdbg")
    assert (done.returncode, outputs["found"]) == (0, "0") and not (tmp_path / "graphdbg-ci").exists()


def collected(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(SCRIPT), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_pack_that_is_not_clean_is_not_kept_and_one_that_fails_is_said(tmp_path: Path) -> None:
    test = red(tmp_path, "test_c")
    (test / "minified" / "issue.md").write_text("long\n" * 30_000)
    for code, said in ((1, "* not kept: run.zip, in which something private was left"), (3, "* not made: run.zip")):
        stand_in = tmp_path / "pack.sh"
        stand_in.write_text(f"echo secret-of-mine >&2; echo secret-of-mine >$4; exit {code}\n")
        done = collected(tmp_path, "-g", "sh pack.sh", "-o", f"out-{code}", "--tensors")
        out = tmp_path / f"out-{code}"
        summary = (out / "summary.md").read_text()
        assert done.returncode == 0 and said in summary and "(cut here; all of it: test_c/issue.md)" in summary
        assert kept(out) == {"summary.md", "test_c/repro.py", "test_c/repro.safetensors", "test_c/issue.md"}
        assert ("secret-of-mine" in done.stderr) == (code == 3)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-o"], "-o needs a value"),
        (["--all"], "no such option: --all"),
        (["-t", "1.5"], "-t takes whole seconds, not 1.5"),
    ],
)
def test_bad_usage_is_a_sentence(tmp_path: Path, words: list[str], why: str) -> None:
    done = collected(tmp_path, *words)
    assert done.returncode == 2 and done.stderr.startswith(f"collect.sh: {why}") and not list(tmp_path.iterdir())


def checked(schema: str, *files: Path) -> Result:
    from check_jsonschema import main

    return CliRunner().invoke(main, ["--builtin-schema", f"vendor.{schema}", *map(str, files)])


def test_the_action_and_the_workflows_of_its_page_pass_the_linters(tmp_path: Path) -> None:
    written = [tmp_path / f"{number}.yml" for number, _ in enumerate(blocks("yaml"))]
    for file, text in zip(written, blocks("yaml"), strict=True):
        file.write_text(text)
    *workflows, gitlab = written
    (tmp_path / "bad.yml").write_text(ACTION.read_text().replace("shell: bash", "shel: bash"))
    assert checked("github-actions", ACTION).exit_code == 0
    assert checked("github-actions", tmp_path / "bad.yml").exit_code == 1
    for schema, files in (("github-workflows", workflows), ("gitlab-ci", [gitlab])):
        assert files and (done := checked(schema, *files)).exit_code == 0, done.output
    (tmp_path / "step.sh").write_text(action()["runs"]["steps"][0]["run"])
    (tmp_path / "plain.sh").write_text(blocks("sh")[0])
    for file, shell in ((SCRIPT, "sh"), (tmp_path / "step.sh", "bash"), (tmp_path / "plain.sh", "sh")):
        done = subprocess.run([BIN / "shellcheck", "-s", shell, file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_page_names_the_inputs_that_there_are() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == list(action()["inputs"])
