"""graphdbg beside other tools on the programs of tests/bench/peers: the numbers of docs/comparison.md.

    python -m tests.bench.bench_peers [--bin PEERS/bin] [--only record,minify] [--kinds hang] [--limit 300] [--write]

Measures what is chosen (half an hour for all), prints it and keeps it in docs/comparison.json; `--write` writes the
tables between the comment marks of docs/comparison.md from that file (`--only ''`: measures nothing). `--bin` is the
bin folder of an environment with tlparse, depyf and shrinkray in it: a peer that is not there is left out of the
numbers, and its name printed. torch's caches are empty at the start of each measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.peers_page import write

HERE = Path(__file__).parent
CASE, BROKEN = HERE / "peers" / "case.py", HERE / "peers" / "broken"
STORE = HERE.parents[1] / "docs" / "comparison.json"
SCRIPTS = Path(sys.executable).parent
KINDS = ("crash", "wrong", "nan", "hang", "segfault")
DEADLY = ("hang", "segfault")
HUNG_S = {"hang": 40.0}
"""How long a program that hangs is waited for before it is ended; without the bug it takes a third of that."""
LOGS = "+dynamo,graph_code,aot_graphs,post_grad_graphs,output_code,recompiles,graph_breaks"
DEPYF = (
    "import depyf, runpy, sys\nsys.argv = sys.argv[1:]\nwith depyf.prepare_debug('out'): runpy.run_path(sys.argv[0])"
)
CHECK = f"""#!/bin/sh
export TORCHINDUCTOR_CACHE_DIR=$(mktemp -d)
trap 'rm -rf "$TORCHINDUCTOR_CACHE_DIR"' EXIT
timeout 30 {sys.executable} "$1" > "$TORCHINDUCTOR_CACHE_DIR/printed" 2>&1
code=$?
"""
SHOWS = {
    "crash": "grep -q 'was not declared in this scope' \"$TORCHINDUCTOR_CACHE_DIR/printed\"",
    "wrong": "grep -q 'Mismatched elements' \"$TORCHINDUCTOR_CACHE_DIR/printed\"",
    "nan": "grep -q 'difference: nan' \"$TORCHINDUCTOR_CACHE_DIR/printed\"",
    "hang": "[ $code = 124 ]",
    "segfault": "[ $code = 139 ]",
}
"""The last line of Shrink Ray's check: how each kind is seen from outside."""

Row = dict[str, Any]


class Place:
    """A fresh folder with caches of its own, in which commands run; seconds are added up."""

    def __init__(self, folder: Path, limit: float, **variables: str) -> None:
        self.folder, self.limit, self.seconds, self.ended = folder, limit, 0.0, True
        self.environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), **variables}

    def run(
        self, *command: str | Path, ended_s: float | None = None, variables: Mapping[str, str] = {}
    ) -> tuple[int, str]:
        """Exit code and output of one command; 124 and what was printed where it was ended at the limit. `ended_s`: it
        hangs, and is ended after so many seconds, as a user would."""
        began = time.perf_counter()
        output = self.folder / "printed"
        with output.open("w") as file:
            try:
                code = subprocess.run(
                    ["timeout", "-k", "5", str(ended_s or self.limit), *map(str, command)],
                    cwd=self.folder,
                    env={**self.environment, **variables},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                ).returncode
            finally:
                self.seconds += time.perf_counter() - began
        self.ended = self.ended and (code != 124 or ended_s is not None)
        return code, output.read_text(errors="replace")


def ours(place: Place, kind: str) -> Row:
    """Recorded, minified; the repro is verified by `minify` itself."""
    place.run(SCRIPTS / "graphdbg", "dump", "-o", "run", "--", CASE, kind, ended_s=HUNG_S.get(kind))
    hangs = ("--hangs", "20") if kind in HUNG_S else ()
    _, text = place.run(SCRIPTS / "graphdbg", "minify", "--json", "-o", "small", *hangs, "run/0_0/inference")
    last = next((json.loads(line) for line in text.splitlines()[::-1] if line.startswith('{"event": "done"')), {})
    shows = last.get("verified") or [0, 3]
    return {"queries": last.get("queries"), "nodes": last.get("nodes"), "verified": shows[0] == shows[1]}


def stock(place: Place, kind: str, isolate: bool) -> Row:
    """The launcher that the failing run leaves, run; then its repro, once, which has to fail."""
    place.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    level = {"wrong": "4", "nan": "4", "segfault": "3", "hang": "3"}.get(kind, "2")
    variables = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": level}
    place.run(sys.executable, CASE, kind, ended_s=HUNG_S.get(kind), variables=variables)
    launchers = sorted(place.folder.rglob("minifier_launcher.py"))
    if not launchers:
        return {"queries": None, "nodes": None, "verified": False, "why": "wrote no launcher"}
    _, text = place.run(sys.executable, launchers[0], "minify", *([] if isolate else ["--no-isolate"]))
    match = re.search(r"Made (\d+) queries", text)
    steps = re.findall(r"\((\d+) nodes, \d+ inputs\)", text)
    nodes = int(steps[-1]) if steps else None
    spent, repro = place.seconds, place.folder / "repro.py"
    fails = repro.exists() and place.run(sys.executable, repro)[0] not in (0, 124)
    place.seconds = spent
    return {
        "queries": int(match[1]) if match else None,
        "nodes": nodes,
        "verified": fails,
        "why": "" if match else text.strip().splitlines()[-1][:80] if text.strip() else "",
    }


def shrinkray(place: Place, folder: Path, kind: str) -> Row | None:
    """The program's text, with a command that looks at how it ends and what it prints."""
    if not (folder / "shrinkray").exists():
        return None
    text, check = place.folder / "case.py", place.folder / "check.sh"
    text.write_text(CASE.read_text().replace('else "crash"', f'else "{kind}"'))
    check.write_text(CHECK + SHOWS[kind] + "\n")
    check.chmod(0o755)
    before = len(text.read_bytes())
    command = ("--ui=basic", "--timeout=60", "--parallelism=2", "--input-type=arg")
    place.run(folder / "shrinkray", *command, check, text)
    return {"queries": None, "nodes": None, "verified": False, "bytes": [before, len(text.read_bytes())]}


def size(folder: Path) -> int:
    """Bytes of all files, links counted once."""
    return sum({file.stat().st_ino: file.stat().st_size for file in folder.rglob("*") if file.is_file()}.values())


def recorders(folder: Path) -> dict[str, tuple[list[str | Path], dict[str, str]]]:
    """How each tool is put around a program: command and variables; what it writes is `out` or what it prints."""
    site = next(folder.parent.glob("lib/python3*/site-packages"), folder)
    plain: dict[str, tuple[list[str | Path], dict[str, str]]] = {
        "nothing": ([sys.executable], {}),
        "graphdbg": ([SCRIPTS / "graphdbg", "dump", "-o", "out", "--"], {}),
        "TORCH_TRACE": ([sys.executable], {"TORCH_TRACE": "out"}),
        "TORCH_LOGS": ([sys.executable], {"TORCH_LOGS": LOGS}),
    }
    if (site / "depyf").exists():
        plain["depyf"] = ([sys.executable, "-c", DEPYF], {"PYTHONPATH": str(site)})
    return plain


def record(place: Callable[[], Place], folder: Path) -> dict[str, Row]:
    """Quickest step, bytes written, and whether the graph (its erf) can be read after SIGKILL."""
    rows: dict[str, Row] = {}
    for name, (command, variables) in recorders(folder).items():
        here, killed = place(), place()
        here.environment["OMP_NUM_THREADS"] = "1"
        _, text = here.run(*command, CASE, "steps", variables=variables)
        killed.run(*command, CASE, "kill", variables=variables)
        (here.folder / "report").mkdir()
        if name == "TORCH_TRACE" and (folder / "tlparse").exists():
            log = max((here.folder / "out").iterdir())
            here.run(folder / "tlparse", log, "-o", "report/html", "--no-browser")
        if name == "graphdbg":
            _, kept = killed.run(SCRIPTS / "graphdbg", "show", "out/0_0/forward")
        else:
            files = [
                file for file in [*(killed.folder / "out").rglob("*"), killed.folder / "printed"] if file.is_file()
            ]
            kept = "".join(file.read_text(errors="replace") for file in files)
        written = size(here.folder / "out") if (here.folder / "out").exists() else len(text) if name != "nothing" else 0
        step = re.search(r"^step (\S+)", text, re.MULTILINE)
        rows[name] = {
            "step": float(step[1]) if step else None,
            "bytes": written,
            "html": size(here.folder / "report"),
            "after_kill": "aten.erf" in kept,
        }
        print(name, rows[name], flush=True)
    return rows


def minify(place: Callable[[], Place], folder: Path, kinds: Sequence[str]) -> dict[str, dict[str, Row]]:
    """Each kind of bug by each tool."""
    tools: dict[str, Callable[[Place, str], Row | None]] = {
        "graphdbg": ours,
        "torch": lambda here, kind: stock(here, kind, isolate=True),
        "torch, --no-isolate": lambda here, kind: stock(here, kind, isolate=False) if kind not in DEADLY else None,
        "Shrink Ray": lambda here, kind: shrinkray(here, folder, kind),
    }
    rows: dict[str, dict[str, Row]] = {}
    for kind in kinds:
        rows[kind] = {}
        for name, tool in tools.items():
            here = place()
            if kind == "segfault":
                here.environment["PYTHONPATH"] = str(BROKEN)
            if (row := tool(here, kind)) is not None:
                rows[kind][name] = {**row, "seconds": here.seconds, "ended": here.ended}
                print(kind, name, rows[kind][name], flush=True)
    return rows


def main() -> None:
    """Measures, keeps, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=SCRIPTS)
    parser.add_argument("--only", default="record,minify")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which bugs are minified; the other rows stay")
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    numbers: dict[str, Any] = json.loads(STORE.read_text()) if STORE.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:

        def place() -> Place:
            return Place(Path(tempfile.mkdtemp(dir=temporary)), options.limit)

        for name in filter(None, options.only.split(",")):
            if name == "record":
                numbers[name] = record(place, options.bin)
            else:
                numbers[name] = numbers.get(name, {}) | minify(place, options.bin, options.kinds.split(","))
            STORE.write_text(json.dumps(numbers, indent=1) + "\n")
    if options.write:
        write(numbers)


if __name__ == "__main__":
    main()
