"""One kind of failure inside a model of at least 300 nodes, from the user's script to a repro in clean processes.

The commands are those that a user types, each in a process of its own: `dump`, `minify`; then repro.py three times by
`python -I` in an empty folder, where graphdbg cannot be imported and the compile cache holds the toolchain's probes
alone. A case is a file of `kinds/`: KIND, HOST (a model of `hosts`), MODE (no_grad, plain, grad), `f` (from the hidden
state, and what `given()` adds to the model's inputs, to the next state and what is returned beside), SAYS (the
failure's text), CORE (what must be left), MOST (operations that may be left), and perhaps OPS (the module `own_ops` of
the user's), FLAGS of minify, DTYPE, `calls()` (of several sizes), MORE_THAN_8 (why the failure needs larger sizes),
SYMBOLS (how many it needs) and MARKS (the dimensions that the repro marks).

>>> row = follow("nan", Path("work"))
>>> row.before >= 300, row.shown
(True, 3)
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphdbg.dumps.schema import TensorValue
from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.isolation.cache import toolchain_seed
from graphdbg.toolkit.isolation.fresh import run_command

HERE = Path(__file__).parent
KINDS = {path.stem: path for path in sorted((HERE / "kinds").glob("*.py"))}
RECORD_S, MINIFY_S, REPRO_S = 400.0, 1800.0, 900.0
LONGEST, SMALL, LARGEST = 60, 5, 8
"""Lines of a repro of up to SMALL operations; the largest size where the failure needs no larger one."""

TAIL = """

def saving(gm, _):
    import shutil

    from graphdbg.dumps.live import save_graph
    from graphdbg.dumps.schema import Ambient

    def run(*inputs):
        shutil.rmtree("saved", ignore_errors=True)  # the last graph counts: the one of sizes that vary
        save_graph(gm, list(inputs), "saved", stage="dynamo", ambient=Ambient(grad=MODE != "no_grad"))
        return gm(*inputs)

    return run


def main(backend):
    torch.manual_seed(0)
    dtype = globals().get("DTYPE", torch.float32)
    model, arguments = host(HOST, f)
    model = model.to(dtype).eval()
    more = given() if "given" in globals() else ()
    compiled = torch.compile(model, backend=backend)
    for one in calls() if "calls" in globals() else [arguments]:
        inputs = [x.to(dtype) if x.is_floating_point() else x for x in one]
        with torch.set_grad_enabled(MODE != "no_grad"):
            results = compiled(*inputs, *more)
        if MODE == "grad":
            sum(x.float().sum() for x in results if x.requires_grad).backward()
    print([tuple(x.shape) for x in results])


if __name__ == "__main__":
    import sys

    main(saving if sys.argv[1:] == ["save"] else "inductor")
"""


@dataclass
class Row:
    """What became of one case."""

    case: str
    kind: str = ""
    graph: str = ""
    before: int = 0
    after: int = 0
    left: list[str] = field(default_factory=list[str])
    largest: int = 0
    symbols: list[str] = field(default_factory=list[str])
    marks: list[str] = field(default_factory=list[str])
    """The repro's `mark_dynamic`, as input and dimensions; what else makes sizes dynamic."""
    signature: str = ""
    core: bool = False
    same: bool = False
    queries: int = 0
    lines: int = 0
    files: list[str] = field(default_factory=list[str])
    clean: bool = False
    """Whether ruff has nothing to say of the repro."""
    alone: bool = False
    """Whether it imports torch, numpy and Python's own library alone."""
    shown: int = 0
    rate: str = ""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    trouble: str = ""

    def complaints(self, bug: dict[str, Any]) -> list[str]:
        """What is not as it must be; lines of the repro apart."""
        result = [self.trouble] if self.trouble else []
        asked = {
            f"only {self.before} nodes": self.before >= 300,
            f"another failure: {self.signature}": self.same,
            f"left: {self.left}": self.core,
            f"a size of {self.largest}": self.largest <= LARGEST or "MORE_THAN_8" in bug,
            f"files: {self.files}": self.files == ["repro.py"],
            "ruff complains": self.clean,
            "it imports more than torch": self.alone,
            f"shown {self.shown} of 3": self.shown == 3,
            f"symbols: {self.symbols}": len(self.symbols) == bug.get("SYMBOLS", 0),
            f"marked: {self.marks}": self.marks == bug.get("MARKS", []),
        }
        return result + [what for what, right in asked.items() if not right]


class Trouble(Exception):
    """A step that gave nothing to go on with."""


def script(case: Path) -> str:
    """The user's script: the model, the case, and how they are called."""
    own = "import own_ops\n" if "OPS = '''" in case.read_text() else ""
    return f"{own}{(HERE / 'hosts.py').read_text()}\n\n{case.read_text()}{TAIL}"


def follow(name: str, work: Path, *flags: str, saved: bool = False) -> Row:
    """All of it in a new folder `work`. `flags` are further ones of `minify`; `saved`: Dynamo's graph is saved, which
    is quicker than `dump`: nothing is compiled."""
    bug = runpy.run_path(str(KINDS[name]))
    row = Row(name, bug["KIND"])
    work.mkdir(parents=True)
    (work / "x.py").write_text(script(KINDS[name]))
    if "OPS" in bug:
        (work / "own_ops.py").write_text(bug["OPS"].lstrip())
    try:
        graph = _saved(row, work) if saved else _record(row, bug, work)
        _minify(row, bug, work, graph, flags)
        _repro(row, bug, work)
    except Trouble as trouble:
        row.trouble = str(trouble)
    return row


def _command(row: Row, work: Path, *words: str, limit_s: float) -> tuple[str, str]:
    began, name = time.monotonic(), words[0]
    with (work / f"{name}.out").open("w") as out, (work / f"{name}.err").open("w") as err:
        command = [sys.executable, "-m", "graphdbg", *words]
        process = subprocess.Popen(command, cwd=work, stdout=out, stderr=err, start_new_session=True)
        for stop in (signal.SIGINT, signal.SIGKILL):
            try:
                process.wait(limit_s)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, stop)
                limit_s = 30
        process.wait()
    row.seconds[name] = round(time.monotonic() - began, 1)
    return (work / f"{name}.out").read_text(), (work / f"{name}.err").read_text()


def _saved(row: Row, work: Path) -> str:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "x.py", "save"], cwd=work, capture_output=True, text=True, check=False)
    row.seconds["save"] = round(time.monotonic() - began, 1)
    if not (work / "saved").exists():
        raise Trouble(f"nothing was saved: {done.stderr[-300:]}")
    return "saved"


def _record(row: Row, bug: dict[str, Any], work: Path) -> str:
    limit_s = bug.get("RECORD_S", RECORD_S)
    for number in range(bug.get("RECORDED", 1)):  # of a flaky one until it failed
        run = f"run{number or ''}"
        _command(row, work, "dump", "-o", run, "--", sys.executable, "x.py", limit_s=limit_s)
        out, err = _command(row, work, "ls", run, "--json", "--full", limit_s=60)
        graphs = json.loads(out)["graphs"] if out else []
        if not graphs:
            raise Trouble(f"nothing was recorded: {err[-300:]} {(work / 'dump.err').read_text()[-300:]}")
        if any(graph["status"].startswith("failed") for graph in graphs):
            break
    return run


def _minify(row: Row, bug: dict[str, Any], work: Path, graph: str, more: tuple[str, ...]) -> None:
    flags = [*more, *bug.get("FLAGS", ()), *(["--import", "own_ops"] if "OPS" in bug else [])]
    words = ("minify", graph, "-o", "out", "--max-time", "1200", "--json", *flags)
    out, err = _command(row, work, *words, limit_s=MINIFY_S)
    last = json.loads(out.splitlines()[-1]) if out else {}
    if last.get("event") != "done":
        raise Trouble(f"minify: {err[-400:]}")
    row.before, row.after, row.queries = last["original_nodes"], last["nodes"], last["queries"]
    row.signature, row.rate = last["signature"] or "", str(last.get("report_rate", ""))
    row.same = bool(re.search(bug["SAYS"], row.signature))
    record = load_graph(work / "out" / "case").record
    row.graph = record.stage
    row.left = [node.target for node in record.graph.nodes if node.op.startswith("call_")]
    row.core = len(row.left) <= bug["MOST"] and holds(row.left, bug["CORE"])
    row.symbols = [symbol.name for symbol in record.symbols]
    hints = {symbol.name: symbol.hint or 0 for symbol in record.symbols}
    values = [node.value for node in record.graph.nodes if isinstance(node.value, TensorValue)]
    sizes = [dim if isinstance(dim, int) else hints.get(str(dim), 0) for value in values for dim in value.shape]
    row.largest = max(sizes, default=0)


def holds(names: list[str], core: tuple[str, ...]) -> bool:
    """Whether each pattern finds an operation of its own."""
    names = list(names)
    for pattern in core:
        result = next((name for name in names if re.search(pattern, name)), None)
        if result is None:
            return False
        names.remove(result)
    return True


def _repro(row: Row, bug: dict[str, Any], work: Path) -> None:
    written = work / "out" / "repro.py"
    if not written.exists():
        raise Trouble(f"no repro: {(work / 'minify.err').read_text()[-400:]}")
    text = written.read_text()
    row.lines = len(text.splitlines())
    row.marks = re.findall(r"mark_dynamic\((.+)\)", text) + re.findall("dynamic=True", text)
    row.files = sorted(path.name for path in (work / "out").glob("repro.*"))
    ruff = subprocess.run([sys.executable, "-m", *RUFF, str(written)], capture_output=True, text=True, check=False)
    row.clean = ruff.returncode == 0
    modules = set(re.findall(r"^\s*(?:import|from) (\w+)", text, re.MULTILINE))
    row.alone = modules <= {"torch", "numpy", *sys.stdlib_module_names}
    clean = work / "clean"
    clean.mkdir()
    for name in row.files:
        shutil.copy(work / "out" / name, clean)
    began = time.monotonic()
    for number in range(3):
        command = [sys.executable, "-I", "-c", ALONE, str((clean / "repro.py").resolve())]
        trial = run_command(command, limit_s=REPRO_S, seed=toolchain_seed())
        (work / f"repro-{number}.log").write_text(f"{trial.code}\n{trial.output}")
        row.shown += trial.code == 1 and "BUG: " in trial.output
    row.seconds["repro"] = round(time.monotonic() - began, 1)


RUFF = ("ruff", "check", "--isolated", "--line-length", "130", "--select", "E4,E5,E7,E9,F,I,W")
ALONE = """
import os, runpy, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # graphdbg has an entry point there
sys.modules["graphdbg"], sys.argv = None, sys.argv[1:]
sys.exit(runpy.run_path(sys.argv[0], run_name="__main__"))
"""
"""Only a program that runs to its own sys.exit gives its code; graphdbg cannot be imported."""
