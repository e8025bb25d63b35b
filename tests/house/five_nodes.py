"""A program of five nodes with a planted fault, and the four commands that a user types for it: dump, triage, minify,
report.

python -m tests.house.five_nodes --python ENV/bin/python     # in that environment; exit code 0 where they end with 0,
1, 0, 0
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM = """\
import torch
import torch._inductor.config as inductor

inductor.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"


@torch.compile
def f(x, w):
    return torch.relu(x @ w).sum()


torch.manual_seed(0)
print(f(torch.randn(4, 8), torch.randn(8, 4)).item())
"""
STEPS = (
    (["dump", "-o", "run", "five.py"], 0),
    (["triage", "run"], 1),
    (["minify", "run", "-o", "small"], 0),
    (["report", "small", "-o", "report"], 0),
)
"""Words, and the exit code where nothing that they need is missing."""


@dataclass
class Step:
    """One command as it ended."""

    words: list[str]
    code: int
    seconds: float
    output: str


def play(
    python: str,
    folder: Path,
    environment: Mapping[str, str],
    *,
    commands: Sequence[list[str]] = tuple(words for words, _ in STEPS),
    program: str = PROGRAM,
) -> list[Step]:
    """Runs the commands, one after the other, in a folder that is there."""
    (folder / "five.py").write_text(program)
    done: list[Step] = []
    for words in commands:
        began = time.monotonic()
        ran = subprocess.run(
            [python, "-m", "graphdbg", *words],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
            check=False,
        )
        done.append(Step(words, ran.returncode, time.monotonic() - began, ran.stdout))
    return done


def main() -> int:
    """Plays it in a temporary folder, and prints a row for each command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--python", default=sys.executable)
    python = str(Path(parser.parse_args().python).absolute())  # a link in a virtual environment must stay one
    with tempfile.TemporaryDirectory() as folder:
        done = play(python, Path(folder), os.environ)
    for step, (_, code) in zip(done, STEPS, strict=True):
        print(f"{step.words[0]:8} code {step.code}, {code} expected, {step.seconds:.1f} s")
        if step.code != code:
            print(step.output)
    return 0 if [step.code for step in done] == [code for _, code in STEPS] else 1


if __name__ == "__main__":
    sys.exit(main())
