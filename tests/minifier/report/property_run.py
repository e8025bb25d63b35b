"""Verified inside if and only if the repro ends with 1, and with 0 without the fault: on random small graphs with
planted faults.

    python -m tests.minifier.report.property_run --examples 500 --minutes 60        (make property; resumable)

An example is judged under its rung in a child, with the fault. Where it fails there, a repro is written as by `minify`
and has to end with 1, with --without-fault 0; where it does not fail, the plainest program that asks for such a failure
has to end with 0. Programs run in children of a warm server, which hides graphdbg from them; each twentieth is run in a
Python of its own, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from graphdbg.dumps.live import save_graph
from graphdbg.dumps.program.case import ReproFacts
from graphdbg.dumps.schema import Ambient
from graphdbg.dumps.store import load_graph
from graphdbg.minifier.report import bundle, trying, verify
from graphdbg.toolkit.isolation import ForkServer, ask, fresh
from graphdbg.toolkit.replaying.replay import replay

from .small_graphs import FAULTS, case_of

TESTS = Path(__file__).resolve().parents[2]
PLANTED = TESTS / "planted"
EACH = 20
ALONE = """import runpy, sys
sys.modules["graphdbg"] = None
sys.path.insert(0, sys.argv.pop(1))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")"""


class Row(NamedTuple):
    """One example. `inside`: the verdict; `repro`: shows, passes, none; `codes`: with the fault and without; `why`:
    what is wrong."""

    seed: int
    fault: str
    stage: str
    inside: str
    kind: str
    repro: str
    entry: str
    codes: list[int | None]
    why: str
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the property does."""
        return not self.why


@contextmanager
def in_children(server: ForkServer) -> Iterator[None]:
    """While open, a repro is a child of the warm server in place of a fresh process, and its layers are not asked for;
    faults are planted in children alone."""
    usual = fresh.run_once, verify.probe, bundle.import_modules
    fresh.run_once, verify.probe = partial(_in_child, server), lambda program, **_: {}  # type: ignore[assignment]
    bundle.import_modules = _quiet  # type: ignore[assignment]
    try:
        yield
    finally:
        fresh.run_once, verify.probe, bundle.import_modules = usual


def _in_child(server: ForkServer, program: Path, *flags: str, **_: Any) -> fresh.FreshRun:
    payload = {"program": str(program.resolve()), "flags": list(flags), "folder": str(program.resolve().parent)}
    answer = ask("tests.minifier.property_child:run", payload, 120.0, server=server).answer()
    if answer.status != "done":
        return fresh.FreshRun(None, answer.output, 0.0)
    return fresh.FreshRun(answer.value["code"], answer.value["output"], 0.0)


def example(seed: int, server: ForkServer, folder: Path, *, alone: bool = True) -> Row:
    """One example, judged and reported. `alone`: each twentieth program is run in a Python of its own, too."""
    began = time.monotonic()
    fault, gm, inputs, stage = case_of(seed)
    rung, like = FAULTS[fault]
    saved = load_graph(save_graph(gm, inputs, folder / "case", stage=stage, ambient=Ambient(grad=False)))
    judged = replay(saved, rung=rung, outputs=False, imports=(fault,), server=server)
    row = partial(Row, seed, fault, stage, judged.verdict.verdict, judged.verdict.kind or "")
    if judged.signature is None or not judged.verdict.failed:
        if judged.verdict.verdict != "ok":
            return row("", "", [], "", time.monotonic() - began)
        case = ReproFacts(saved.record, saved.inputs_record, saved.kept, like, rung, imports=(fault,), off="left out")
        script = next(replace(candidate) for candidate in trying.candidates(case) if candidate.case.imports)
        (folder / "plain").mkdir()
        code = fresh.run_once(trying.lay_down(script, folder / "plain", trying.Redactor())).code
        why = "" if code == fresh.GONE else f"it passes inside, its program ends with {code}"
        return row("", script.entry, [code], why, time.monotonic() - began)
    report = bundle.emit_report(
        saved,
        folder / "out",
        signature=judged.signature,
        rung=rung,
        imports=(fault,),
        times=1,
        narrate=_quiet,
        bare=server,
        verdict=judged.verdict,
    )
    codes: list[int | None] = []
    why = "" if report.says == "shows" else f"fails inside, repro {report.says}: {' '.join(report.notes)}"
    if not why and report.without != "ends with 0":
        why = f"without the fault it {report.without}"
    if report.repro is not None and not why and alone and seed % EACH == 0:
        codes = [_alone(report.repro), _alone(report.repro, trying.WITHOUT)]
        why = "" if codes == [fresh.BUG, fresh.GONE] else f"in a Python of its own it ends with {codes}"
    return row(report.says, report.entry, codes, why, time.monotonic() - began)


def _alone(program: Path, *flags: str) -> int:
    return subprocess.run(
        [sys.executable, "-I", "-c", ALONE, str(PLANTED), str(program), *flags],
        capture_output=True,
        check=False,
        timeout=300,
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},  # or torch looks for our entry point
    ).returncode


def _quiet(_: object) -> None:
    """Says and imports nothing."""


def rows(
    seeds: list[int],
    server: ForkServer,
    jobs: int,
    tell: Callable[[Row], None],
    until: float = float("inf"),
    *,
    alone: bool = True,
) -> list[Row]:
    """The examples, some at a time, each told as it comes; no new one after `until` (time.monotonic)."""

    def one(seed: int) -> Row | None:
        if time.monotonic() > until:
            return None
        with tempfile.TemporaryDirectory(prefix="graphdbg-property-") as folder:
            row = example(seed, server, Path(folder), alone=alone)
        tell(row)
        return row

    with in_children(server), ThreadPoolExecutor(jobs) as pool:
        return [row for row in pool.map(one, seeds) if row is not None]


def main() -> int:
    """Goes on where a run before ended; exit code 1 where the property does not hold, 2 where examples are missing."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--examples", type=int, default=500)
    options.add_argument("--minutes", type=float, default=60.0, help="no new example after so long")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument(
        "--rows", type=Path, default=Path(".cache/property.jsonl"), help="a line per example; else it goes on"
    )
    chosen = options.parse_args()
    chosen.rows.parent.mkdir(parents=True, exist_ok=True)
    known = [Row(**json.loads(line)) for line in chosen.rows.read_text().splitlines()] if chosen.rows.exists() else []
    there = {row.seed for row in known}
    sys.path.append(str(PLANTED))

    def tell(row: Row) -> None:
        with chosen.rows.open("a") as file:
            file.write(json.dumps(row._asdict()) + "\n")
        if row.why:
            print(f"{row.seed} {row.fault} {row.stage} {row.inside} {row.kind}: {row.why}", flush=True)

    from graphdbg.minifier.oracle import PRELOAD
    from graphdbg.toolkit.isolation import fork_server

    missing = [seed for seed in range(chosen.examples) if seed not in there]
    until = time.monotonic() + 60 * chosen.minutes
    with fork_server(threads=1, preload=PRELOAD) as server:
        known += rows(missing, server, chosen.jobs, tell, until)
    wrong = [row for row in known if row.why]
    failing = [row for row in known if row.repro]
    print(
        f"{len(known)} of {chosen.examples} examples, {len(failing)} fail inside, the property does not hold "
        f"of {len(wrong)}"
    )
    for what in ("inside", "repro", "entry", "fault"):
        print(f"  {what}: {dict(Counter(getattr(row, what) for row in known))}")
    return 1 if wrong else 2 if len(known) < chosen.examples else 0


if __name__ == "__main__":
    sys.exit(main())
