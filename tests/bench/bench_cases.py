"""Real bugs of torch.compile, from a user's script to a verified repro: does each step of graphdbg get there with its
defaults?

    python -m tests.bench.bench_cases [--cases 001,004] [--where alone,middle] [--keep FOLDER]

Prints a row for each case, alone and in the middle of a model of about 300 nodes: graphs recorded, the rung that
`triage` names (! where it is another than the known one), nodes of the failing graph before and after, whether the
known core is left, how many of three clean processes with torch alone show the repro's failure, queries, seconds. Exits
with 1 when a row is not good. Takes a minute or two a row.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.minifier.real_bugs.chain import CASES, WHERE, Row, follow

HEAD = "case where    graphs rung                nodes       core repro queries seconds  left / trouble"


def line(row: Row) -> str:
    """One row of the table."""
    rung = row.rung.partition(":")[0] + ("" if row.right_rung else " !")
    sizes = f"{row.before} -> {row.after}"
    core = "yes" if row.core and row.same else "NO"
    names = " ".join(name.rpartition("aten.")[2] for name in row.left)
    return (
        f"{row.case:<4} {row.where:<8} {row.recorded:>6} {rung:<19} {sizes:<11} {core:<4} {row.shown} of 3"
        f" {row.queries:>7} {row.seconds:>7.1f}  {(row.trouble or names)[:100]}"
    )


def main() -> None:
    """Runs the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="numbers with commas; default: all")
    parser.add_argument("--where", default=",".join(WHERE), help="alone, middle or both")
    parser.add_argument("--keep", type=Path, help="a new folder for what each step left; default: none is kept")
    arguments = parser.parse_args()
    chosen = [number for number in arguments.cases.split(",") if number] or sorted(CASES)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        print(HEAD, flush=True)
        for number in chosen:
            for where in arguments.where.split(","):
                rows.append(follow(number, where, (arguments.keep or Path(temporary)) / f"{number}-{where}"))
                print(line(rows[-1]), flush=True)
    good = {where: sum(row.good for row in rows if row.where == where) for where in arguments.where.split(",")}
    print("; ".join(f"{where}: {count} of {len(chosen)} cases" for where, count in good.items()))
    raise SystemExit(0 if all(row.good for row in rows) else 1)


if __name__ == "__main__":
    main()
