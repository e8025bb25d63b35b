"""What was seen with one seed, over all calls: a file that the next call goes on from; and how it goes on, in several
forks.

>>> counts = Counts(1, Path(".cache/hostile"))
>>> next(counts.left())
4711
"""

from __future__ import annotations

import collections
import itertools
import json
import multiprocessing
import re
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from .reading import STAGES, ours


class Counts:
    """Dumps by number, stages that they reached, exit codes, and what was wrong with which."""

    KEPT = ("done", "stages", "codes", "lacks", "asked", "raised", "wrong", "seconds")

    def __init__(self, seed: int | str, home: Path) -> None:
        self.path = home / f"{seed}.json"
        known: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.ahead: set[int] = set(known.get("ahead", ()))
        """Numbers that are done though `done`, from which on it goes on, is not."""
        self.done = int(known.get("done", 0))
        self.stages = collections.Counter(known.get("stages", {}))
        self.codes = collections.Counter(known.get("codes", {}))
        self.lacks = collections.Counter(known.get("lacks", {}))
        self.asked = int(known.get("asked", 0))
        self.raised: dict[str, list[int]] = known.get("raised", {})
        self.wrong: dict[str, list[int]] = known.get("wrong", {})
        self.seconds = float(known.get("seconds", 0.0))

    @property
    def all(self) -> int:
        """How many dumps."""
        return self.done + len(self.ahead)

    def left(self) -> Iterator[int]:
        """The numbers that were not done."""
        return itertools.filterfalse(set(self.ahead).__contains__, itertools.count(self.done))

    def add(self, entry: dict[str, Any]) -> None:
        """Counts one dump."""
        self.ahead.add(entry["number"])
        while self.done in self.ahead:
            self.ahead.remove(self.done)
            self.done += 1
        self.stages[entry["stage"]] += 1
        self.codes.update(entry["codes"])
        self.lacks.update([entry["lack"]] if entry.get("lack") else [])
        self.asked += bool(entry.get("asked"))
        if "raised" in entry:
            self.raised.setdefault(entry["raised"], []).append(entry["number"])
        for wrong in entry["wrong"]:
            self.wrong.setdefault(self.named(wrong), []).append(entry["number"])

    @staticmethod
    def named(wrong: dict[str, str]) -> str:
        """The same for what is the same: of a traceback the last place of ours, and the error."""
        places = re.findall(r'File "([^"]+)", line (\d+)', wrong["text"])
        results = [f"{Path(file).name}:{line}" for file, line in places if ours(file)]
        last = [line for line in wrong["text"].strip().splitlines() if re.match(r"\w*(Error|Exception)\b", line)]
        parts = (wrong["kind"], "" if results else wrong["what"], *results[-1:], *(line[:120] for line in last[-1:]))
        return " · ".join(filter(None, parts))

    def keep(self) -> None:
        """Writes them for the next call."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = {name: getattr(self, name) for name in self.KEPT} | {"ahead": sorted(self.ahead)}
        result = self.path.with_suffix(".new")
        result.write_text(json.dumps(whole, indent=1))
        result.replace(self.path)

    def text(self) -> str:
        """For people."""
        reached, lines = 0, []
        for stage, words in reversed(STAGES.items()):
            reached += self.stages[stage]
            lines.insert(0, f"  {reached:>6}  {words}")
        lines.insert(0, f"{self.all} dumps in {self.seconds:.0f} s, {self.all / max(self.seconds, 1):.1f} a second")
        lines.append(f"  {self.asked:>6}  also by the command line")
        lines += [f"  {count:>6}  with too little: {lack}" for lack, count in sorted(self.lacks.items())]
        lines.append("  exit codes " + ", ".join(f"{code}: {count}" for code, count in sorted(self.codes.items())))
        for head, result in (("  a replay raised ", self.raised), ("WRONG ", self.wrong)):
            lines += [f"{head}{what}: {len(numbers)}, first {min(numbers)}" for what, numbers in sorted(result.items())]
        return "\n".join([*lines, f"  {sum(map(len, self.wrong.values())):>6}  wrong"])


def guarded(work: Callable[[int], dict[str, Any]], number: int, until: float) -> dict[str, Any] | None:
    """What the work tells; where it fails itself, that, so that thousands of others go on. None where the time is
    up."""
    if time.monotonic() > until:
        return None
    try:
        return work(number)
    except Exception:  # noqa: BLE001 - told
        results = {"kind": "the campaign failed", "what": "", "text": traceback.format_exc()}
        return {"number": number, "stage": "damaged", "codes": {}, "wrong": [results]}


def go_on(
    counts: Counts, work: Callable[[int], dict[str, Any]], minutes: float, left: Callable[[], float], jobs: int
) -> Counts:
    """Does the numbers that were not done, in forks of this process, until the time is up or nothing is left to do."""
    begun, before = time.monotonic(), counts.seconds
    until, kept = begun + 60 * minutes, begun
    waiting: set[Future[dict[str, Any] | None]] = set()

    def take(most: int) -> None:
        nonlocal waiting, kept
        while len(waiting) > most:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for item in done:
                if reported := item.result():
                    counts.add(reported)
            counts.seconds = before + time.monotonic() - begun
            if time.monotonic() - kept > 5:
                counts.keep()
                kept = time.monotonic()

    try:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
            for number in counts.left():
                if time.monotonic() > until or left() <= len(waiting):
                    take(0)
                    if time.monotonic() > until or left() <= 0:
                        break
                waiting.add(pool.submit(guarded, work, number, until))
                take(2 * jobs)
    finally:
        counts.keep()
    return counts
