"""A worker of the zoo: reads names of programs on stdin, leaves a result file for each, and answers with the name.

A program is recorded in a fork of the warm server; the commands run in this process, as `graphdbg` would run them, and
their queries go to that server. So torch is imported twice for all programs, and what one compiled is in the cache of
the next.

    python -m tests.zoo.worker OUT [--inputs=index] [--keep] < names
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphdbg.cli import run as command
from graphdbg.toolkit.isolation import ForkServer, ask
from tests.one_server import lending
from tests.recording import TASK
from tests.zoo.catalog import Program, programs

HERE = Path(__file__).resolve().parent

WORDS = ("ok", "fails", "rounding", "nondeterministic", "cannot_tell")


def judged(program: Program, run: Path, inputs: str) -> dict[str, Any]:
    """The result of one program: its verdicts, each with the command that gave it, and the seconds of each command."""
    row: dict[str, Any] = {"program": program.name, "verdicts": [], "commands": {}}
    began = time.monotonic()
    try:
        error = recorded(program, run, inputs)
        if error.startswith("left out: "):
            row["left_out"] = error.partition(": ")[2]
            return row
        if error:
            raise RuntimeError(error)
        row["commands"]["dump"] = time.monotonic() - began
        graphs = said(row, "ls", str(run)).get("graphs", [])
        if not graphs:
            row["left_out"] = "Dynamo made no graph of it"
            return row
        flags = list(program.flags)
        for graph in said(row, "triage", str(run), *flags).get("graphs", []):
            add(row, "triage", graph)
        widest = max(graphs, key=lambda item: item["nodes"])["id"]
        add(row, "replay", said(row, "replay", f"{run}/{widest}", *flags))
        for graph in said(row, "check", str(run), *flags).get("graphs", []):
            add(row, "check", graph)
    except Exception as error:  # noqa: BLE001  a program that stops the harness is a line of the page
        row["error"] = f"{type(error).__name__}: {error}"
    finally:
        row["seconds"] = time.monotonic() - began
    return row


def recorded(program: Program, run: Path, inputs: str) -> str:
    """Runs the program under the recorder, as `graphdbg dump` would; returns what went wrong."""
    payload = {"script": str(program.script), "words": program.words, "run": str(run), "options": {"inputs": inputs}}
    with ForkServer(threads=1) as server:
        answer = ask(TASK, payload, 300.0, server=server).answer()
    if answer.status == "done":
        return "" if run.is_dir() else "no run was recorded"
    text = str(answer)
    why = re.search(r"left out: .*?(?=['\"], traceback=|$)", text)
    return why[0] if why else f"dump: {text[-1500:]}"


def said(row: dict[str, Any], *words: str) -> dict[str, Any]:
    """The document that a command prints with --json --full. Raises RuntimeError for exit codes other than 0, 1, 4."""
    out, err = io.StringIO(), io.StringIO()
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = command([*words, "--json", "--full"])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 70
    row["commands"][words[0]] = time.monotonic() - began
    row.setdefault("codes", {})[words[0]] = code
    if code not in (0, 1, 4):
        raise RuntimeError(f"graphdbg {' '.join(words)}: code {code}: {err.getvalue()[-600:]}")
    return json.loads(out.getvalue())


def add(row: dict[str, Any], name: str, graph: dict[str, Any]) -> None:
    """Adds the verdict on a graph; one that was the same as another's, or that no rung could take here, is none."""
    if graph["verdict"] not in WORDS or graph.get("skipped") or graph.get("detail") in ("same", "skipped"):
        return
    kept = {name: graph.get(name) for name in ("verdict", "kind", "fault", "reason")}
    row["verdicts"].append({"by": name, "graph": graph.get("id", ""), **kept})


@contextlib.contextmanager
def place(out: Path, program: Program, keep: bool) -> Iterator[Path]:
    """A folder for the run of a program."""
    if keep:
        run = out / "runs" / program.name
        shutil.rmtree(run, ignore_errors=True)
        run.parent.mkdir(exist_ok=True)
        yield run
        return
    with tempfile.TemporaryDirectory(prefix="graphdbg-zoo-") as folder:
        yield Path(folder) / "run"


def main(out: Path, inputs: str, keep: bool) -> None:
    """Judges what stdin names."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    known = {program.name: program for program in programs()}
    with lending(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])):
        for name in map(str.strip, sys.stdin):
            with place(out, known[name], keep) as run:
                row = judged(known[name], run, inputs)
            written = out / f"{name}.json.new"
            written.write_text(json.dumps(row, indent=1))
            written.rename(out / f"{name}.json")
            print(name, file=answers, flush=True)


if __name__ == "__main__":
    options = [word for word in sys.argv[2:] if word.startswith("--inputs=")]
    main(Path(sys.argv[1]), options[0].partition("=")[2] if options else "index", "--keep" in sys.argv)
