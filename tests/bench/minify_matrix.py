"""The capture matrix minified: a crash planted at one operator of each program, the case reduced, its repro run with torch alone.

    python tests/bench/minify_matrix.py                                       # every program, two stages each
    python tests/bench/minify_matrix.py --only 'cond|scan' --runs FOLDER      # what capture_matrix.py --keep FOLDER left
    python tests/bench/minify_matrix.py --stages all --write docs/minify-matrix.md

The rung refuses each graph that holds the program's most special operator (a higher-order one, a custom one, a collective, a
draw, a write, a rare dtype; else one of a seed); a symbolic program's must have a symbolic size. `graphdbg.minify` reduces the
case twice: as `graphdbg minify --import` does, all axes, each query in a child; and with the same question as a callable. The
repro of the first result is written and run as in emit_matrix.py (see `emitted` for the words). "cannot": not minified, and why.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import torch
from capture_programs import ROWS, SYMBOLS, Program
from emitted import WORDS, Cell, graphs, judged, linted, recorded, small
from planted_target import Target, write

from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.schema import GraphBody, NodeRecord, SequenceValue, SymValue, TensorValue, Value
from graphdbg.dumps.store import SavedGraph, load_graph
from graphdbg.minifier import isolated
from graphdbg.minifier.options import Options
from graphdbg.minifier.oracle import PRELOAD
from graphdbg.minifier.report.bundle import input_bytes, node_count
from graphdbg.minifier.report.custom_ops import _custom
from graphdbg.minifier.report.starter import Starter
from graphdbg.minifier.report.verify import starting, toolchain_seed
from graphdbg.toolkit.isolation import ForkServer

HERE = Path(__file__).parent
FIRST, SECOND = ("dynamo",), ("forward", "inference", "compiled_autograd", "api")
"""Of each program one graph of the first stages, and one of the second, as far as it has them."""
COMMON = ("float32", "int64", "bool", "float64", "int32")
DRAWS = re.compile(r"rand|bernoulli|dropout|multinomial|normal|seed|exponential", re.IGNORECASE)
TRIVIAL = ("operator.getitem", "aten.detach.default", "aten.alias.default", "_operator.", "prims.device_put")


@dataclass
class Reduced(Cell):
    """One graph minified: nodes and bytes of inputs before and after, and what the same with a callable left."""

    planted: str = ""
    before: int = 0
    after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    largest: int = 0
    """The largest size of a dimension that is left."""
    queries: int = 0
    called: str = ""
    """Nodes and bytes that are left with a callable, or why there are none."""


def target_of(program: Program, saved: SavedGraph, seed: int) -> Target | None:
    """Where the fault is planted; None for a graph that computes nothing."""
    found: list[tuple[int, str, str, bool]] = []
    for body in _bodies(saved.record.graph):
        values = {node.name: node.value for node in body.nodes}
        for node in body.nodes:
            if node.op not in ("call_function", "call_method") or node.target.startswith("opaque:"):
                continue
            around = [node.value, *(values.get(name) for name in _names([node.args, node.kwargs]))]
            symbolic = program.kind == SYMBOLS and any(_symbolic(value) for value in around)
            name = node.target if node.op == "call_function" else f"method {node.target}"
            found.append((_rank(node, symbolic), name, _dtype(node.value), symbolic))
    if not found:
        return None
    best = max(rank for rank, *_ in found)
    _, name, dtype, symbolic = Random(f"{seed} {program.name}").choice([one for one in found if one[0] == best])
    return Target(name, f"torch.{dtype}" if dtype and dtype not in COMMON else "", symbolic)


def _rank(node: NodeRecord, symbolic: bool) -> int:
    """How special an operator is."""
    parts = node.target.split(".")
    last = parts[-1] if parts[0] == "torch" or len(parts) < 3 else parts[1]
    tests = (
        bool(_dtype(node.value)) and not node.target.startswith(TRIVIAL),
        symbolic and isinstance(node.value, (TensorValue, SequenceValue)) and not node.target.startswith(TRIVIAL),
        _dtype(node.value) not in ("", *COMMON),
        last.endswith("_") and not last.startswith("_"),
        bool(DRAWS.search(last)),
        "c10d_functional" in node.target or (node.op == "call_function" and _custom(node.target)),
        node.target.startswith("higher_order."),
    )
    return max((number for number, test in enumerate(tests, 1) if test), default=0)


def _dtype(value: Value | None) -> str:
    first = value.items[0] if isinstance(value, SequenceValue) and value.items else value
    return first.dtype if isinstance(first, TensorValue) else ""


def _symbolic(value: Value | None) -> bool:
    return isinstance(value, SymValue) or (isinstance(value, TensorValue) and any(isinstance(size, str) for size in value.shape))


def _bodies(body: GraphBody) -> Iterator[GraphBody]:
    yield body
    for inner in body.subgraphs.values():
        yield from _bodies(inner)


def _names(arg: Any) -> Iterator[str]:
    if isinstance(arg, dict) and isinstance(arg.get("node"), str):
        yield arg["node"]
    for item in arg.values() if isinstance(arg, dict) else arg if isinstance(arg, (list, tuple)) else ():
        yield from _names(item)


@dataclass
class Bench:
    """What all minifications share: the fork server, the processes for repros, a folder that they find modules in."""

    server: ForkServer
    starter: Starter
    folder: Path
    rung: str
    seed: int = 0
    keep: Path | None = None

    def reduced(self, program: Program, stage: str, saved: SavedGraph) -> Reduced:
        """One graph, both ways, and its repro."""
        before = node_count(saved.record.graph)
        cell = Reduced(program.name, stage, "cannot", before=before, bytes_before=input_bytes(saved.record))
        target = target_of(program, saved, self.seed)
        if target is None:
            cell.why = "it computes nothing that could be refused"
            return cell
        cell.planted = target.name + (f" of {target.dtype}" * bool(target.dtype)) + " with a symbolic size" * target.symbolic
        module = f"planted_{program.name}_{stage}_{self.rung}"
        write(self.folder, module, target, self.rung)
        imports = (*filter(None, [program.imports]), module)
        out = (self.keep or self.folder) / f"{program.name}-{stage}"
        options = Options("crash", self.rung, self.seed, imports=imports, verify=1, without=("needs",))
        try:
            found = isolated.minify_saved(saved, out=out / "small", options=options)
            case = load_graph(found.path)  # type: ignore[arg-type]
            cell.after, cell.bytes_after, cell.queries = node_count(case.record.graph), input_bytes(case.record), found.queries
            cell.largest = max(_sizes(case.record.graph), default=0)
            cell.word = "broken"
            judged(cell, case, self.starter, self.rung, out / "program")
            if found.verified != (1, 1):
                cell.word, cell.why = "broken", f"the saved case failed {found.verified[0]} of {found.verified[1]} times"
        except GraphdbgError as error:
            cell.why = str(error)
        except Exception as error:  # noqa: BLE001  a cell that says so
            cell.word, cell.why = "broken", f"the minifier fails: {type(error).__name__}: {error}"
        payload = {"case": str(saved.path), "imports": imports[:-1], "target": asdict(target), "out": str(out / "called")}
        reply = self.server.call("planted_target:by_callable", payload, 300)
        value = reply.value or {}
        cell.called = f"{value['nodes']}, {value['input_bytes']} B" if value.get("holds") else _first_line(reply)
        return cell


def _first_line(reply: Any) -> str:
    told = f"{reply.error.message} {reply.output[-300:] if reply.status == 'lost' else ''}" if reply.error else reply.status
    return " ".join(told.split())[:500]


def _sizes(body: GraphBody) -> Iterator[int]:
    for node in body.nodes:
        if node.op == "placeholder" and isinstance(node.value, TensorValue):
            yield from (size for size in node.value.shape if isinstance(size, int))


def chosen_graphs(program: Program, folder: Path, stages: str) -> Iterator[tuple[Program, str, SavedGraph]]:
    """The graphs of one program that are minified."""
    found = dict(graphs(folder))
    wanted = list(found) if stages == "all" else [name for name in stages.split(",") if name]
    for group in [(name,) for name in wanted] or (FIRST, SECOND):
        stage = next((name for name in group if name in found), None)
        if stage is not None:
            yield program, stage, found[stage]


def table(cells: Sequence[Reduced]) -> Iterator[str]:
    """The Markdown table, reasons below it, and the sums."""
    yield "| program | stage | planted | nodes | input bytes | queries | repro | lines | by a callable |"
    yield "|---" * 9 + "|"
    notes: list[str] = []
    for cell in cells:
        notes += [f"{cell.program}, {cell.stage}: {cell.why}"] if cell.why else []
        word = f"{cell.word} [{len(notes)}]" if cell.why else cell.word
        sizes = f"{cell.before} → {cell.after or '-'} | {cell.bytes_before} → {cell.bytes_after if cell.after else '-'}"
        yield (
            f"| {cell.program} | {cell.stage} | {cell.planted} | {sizes} | {cell.queries or ''} | {word} | {cell.lines or ''} "
            f"| {cell.called} |"
        )
    yield ""
    yield from (f"{number}. {' '.join(note.split())[:500]}" for number, note in enumerate(notes, 1))
    yield ""
    yield from sums(cells)


def sums(cells: Sequence[Reduced]) -> Iterator[str]:
    """What the table says in all."""
    names = list(dict.fromkeys(cell.program for cell in cells))
    good = [name for name in names if all(cell.works for cell in cells if cell.program == name)]
    some = [name for name in names if any(cell.works for cell in cells if cell.program == name)]
    counts = Counter(cell.word for cell in cells)
    told = ", ".join(f"{counts[word]} {word}" for word in (*WORDS, "cannot"))
    yield (
        f"{len(good)} of {len(names)} programs: every graph minified, its repro runs; {len(some)} with at least one such graph. "
        f"{len(cells)} graphs: {told}."
    )
    done = [cell for cell in cells if cell.after]
    beside, large = sum(cell.sidecar for cell in done), sum(cell.largest > 8 for cell in done)
    yield f"{beside} of {len(done)} results have a file of values beside their repro, {large} a dimension over 8."
    yield from filter(None, [small(cells), linted(cells)])


def page(cells: Sequence[Reduced], rung: str) -> str:
    """docs/minify-matrix.md."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    head, *rest = (__doc__ or "").split("\n\n")
    return "\n".join([
        "# The capture matrix, minified", "", head.replace("\n", " "), "", rest[-1].strip(), "",
        f"Made by `tests/bench/minify_matrix.py` at commit {commit.stdout.strip()} with torch {torch.__version__}, rung {rung}.",
        "", *table(cells), "",
    ])  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="REGEX", default="", help="programs whose name matches")
    options.add_argument("--stages", metavar="A,B", default="", help="those stages, or all; default: dynamo and one more")
    options.add_argument("--rung", default="nop", help="nop, decomposed or inductor")
    options.add_argument("--seed", type=int, default=0, help="for the choice of the operator")
    options.add_argument("--runs", type=Path, metavar="FOLDER", help="recordings that capture_matrix.py --keep left")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="leave cases and programs there")
    options.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    options.add_argument("-j", type=int, default=2, dest="jobs", help="minifications at a time")
    chosen = options.parse_args()
    programs = [one for one in ROWS if re.search(chosen.only, one.name)]
    with tempfile.TemporaryDirectory(prefix="graphdbg-minify-matrix-") as work:
        found = recorded(programs, Path(work), chosen.runs)
        wanted = [one for each in programs if each.name in found for one in chosen_graphs(each, found[each.name], chosen.stages)]
        sys.path.append(work)
        with ForkServer(preload=PRELOAD) as server, starting(seed=toolchain_seed()) as starter, ThreadPoolExecutor(
            chosen.jobs
        ) as pool, mock.patch.object(isolated, "ForkServer", lambda **_: nullcontext(server)):  # one for all of them
            bench = Bench(server, starter, Path(work), chosen.rung, chosen.seed, chosen.keep)
            cells = list(pool.map(lambda one: _told(bench.reduced(*one)), wanted))
    print("\n".join(table(cells)))
    if chosen.write:
        chosen.write.write_text(page(cells, chosen.rung))


def _told(cell: Reduced) -> Reduced:
    why = " ".join(cell.why.split())[:300]
    print(f"{cell.program}, {cell.stage}: {cell.before}->{cell.after} {cell.queries}q {cell.word} {why}; callable {cell.called}",
          file=sys.stderr, flush=True)  # fmt: skip
    return cell


if __name__ == "__main__":
    main()
