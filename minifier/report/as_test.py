"""`report --as-test`: a repro as a test in the style of PyTorch's suites, and the proof that it fails where the bug
shows.

The test is run as it is, in fresh processes, and once with torch's backend `eager`, where it has to pass. Nothing is
overwritten, and nothing claimed that was not seen.

For example:

    write_test(Path("small/repro.py"), signature, failure, Path("out")).rate
    # '3 of 3 fresh processes'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ... import __version__
from ...dumps import opening, temporary, written
from ...dumps.atomic import write_file
from ...dumps.errors import ExistsAlreadyError
from ...dumps.program.suite import FORMS, compiles, eager_of, failed_as, suite_of
from ...dumps.program.text import CannotExpressError
from ...dumps.store import SavedGraph
from ...dumps.wording import counted
from ...toolkit.isolation.cache import toolchain_seed
from ...toolkit.isolation.fresh import GONE, FreshRun, run_many
from ...toolkit.isolation.imports import homes_of
from ...toolkit.verdicts.identity import Identity, of_record
from ...toolkit.verdicts.signature import Signature
from ...toolkit.verdicts.verdict import KINDS, Verdict
from ...toolkit.verdicts.verdict_words import happens
from .bundle import emit_report
from .trying import written_at

NAME, TIMES = "test_repro.py", 3


@dataclass(frozen=True)
class WrittenTest:
    """The test, the file beside it, how many of how many runs of it failed, and whether it passes without the compiler
    (None: this cannot be asked)."""

    test: Path
    sidecar: Path | None
    failed: int
    times: int
    passes_in_eager: bool | None
    failure: Identity
    output: str

    @property
    def says(self) -> Literal["shows", "passes"]:
        """Whether the test shows the failure every time."""
        return "shows" if self.failed == self.times and self.passes_in_eager is not False else "passes"

    @property
    def rate(self) -> str:
        """How often the test failed, in words."""
        return f"{self.failed} of {counted(self.times, 'fresh process')}"

    def plain(self) -> dict[str, Any]:
        """The test for --json."""
        return {
            "test": str(self.test),
            "sidecar": str(self.sidecar) if self.sidecar else None,
            "repro": self.says,
            "failed": self.failed,
            "times": self.times,
            "passes_in_eager": self.passes_in_eager,
            "signature_id": self.failure.id,
        }


def write_test_of(
    saved: SavedGraph,
    out: Path,
    *,
    signature: Signature,
    rung: str,
    original: int | None,
    imports: Sequence[str],
    verdict: Verdict | None,
) -> WrittenTest:
    """Writes the test from the repro beside a case; where there is none of ours, a repro is written first."""
    failure, path = of_record(signature, saved.record, reduced=original is not None), homes_of(imports)
    remark = f"{happens(signature.kind, signature.detail)}; made by graphdbg {__version__}."
    beside = saved.path.parent / "repro.py"
    if saved.path.name == "case" and beside.is_file() and written.here(beside):
        return write_test(beside, signature, failure, out, remark=remark, path=path)
    with temporary.folder("graphdbg-test-") as folder:
        done = emit_report(
            saved, folder, signature=signature, rung=rung, original=original, imports=imports, verdict=verdict
        )
        if done.repro is None:
            raise CannotExpressError("no test can be written", "; ".join(done.notes))
        return write_test(done.repro, signature, failure, out, remark=remark, path=path)


def write_test(
    repro: Path, signature: Signature, failure: Identity, out: Path, *, remark: str = "", path: Sequence[str] = ()
) -> WrittenTest:
    """Writes OUT/test_repro.py from a repro, and the file beside it. `path`: folders where the test finds modules other
    than torch.

    The first form that fails each time is kept, else the first. Raises UsageError where the file exists,
    CannotExpressError for a kind of failure that a test does not show.
    """
    test, beside = out / NAME, repro.with_suffix(".safetensors")
    if test.exists():
        raise ExistsAlreadyError(f"cannot write {test}", "it exists already", "choose another folder with -o")
    program, kept = opening.read_text(repro), opening.read(beside) if beside.is_file() else None
    what = re.sub(r"\W+", "_", "_".join(failure.calls[:2]) or failure.detail or failure.error or "graph").strip("_")
    name = f"{what}_{KINDS.get(signature.kind, signature.kind)}".lower()
    head = f"{remark} Signature {failure.id}.".strip()
    first: tuple[str, FreshRun, int] | None = None
    with temporary.folder("graphdbg-test-") as folder:
        for form in range(len(FORMS) if signature.kind == "accuracy" else 1):
            text = suite_of(program, signature, name, form, head)
            trials = _run(text, kept, folder, path, TIMES)
            failed = sum(failed_as(trial.output, signature.kind, signature.error) for trial in trials)
            if first is None or failed == TIMES:
                first = text, trials[0], failed
            if failed == TIMES:
                break
        assert first is not None
        text, trial, failed = first
        eager = None
        if compiles(text) and signature.stage != "eager":
            (calm,) = _run(eager_of(text), kept, folder, path, 1)
            eager = calm.code == GONE
    out.mkdir(parents=True, exist_ok=True)
    write_file(test, text.encode())
    written.remember(test)
    sidecar = test.with_suffix(".safetensors") if kept is not None else None
    if sidecar is not None and kept is not None:
        write_file(sidecar, kept)
    return WrittenTest(test, sidecar, failed, TIMES, eager, failure, trial.output.strip())


def _run(text: str, kept: bytes | None, folder: Path, path: Sequence[str], times: int) -> list[FreshRun]:
    return run_many(written_at(folder / NAME, text, kept), times, seed=toolchain_seed(), path=path)
