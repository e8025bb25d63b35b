"""The demo: records a small training run with a compiler bug switched on, finds the failing graph, shrinks it, reports
it.

The bug is Inductor's own test hook (relu is wrong, or its kernel does not compile). Every step is the `graphdbg`
command that a user would type, run in a process of its own; its narration passes through, its data is read from --json.
Nothing is simulated.

For example:

    outcome = Demo(Path("demo-run-1"), narrate=say).play("accuracy")
    outcome.nodes, outcome.original_nodes  # -> (3, 205)
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import IO, Any

from ..dumps.errors import GraphdbgError
from ..dumps.store import load_graph
from ..dumps.walk import node_count
from ..dumps.wording import counted
from ..examples import path_of

KINDS = {"accuracy": "accuracy", "compile_error": "crash"}
"""The kind of failure that each planted bug has to be found as."""

COMPILED_STAGES = ("forward", "backward", "inference")
"""Stages that Inductor compiles: where a replay is cheapest and a failure is nearest to its cause."""

MAX_NODES = 5
BEAT_S = 4.0
"""After so many seconds without output, a step is reported to be at work."""

USUAL_S = 600.0
PATIENCE = 10
"""Where the recording takes longer than USUAL_S / PATIENCE, triage may take PATIENCE times as long as the recording
did, in place of USUAL_S: both compile the same program, on this machine, under the same load."""

SCRIPT = "train_residual"


class DemoFailedError(GraphdbgError):
    """A step of the demo did not show what it should."""

    code = "GD32"
    exit_code = 1


class Demo:
    """Plays the demo in a new folder."""

    def __init__(self, folder: Path, narrate: Callable[[str], None], layers: int = 24, device: str = "cpu") -> None:
        self.folder = folder
        self.narrate = narrate
        self.layers = layers
        self.device = device
        self.recorded_s = 0.0
        folder.mkdir(parents=True)
        shutil.copyfile(path_of(SCRIPT), folder / f"{SCRIPT}.py")

    def play(self, plant: str) -> dict[str, Any]:
        """Records, finds, shrinks and reports one planted bug; returns what was shown, for --json. `repro_seconds`:
        until minify had verified its repro; `seconds`: until the report was there. Raises DemoFailedError naming the
        step that went wrong."""
        began = time.monotonic()
        run, small, report = f"{plant}/run", f"{plant}/small", f"{plant}/report"
        (self.folder / plant).mkdir()
        script = [f"{SCRIPT}.py", "--layers", str(self.layers), "--steps", "2", "--plant", plant]
        script += [] if self.device == "cpu" else ["--device", self.device]
        fails = (1,) if plant == "compile_error" else (0,)
        with prepared(self.narrate):
            self.step(["dump", "-o", run, *script], fails, show=True, terse=True)
            self.recorded_s = time.monotonic() - began
            self.step(["ls", run], show=True)
        graph = self.find(run, plant)
        self.step(["minify", f"{run}/{graph}", "-o", small])
        before, after = self.nodes(f"{run}/{graph}"), self.nodes(small)
        self.narrate(f"-> minified from {before} to {counted(after, 'node')}, placeholders and output included")
        if after > MAX_NODES:
            what = f"the demo's {plant} bug shrinks only to {counted(after, 'node')}"
            raise DemoFailedError(what, f"the demo expects {MAX_NODES} or fewer", "see graphdbg doctor")
        shown_s = time.monotonic() - began
        written = json.loads(self.step(["report", small, "-o", report, "--json"]))
        self.narrate(f"-> {report}/repro.py shows the bug in {written['rate']}")
        shown = {"plant": plant, "graph": graph, "original_nodes": before, "nodes": after, "rate": written["rate"]}
        return shown | {"report": report, "repro_seconds": shown_s, "seconds": time.monotonic() - began}

    def find(self, run: str, plant: str) -> str:
        """The id of the failing graph nearest to the bug, as triage ranks them."""
        allowed_s = PATIENCE * self.recorded_s
        slow = ["--max-time", f"{allowed_s:.0f}", "--limit", f"{allowed_s:.0f}"] if allowed_s > USUAL_S else []
        triaged = json.loads(self.step(["triage", run, "--json", *slow], (0, 1)))
        if not triaged["graphs"]:
            what, why = "the demo recorded no compiled graph", "torch.compile does not run here"
            raise DemoFailedError(what, why, "see graphdbg doctor")
        self.narrate(f"-> {triaged['summary']}")
        for row in triaged["graphs"]:
            signature = row.get("signature")
            if signature and signature["kind"] == KINDS[plant] and row["id"].endswith(COMPILED_STAGES):
                return row["id"]
        ids = ", ".join(f"{row['id']} ({row['verdict']})" for row in triaged["graphs"])
        raise DemoFailedError(f"the demo's {plant} bug was not found", f"triage says: {ids}", "see graphdbg doctor")

    def nodes(self, path: str) -> int:
        """How many nodes a saved graph has."""
        return node_count(load_graph(self.folder / path).record.graph)

    def step(
        self, arguments: Sequence[str], codes: Sequence[int] = (0,), *, show: bool = False, terse: bool = False
    ) -> str:
        """Prints a command, runs it in the demo's folder, returns its stdout; raises DemoFailedError for another exit
        code.

        Its stderr is printed as it comes, with `show` its stdout too. `terse` prints of the stderr only graphdbg's own
        lines and the exception (g++ prints pages). There is no time limit, for this machine may be slow or busy; a step
        without output is reported to be at work.
        """
        typed = f"graphdbg {shlex.join(arguments)}"
        self.narrate(f"\n$ {typed}")
        began = time.monotonic()
        output: list[str] = []
        narration: list[str] = []
        command = [sys.executable, "-m", "graphdbg", *arguments]
        with Popen(command, cwd=self.folder, stdout=PIPE, stderr=PIPE, text=True, errors="replace") as process:
            spoken = began
            try:
                for stream, line in _lines(process):
                    if stream is process.stdout:
                        output.append(line)
                        telling = [line.rstrip()] if show else []
                    else:
                        narration.append(line)
                        telling = telling_lines(line) if terse else line.splitlines()
                    now = time.monotonic()
                    if not telling and now - spoken >= BEAT_S:
                        telling = [f"   ... {arguments[0]} is at work, {now - began:.0f} s"]
                    for text in telling:
                        self.narrate(text)
                        spoken = now
            finally:
                if process.poll() is None:
                    process.terminate()
        if process.returncode not in codes:
            wanted = " or ".join(map(str, codes))
            why = f"exit code {process.returncode} instead of {wanted}"
            tail = "".join(narration[-15:])
            fix = f"what it left is in {self.folder}; try it there: {typed}"
            raise DemoFailedError(f"the demo's step `{typed}` failed", f"{why}\n{tail}".rstrip(), fix)
        return "".join(output)


def _lines(process: Popen[str]) -> Iterator[tuple[IO[str] | None, str]]:
    """Yields each line that a process prints, as it comes, with its stream; (None, "") where nothing came for a
    while."""
    lines: Queue[tuple[IO[str] | None, str]] = Queue()
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]

    def read(stream: IO[str]) -> None:
        for line in stream:
            lines.put((stream, line))
        lines.put((stream, ""))

    for stream in streams:
        Thread(target=read, args=(stream,), daemon=True).start()
    while streams:
        try:
            stream, line = lines.get(timeout=BEAT_S / 4)
        except Empty:
            yield None, ""
            continue
        if line:
            yield stream, line
        elif stream is not None:
            streams.remove(stream)


PREPARE = """
from graphdbg.toolkit.isolation import ask, opened
with opened(None) as server:
    ask("builtins:dict", {}, server=server).answer()
"""


@contextmanager
def prepared(narrate: Callable[[str], None]) -> Generator[None]:
    """Probes Inductor's toolchain in another process while the block records the program: on a machine where graphdbg
    was never used, later steps would have to wait for that.
    """
    with Popen([sys.executable, "-c", PREPARE], stdout=DEVNULL, stderr=DEVNULL, stdin=DEVNULL) as process:
        try:
            yield
            while process.poll() is None:
                with suppress(TimeoutExpired):
                    process.wait(BEAT_S)
                    break
                narrate("   ... the compiler is probed, once for this machine")
        finally:
            process.terminate()


def telling_lines(narration: str) -> list[str]:
    """The lines of a recorded command's stderr that graphdbg wrote, or that name exceptions and compiler errors."""
    kept = re.compile(r"graphdbg:|  graphdbg |[\w.]*(?:Error|Exception)\b|.*: error: ")
    return [line if len(line) <= 200 else f"{line[:200]}…" for line in narration.splitlines() if kept.match(line)]
