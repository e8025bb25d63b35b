"""What the installed torch gives to the recorder: graphs of each stage, and which of the hooks exist. No test.

    python -m tests.toolkit.recorder.stages_table                    # some minutes on the CPU
    python -m tests.toolkit.recorder.stages_table --device cuda --replay

Records scripts/stages.py with two backends and compares what it prints with a plain run. docs/torch-versions.md is made
of these lines; run it with another Python to try another torch. Must not know any version of torch itself.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import graphdbg
from graphdbg.dumps import why
from graphdbg.dumps.private_names import Row, exists
from graphdbg.dumps.schema import STAGES
from graphdbg.toolkit.torch_private.names import HOOKS

SCRIPT = Path(__file__).parent / "scripts" / "stages.py"
BACKENDS = ("inductor", "aot_eager")
COMPILER_CACHES = ("fxgraph", "aotautograd")


def python(folder: Path, *words: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs this Python with a cache of its own, so that every graph is compiled; ends the program if that does."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL
    )
    if done.returncode and not fails:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done


def record(folder: Path, backend: str, device: str) -> Path:
    """A new run folder; ends the program unless the script printed what it prints without the recorder."""
    plain = python(folder, str(SCRIPT), backend, device)
    for cached in COMPILER_CACHES:  # the kernels may stay: they hide no graph
        shutil.rmtree(folder / "cache" / cached, ignore_errors=True)
    run = folder / backend
    done = python(folder, "-m", "graphdbg", "dump", "-o", str(run), "--", str(SCRIPT), backend, device)
    if done.stdout != plain.stdout:
        raise SystemExit(
            f"{backend}: recorded, the script prints something else\n{done.stdout}\nplain:\n{plain.stdout}"
        )
    for line in done.stderr.splitlines():
        if "not recorded" in line:
            print(f"{backend}: {line}")
    return run


def stages(runs: dict[str, Path]) -> Iterator[str]:
    """One line per stage: how many graphs and, in brackets, their nodes."""
    yield f"{'stage':24}" + "".join(f"{backend:>18}" for backend in runs)
    counts, nodes = collections.Counter[tuple[str, str]](), collections.Counter[tuple[str, str]]()
    for backend, run in runs.items():
        for graph in graphdbg.open_run(run).graphs():
            counts[backend, graph.stage] += 1
            nodes[backend, graph.stage] += len(graph.table)
    for stage in STAGES:
        cells = [f"{counts[backend, stage]} ({nodes[backend, stage]} nodes)" for backend in runs]
        yield f"{stage:24}" + "".join(f"{cell:>18}" for cell in cells)


def reasons(runs: dict[str, Path]) -> Iterator[str]:
    """One line per kind of reason that `ls --why` knows: how often it was recorded."""
    counts = collections.Counter[tuple[str, str]]()
    for backend, run in runs.items():
        for process in why.of_run(graphdbg.open_run(run)).processes:
            counts[backend, "frames left alone"] += len(process.skipped)
            for item in [item for function in process.functions for item in function.compiles]:
                counts[backend, "graph breaks"] += len(item.breaks)
                counts[backend, "compiled again"] += item.kind == "recompile"
                counts[backend, "failed guards"] += len(item.guards)
                counts[backend, "restarts"] += len(item.restarts)
                counts[backend, "sizes became dynamic"] += len(item.became_dynamic)
    for kind in sorted({kind for _, kind in counts}):
        yield f"{kind:24}" + "".join(f"{counts[backend, kind]:>18}" for backend in runs)


def replays(folder: Path, run: Path) -> Iterator[str]:
    """How many graphs of a run of Inductor's give the same numbers and compile to the same code; then those that do
    not."""
    rows = json.loads(python(folder, "-m", "graphdbg", "replay", str(run), "--json", "--full", fails=True).stdout)[
        "graphs"
    ]
    bad = [row for row in rows if not row["ok"] or row["fidelity"] != "same"]
    yield f"{'replayed the same':24}{f'{len(rows) - len(bad)} of {len(rows)}':>18}"
    for row in bad:
        yield f"  {row['id']}: {row['verdict']} [{row['fidelity']}]"


def presence(hook: Row) -> str:
    """`present`, or `missing`: whether this torch has the function that a hook wraps."""
    return "present" if all(exists(hook.module, path) for path in hook.places().values()) else "missing"


def main() -> None:
    import torch

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cpu")
    options.add_argument("--replay", action="store_true", help="replay every graph of Inductor's run too")
    chosen = options.parse_args()
    device = chosen.device if chosen.device == "cpu" else f"{chosen.device} ({torch.cuda.get_device_name()})"
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {device}")
    for hook in HOOKS:
        print(f"{presence(hook):8} {hook.whole()}")
    with tempfile.TemporaryDirectory(prefix="graphdbg-stages-") as work:
        runs = {backend: record(Path(work), backend, chosen.device) for backend in BACKENDS}
        for line in (*stages(runs), *reasons(runs)):
            print(line)
        if chosen.replay:
            print(*replays(Path(work), runs["inductor"]), sep="\n")


if __name__ == "__main__":
    main()
