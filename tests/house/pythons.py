"""The fast tests on every supported Python of this machine, each in an environment of its own; resumable.

    python -m tests.house.pythons [3.12 ...] [-- PYTEST ARGS]     # or: make test-pythons ARGS="3.12"

An environment is made once, in .cache/python-3.X, with the versions of constraints.txt (a CUDA build of torch where
there is no other: gigabytes). What passed is noted with the commit and the arguments, and is not run again for them; a
Python that is not here is said to be missing. Exit code 1 where one fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TESTS = ["-n", "2", "--dist", "worksteal", "-q", "-m", "not slow and not gpu"]


def found(version: str) -> str | None:
    """A working interpreter of that version on PATH (a shim that stands for none does not count), else one of
    pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    places = [*os.environ["PATH"].split(os.pathsep), *(str(one / "bin") for one in sorted(pyenv.glob(f"{version}.*")))]
    for place in places:
        python = shutil.which(f"python{version}", path=place)
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


def environment(version: str, python: str) -> Path:
    """The environment's Python; made where it is not complete."""
    home = ROOT / ".cache" / f"python-{version}"
    inside, done = home / "bin" / "python", home / "installed"
    if not done.exists():
        subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
        install = [str(inside), "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "-e", ".[dev]"]
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


def main(words: list[str]) -> int:
    """Runs what is asked for, and prints a row for each Python."""
    at = words.index("--") if "--" in words else len(words)
    asked, tests = words[:at] or list(PYTHONS), words[at + 1 :] or TESTS
    rows: list[str] = []
    failed = False
    for version in asked:
        python = found(version)
        if python is None:
            rows.append(f"python {version}: not on this machine")
            continue
        inside = environment(version, python)
        note = inside.parents[1] / "passed"
        now = state(tests)
        if note.exists() and note.read_text() == now:
            rows.append(f"python {version}: passed before, nothing changed")
            continue
        began = time.monotonic()
        code = subprocess.run(
            [str(inside), "-m", "pytest", *tests], cwd=ROOT, stdin=subprocess.DEVNULL, check=False
        ).returncode
        rows.append(
            f"python {version}: {'passed' if code == 0 else f'exit code {code}'} in {time.monotonic() - began:.0f} s"
        )
        failed |= code != 0
        if code == 0:
            note.write_text(now)
    print("\n".join(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
