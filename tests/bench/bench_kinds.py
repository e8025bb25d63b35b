"""Each kind of failure inside a model of at least 300 nodes: minified by graphdbg, its repro run three times in clean
processes.

    python -m tests.bench.bench_kinds [--kinds nan,stride] [--keep FOLDER]

Prints a row for each: the stage of the graph, nodes before and after, queries, the largest size that is left, lines of
repro.py, how often it showed the failure, seconds of each step, and what is not as it must be. Exits with 1 where
something is not. A case takes a minute or two on a quiet machine.
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
from pathlib import Path

from tests.minifier.reach.chain import KINDS, Row, follow

HEAD = (
    "| kind | graph | before | after | queries | largest | symbols | lines | shown | seconds | what is left !! "
    "complaints |"
)


def line(row: Row) -> str:
    """One row of a table."""
    wrong = row.complaints(runpy.run_path(str(KINDS[row.case])))
    left = " ".join(name.rpartition("aten.")[2] for name in row.left)
    seconds = " ".join(f"{name} {took:.0f}" for name, took in row.seconds.items() if name != "ls")
    cells = [row.kind, row.graph, row.before, row.after, row.queries, row.largest, " ".join(row.symbols), row.lines]
    cells += [f"{row.shown} of 3", seconds, f"{left[:160]}" + (f" !! {'; '.join(wrong)}" if wrong else "")]
    return "| " + " | ".join(str(cell).replace("\n", " ") for cell in cells) + " |"


def main() -> None:
    """Runs the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kinds", default=",".join(KINDS), help="names of files in tests/minifier/reach/kinds, with commas"
    )
    parser.add_argument("--keep", type=Path, help="a new folder for what each step left; default: none is kept")
    parser.add_argument("--saved", action="store_true", help="save Dynamo's graph instead of recording a compiled run")
    parser.add_argument("--flags", default="", help="further flags of minify, in one text")
    arguments = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        print(HEAD, "|" + "---|" * 11, sep="\n", flush=True)
        for name in arguments.kinds.split(","):
            row = follow(
                name, (arguments.keep or Path(temporary)) / name, *arguments.flags.split(), saved=arguments.saved
            )
            bad += bool(row.complaints(runpy.run_path(str(KINDS[name]))))
            print(line(row), flush=True)
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
