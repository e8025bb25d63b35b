"""What is refused: the programs of the capture matrix and tiny models of transformers recorded, and every graph loaded.

    python -m tests.matrix.refused                              # resumable: what has a row in OUT is not run again
    python -m tests.matrix.refused --only 'numpy|opt' --anew    # some of them, whatever was found before
    python -m tests.matrix.refused --write docs/refused.md      # the page, from the rows

A row is appended for each program: how many graphs it gave, and of each that does not load why, and what to do. Nothing
is replayed. Exit code: 0 every program has its row, 1 some do not.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRANSFORMERS = HERE.parent / "zoo" / "programs" / "tiny_transformers.py"
MATRIX, MODELS = "capture matrix", "transformers"
IMPORTS = {"mixtral": "transformers.integrations.moe"}
"""What a model's graphs need to know operators that torch does not bring."""


@dataclass(frozen=True)
class Program:
    """`suite`: where it is from; `imports`: a module that a replay imports first."""

    name: str
    suite: str
    imports: str = ""


def programs() -> list[Program]:
    """All programs, in order."""
    rows = re.findall(
        r'^    Program\("(\w+)",(.*)\),?$', (HERE.parent / "models" / "capture_programs.py").read_text(), re.MULTILINE
    )
    models = re.findall(r"^def ([a-z]\w*)\(", TRANSFORMERS.read_text(), re.MULTILINE)
    built = [Program(name, MATRIX, _imports(rest)) for name, rest in rows]
    return built + [Program(name, MODELS, IMPORTS.get(name, "")) for name in models]


def _imports(rest: str) -> str:
    """The module that a row of the matrix names."""
    return "tests.models.capture_hops" if "imports=OPS" in rest else "".join(re.findall(r'imports="([\w.]+)"', rest))


def record(chosen: Sequence[Program], folder: Path, limit_s: float) -> None:
    """Records programs of one suite: those of the matrix in one process, a model in one of its own."""
    if chosen[0].suite == MATRIX:
        words = ["-m", "tests.matrix.capture_live", str(folder), *(item.name for item in chosen)]
    else:
        (folder / chosen[0].name).mkdir()
        words = [
            "-m",
            "graphdbg",
            "dump",
            "-o",
            str(folder / chosen[0].name / "run"),
            "--",
            str(TRANSFORMERS),
            chosen[0].name,
        ]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # torchrun lies there
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ, "PATH": path}
    with (folder / "log.txt").open("w") as log:
        try:
            subprocess.run(
                [sys.executable, *words],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=limit_s * len(chosen),
                env=environment,
                cwd=ROOT,
            )
        except subprocess.TimeoutExpired:
            print(f"{', '.join(item.name for item in chosen)}: took longer than {limit_s:.0f} s each", file=sys.stderr)


def loaded(program: Program, folder: Path) -> dict[str, Any]:
    """The row of a program: its graphs, loaded with their inputs as a replay does it."""
    from graphdbg.dumps.errors import GraphdbgError
    from graphdbg.dumps.store import load_graph, open_run
    from graphdbg.toolkit.live.case import Case

    row: dict[str, Any] = {"program": program.name, "suite": program.suite, "graphs": 0, "refused": []}
    failed = folder / "failed.txt"
    if failed.exists():
        return {**row, "error": failed.read_text().strip().splitlines()[-1]}
    try:
        graphs = (
            [load_graph(folder / "case")] if (folder / "case").exists() else list(open_run(folder / "run").graphs())
        )
    except GraphdbgError as error:
        return {**row, "error": str(error)}
    for saved in graphs:
        if saved.status == "skipped":
            continue
        row["graphs"] += 1
        try:
            if saved.rank is None:
                Case(saved).live(seed=0)
            else:
                saved.module()
                saved.inputs()
        except GraphdbgError as error:
            stage = saved.record.stage if saved.record is not None else ""
            row["refused"].append({"stage": stage, "why": error.why, "fix": error.fix, "id": saved.local_id})
    return row


def run(chosen: Sequence[Program], rows: Path, size: int, until: float, limit_s: float) -> None:
    """Appends the rows that are missing; starts nothing once the time is over."""
    for program in chosen:
        if program.imports:
            try:
                __import__(program.imports)
            except ImportError as error:
                print(f"{program.name}: {error}", file=sys.stderr)
    done = {row["program"] for row in read(rows)}
    waiting = [item for item in chosen if item.name not in done]
    while waiting and time.monotonic() < until:
        batch = [item for item in waiting if item.suite == waiting[0].suite][
            : size if waiting[0].suite == MATRIX else 1
        ]
        waiting = [item for item in waiting if item not in batch]
        with tempfile.TemporaryDirectory(prefix="graphdbg-refused-") as work:
            record(batch, Path(work), limit_s)
            for program in batch:
                row = loaded(program, Path(work) / program.name)
                with rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{program.name}: {told(row)}", file=sys.stderr, flush=True)


def told(row: dict[str, Any]) -> str:
    """A row in a few words."""
    refused = "".join(f"; {item['id']}: {item['why']}" for item in row["refused"])
    return row.get("error") or f"{row['graphs']} graphs, {len(row['refused'])} refused{refused}"[:300]


def read(rows: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []


def page(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The page: how many graphs load, and a line for each reason why one does not."""
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for row in rows:
        for item in row["refused"]:
            match = re.search(r"'([^']+)'|type ([\w.]+)|(\w+ tensors)", item["why"])
            what = next((text for text in match.groups() if text), "") if match else ""
            fix = re.sub(r"\bof \w+ behind", "of its compile behind", item["fix"])
            groups.setdefault((what, item["why"], fix), []).append((row["program"], item["stage"]))
    graphs, refused = sum(row["graphs"] for row in rows), sum(len(row["refused"]) for row in rows)
    failed = [row for row in rows if row.get("error")]
    for suite in (MATRIX, MODELS):
        mine = [row for row in rows if row["suite"] == suite]
        count, not_loaded = sum(row["graphs"] for row in mine), sum(len(row["refused"]) for row in mine)
        yield f"* {suite}: {len(mine)} programs, {count} graphs: {count - not_loaded} load, {not_loaded} are refused."
    yield f"* all: {len(rows)} programs, {graphs} graphs: {graphs - refused} load, {refused} are refused."
    yield ""
    yield "| target or type | why | what to do | stages | graphs | programs |"
    yield "|---|---|---|---|---|---|"
    for (what, why, fix), where in sorted(groups.items()):
        stages, names = (", ".join(sorted({pair[at] for pair in where})) for at in (1, 0))
        yield f"| `{what}` | {why} | {fix or 'nothing is known'} | {stages} | {len(where)} | {names} |"
    if failed:
        yield ""
        yield "Programs that gave no run, and so say nothing:"
        yield ""
        yield from (f"* {row['program']}: {row['error'][:300]}" for row in failed)


HEAD = """# What is refused

A saved graph calls functions of a list, and holds values that have a saved form; anything else is refused by its name
when the
graph is loaded. This page says what real programs meet of it. Made by `python -m tests.matrix.refused --write
docs/refused.md`,
which records every program of the [capture matrix](capture-matrix.md) and tiny models of `transformers` {version}, and
loads each
graph that torch {torch} made of them, with its inputs, in another process. A graph that Dynamo abandoned is not
counted, and of a program that took too long the graphs that it had made by then are.
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="REGEX", default="", help="programs whose name matches")
    options.add_argument("--anew", action="store_true", help="forget what was found of the chosen programs")
    options.add_argument("--out", type=Path, metavar="FILE", help="the rows (default: .cache/refused-TORCH.jsonl)")
    options.add_argument("--max-time", type=float, default=1e9, metavar="S", help="start none after so many seconds")
    options.add_argument("--limit", type=float, default=180, metavar="S", help="seconds that one program may take")
    options.add_argument("--size", type=int, default=8, help="programs of the matrix in one process")
    options.add_argument("--write", type=Path, metavar="FILE", help="write the page of all rows")
    chosen = options.parse_args()
    torch = importlib.metadata.version("torch")
    rows: Path = chosen.out or ROOT / ".cache" / f"refused-{torch}.jsonl"
    rows.parent.mkdir(parents=True, exist_ok=True)
    wanted = [program for program in programs() if re.search(chosen.only, program.name)]
    if chosen.anew:
        names = {item.name for item in wanted}
        kept = [row for row in read(rows) if row["program"] not in names]
        rows.write_text("".join(json.dumps(row) + "\n" for row in kept))
    run(wanted, rows, chosen.size, time.monotonic() + chosen.max_time, chosen.limit)
    order = {item.name: at for at, item in enumerate(programs())}
    ordered = sorted((row for row in read(rows) if row["program"] in order), key=lambda row: order[row["program"]])
    lines = list(page(ordered))
    print("\n".join(lines))
    if chosen.write:
        head = HEAD.format(version=importlib.metadata.version("transformers"), torch=torch)
        chosen.write.write_text("\n".join([head, *lines, ""]))
    raise SystemExit(0 if {item.name for item in wanted} <= {row["program"] for row in ordered} else 1)


if __name__ == "__main__":
    main()
