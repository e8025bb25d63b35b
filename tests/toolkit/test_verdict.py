"""The record of a judgement: what it holds, its words, its exit code, and the way through JSON."""

from __future__ import annotations

import msgspec
import pytest

import graphdbg
from graphdbg.toolkit import verdict, verdict_words
from graphdbg.toolkit.signature import Signature
from graphdbg.toolkit.verdict import OK, Verdict, Where, cannot_tell, died, judged, skipped

CRASH = Signature("crash", "compile", "ValueError", detail="aten.mul.Tensor", raw="no such thing")
WRONG = Signature("accuracy", "compare", size=0.5, raw="output 0: relative error 0.5")
MEMORY = Signature("memory", "run")


@pytest.mark.parametrize(
    ("record", "text", "word", "code"),
    [
        (OK, "ok", "ok", 0),
        (Verdict("ok", reason="it compiles; it was not run"), "it compiles; it was not run", "ok", 0),
        (skipped("there is no C++ compiler"), "skipped, because there is no C++ compiler", "skipped", 0),
        (cannot_tell("it draws", verdict.NO_REFERENCE), "no reference: it draws", "no reference", 0),
        (cannot_tell("no such op"), "cannot judge: no such op", "cannot judge", 1),
        (judged(Signature("nondeterministic", "eager", raw="it differs")),
         "cannot judge: nondeterministic in eager: it differs", "cannot judge", 1),
        (judged(CRASH), "crash: crash in compile: ValueError (aten.mul.Tensor): no such thing", "crash", 1),
        (judged(MEMORY), "memory: memory in run", "memory", 1),
        (died(MEMORY, "inductor"), "memory in run", "memory", 1),
        (died(Signature("memory", "eager"), "inductor"), "cannot judge: memory in eager", "cannot judge", 1),
        (died(Signature("signal", "run", detail="SIGSEGV"), "inductor"), "signal in run: SIGSEGV", "signal", 1),
        (judged(WRONG, reason=WRONG.raw), "wrong numbers: output 0: relative error 0.5", "wrong", 1),
        (judged(Signature("accuracy", "compare", detail="signed zero"), reason="a -0"), "wrong sign of zero: a -0", "wrong", 1),
        (judged(Signature("accuracy", "compare", detail="rounding"), reason="half"), "a rounding is left out: half", "wrong", 1),
        (judged(Signature("nan", "compare", detail="inf"), reason="it"), "inf that eager does not have: it", "NaN", 1),
        (judged(Signature("nan", "compare", detail="no nan"), reason="it"), "no nan where eager has it: it", "NaN", 1),
        (judged(Signature("metadata", "compare", detail="stride"), reason="output 0"), "metadata: output 0", "metadata", 1),
        (judged(Signature("missing_error", "compare"), reason="it raises"), "missing error: it raises", "missing error", 1),
    ],
)  # fmt: skip
def test_what_is_said_of_each(record: Verdict, text: str, word: str, code: int) -> None:
    assert (verdict_words.text(record), verdict_words.word(record), record.exit_code) == (text, word, code)
    assert verdict_words.rank(record) >= 0


def test_a_failure_names_kind_fault_and_layer() -> None:
    found = judged(WRONG, "triton_interpret", where=Where("mul", line="model.py:3"))
    assert (found.verdict, found.kind, found.fault, found.layer) == ("fails", "wrong_numbers", "compiler", "triton")
    assert (judged(CRASH, "eager").fault, judged(CRASH, "torchscript").layer) == ("model", None)
    assert judged(Signature("accuracy", detail="rounding")).verdict == "rounding"


def test_the_record_comes_back_from_json_as_it_was() -> None:
    found = judged(WRONG, "inductor", where=Where("mul", line="model.py:3", name="output 0"))
    plain = msgspec.json.decode(msgspec.json.encode(found.plain()))
    assert set(plain) == {"verdict", "kind", "fault", "layer", "reason", "where", "workaround", "next", "detail"}
    assert verdict.read(plain) == found
    assert verdict.read(None) is None
    assert graphdbg.Verdict is Verdict
