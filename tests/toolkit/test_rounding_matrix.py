"""Rounding or bug: 24 programs in which rounding decides, 24 faults that look like it, and what makes the former
agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import graphdbg
from graphdbg.toolkit.isolation import JUDGING, ForkServer
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.rung import Compiled, Rung
from graphdbg.toolkit.live.spec import ReplaySpec
from tests.toolkit.rounding_programs import FAULTS, ROUNDING

LEAST_CONFIRMED = 20


class Wrong(Rung):
    """A compiler with a fault."""

    name = "inductor"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        return lambda inputs: [self.function(*inputs)]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_convicted(name: str) -> None:
    fault = FAULTS[name]
    gm = make_fx(lambda *given: [fault.right(*given)])(*fault.inputs)
    case = Live(gm, list(fault.inputs), ReplaySpec("inference"))
    assert judge(case, Wrong(fault.right)).verdict.verdict == "ok"
    verdict = judge(case, Wrong(fault.wrong)).verdict
    assert (verdict.verdict, verdict.kind) == ("fails", "wrong_numbers"), verdict.reason
    assert "judged wrong by" in verdict.reason


@pytest.mark.slow
def test_rounding_convicts_nobody_and_a_setting_makes_it_agree(tmp_path: Path, warm_inductor_cache: Path) -> None:
    wrong, confirmed = [], []
    with ForkServer(warm_inductor_cache, threads=1, preload=JUDGING) as server:
        for number, (name, (function, inputs)) in enumerate(ROUNDING.items()):
            gm = make_fx(lambda *given, function=function: [function(*given)])(*inputs)
            case = tmp_path / str(number)
            graphdbg.save_graph(gm, list(inputs), case)
            verdict = graphdbg.triage(graphdbg.load_graph(case), server=server).verdict
            if verdict.verdict != "rounding":
                wrong.append(f"{name}: {verdict.verdict}: {verdict.reason}")
            elif verdict.workaround:
                confirmed.append(name)
    assert not wrong, "\n".join(wrong)
    assert len(confirmed) >= LEAST_CONFIRMED, sorted(set(ROUNDING) - set(confirmed))
