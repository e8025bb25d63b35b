"""The search for a work-around, interrupted: the verdict stays, with the command that looks on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.store import open_run
from graphdbg.toolkit.isolation import ForkServer
from graphdbg.toolkit.replaying.replay import How
from graphdbg.toolkit.triage import ladder, run
from graphdbg.toolkit.verdicts.verdict import WHOLE, fails
from graphdbg.toolkit.verdicts.verdict_words import EAGER


def test_ctrl_c_leaves_the_verdict(recorded: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ladder, "work_around", interrupted)
    saved = open_run(recorded).graphs()[0]
    verdict = fails("wrong_numbers", "inductor", "it is wrong")
    result = ladder.eased(saved, server, How(), verdict, 0.1, 60.0, thorough=True)
    assert (result.verdict, result.reason, result.workaround) == ("fails", "it is wrong", None)
    assert result.next[-1].endswith("--workaround")


@pytest.mark.parametrize(
    ("lines", "said"), [(None, "found no such work-around in"), (EAGER, "found no such"), ("x = 1", "found a ")]
)
def test_what_was_looked_for_and_whether_it_was_found(
    recorded: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch, lines: str | None, said: str
) -> None:
    def tried(*given: Any, **more: Any) -> str | None:
        return lines

    monkeypatch.setattr(ladder, "work_around", tried)
    saved, heard = open_run(recorded).graphs()[0], list[str]()
    for left_s in (60.0, 0.0):
        ladder.eased(saved, server, How(), fails("wrong_numbers", "inductor", ""), 0.1, left_s, report=heard.append)
    assert heard[0].startswith("looking for a work-around: ") and heard[1].startswith(said)
    assert [line.endswith("; not all were tried") for line in heard[1::2]] == [False, lines is None]


def test_where_stages_parted_the_graph_before_is_eased(
    recorded: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = open_run(recorded).graph("0_0/dynamo"), open_run(recorded).graph("0_0/inference")
    parted, tried = (after, fails("wrong_numbers", "aot_autograd", "it parts", detail=WHOLE)), list[str]()
    for module in (ladder, run):
        monkeypatch.setattr(module, "judge_stages", lambda *given, **more: parted)
    monkeypatch.setattr(ladder, "work_around", lambda saved, *given, **more: tried.append(saved.id))
    results = [ladder.triage(after, server=server), run.triage_run(open_run(recorded), server=server)]
    assert tried == [before.id] * 2
    assert all(f"/{before.id} --workaround" in triage.verdict.next[-1] for triage in results)
