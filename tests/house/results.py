"""What every command says of the same programs, kept, and compared between two checkouts: behaviour that must not
change.

    python -m tests.house.results record BEFORE --root OLD/graphdbg --cases ../shared/cases --part 1/4
    python -m tests.house.results record AFTER
    python -m tests.house.results compare BEFORE AFTER

A program is a case (a file beside a common.py that runs it) or one of twelve healthy models. Each is recorded with
`dump`, then `--json` of ls, show, replay, triage, check and the last line of minify are kept, with exit codes, issue.md
and the exit code of each repro.py; times, paths, process ids, versions and hashes are replaced by marks. One file per
program: what is there is not recorded again, so a run that was stopped goes on. A command that takes longer than
--limit is ended and kept as "too long".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
MODELS = (
    "transformer",
    "encoder_train",
    "channels_last",
    "lstm",
    "gru",
    "embedding",
    "experts",
    "unet",
    "autocast",
    "checkpointed",
    "nonzero",
    "losses",
)
"""Of tests/models/healthy_models.py, this checkout's in both recordings; the last two have dynamic shapes."""

_AWAY = """\
import runpy, sys
sys.modules['graphdbg'] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
"""
_SHOWN = 6
"""So many graphs of a run are shown, checked one by one costs too much."""
_TIMES = re.compile(
    r"seconds|_s$|^s$|time|_ms$|^ms$|rate_hz|peak|bytes_in_use|started|^at$|elapsed|pid|host|disk|gflops|gb_s"
)
"""Fields whose numbers differ from run to run."""


# -- recording
# -----------------------------------------------------------------------------------------------------------------


def programs(cases: Path | None) -> Iterator[tuple[str, list[str]]]:
    """Name and command line of each program."""
    for path in sorted(cases.glob("[0-9]*.py")) if cases else ():
        yield path.stem, [str(path.parent / "common.py"), str(path), "inductor"]
    for name in MODELS:
        yield name, [str(HERE), "model", name]


def run_model(name: str) -> None:
    """Compiles one of the healthy models and runs it, its backward too where it trains."""
    import torch

    sys.path.append(str(HERE.parents[2]))
    from tests.models.healthy_models import PROGRAMS

    torch.manual_seed(0)
    function, calls, train = PROGRAMS[name]()
    compiled = torch.compile(function)
    for arguments in calls:
        out = compiled(*arguments)
        if train:
            outs = [item for item in (out if isinstance(out, tuple | list) else [out]) if item.requires_grad]
            sum(out.float().sum() for out in outs).backward()


class Recorder:
    """Runs the commands of a checkout on one program after the other."""

    def __init__(self, folder: Path, root: Path, limit_s: float, queries: int) -> None:
        self.folder, self.root, self.limit_s, self.queries = folder, root, limit_s, queries
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(root.parent),
            "CASE_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        self.marks: list[tuple[str, str]] = []

    def record(self, name: str, command: list[str]) -> None:
        """Keeps what the commands say of one program, unless it is kept already."""
        target = self.folder / f"{name}.json"
        if target.exists():
            return
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="results-") as place:
            work = Path(place).resolve()
            self.marks = sorted(
                [
                    (str(work), "<work>"),
                    (str(self.root), "<root>"),
                    (str(HERE.parents[2]), "<root>"),
                    (sys.executable, "<python>"),
                    (str(Path(sys.prefix)), "<prefix>"),
                    (tempfile.gettempdir(), "<tmp>"),
                    (str(Path.home()), "<home>"),
                ],
                key=lambda pair: -len(pair[0]),
            )
            kept = dict(self._commands(work, command))
        write_whole(target, json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        codes = " ".join(
            f"{key} {value['code']}" for key, value in kept.items() if isinstance(value, dict) and "code" in value
        )
        print(f"{name}: {time.monotonic() - began:.0f} s; exit codes: {codes}", flush=True)

    def _commands(self, work: Path, command: list[str]) -> Iterator[tuple[str, Any]]:
        yield (
            "dump",
            self._said(work, "dump", "-o", "run", "--inputs", "first", "--", sys.executable, *command, text=False),
        )
        listed = self._said(work, "ls", "run", "--json", "--full")
        yield "ls", listed
        graphs = (
            [row["id"] for row in (listed["json"] or {}).get("graphs", [])] if isinstance(listed["json"], dict) else []
        )
        for graph in graphs[:_SHOWN]:
            yield f"show {graph}", self._said(work, "show", f"run/{graph}", "--json", "--full")
            yield f"show --code {graph}", self._said(work, "show", f"run/{graph}", "--code", "--json", "--full")
        for words in (["replay", "run"], ["triage", "run"], ["check", "run"]):
            yield words[0], self._said(work, *words, "--json", "--full")
        budget = ["--max-queries", str(self.queries), "--max-time", f"{self.limit_s:.0f}", "-j", "1", "--seed", "0"]
        ended = self._said(work, "minify", "run", "-o", "small", "--json", "--full", *budget, lines=True)
        yield "minify", ended
        for file in ("issue.md", "repro.py", "case/case.json"):
            path = work / "small" / file
            yield f"small/{file}", self.plain(path.read_text(errors="replace")) if path.is_file() else None
        yield "repro.py", self._repro(work)
        if (work / "small" / "case").is_dir():
            yield "report", self._said(work, "report", "small", "-o", "report", "--json", "--full")

    def _said(self, work: Path, *words: str, lines: bool = False, text: bool = True) -> dict[str, Any]:
        code, out = self._run(work, [sys.executable, "-m", "graphdbg", *words])
        said: Any = None
        if text:
            last = [line for line in out.splitlines() if line.strip()][-1:] if lines else [out]
            try:
                said = self.settled(json.loads(last[0])) if last else None
            except ValueError:
                said = self.plain(out)
        return {"code": code, "json": said}

    def _repro(self, work: Path) -> dict[str, Any] | None:
        path = work / "small" / "repro.py"
        if not path.is_file():
            return None
        environment = {**self.environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        code, _ = self._run(work, [sys.executable, "-c", _AWAY, str(path)], environment)
        return {"code": code}

    def _run(self, work: Path, words: list[str], environment: dict[str, str] | None = None) -> tuple[int | str, str]:
        with (work / "out.txt").open("w+") as out, (work / "err.txt").open("w") as errors:
            process = subprocess.Popen(
                words,
                cwd=work,
                env=environment or self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
            try:
                code: int | str = process.wait(self.limit_s * (2 if "minify" in words else 1))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = "too long"
        return code, (work / "out.txt").read_text(errors="replace")

    def settled(self, value: Any, key: str = "") -> Any:
        """A JSON value without what differs from run to run."""
        if isinstance(value, dict):
            return {self.plain(str(name)): self.settled(item, str(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self.settled(item, key) for item in value]
        if isinstance(value, str):
            return self.plain(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and _TIMES.search(key):
            return "<time>"
        return float(f"{value:.4g}") if isinstance(value, float) else value

    def plain(self, text: str) -> str:
        """A text without paths, process ids, times, versions, addresses and hashes of files."""
        for path, mark in self.marks:
            text = text.replace(path, mark)
        for pattern, mark in _NOISE:
            text = pattern.sub(mark, text)
        return text


_NOISE = [
    (re.compile(pattern), mark)
    for pattern, mark in (
        (r"pid\d+", "pid<n>"),
        (r"0x[0-9a-fA-F]+", "<address>"),
        (r"\b[0-9a-f]{16,64}\b", "<hash>"),
        (r"\bc[a-z0-9]{50,}\b", "<hash>"),
        (r"torchinductor_\w+/[\w/]+", "<cache>"),
        (r"/tmp/[\w./-]+", "<tmp>"),
        (r"\b\d+(\.\d+)?(e-?\d+)? ?(ms|us|µs|ns|s|seconds?|min|minutes?)\b", "<time>"),
        (r"\d+\.\d+\.\d+(\.dev\d+)?(\+\w+)?", "<version>"),
        (r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?", "<date>"),
        (r"(\d+\.\d{3})\d+", r"\1"),
    )
]


def write_whole(path: Path, text: str) -> None:
    """A file that is there whole or not at all."""
    temporary = path.with_suffix(".part")
    temporary.write_text(text)
    temporary.replace(path)


# -- comparing
# -----------------------------------------------------------------------------------------------------------------


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """A line for each place where two recordings differ; keys that only the later one has are told as new."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            place = f"{where}.{key}" if where else key
            if key not in after:
                yield f"{place}: is gone"
            elif key not in before:
                yield f"{place}: is new: {_short(after[key])}"
            else:
                yield from differences(before[key], after[key], place)
    elif isinstance(before, list) and isinstance(after, list):
        before, after = _by_id(before), _by_id(after)
        if len(before) != len(after):
            yield f"{where}: {len(before)} entries, then {len(after)}"
        for number, (first, second) in enumerate(zip(before, after, strict=False)):
            yield from differences(first, second, f"{where}[{number}]")
    elif where.endswith(".json") and all(documents := [_document(before), _document(after)]):
        yield from differences(*documents, where)
    elif isinstance(before, str) and isinstance(after, str) and before != after and "\n" in before + after:
        yield from _of_texts(before, after, where)
    elif before != after:
        yield f"{where}: {_short(before)} -> {_short(after)}"


def _document(text: Any) -> Any:
    """A kept JSON file; None where a mark in it is no JSON."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _by_id(entries: list[Any]) -> list[Any]:
    """Results of graphs in one order: commands tell them as they come."""
    named = all(isinstance(entry, dict) and "id" in entry for entry in entries)
    return sorted(entries, key=lambda entry: str(entry["id"])) if named else entries


def _of_texts(before: str, after: str, where: str) -> Iterator[str]:
    import difflib

    result = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    for line in [line for line in result if line[:1] in "+-" and not line.startswith(("+++", "---"))][:20]:
        yield f"{where}: {line[:200]}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:160]}... ({len(text)} characters)"


def compare(before: Path, after: Path, *, added: bool) -> int:
    """Prints the differences of the programs that both folders have; the exit code is 1 when there are any but new
    keys."""
    names = sorted(path.stem for path in before.glob("*.json"))
    both = [name for name in names if (after / f"{name}.json").exists()]
    failed = 0
    for name in both:
        items = list(differences(*(json.loads((folder / f"{name}.json").read_text()) for folder in (before, after))))
        old = [line for line in items if ": is new: " not in line]
        failed += bool(old)
        shown = items if added else old
        print(f"{name}: " + (f"{len(old)} differences" if old else "equal") + f", {len(items) - len(old)} new keys")
        print(*(f"    {line}" for line in shown), sep="\n", end="\n" if shown else "")
    print(f"{len(both)} programs compared, {failed} differ; not in both: {len(set(names) ^ set(both))}")
    return 1 if failed else 0


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    value = verbs.add_parser("record")
    value.add_argument("folder", type=Path)
    value.add_argument(
        "--root", type=Path, default=HERE.parents[2], help="the checkout whose commands run, in a folder graphdbg"
    )
    value.add_argument("--cases", type=Path, default=HERE.parents[3] / "shared/cases")
    value.add_argument("--part", default="1/1", metavar="I/N", help="every Nth program, from the Ith on")
    value.add_argument("--only", default="", metavar="REGEX")
    value.add_argument(
        "--limit", type=float, default=240.0, metavar="S", help="for each command; minify may take twice as long"
    )
    value.add_argument(
        "--queries", type=int, default=150, help="of each minify, so that it ends at the same place in both"
    )
    value.add_argument("--again", action="store_true", help="record anew what is there")
    two = verbs.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--added", action="store_true", help="also list keys that only the later recording has")
    verbs.add_parser("model").add_argument("name")
    arguments = parser.parse_args()
    if arguments.verb == "model":
        run_model(arguments.name)
        return 0
    if arguments.verb == "compare":
        return compare(arguments.before, arguments.after, added=arguments.added)
    part, parts = map(int, arguments.part.split("/"))
    if arguments.again:
        shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(arguments.folder.resolve(), arguments.root.resolve(), arguments.limit, arguments.queries)
    cases = arguments.cases.resolve() if arguments.cases.is_dir() else None
    wanted = [item for item in programs(cases) if re.search(arguments.only, item[0])][part - 1 :: parts]
    for name, command in wanted:
        recorder.record(name, command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
