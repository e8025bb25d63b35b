"""The capture matrix minified: a crash planted at one operator of each program, the case reduced, its repro run with
torch alone.

    python -m tests.matrix.minify_matrix                                       # every program, two stages each
    python -m tests.matrix.minify_matrix --only 'cond|scan' --runs FOLDER      # what capture_matrix.py --keep FOLDER
    left
    python -m tests.matrix.minify_matrix --stages all --write docs/minify-matrix.md

The rung refuses each graph that holds the program's most special operator (a higher-order one, a custom one, a
collective, a draw, a write, a rare dtype; else one of a seed); a symbolic program's must have a symbolic size.
`graphdbg.minify` reduces the case twice: as `graphdbg minify --import` does, all axes, each query in a child; and with
the same question as a callable. The repro of the first result is written and run as in emit_matrix.py (see `emitted`
for the words). "cannot": not minified, and why.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.schema import GraphBody, TensorValue
from graphdbg.dumps.store import SavedGraph, load_graph
from graphdbg.dumps.walk import nodes
from graphdbg.minifier import minify as minifying
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.oracle import PRELOAD
from graphdbg.minifier.report.issue import input_bytes
from graphdbg.toolkit import isolation
from graphdbg.toolkit.isolation import ForkServer, ask
from tests.matrix.emitted import graphs, judged, recorded
from tests.matrix.minify_page import Reduced, commit, page, table
from tests.models.capture_programs import ROWS, SYMBOLS, Program
from tests.planted.planted_target import target_of, write

FIRST, SECOND = ("dynamo",), ("forward", "inference", "compiled_autograd", "api")
"""Of each program one graph of the first stages, and one of the second, as far as it has them."""


@dataclass
class Bench:
    """What all minifications share: the fork server, the processes for repros, a folder that they find modules in."""

    server: ForkServer
    bare: ForkServer
    folder: Path
    rung: str
    seed: int = 0
    keep: Path | None = None
    commit: str = ""

    def reduced(self, program: Program, stage: str, saved: SavedGraph) -> Reduced:
        """One graph, both ways, and its repro."""
        before = len(list(nodes(saved.record.graph)))
        cell = Reduced(program.name, stage, "cannot", before=before, commit=self.commit, rung=self.rung)
        cell.bytes_before = input_bytes(saved.record)
        target = target_of(saved.record.graph, f"{self.seed} {program.name}", symbolic=program.kind == SYMBOLS)
        if target is None:
            cell.why = "it computes nothing that could be refused"
            return cell
        cell.planted = (
            target.name + (f" of {target.dtype}" * bool(target.dtype)) + " with a symbolic size" * target.symbolic
        )
        module = f"planted_{program.name}_{stage}_{self.rung}"
        write(self.folder, module, target, self.rung)
        imports = (*filter(None, [program.imports]), module)
        out = (self.keep or self.folder) / f"{program.name}-{stage}"
        options = MinifyOptions("crash", self.rung, self.seed, imports=imports, verify=1, without=("needs",))
        try:
            result = minifying.minify_saved(saved, out=out / "small", options=options)
            case = load_graph(result.path)  # type: ignore[arg-type]
            cell.after, cell.bytes_after = len(list(nodes(case.record.graph))), input_bytes(case.record)
            cell.queries = result.queries
            cell.largest = max(_sizes(case.record.graph), default=0)
            cell.word = "broken"
            judged(cell, case, self.bare, self.rung, out / "program")
            if result.verified != (1, 1):
                cell.word, cell.why = (
                    "broken",
                    f"the saved case failed {result.verified[0]} of {result.verified[1]} times",
                )
        except GraphdbgError as error:
            cell.why = str(error)
        except Exception as error:  # noqa: BLE001  a cell that says so
            cell.word, cell.why = "broken", f"the minifier fails: {type(error).__name__}: {error}"
        payload = {
            "case": str(saved.path),
            "imports": imports[:-1],
            "target": asdict(target),
            "out": str(out / "called"),
        }
        reply = ask("tests.planted.planted_target:by_callable", payload, 300, server=self.server).answer()
        value = reply.value or {}
        cell.called = f"{value['nodes']}, {value['input_bytes']} B" if value.get("holds") else _first_line(reply)
        return cell


def _first_line(reply: Any) -> str:
    reported = (
        f"{reply.error.message} {reply.output[-300:] if reply.status == 'lost' else ''}"
        if reply.error
        else reply.status
    )
    return " ".join(reported.split())[:500]


def _sizes(body: GraphBody) -> Iterator[int]:
    for node in body.nodes:
        if node.op == "placeholder" and isinstance(node.value, TensorValue):
            yield from (size for size in node.value.shape if isinstance(size, int))


def chosen_graphs(program: Program, folder: Path, stages: str) -> Iterator[tuple[Program, str, SavedGraph]]:
    """The graphs of one program that are minified."""
    result = dict(graphs(folder))
    wanted = list(result) if stages == "all" else [name for name in stages.split(",") if name]
    for group in [(name,) for name in wanted] or (FIRST, SECOND):
        stage = next((name for name in group if name in result), None)
        if stage is not None:
            yield program, stage, result[stage]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="REGEX", default="", help="programs whose name matches")
    options.add_argument(
        "--stages", metavar="A,B", default="", help="those stages, or all; default: dynamo and one more"
    )
    options.add_argument("--rung", default="nop", help="nop, decomposed or inductor")
    options.add_argument("--seed", type=int, default=0, help="for the choice of the operator")
    options.add_argument("--runs", type=Path, metavar="FOLDER", help="recordings that capture_matrix.py --keep left")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="leave cases and programs there")
    options.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    options.add_argument(
        "--cells", type=Path, metavar="FILE", help="keep what was found there, and ask for the rest only"
    )
    options.add_argument("-j", type=int, default=2, dest="jobs", help="minifications at a time")
    chosen = options.parse_args()
    programs = [row for row in ROWS if re.search(chosen.only, row.name)]
    known = {(item.program, item.stage): item for item in _kept(chosen.cells)}
    with tempfile.TemporaryDirectory(prefix="graphdbg-minify-matrix-") as work:
        result = recorded(programs, Path(work), chosen.runs)
        wanted = [
            graph
            for each in programs
            if each.name in result
            for graph in chosen_graphs(each, result[each.name], chosen.stages)
        ]
        sys.path.append(work)
        with (
            ForkServer(preload=PRELOAD) as server,
            isolation.programs() as bare,
            ThreadPoolExecutor(chosen.jobs) as pool,
            mock.patch.object(minifying, "fork_server", lambda **_: nullcontext(server)),
        ):  # one for all of them
            bench = Bench(server, bare, Path(work), chosen.rung, chosen.seed, chosen.keep, commit())

            def made(program: Program, stage: str, saved: SavedGraph) -> Reduced:
                return known.get((program.name, stage)) or _told(bench.reduced(program, stage, saved), chosen.cells)

            cells = list(pool.map(lambda item: made(*item), wanted))
    cells += [
        Reduced(program.name, "", "cannot", "it was not recorded") for program in programs if program.name not in result
    ]
    print("\n".join(table(cells)))
    if chosen.write:
        chosen.write.write_text(page(cells, __doc__ or ""))


def _kept(file: Path | None) -> Iterator[Reduced]:
    if file is not None and file.exists():
        yield from (Reduced(**json.loads(line)) for line in file.read_text().splitlines())


def _told(cell: Reduced, file: Path | None) -> Reduced:
    why = " ".join(cell.why.split())[:300]
    print(
        f"{cell.program}, {cell.stage}: {cell.before}->{cell.after} {cell.queries}q {cell.word} {why}; "
        f"callable {cell.called}",
        file=sys.stderr,
        flush=True,
    )
    if file is not None:
        with file.open("a") as lines:
            lines.write(json.dumps(asdict(cell)) + "\n")
    return cell


if __name__ == "__main__":
    main()
