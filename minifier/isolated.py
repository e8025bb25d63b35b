"""Minifying a saved graph with isolated queries: sanity, search, other axes, verification, the case on disk.

>>> result = minify_saved(load_graph("myrun/0_0/forward"), out=Path("small"))
>>> result.verified, result.path
((3, 3), PosixPath('small/case'))
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..dumps.atomic import write_file
from ..dumps.compressed import stored
from ..dumps.errors import UsageError
from ..dumps.reading import read_bytes
from ..toolkit.isolation import ForkServer, default_memory_bytes
from ..toolkit.signature import VERSION as SIGNATURE_VERSION
from .budget import Budget
from .engine import Engine, Event, Interrupted, Result
from .journal import Journal
from .minified import Minified
from .options import Options
from .oracle import PRELOAD, Oracle, first_limit_s
from .passes import NAMES as PASS_NAMES
from .problem import Answer, Candidate, Verdict
from .search.edits import accept
from .search.outputs import drop_outputs
from .search.tiers import TIERS

if TYPE_CHECKING:
    from ..dumps.store import SavedGraph

SANITY = 2
SANITY_MOST = 6
FLAKY_REPEATS = 4
BEST_FILE = "best.json"
CASE_FILE = "case.json"
RESULT_FILES = ("repro.py", "repro.safetensors", "issue.md", "artifacts.zip")
"""What a report leaves beside the case; all of it is about the case that was best then."""


def minify_saved(
    saved: SavedGraph,
    *,
    out: Path,
    options: Options | None = None,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
    narrate: Callable[[str], None] = lambda text: None,
) -> Minified:
    """Reduces a saved graph; `out` receives case/ and journal.jsonl. Raises as `minify` does."""
    from ..toolkit.rungs import rung as known

    options = (options or Options()).checked()
    known(options.rung)
    if out.exists() and not resume and any(out.iterdir()):
        raise UsageError(f"{out} exists already", "", "choose another -o, or --resume an unfinished one")
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="graphdbg-minify-")))
        # The pool is left after the server is closed, which resolves whatever its threads still wait for.
        pool = stack.enter_context(ThreadPoolExecutor(max(options.jobs, SANITY + 1)))
        memory = options.memory_limit or default_memory_bytes(options.jobs)
        server = stack.enter_context(ForkServer(memory_bytes=memory, preload=PRELOAD))
        oracle = Oracle(saved.path.absolute(), work, server, options, first_limit_s(options))
        journal = Journal(out / "journal.jsonl", _header(saved, options), resume=resume)
        stack.callback(journal.close)
        session = _Session(oracle, journal, out, options, narrate)
        try:
            return session.run(on_event, pool)
        except DoesNotFailError:
            if not resume:
                shutil.rmtree(out)
            raise


def _header(saved: SavedGraph, options: Options) -> dict[str, Any]:
    digest = hashlib.blake2b(digest_size=16)
    for name in ("graph.json", "inputs.json"):
        if stored(saved.path / name) is not None:
            digest.update(read_bytes(saved.path / name))
    return {
        "case": digest.hexdigest(), **options.asked(), "torch": version("torch"), "signature": SIGNATURE_VERSION,
    }  # fmt: skip


class DoesNotFailError(UsageError):
    """The original case passes, so there is nothing to reduce."""

    exit_code = 1


class _Session:
    """One minification from the first query to the last."""

    def __init__(
        self, oracle: Oracle, journal: Journal, out: Path, options: Options, narrate: Callable[[str], None]
    ) -> None:
        self.oracle, self.journal, self.out, self.options, self.narrate = oracle, journal, out, options, narrate
        self.notes: list[str] = []
        self.whole = Answer(Verdict.INVALID)
        self.queries = 0

    def run(self, on_event: Callable[[Event], None] | None, pool: Executor) -> Minified:
        """Sanity, search, verification. On Ctrl-C raises Interrupted whose result says where the case lies."""
        options = self.options
        budget = Budget(options.max_time, options.max_queries)
        prepared = pool.submit(self.oracle.prepare)
        repeats = self._sanity(pool)
        prepared.result()
        self.oracle.find_hints()

        def show(event: Event) -> None:
            if event.improved:
                write_file(self.out / BEST_FILE, msgspec.json.encode(event.candidate.to_json()))
            if on_event is not None:
                on_event(event)

        engine = Engine(
            self.oracle, budget=budget, journal=self.journal, repeats=repeats, jobs=options.jobs,
            executor=pool if options.jobs > 1 else None, queries=self.queries, on_event=show,
        )  # fmt: skip
        steps = [*TIERS, ("outputs", self._outputs), *((name, self._axis(name)) for name in PASS_NAMES)]
        try:
            result = engine.run(steps, Candidate.of(range(self.oracle.size)))
        except Interrupted as interrupted:
            interrupted.minified = self._finish(interrupted.result, verify=0)
            raise
        return self._finish(result, options.verify)

    def _sanity(self, beside: Executor) -> int:
        """Judges the original until it is clear whether and how surely it fails; returns how often negatives are asked."""
        first = [beside.submit(self._original, run) for run in range(SANITY)]
        answers = [future.result() for future in first]
        flaky = any(answer.verdict is not Verdict.SAME for answer in answers)
        if flaky and answers[0].verdict is not Verdict.INVALID:
            answers += [self._original(run) for run in range(SANITY, SANITY_MOST)]
        self.queries = len(answers)
        failing = [answer for answer in answers if answer.verdict is Verdict.SAME]
        if not failing:
            why = answers[0].detail or "it passed"
            raise DoesNotFailError(
                f"the case does not fail under {self.options.rung}", why, "see what fails with graphdbg replay RUN"
            )
        self.whole = failing[0]
        self.narrate(f"{self.whole.signature}; {len(failing)} of {len(answers)} runs of the original fail")
        if not flaky:
            return 1
        self.notes.append(f"flaky: the original failed in {len(failing)} of {len(answers)} runs; negatives are repeated")
        return FLAKY_REPEATS

    def _original(self, run: int) -> Answer:
        """One judgement of the original. The first is made even when resuming: the signature to look for comes from it."""
        known = self.journal.recall("original", run) if run else None
        if known is not None:
            return known
        answer = self.oracle.original()
        if not self.journal.has("original", run):
            self.journal.write("original", run, answer)
        return answer

    def _outputs(self, engine: Engine, state: Candidate) -> Candidate:
        state = self._case(engine)
        found = self.oracle.ask("outputs", state)
        return drop_outputs(engine, state, found["returned"], found["loose"])

    def _case(self, engine: Engine) -> Candidate:
        """The best case, or all atoms where none could go."""
        return engine.best or Candidate.of(range(self.oracle.size))

    def _axis(self, name: str) -> Callable[[Engine, Candidate], Candidate]:
        def step(engine: Engine, state: Candidate) -> Candidate:
            state = self._case(engine)
            tried: set[str] = set()
            for number in range(8):
                rounds: list[list[str]] = self.oracle.ask("propose", state, **{"pass": name})["rounds"]
                fresh = [[edit for edit in edits if edit not in tried] for edits in rounds]
                edits = next((edits for edits in fresh if edits), None)
                if edits is None or number == 7:
                    break
                tried |= set(edits)
                state = accept(engine, state, edits)
            return state

        return step

    def _finish(self, result: Result, verify: int) -> Minified:
        """The best case on disk, judged again from there in fresh children."""
        best = result.best
        shown = 0
        queries = result.queries
        path = self.out / "case"
        clear(self.out)
        self._describe(self.oracle.ask("emit", best, out=str(path))["spec"])
        for number in range(verify):
            answer, _ = self.oracle.judge(None, path)
            if not self.journal.has("verify", number):
                self.journal.write("verify", number, answer)
            shown += answer.verdict is Verdict.SAME
            queries += 1
        if shown < verify:
            self.notes.append(f"only {shown} of {verify} fresh children showed the failure from the saved case")
        (self.out / BEST_FILE).unlink(missing_ok=True)
        size = self.whole.size if result.answer is None else result.answer.size
        whole = self.whole.size
        return Minified(
            queries, [(1, *whole), *result.history], self.oracle.signature, *size, verified=(shown, verify),
            others=result.others, stopped=result.stopped, notes=[*self.notes, *result.notes, *self.oracle.notes], path=path,
            verdicts={verdict.value: count for verdict, count in result.verdicts.items()}, original=whole,
        )  # fmt: skip

    def _describe(self, spec: Any) -> None:
        """case.json: what the report needs to know besides graph and inputs."""
        oracle = self.oracle
        data = {
            "signature": msgspec.to_builtins(oracle.signature), "rung": self.options.rung, "check": self.options.check,
            "seed": self.options.seed, "options": self.options.to_json(), "spec": spec,
            "original": {"nodes": self.whole.nodes, "input_bytes": self.whole.input_bytes},
        }  # fmt: skip
        write_file(self.out / "case" / CASE_FILE, msgspec.json.format(msgspec.json.encode(data), indent=1))


def clear(out: Path) -> None:
    """Removes the result of an earlier, unfinished minification into the same folder; its journal stays."""
    shutil.rmtree(out / "case", ignore_errors=True)
    for name in RESULT_FILES:
        (out / name).unlink(missing_ok=True)
