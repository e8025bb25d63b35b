"""Whether a failing graph of a program fails outside of it, too, and with what: one line, and the commands say it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdbg.dumps.store import open_run
from graphdbg.toolkit.isolation.imports import TRUST
from graphdbg.toolkit.program import judging
from graphdbg.toolkit.program.records import Call, CallRung
from graphdbg.toolkit.verdicts.verdict import Verdict, Where, fails
from tests.dumps.graphs import chain, new_run

COMMAND = "graphdbg minify run/0_0/forward"


@pytest.mark.parametrize(
    ("needed", "said", "following"),
    [
        ([], "fails there, too", [COMMAND]),
        ([TRUST], "fails there with --trust", [f"{COMMAND} --trust"]),
        (["/ops.py"], "fails there with --import /ops.py", [f"{COMMAND} --import /ops.py"]),
        (
            None,
            "was not seen to fail there, also not with --trust or --import /ops.py, so it cannot be minified alone",
            [],
        ),
    ],
)
def test_the_outcome_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: list[str] | None, said: str, following: list[str]
) -> None:
    def replay(*_: Any, imports: Sequence[str], **more: Any) -> Any:
        return SimpleNamespace(verdict=SimpleNamespace(failed=[*imports] == needed))

    def opened(_: None) -> Any:
        return nullcontext()

    monkeypatch.setattr(judging, "replay", replay)
    monkeypatch.setattr(judging, "opened", opened)
    monkeypatch.setattr(judging, "with_trust_for", lambda saved, command: f"{command} --trust")  # it holds source
    _, process = new_run(tmp_path / "run")
    process.save_graph(chain())
    process.close()
    lines: list[str] = []
    verdict = Verdict("fails", where=Where(graph="run/0_0/forward"), next=[COMMAND])
    result = judging._importing(open_run(tmp_path / "run"), verdict, {"/ops.py": "ops"}, lines.append)  # pyright: ignore[reportPrivateUsage]
    assert lines[1:] == [f"0_0/forward {said}"]
    assert result.next == following


def test_who_asked_to_end_waits_for_no_further_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = fails("wrong_numbers", "inductor", "it is wrong")
    sought: list[str] = []

    def triage_run(*_: Any, **more: Any) -> Any:
        return SimpleNamespace(verdict=verdict, summary="1 of 1 fails", graphs=[])

    def bisect(graph: Any, **more: Any) -> Any:
        sought.append(graph.id)
        return SimpleNamespace(reproduced=False, stopped="")

    def importing(_: Any, known: Verdict, *more: Any) -> Verdict:
        sought.append("outside")
        return known

    monkeypatch.setattr(judging, "triage_run", triage_run)
    monkeypatch.setattr(judging, "bisect", bisect)
    monkeypatch.setattr(judging, "_importing", importing)
    monkeypatch.setattr(judging, "_widest_first", lambda run, verdict: run.graphs() * 2)
    _, process = new_run(tmp_path / "run")
    process.save_graph(chain())
    process.close()
    call = Call("1:1", "step", "train.py", 3, 0, rows=[CallRung("inductor", verdict)], run=str(tmp_path / "run"))
    server: Any = nullcontext()
    monkeypatch.setattr(judging, "opened", lambda _: nullcontext())
    graph = "0_0/forward"
    for stopped, wanted in (
        (lambda: True, []),
        (lambda: bool(sought), [graph]),
        (lambda: False, [graph, graph, "outside"]),
    ):
        sought.clear()
        judged = judging.judge_graphs(call, server, lambda text: None, stopped=stopped)
        assert judged.verdict == verdict and sought == wanted
