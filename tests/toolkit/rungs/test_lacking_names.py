"""A private name that this torch lacks makes a rung skipped, and is no crash of the compiler's."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.errors import LacksName
from graphdbg.toolkit import torch_private
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.torch_private import NAMES

X = torch.randn(4, 3)
CASE = Live(make_fx(lambda x: [x.relu() + 1])(X), [X], ReplaySpec("inference", {"is_inference": True}))

HIDDEN = {
    "compile_fx_inner": "inductor",
    "TensorBox": "inductor_nofuse",
    "make_fx": "decomposed",
    "set_jit_autocast": "torchscript",
    "get_cpp_compiler": "inductor",
}
"""Name -> a rung that needs it: while it asks what is here, inside torch's own lowering, as it compiles or runs."""


@pytest.mark.parametrize("name", HIDDEN)
def test_a_rung_is_skipped_and_says_which(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NAMES, "_kept", {})
    monkeypatch.delitem(vars(torch_private), name, raising=False)
    monkeypatch.setitem(NAMES._places, name, ("torch._inductor.compile_fx", f"renamed_{name}"))
    outcome = judge(CASE, HIDDEN[name])
    assert outcome.verdict.skipped and outcome.signature is None
    assert outcome.text.startswith("skipped, because ")
    assert (
        f"torch {torch.__version__} has no torch._inductor.compile_fx.renamed_{name}, which is needed by "
        in outcome.text
    )


def test_a_module_that_is_gone_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor.lowering", None)
    with pytest.raises(LacksName, match=r"no torch._inductor.lowering.make_fallback \(.*\), which is needed by bisect"):
        NAMES.look_up("make_fallback")


def test_a_command_says_it_and_ends_with_code_3() -> None:
    from graphdbg.toolkit.isolation.child import failure_of
    from graphdbg.toolkit.isolation.protocol import TaskResult, raise_refusal

    with pytest.raises(LacksName, match=r"no torch\._guards\.tracing, which is needed by") as raised:
        raise_refusal(TaskResult(1, "exception", error=failure_of(NAMES._lacks("tracing", AttributeError()))))
    assert raised.value.exit_code == 3
