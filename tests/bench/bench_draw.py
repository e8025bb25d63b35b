"""How long drawing takes: our picture by module beside a stock layout of the whole graph (FxGraphDrawer, then the same
Graphviz).

    python -m tests.bench.bench_draw [--whole 300 1000 3000] [--large 10000 100000] [--limit 120] [--keep FOLDER]

Graphs are made up: transformers' layers. Each line is one size: seconds and size of either SVG, and the ratio. The
stock picture is laid out in a process with a time limit; where that is reached, the ratio is a lower bound. Ours is
timed as a user sees it: a fresh process of `graphdbg draw`, without `dot` on PATH. The bars: 10 s and 2 MB at 10,000
nodes. Exits with 1 when one is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.writer import RunWriter
from graphdbg.toolkit.drawing import picture
from tests.dumps.layered import layered

BAR_NODES, BAR_S, BAR_BYTES = 10_000, 10.0, 2_000_000


def main() -> int:
    """Prints one line per size; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--whole", type=int, nargs="*", default=[300, 1000, 3000], help="sizes that stock lays out whole"
    )
    parser.add_argument("--large", type=int, nargs="*", default=[10_000, 100_000], help="sizes for ours alone")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that the stock layout may take")
    parser.add_argument("--keep", help="folder for the pictures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(arguments.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        ids = write_run(Path(scratch) / "run", [*arguments.whole, *arguments.large])
        good = True
        print(f"{'nodes':>7}  {'ours':>8} {'KB':>6} {'boxes':>6}  {'stock':>8} {'KB':>6}  stock/ours")
        for nodes, graph in ids.items():
            ours_s, ours_bytes, boxes = ours(graph, folder / f"ours-{nodes}.svg")
            line = f"{nodes:>7}  {ours_s:>7.2f}s {ours_bytes / 1e3:>6.0f} {boxes:>6}"
            if nodes in arguments.whole:
                stock_s, stock_bytes = stock(graph, folder / f"stock-{nodes}.svg", arguments.limit)
                least = "" if stock_bytes else ">"
                line += f"  {least:>1}{stock_s:>6.2f}s {stock_bytes / 1e3:>6.0f}  {least}{stock_s / ours_s:.1f}"
            print(line, flush=True)
            if nodes == BAR_NODES:
                met = ours_s <= BAR_S and ours_bytes <= BAR_BYTES
                good = good and met
                print(f"         bar of {BAR_S:g} s and {BAR_BYTES / 1e6:g} MB: {'met' if met else 'MISSED'}")
    return 0 if good else 1


def write_run(path: Path, sizes: list[int]) -> dict[int, str]:
    """A run with one forward graph of each size; returns what to call each."""
    process = RunWriter.create(path, RunRecord(format=FORMAT, command=["train.py"])).process()
    for number, nodes in enumerate(sizes):
        process.save_graph(layered(nodes, f"{number}_0/forward"))
    process.close()
    return {nodes: f"{path}/{number}_0/forward" for number, nodes in enumerate(sizes)}


def ours(graph: str, path: Path) -> tuple[float, int, int]:
    """Seconds of a whole process, bytes of the SVG, boxes in it."""
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "graphdbg", "draw", graph, "--by-module", "-o", str(path)]
    started = time.perf_counter()
    subprocess.run(command, env={**os.environ, "PATH": ""}, check=True, capture_output=True)
    seconds = time.perf_counter() - started
    text = path.read_text()
    return seconds, len(text.encode()), text.count('class="node"')


def stock(graph: str, path: Path, limit_s: float) -> tuple[float, int]:
    """Seconds that FxGraphDrawer and a layout of all nodes take, and the bytes of the SVG (0: not done in time)."""
    from torch.fx.passes.graph_drawer import FxGraphDrawer

    module = load_graph(graph).module()
    started = time.perf_counter()
    text = FxGraphDrawer(module, "stock").get_dot_graph().to_string()
    try:
        data, _ = picture.rendered(text, "svg", limit_s)
    except picture.LayoutTimeoutError:
        return time.perf_counter() - started, 0
    except GraphdbgError as error:
        print(f"         stock: {error}", file=sys.stderr)
        return time.perf_counter() - started, 0
    seconds = time.perf_counter() - started
    path.write_bytes(data)
    return seconds, len(data)


if __name__ == "__main__":
    sys.exit(main())
