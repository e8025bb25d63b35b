"""The record of a judgement: what it holds, its words, its exit code, and the way through JSON."""

from __future__ import annotations

import msgspec
import pytest

import graphdbg
from graphdbg.toolkit.kernel_checks.findings import CheckedKernels, KernelFault
from graphdbg.toolkit.verdicts import verdict, verdict_words
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict import OK, Verdict, Where, cannot_tell, died, fails, judged, skipped

CRASH = Signature("crash", "compile", "ValueError", detail="aten.mul.Tensor", raw="no such thing")
WRONG = Signature("accuracy", "compare", size=0.5, raw="output 0: relative error 0.5")
MEMORY = Signature("memory", "run")


@pytest.mark.parametrize(
    ("record", "text", "word", "code"),
    [
        (OK, "ok", "ok", 0),
        (Verdict("ok", reason="it compiles; it was not run"), "it compiles; it was not run", "ok", 0),
        (skipped("there is no C++ compiler"), "skipped, because there is no C++ compiler", "skipped", 4),
        (cannot_tell("it draws", verdict.NO_REFERENCE), "no reference: it draws", "cannot tell", 4),
        (cannot_tell("no such op"), "cannot tell: no such op", "cannot tell", 4),
        (
            judged(Signature("nondeterministic", "eager", raw="it differs")),
            "nondeterministic: nondeterministic in eager: it differs",
            "nondeterministic",
            4,
        ),
        (judged(CRASH), "crash: crash in compile: ValueError (aten.mul.Tensor): no such thing", "fails: crash", 1),
        (judged(MEMORY), "memory: memory in run", "fails: memory", 1),
        (died(MEMORY, "inductor"), "memory in run", "fails: memory", 1),
        (died(Signature("memory", "eager"), "inductor"), "cannot tell: memory in eager", "cannot tell", 4),
        (died(Signature("signal", "run", detail="SIGSEGV"), "inductor"), "signal in run: SIGSEGV", "fails: signal", 1),
        (judged(WRONG, reason=WRONG.raw), "wrong numbers: output 0: relative error 0.5", "fails: wrong numbers", 1),
        (
            judged(Signature("accuracy", detail="signed zero"), reason="a -0"),
            "wrong sign of zero: a -0",
            "fails: wrong numbers",
            1,
        ),
        (judged(Signature("accuracy", detail="rounding"), reason="half"), "differs by rounding: half", "rounding", 0),
        (
            judged(Signature("nan", "compare", detail="inf"), reason="it"),
            "inf that eager does not have: it",
            "fails: NaN",
            1,
        ),
        (
            judged(Signature("nan", "compare", detail="no nan"), reason="it"),
            "no nan where eager has it: it",
            "fails: NaN",
            1,
        ),
        (judged(Signature("metadata", detail="stride"), reason="output 0"), "metadata: output 0", "fails: metadata", 1),
        (judged(Signature("missing_error"), reason="it raises"), "missing error: it raises", "fails: missing error", 1),
    ],
)
def test_what_is_said_of_each(record: Verdict, text: str, word: str, code: int) -> None:
    assert (verdict_words.text(record), verdict_words.word(record), record.exit_code) == (text, word, code)
    assert verdict_words.rank(record) >= (0, 0)


def test_a_failure_names_kind_fault_and_layer() -> None:
    judgement = judged(WRONG, "triton_interpret", where=Where("mul", line="model.py:3"))
    assert (judgement.verdict, judgement.kind, judgement.fault, judgement.layer) == (
        "fails",
        "wrong_numbers",
        "compiler",
        "triton",
    )
    assert (judged(CRASH, "eager").fault, judged(CRASH, "torchscript").layer) == ("model", None)
    assert judged(Signature("accuracy", detail="rounding")).verdict == "rounding"


@pytest.mark.parametrize(("node", "fault"), [("triton_kernel_wrapper_mutation", "model"), ("add", "compiler: triton")])
def test_an_access_of_a_kernel_of_ones_own_is_no_fault_of_the_compiler(node: str, fault: str) -> None:
    access = KernelFault("load", "shift", nodes=[node])
    result = CheckedKernels([access]).conclusion
    assert verdict_words.first_line(result) == f"FAILS: {access.what} in shift at {node} ({fault})"


def test_the_worst_of_several_is_the_verdict_on_them() -> None:
    doubt, rounding = cannot_tell("no such op"), Verdict("rounding")
    assert verdict.worst([OK, rounding]) == rounding
    assert [verdict.worst(item).exit_code for item in ([OK, rounding], [OK, doubt], [doubt, judged(WRONG)], [])] == [
        0,
        4,
        1,
        4,
    ]


def test_the_first_line_says_verdict_counts_place_and_fault() -> None:
    judgement = judged(WRONG, "inductor", where=Where("amin", line="bagnet.py:8", name="output 0"))
    assert (
        verdict_words.first_line(judgement, 1, 3)
        == "FAILS 1 of 3 graphs: wrong numbers at amin, bagnet.py:8 (compiler: inductor)"
    )
    assert verdict_words.first_line(OK) == "OK"
    assert verdict_words.first_line(cannot_tell("no such op"), 2, 3) == "CANNOT TELL 2 of 3 graphs: no such op"


def test_a_row_that_was_left_out_is_skipped_and_comes_back() -> None:
    left_out = skipped("there is no C++ compiler")
    messages = {"rung": "inductor", **left_out.flat(row=True)}
    assert (messages["verdict"], messages["skipped"]) == ("skipped", True)
    assert verdict.read(messages) == left_out


def test_the_record_comes_back_from_json_as_it_was() -> None:
    judgement = judged(WRONG, "inductor", where=Where("mul", line="model.py:3", name="output 0"))
    plain = msgspec.json.decode(msgspec.json.encode(judgement.plain()))
    assert set(plain) == {"verdict", "kind", "fault", "layer", "reason", "where", "workaround", "next", "detail"}
    assert verdict.read(plain) == judgement
    assert verdict.read(None) is None
    assert graphdbg.Verdict is Verdict


def test_a_work_around_that_compiles_nothing_is_said_to_be_that() -> None:
    assert verdict_words.around(verdict_words.EAGER).startswith("Only running it without the compiler")
    assert verdict_words.around("import torch").startswith("Work-around, seen to work")


def test_a_reason_ends_without_a_full_stop_whatever_an_exception_says() -> None:
    raised = Signature("error", "eager", "ValueError", raw="It is not possible.")
    reasons = [judged(raised).reason, cannot_tell("It is not.").reason, fails("crash", "inductor", "No.").reason]
    assert reasons == ["error in eager: ValueError: It is not possible", "It is not", "No"]


def test_the_words_of_what_is_not_finite() -> None:
    lost = Signature("nan", "compare", detail="no nan")
    assert verdict_words.happens(lost.kind, lost.detail) == "torch.compile loses eager's NaN"
    assert verdict_words.expected(judged(lost)) == ("NaN, as in eager mode and in float64", "other values")
    assert verdict_words.phrase(judged(lost), lost, "", None, None) == "loses eager's NaN"
    infinite = Signature("nan", "compare", detail="inf")
    assert verdict_words.phrase(judged(lost), infinite, "", None, None) == "gives Inf that eager does not have"
