"""The control of evidence by time: a busy machine raises limits, an idle one does not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from graphdbg.toolkit.replaying import replay


def test_only_a_busy_machine_raises_a_limit() -> None:
    assert replay.longer(10.0, 1.1, 600.0) == 10.0
    assert replay.longer(10.0, 4.0, 600.0) == 50.0
    assert replay.longer(10.0, float("inf"), 600.0) == 600.0
    assert replay.longer(900.0, 4.0, 600.0) == 900.0


def test_what_the_server_added_for_others_is_not_added_again() -> None:
    assert replay.longer(20.0, 6.0, 600.0, waited_s=80.0) == 37.5  # which the server makes 150 s, as 20 s times 6 are
    assert replay.longer(20.0, 3.0, 600.0, waited_s=80.0) == 20.0


@pytest.mark.long
def test_waiting_counts_and_work_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphdbg.toolkit.judging import judge as module

    judged = module.judge

    def waiting(*given: Any, **more: Any) -> Any:
        judgement = judged(*given, **more)
        time.sleep(3.0)  # as another program would take the processor
        return judgement

    plain = replay.factor(5)
    monkeypatch.setattr(module, "judge", waiting)
    assert replay.factor(5) > max(replay.BUSY, plain)
