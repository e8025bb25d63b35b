"""The demo: records a small training run with a compiler bug switched on, finds the failing graph, shrinks it, reports it.

The bug is Inductor's own test hook (relu is wrong, or its kernel does not compile). Every step is the `graphdbg` command that a
user would type, run in a process of its own; its narration passes through, its data is read from --json. Nothing is simulated.

>>> outcome = Demo(Path("demo-run-1"), narrate=say).play("accuracy")      # doctest: +SKIP
>>> outcome.nodes, outcome.original_nodes
(3, 113)
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..dumps.errors import GraphdbgError
from ..dumps.store import SavedGraph, load_graph
from ..examples import path_of

PLANTS = ("accuracy", "compile_error")
KINDS = {"accuracy": "accuracy", "compile_error": "crash"}
"""The kind of failure that each planted bug has to be found as."""

COMPILED_STAGES = ("forward", "backward", "inference")
"""Stages that Inductor compiles: where a replay is cheapest and a failure is nearest to its cause."""

STEP_LIMIT_S = 420.0
MAX_NODES = 5


class DemoFailedError(GraphdbgError):
    """A step of the demo did not do what it is there to show."""

    exit_code = 1


class Outcome(msgspec.Struct):
    """What the demo showed for one planted bug."""

    plant: str
    graph: str
    original_nodes: int
    nodes: int
    rate: str
    report: str
    seconds: float


class Demo:
    """Plays the demo in a new folder."""

    def __init__(self, folder: Path, narrate: Callable[[str], None], layers: int = 1, device: str = "cpu") -> None:
        self.folder = folder
        self.narrate = narrate
        self.layers = layers
        self.device = device
        folder.mkdir(parents=True)
        shutil.copyfile(path_of("train_gpt"), folder / "train_gpt.py")

    def play(self, plant: str) -> Outcome:
        """Records, finds, shrinks and reports one planted bug; raises DemoFailedError naming the step that went wrong."""
        began = time.monotonic()
        run, small, report = f"{plant}/run", f"{plant}/small", f"{plant}/report"
        (self.folder / plant).mkdir()
        script = ["train_gpt.py", "--layers", str(self.layers), "--steps", "2", "--plant", plant]
        script += [] if self.device == "cpu" else ["--device", self.device]
        fails = (1,) if plant == "compile_error" else (0,)
        self.step(["dump", "-o", run, *script], fails, show=True, terse=True)
        self.step(["ls", run], show=True)
        graph = self.find(run, plant)
        self.step(["minify", f"{run}/{graph}", "-o", small])
        before, after = self.nodes(f"{run}/{graph}"), self.nodes(small)
        self.narrate(f"-> minified from {before} to {after} nodes, placeholders and output included")
        if after > MAX_NODES:
            raise DemoFailedError(
                f"the demo's {plant} bug was reduced to {after} nodes only", f"{MAX_NODES} were expected"
            )
        written = json.loads(self.step(["report", small, "-o", report, "--json"]))
        self.narrate(f"-> {report}/repro.py shows the bug in {written['rate']}")
        return Outcome(plant, graph, before, after, written["rate"], report, time.monotonic() - began)

    def find(self, run: str, plant: str) -> str:
        """The id of the failing graph nearest to the bug, as triage ranks them."""
        found = json.loads(self.step(["triage", run, "--json"], (0, 1)))
        if not found["graphs"]:
            raise DemoFailedError(
                "the demo recorded no compiled graph", "torch.compile did not run", "see graphdbg doctor"
            )
        self.narrate(f"-> {found['summary']}")
        for row in found["graphs"]:
            signature = row.get("signature")
            if signature and signature["kind"] == KINDS[plant] and row["id"].endswith(COMPILED_STAGES):
                return row["id"]
        ids = ", ".join(f"{row['id']} ({row['verdict']})" for row in found["graphs"])
        raise DemoFailedError(f"the demo's {plant} bug was not found", f"triage says: {ids}", "see graphdbg doctor")

    def nodes(self, path: str) -> int:
        """How many nodes a saved graph has."""
        saved: SavedGraph = load_graph(self.folder / path)
        return len(saved.record.graph.nodes)

    def step(
        self, arguments: Sequence[str], codes: Sequence[int] = (0,), *, show: bool = False, terse: bool = False
    ) -> str:
        """Prints a command, runs it in the demo's folder, returns its stdout; raises DemoFailedError for another exit code.

        `show` tells the stdout too. `terse` keeps of the stderr what graphdbg says and the exception (g++ prints pages).
        """
        told = f"graphdbg {shlex.join(arguments)}"
        self.narrate(f"\n$ {told}")
        command = [sys.executable, "-m", "graphdbg", *arguments]
        held = subprocess.PIPE if terse else None
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=held, text=True, errors="replace"
        )
        try:
            output, narration = process.communicate(timeout=STEP_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise DemoFailedError(
                f"the demo's step `{told}` did not end", f"it ran for {STEP_LIMIT_S:.0f} s"
            ) from error
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if show and output:
            self.narrate(output.rstrip())
        if narration:
            self.narrate("\n".join(telling_lines(narration)))
        if process.returncode not in codes:
            wanted = " or ".join(map(str, codes))
            why = f"exit code {process.returncode} instead of {wanted}"
            tail = "\n".join((narration or "").splitlines()[-15:])
            fix = f"what it left is in {self.folder}; try it there: {told}"
            raise DemoFailedError(f"the demo's step `{told}` failed", f"{why}\n{tail}".rstrip(), fix)
        return output


def telling_lines(narration: str) -> list[str]:
    """Of a recorded command's stderr: what graphdbg says, and the lines that name exceptions and compiler errors."""
    kept = re.compile(r"graphdbg:|  graphdbg |[\w.]*(?:Error|Exception)\b|.*: error: ")
    return [line if len(line) <= 200 else f"{line[:200]}…" for line in narration.splitlines() if kept.match(line)]


def summary(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The outcomes as plain data."""
    return [msgspec.to_builtins(outcome) for outcome in outcomes]
