"""A whole session over a generated problem: what a real case does in children is done here by a predicate. No torch.

As a program it minifies into a folder and logs each judgement that it made, so that a test can kill it and count:

    python abstract.py OUT LOG JOBS [--resume]
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from graphdbg.minifier.events import Follow, Happening
from graphdbg.minifier.log import Log
from graphdbg.minifier.minified import Minified
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.search.problem import Aborted, Answer, Candidate, DoesNotFailError, Ruling
from graphdbg.minifier.session import Minification
from graphdbg.minifier.steering import Steering
from graphdbg.toolkit.verdicts.signature import Signature
from tests.minifier.generated import Generated, needs, transformer

THE_BUG = Signature("crash", "compile", message="the bug")


@dataclass
class Abstract(Generated):
    """A generated problem that is judged as a whole too, and whose cases are one file. `log` gets a line per
    judgement."""

    signature: Signature | None = None
    log: Path | None = None
    delay_s: float = 0.0
    earlier: Answer | None = None
    """What an earlier command judged of the whole."""
    on_judging: Callable[[int], None] = lambda number: None
    """Called when a judgement begins, with its number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.notes: list[str] = []
        self.judging = 0
        self.aborts = 0
        self.hanging: set[int] = set()
        """Numbers of judgements that end only by `abort`."""
        self.at_once: Counter[str] = Counter()
        self.doubled: list[str] = []
        """Candidates that two threads asked at the same time."""
        self.lock = Lock()

    def abort(self) -> None:
        self.aborts += 1

    def prepare(self) -> None:
        pass

    def find_hints(self) -> None:
        pass

    def test(self, candidate: Candidate) -> Answer:
        return self._logged(candidate.text(), candidate)

    def _logged(self, key: str, candidate: Candidate) -> Answer:
        with self.lock:
            self.judging += 1
            number, aborts = self.judging, self.aborts
            self.at_once[key] += 1
            if self.at_once[key] > 1 and key not in ("original", "saved"):
                self.doubled.append(key)
        try:
            self.on_judging(number)
            if self.delay_s:
                time.sleep(random.uniform(0, 2 * self.delay_s))
            deadline = time.monotonic() + 20
            while number in self.hanging and self.aborts == aborts:
                assert time.monotonic() < deadline, "nobody ended a query in flight"
                time.sleep(0.002)
            if self.aborts != aborts:
                raise Aborted
            answer = super().test(candidate)
        finally:
            with self.lock:
                self.at_once[key] -= 1
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(key + "\n")
        return answer

    def whole(self) -> Answer:
        return self._logged("original", Candidate.of(range(self.size)))

    def before(self) -> Answer | None:
        return self.earlier

    def settle(self, answers: Sequence[Answer]) -> list[Answer]:
        if any(answer.verdict is Ruling.SAME for answer in answers):
            self.signature = THE_BUG
        return list(answers)

    def refusal(self, answers: Sequence[Answer]) -> DoesNotFailError:
        return DoesNotFailError("the case does not fail", answers[0].verdict.value)

    def outputs(self, candidate: Candidate) -> tuple[Sequence[int], Sequence[int]]:
        return (), ()

    def together(self, candidate: Candidate) -> tuple[list[str], list[str]]:
        return [], []

    def propose(self, name: str, candidate: Candidate) -> list[list[str]]:
        return []

    def emit(self, candidate: Candidate | None, path: Path) -> Any:
        path.mkdir(parents=True)
        (path / "case").write_text(json.dumps((candidate or Candidate.of(range(self.size))).to_json()))

    def saved(self, path: Path) -> Answer:
        return self._logged("saved", Candidate.from_json(json.loads((path / "case").read_text())))

    def place(self) -> str:
        return ""

    def name(self, atom: int) -> str:
        return f"atom {atom} ({self.shape.labels[atom]})"

    def about(self, atom: int) -> dict[str, Any]:
        return {"name": self.name(atom), "nodes": [f"n{atom}"], "where": f"model.py:{atom}", "code": ""}


def run(
    problem: Abstract,
    out: Path,
    *,
    resume: bool = False,
    steered: bool = False,
    tell: Follow = lambda event: None,
    **options: Any,
) -> Minified:
    """One session from first to last; `steered`: it carries out the orders in OUT/control.jsonl."""
    chosen, log = MinifyOptions(**options), Log(out)
    out.mkdir(exist_ok=True)
    log.begin(chosen.asked(), resume=resume)

    def both(event: Happening) -> None:
        log.tell(event)
        tell(event)

    with ThreadPoolExecutor(max(3, chosen.jobs)) as pool:
        try:
            if not steered:
                return Minification(problem, log, out, chosen, tell=both).run(pool)
            with Steering(out, log, both, without=chosen.without, abort=problem.abort) as steering:
                return Minification(problem, log, out, chosen, tell=both, steering=steering).run(pool)
        finally:
            log.close()


def core(result: Minified) -> set[int]:
    """The atoms of the case that was written."""
    assert result.path is not None
    return set(json.loads((result.path / "case").read_text())["keep"])


def main(out: str, log: str, jobs: str, *more: str) -> None:
    problem = Abstract(transformer(300), needs([30, 170, 270]), log=Path(log), delay_s=0.005)
    result = run(problem, Path(out), resume="--resume" in more, jobs=int(jobs))
    messages = {
        "core": sorted(core(result)),
        "history": result.history,
        "queries": result.queries,
        "verified": result.verified,
    }
    Path(out, "told.json").write_text(json.dumps(messages))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
