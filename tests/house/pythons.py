"""The fast tests on every supported Python of this machine, each in an environment of its own; resumable. With another
torch than the tested one, those that meet its private names, its graphs and its compiler.

    python -m tests.house.pythons [3.12 ...] [--torch 2.15] [-- PYTEST ARGS]   # or: make test-pythons ARGS="3.12"

An environment is made once, in .cache/python-3.X, with the versions of constraints.txt (a CUDA build of torch where
there is no other: gigabytes); with `--torch` in .cache/python-3.X-torch-2.Y, and that torch in the place of theirs.
What passed is noted with the commit and the arguments, and is not run again for them; a Python that is not here is said
to be missing, unless it was asked for by name. Exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TORCHES = ("2.11", "2.12", "2.13", "2.14", "2.15")
NO_WHEEL = {("3.10", "2.15")}
"""torch 2.15 begins with Python 3.11."""

TESTS = ["-n", "2", "--dist", "worksteal", "-q", "-m", "not slow and not gpu"]
OF_TORCH = [
    *TESTS,
    "tests/house/test_private_torch.py",
    "tests/dumps/test_roundtrip.py",
    "tests/toolkit/recorder/test_recorded_runs.py",
    "tests/toolkit/recorder/test_why.py",
    "tests/toolkit/test_replay.py",
]
"""What runs under a torch that is not the tested one; the program of tests/house/five_nodes.py is run there, too."""


def pinned_torch() -> str:
    """The release of torch that constraints.txt pins, like 2.13."""
    (pinned,) = re.findall(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return pinned


def interpreter(version: str) -> str | None:
    """A working interpreter of that version on PATH (a shim that stands for none does not count), else one of
    pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    places = [
        *os.environ["PATH"].split(os.pathsep),
        *(str(path / "bin") for path in sorted(pyenv.glob(f"{version}.*"))),
    ]
    for place in places:
        python = shutil.which(f"python{version}", path=place)
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


def environment(version: str, torch: str, python: str) -> Path:
    """The environment's Python; made where it is not complete."""
    other = torch != pinned_torch()
    home = ROOT / ".cache" / (f"python-{version}-torch-{torch}" if other else f"python-{version}")
    inside, done = home / "bin" / "python", home / "installed"
    if not done.exists():
        subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
        pins, asked = ROOT / "constraints.txt", [] if not other else [f"torch=={torch}.*"]
        if other:
            lines = pins.read_text(encoding="utf-8").splitlines(keepends=True)
            pins = home / "constraints.txt"
            pins.write_text("".join(line for line in lines if not line.startswith("torch==")), encoding="utf-8")
        install = [str(inside), "-m", "pip", "install", "--quiet", "-c", str(pins), *asked, "-e", ".[dev]"]
        subprocess.run(install, cwd=ROOT, check=True)
        done.touch()
    return inside


def state(words: list[str]) -> str:
    """What is tested: the commit, what is changed since, and the arguments."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    changed = subprocess.run(["git", "diff", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return f"{commit} {zlib.crc32(changed.encode()) if changed else ''} {' '.join(words)}".strip()


def run(inside: Path, tests: list[str], *, program: bool) -> int:
    """The first exit code that is not 0, of the tests and of the program."""
    commands = [["-m", "pytest", *tests], *([["-m", "tests.house.five_nodes"]] if program else [])]
    for words in commands:
        code = subprocess.run([str(inside), *words], cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            return code
    return 0


def main(words: list[str]) -> int:
    """Runs what is asked for, and prints a row for each Python."""
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="python -m tests.house.pythons")
    parser.add_argument("versions", nargs="*", metavar="PYTHON", help=f"of {', '.join(PYTHONS)}; all, unless named")
    parser.add_argument("--torch", choices=TORCHES, default=pinned_torch())
    options = parser.parse_args(words[:at])
    other = options.torch != pinned_torch()
    tests = words[at + 1 :] or (OF_TORCH if other else TESTS)
    rows: list[str] = []
    failed = False
    for version in options.versions or PYTHONS:
        name = f"python {version}" + (f", torch {options.torch}" if other else "")
        if (version, options.torch) in NO_WHEEL:
            rows.append(f"{name}: torch has no wheel for this Python")
            continue
        python = interpreter(version)
        if python is None:
            rows.append(f"{name}: not on this machine")
            failed |= bool(options.versions)
            continue
        inside = environment(version, options.torch, python)
        note = inside.parents[1] / "passed"
        now = state(tests)
        if note.exists() and note.read_text() == now:
            rows.append(f"{name}: passed before, nothing changed")
            continue
        began = time.monotonic()
        code = run(inside, tests, program=other)
        rows.append(f"{name}: {'passed' if code == 0 else f'exit code {code}'} in {time.monotonic() - began:.0f} s")
        failed |= code != 0
        if code == 0:
            note.write_text(now)
    print("\n".join(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
