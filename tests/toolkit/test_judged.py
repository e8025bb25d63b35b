"""What was judged is not judged again, as long as nothing that it depends on is another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import SavedGraph, load_graph
from graphdbg.toolkit.replaying.replay import known_outcome, remember, replay
from graphdbg.toolkit.verdicts.outcome import Outcome
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict import Verdict, cannot_tell
from tests.minifier import abstract

WRONG = Outcome(
    Verdict("fails", "wrong_numbers", "compiler"), Signature("accuracy", "compare", size=0.5), rung="inductor"
)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SavedGraph:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gm = torch.fx.symbolic_trace(lambda x: x.sin() + 1)
    return load_graph(save_graph(gm, [torch.ones(3)], tmp_path / "case"))


def test_an_outcome_is_known_for_the_same_graph_rung_and_environment_alone(
    saved: SavedGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(saved, "inductor", "auto", 0, WRONG)
    result = known_outcome(saved, "inductor", "auto", 0)
    assert result is not None and (result.verdict, result.signature) == (WRONG.verdict, WRONG.signature)
    assert known_outcome(saved, "decomposed", "auto", 0) is None and known_outcome(saved, "inductor", "auto", 1) is None
    other = torch.fx.symbolic_trace(lambda x: x.cos() + 1)
    assert (
        known_outcome(load_graph(save_graph(other, [torch.ones(3)], tmp_path / "other")), "inductor", "auto", 0) is None
    )
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    assert known_outcome(saved, "inductor", "auto", 0) is None


@pytest.mark.parametrize(
    "unsure", [cannot_tell("no time"), Verdict("fails", "hang", "compiler"), Verdict("nondeterministic")]
)
def test_what_another_run_may_see_otherwise_is_not_kept(saved: SavedGraph, unsure: Verdict) -> None:
    remember(saved, "inductor", "auto", 0, Outcome(unsure))
    assert known_outcome(saved, "inductor", "auto", 0) is None


@pytest.mark.long
def test_a_replay_keeps_what_it_came_to_and_takes_it_only_where_that_will_do(saved: SavedGraph) -> None:
    assert replay(saved, "nop", outputs=False).ok
    kept = known_outcome(saved, "nop", "auto", 0)
    assert kept is not None and kept.verdict.verdict == "ok"
    remember(saved, "nop", "auto", 0, WRONG)
    assert replay(saved, "nop", outputs=False, known=True).verdict == WRONG.verdict
    assert replay(saved, "nop", outputs=False).ok


def test_a_minification_asks_once_of_what_an_earlier_command_judged(tmp_path: Path) -> None:
    for earlier, asked in ((None, 2), ("same", 1), ("another failure", 2)):
        problem = abstract.Abstract(abstract.transformer(50), abstract.needs({7}), log=tmp_path / f"log {earlier}")
        reported = problem.whole()
        (tmp_path / f"log {earlier}").unlink()
        problem.earlier = earlier and replace(reported, signature=reported.signature if earlier == "same" else earlier)
        result = abstract.run(problem, tmp_path / f"out {earlier}")
        log = (tmp_path / f"log {earlier}").read_text().splitlines()
        assert log.count("original") == asked, earlier
        assert abstract.core(result) >= {7} and any("earlier command" in note for note in result.notes) == (asked == 1)
