"""The examples that end each command's help run, in order and in one folder, as one story: what they exit with is what
the help says."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest

from graphdbg import cli
from graphdbg.dumps.manual import EXAMPLES, EXITS

from .source_tree import ROOT

TRAIN = """
import torch
import torch._inductor.config

torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
torch.compile(model)(torch.randn(4, 8)).sum().backward()
"""
ELSEWHERE = ("demo", "tui")
"""Commands whose examples are not run here: a demo takes minutes and is a test of its own, the workbench needs a
terminal."""
FIRST = ("dump", "minify", "report")
"""What others read; `dump` records a trace, too."""
FOLDERS = ("myrun", "small", "report", "part", "edited", "theirs")
"""What the story writes whose files are on the page of files."""
DIGEST = re.compile(r"[0-9a-f]{40}")
OTHERWISE = {"graphdbg steer small pause": (0, 2)}
"""What examples exit with that find something else than in the story: this process minified small, and is there still,
so the order waits; from a shell of its own it is bad usage."""


def story() -> list[tuple[str, str]]:
    """Each example with its command."""
    names = [*FIRST, *(name for name in EXAMPLES if name not in (*FIRST, *ELSEWHERE))]
    return [(name, line) for name in names for line, _ in EXAMPLES[name]]


def exit_code(line: str) -> int:
    """What a command line exits with; it is run in this process, so that all share one fork server."""
    began = time.monotonic()
    try:
        code = cli.run(shlex.split(line)[1:])
    except SystemExit as left:
        code = int(left.code or 0)
    print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)
    return code


@pytest.mark.slow
def test_the_examples_run_as_one_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    for name, line in story():
        with monkeypatch.context() as traced:
            if name == "dump":
                traced.setenv("TORCH_TRACE", str(tmp_path / "trace"))
            code = exit_code(line)
        meant = OTHERWISE.get(line, (1,) if name == "dump" else tuple(EXITS[name]))
        if str(code) not in map(str, meant):
            wrong.append(f"`{line}` exits with {code}")
    assert not wrong, "\n".join(wrong)
    page = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    files = [path.name for folder in FOLDERS for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert sorted({name for name in files if not DIGEST.match(name) and name not in page}) == []
