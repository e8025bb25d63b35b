"""Hostile dumps, one after the other: each is damaged by its seeded number, and read by every reading command and a
replay.

Each lies in a folder of its own and is read in a fork of one warm parent, which calls the commands in process, with a
limit of time and memory, and an audit hook that sees what is started and written. One in a hundred is read by the
command line too; one in ten with too little of something. A dump fails that ends in code 70, starts a program, hangs,
takes more than a gigabyte beside its own size, or reads or writes what lies beside it. What was done stands in
SEED.json below .cache/hostile, and the next call with that seed goes on there. Needs the checkout and an environment
with torch and what the tool depends on.

    python -m tests.hostile.fuzz --minutes 30 --seed 1 --jobs 2    # go on with seed 1
    python -m tests.hostile.fuzz --seed 1 --only 4711              # that dump again, kept; what its commands say is
    printed
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from .corpus import ROOT, corpus, importable
from .counts import Counts, go_on
from .reading import by_command_line, read_all, warm
from .sandbox import LACKS, Sandbox, small_disk

HOME = ROOT / ".cache" / "hostile"
KINDS = ("run", "case", "case", "small", "small", "small", "pack", "out")


def one(seed: int, number: int, boxes: dict[str, Path], kept: Path | None = None) -> dict[str, Any]:
    """One dump: what was done to it and what came of it."""
    random = Random(f"{seed}:{number}")
    kind = random.choice(KINDS)
    lack = random.choice(LACKS) if random.random() < 0.1 else ""
    asked = random.random() < 0.01
    with _place(kept, lack) as (place, lack):
        box = Sandbox(place, boxes[kind], random, lack)
        reported = box.watched(lambda said: read_all(box, "run" if kind == "small" else kind, said))
        reported["wrong"] += box.wrong()
        if asked:
            reported["wrong"] += [*by_command_line(box, kind, random), *box.wrong()]
    return reported | {"number": number, "dump": kind, "done": box.done, "lack": lack, "asked": asked}


@contextlib.contextmanager
def _place(kept: Path | None, lack: str) -> Iterator[tuple[Path, str]]:
    """A folder, on a small disk where that lacks; where none can be mounted, the size of files is what lacks."""
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(small_disk()) if lack == "disk" and kept is None else None
        if disk is None:
            lack = "file size" if lack == "disk" else lack
            disk = kept or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True)
            )
        yield (kept or Path(disk) / "one"), lack


def fuzz(seed: int, minutes: float, most: int | None = None, home: Path = HOME, jobs: int = 1) -> Counts:
    """Goes on with a seed for so long, or so many dumps."""
    result, counts = corpus(HOME / "corpus"), Counts(seed, home)
    warm(result)
    gc.freeze()  # forks share what is there
    last = counts.all + most if most else math.inf
    return go_on(counts, functools.partial(one, seed, boxes=result), minutes, lambda: last - counts.all, jobs)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--count", type=int, help="this many dumps at most")
    parser.add_argument("--jobs", type=int, default=1, help="so many at the same time")
    parser.add_argument("--counts", type=Path, default=HOME, metavar="DIR", help="where SEED.json lies")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this dump alone; its folder is kept")
    asked = parser.parse_args()
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # which lies outside
    importable(HOME)
    if asked.only is not None:
        result = corpus(HOME / "corpus")
        warm(result)
        place = Path(tempfile.mkdtemp(prefix="hostile-kept-")) / "one"
        reported = one(asked.seed, asked.only, result, place)
        texts = [item.pop("text") for item in reported["wrong"]]
        print(place, json.dumps(reported, indent=1), *texts, sep="\n")
        return bool(reported["wrong"])
    counts = fuzz(asked.seed, asked.minutes, asked.count, asked.counts, asked.jobs)
    print(f"seed {asked.seed}: {counts.text()}")
    return bool(counts.wrong)


if __name__ == "__main__":
    sys.exit(main())
