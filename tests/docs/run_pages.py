"""Runs the code blocks of pages and compares what they print with what the pages show; `--update` writes what came out
into the page instead.

    python -m tests.docs.run_pages [--update] docs/start.md ...

The blocks of a page run in order in an empty folder of its own. A `python` block with a title is written there as a
file, one without is run; of a `console` block each line `$ COMMAND` is run by bash. A line that is shown below it has
to occur in the output, in order; `...` alone stands for any lines, `…` for any text. Fractions, and numbers before a
unit of time or size, are not compared.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from .blocks import ROOT, Block, Command, blocks, pages

LONGEST_S = 300.0
HOME = "/home/you"
"""What the temporary folder is called in the output that a page shows."""
COMPILER = Path(__file__).parent / "cached"
"""Its g++ copies what was compiled from the same text before: half of the time of all pages."""
FIGURES = re.compile(
    r"[-+]?\d[\d,]*\.\d+(e[-+]?\d+)?|[-+]?\d[\d.,]*e[-+]?\d+|\d[\d,]*(?= ?(s|ms|us|min|B|KiB|MiB|GiB|kB|MB|GB|%)\b)"
)


def normal(line: str) -> str:
    """A line as it is compared.

    >>> normal("it took 12.5 s,   3 nodes, 8 KiB")
    'it took # s, 3 nodes, # KiB'
    """
    return " ".join(FIGURES.sub("#", line).split())


def first_missing(shown: list[str], real: list[str]) -> str | None:
    """The first shown line that does not come in the output in its place; None where all do.

    >>> first_missing(["a", "...", "c…"], ["a", "b", "cd"])
    >>> first_missing(["b", "a"], ["a", "b"])
    'a'
    """
    rest = iter([normal(line) for line in real])
    for line in shown:
        if line.strip() in ("", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in normal(line).split("…")))
        if not any(pattern.fullmatch(candidate) for candidate in rest):
            return line
    return None


def environment(folder: Path) -> dict[str, str]:
    """What the commands of a page see: a home of their own, the shared warm caches of compiles and of what g++ made, no
    colours."""
    cache = ROOT / ".cache" / "docs"
    cache.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GRAPHDBG", "TORCH"))}
    kept.pop("CI", None)
    return kept | {
        "PATH": os.pathsep.join([str(COMPILER), str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PAGES_CXX": str(cache / f"cxx-{version('torch')}"),  # its headers are part of what is compiled
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / ".state"),
        "XDG_CACHE_HOME": str(cache),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }


class Runner:
    """Runs the blocks of one page in one folder and keeps what does not agree."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.troubles: list[str] = []
        self.updates: list[tuple[Block, Command, list[str]]] = []
        self.environment = environment(folder)

    def run(self) -> None:
        """Runs every block; the first command with a wrong exit code ends the page."""
        for block in blocks(self.page.read_text(encoding="utf-8")):
            if block.not_run:
                continue
            if block.language == "python" and block.title:
                (self.folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / block.title).write_text(block.text + "\n", encoding="utf-8")
            elif block.language == "python":
                code, output = self.call([sys.executable, "-"], block.text)
                if code:
                    self.trouble(block.number, f"the block exits with {code}", output)
                    return
            elif block.language == "console" and not all(self.judge(block, command) for command in block.commands):
                return

    def call(self, words: list[str], text: str) -> tuple[int, list[str]]:
        """Exit code and lines of a program that reads `text` on its stdin."""
        try:
            done = subprocess.run(
                words,
                input=text,
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124, [f"it ran for more than {LONGEST_S:g} s"]
        return done.returncode, done.stdout.replace(str(self.folder), HOME).rstrip("\n").splitlines()

    def judge(self, block: Block, command: Command) -> bool:
        """Runs one command; false where its exit code is not the one that the page says."""
        began = time.monotonic()
        code, output = self.call(["bash", "-o", "pipefail", "-s"], command.line)
        print(f"  {time.monotonic() - began:6.1f} s  {command.line.splitlines()[0]}", flush=True)
        if code != command.exits:
            self.trouble(command.at, f"`{command.line}` exits with {code}, not {command.exits}", output)
            self.updates.append((block, command, output))
            return False
        if (line := first_missing(command.shown, output)) is not None:
            self.trouble(command.at, f"`{command.line}` does not print {line!r}", output)
            self.updates.append((block, command, output))
        return True

    def trouble(self, number: int, what: str, output: list[str]) -> None:
        """Keeps what does not agree, with the output."""
        printed = "\n".join(f"    | {line}" for line in output)
        self.troubles.append(f"{self.page.relative_to(ROOT)}:{number + 1}: {what}; it printed\n{printed}")

    def update(self) -> None:
        """Writes the real output of each command that did not agree into the page."""
        lines = self.page.read_text(encoding="utf-8").splitlines()
        for block, command, output in reversed(self.updates):
            lines[command.at : command.at + len(command.shown)] = [f"{block.indent}{line}".rstrip() for line in output]
        self.page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_page(page: Path, *, update: bool = False) -> list[str]:
    """Runs one page; what does not agree with it, a text each."""
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        runner = Runner(page.resolve(), Path(folder).resolve())
        runner.run()
        if update and runner.updates:
            runner.update()
        return runner.troubles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--update", action="store_true", help="write what came out into the pages")
    options = parser.parse_args()
    troubles: list[str] = []
    for page in options.pages or pages():
        began = time.monotonic()
        print(page, flush=True)
        troubles += run_page(page, update=options.update)
        print(f"  {time.monotonic() - began:6.1f} s in all", flush=True)
    print("\n".join(troubles))
    return bool(troubles)


if __name__ == "__main__":
    sys.exit(main())
