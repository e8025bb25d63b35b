"""The words for verdicts: one table for each kind of reader, and the texts made from them. Imports no torch.

Decides nothing: the record has the decision.

>>> from graphdbg.toolkit.verdicts.verdict import Where, fails, skipped
>>> text(skipped("there is no CUDA device here")), word(skipped(""))
('skipped, because there is no CUDA device here', 'skipped')
>>> first_line(fails("wrong_numbers", "inductor", "", Where("amin", line="bagnet.py:8")), 1, 3)
'FAILS 1 of 3 graphs: wrong numbers at amin, bagnet.py:8 (compiler: inductor)'
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from ...dumps.store import Run, SavedGraph
from ...dumps.wording import counted, listed, size_text
from .signature import Signature
from .verdict import KINDS, NO_REFERENCE, WHOLE, WORST, Fault, Kind, Verdict

Tone = Literal["", "ok", "bad", "doubt", "running", "dim"]

_KINDS = (*get_args(Kind), None)
_WORDS = {"nan": "NaN", "cannot_tell": "cannot tell", "slow_compile": "slow to compile"}
"""A verdict's word or kind -> its text, where that is not the name with blanks for underscores."""

NAN_GIVEN = "NaN comes in with"
"""First words of the reason of a NaN that comes from an input, not from a node."""
COUNTED = {
    "rounding": "apart by rounding",
    "nondeterministic": "not deterministic in eager",
    "cannot_tell": "cannot be judged",
}
"""A verdict other than ok and fails -> the phrase with which graphs are counted."""

PROBES = {
    "same": ("the same failure", "fails the same way"),
    "gone": ("gone", "right"),
    "other": ("another failure", "fails in another way"),
}
"""Result of a bisect's probe -> a phrase for the failure, and what the graph then does."""

RELATIONS = {
    "same": "with them the graph fails the same way",
    "other": "with them the graph fails in another way",
    "new": "the graph fails only with them",
    "gone": "with them the graph does not fail, so no node is marked: a fusion or a pass that they prevent is to blame",
    "unknown": "it is not known whether the graph fails the same way with them",
    "right": "the graph fails neither with nor without them",
}
"""How extra outputs change a failure -> a phrase; the most informative first."""


class QueryWords(NamedTuple):
    """Words for the result of a query, after "it": `was` in the past, `does` in the present; `mark` (ASCII: `letter`)
    is drawn in `style`."""

    was: str
    does: str
    mark: str = "?"
    letter: str = "?"
    style: str = ""


QUERIES = {
    "same": QueryWords("failed the same way", "fails the same way", "●", "o", "green"),
    "pass": QueryWords("passed", "passes", "·", "."),
    "other": QueryWords("failed in another way", "fails in another way", "x", "x", "yellow"),
    "invalid": QueryWords("could not be judged", "cannot be judged", "-", "-"),
    "timeout": QueryWords("ran out of time", "runs out of time", "t", "t", "red"),
    "infra": QueryWords("got no answer", "gets no answer", "!", "!", "red"),
}
"""Result of a query -> its words, in the order in which results are counted."""

NEEDS = {
    "needed": ("needed", "**needed**"),
    "replaceable": ("replaceable (something else in its place also fails)", "replaceable"),
    "unknown": ("cannot tell", "cannot tell"),
}
"""What a part of a case is for -> the words on a terminal, and in issue.md; the most informative first."""

_REPORTED = {
    "crash": ("fails", "it compiles and runs, as in eager mode", "an exception"),
    "wrong_numbers": (
        "gives a wrong result",
        "the result of eager mode, which agrees with a float64 run",
        "wrong numbers",
    ),
    "nan": ("gives NaN", "finite numbers, as in eager mode", "NaN"),
    "inf": ("gives Inf", "finite numbers, as in eager mode", "infinity"),
    "no nan": ("loses eager's NaN", "NaN, as in eager mode and in float64", "other values"),
    "no inf": ("loses eager's infinity", "infinity, as in eager mode and in float64", "other values"),
    "metadata": (
        "gives other metadata than eager",
        "shape, dtype, device, strides, in-place changes and shared memory as in eager mode",
        "different ones (see above)",
    ),
    "missing_error": ("does not raise eager's error", "the exception that eager mode raises", "no exception"),
    "hang": ("does not end", "it ends, as in eager mode", "it does not end"),
    "signal": ("kills the process", "it compiles and runs, as in eager mode", "the process is killed by a signal"),
    "memory": ("needs too much memory", "it fits in memory, as in eager mode", "it needs too much memory"),
    "slow_compile": ("is slow", "it compiles and runs sooner", "it takes too long"),
    "command": ("fails", "the command passes (exit code 0)", "it fails"),
}
"""Kind (for NaN and Inf: the signature's detail) -> what torch.compile does, what was expected, what happened instead.
"command": a failure that only a user's command recognises."""

_SEARCHED = {
    "wrong_numbers": "(wrong OR incorrect OR mismatch)",
    "nan": "(nan OR inf)",
    "metadata": "(dtype OR stride OR shape)",
    **dict.fromkeys(("mutation", "no mutation"), "(mutation OR mutate OR inplace)"),
    **dict.fromkeys(("alias", "no alias"), "(alias OR view)"),
    "hang": "(hang OR stuck)",
    "signal": "(segfault OR crash)",
    "memory": "(memory OR OOM)",
    "slow_compile": '(slow OR "compile time")',
}
"""Kind of a failure without a message, or a metadata property -> search words for issues about it."""

_OWNERS = {
    "custom_pass": "the fault is in the run's own code",
    "custom_op": "the fault is in a custom operator",
    "model": "eager does the same, so the fault is in the model",
}
"""Fault -> a sentence about the party at fault."""

RANKS = "ranks"
"""The detail of a verdict on ranks that compiled different graphs."""
_HEADS = {
    "wrong_numbers": "wrong numbers",
    "signed zero": "wrong sign of zero",
    "rounding": "differs by rounding",
    RANKS: "ranks differ",
}
"""Kind or detail -> the first words of the text."""

DRAWS = (
    "Random numbers were drawn as eager draws them (fallback_random); without it compiled code draws others, by design"
)
"""The note on a graph that draws random numbers and agrees with eager."""
AS_TRACED = "they are as traced"
"""The note on strides that differ from eager's but equal those that an operator's fake function promised."""
EAGER = 'import torch\ntorch.compiler.set_stance("force_eager")'
"""The lines that leave everything uncompiled, as a work-around where eager is right."""
_AROUND = "Work-around, seen to work on this graph (put it before the first compile):"
_UNCOMPILED = "Only running it without the compiler was seen to work (put this before the first compile):"
_SHOWN_NAMES = 6


def word(record: Verdict) -> str:
    """A verdict in a few words, as rows of a table say it: "ok", "fails: wrong numbers", "skipped"."""
    if record.skipped:
        return "skipped"
    return _said(record.verdict) + (f": {_said(record.kind)}" if record.kind else "")


def around(lines: str) -> str:
    """The sentence that introduces a work-around."""
    return _UNCOMPILED if lines == EAGER else _AROUND


def known(record: Verdict) -> tuple[int, str, str]:
    """The part of a verdict that is stored (see `dumps.worst`)."""
    return record.exit_code, word(record), record.reason.partition("\n")[0][:300]


def all_known(run: Run, verdicts: Iterable[tuple[str, Verdict]]) -> dict[str, tuple[int, str, str]]:
    """The stored parts of verdicts, by graph id: each under its graph and, with precedence, under the graph that its
    next command minifies."""
    kept: dict[str, tuple[int, str, str]] = {}
    for name, verdict in verdicts:
        smaller = minified(verdict, run)
        for graph in (smaller.id if smaller else name, name):
            kept.setdefault(graph, known(verdict))
    return kept


def minified(record: Verdict, run: Run) -> SavedGraph | None:
    """The graph that a verdict's next command minifies: for a wrong pass, the graph before it."""
    named = shlex.split(record.minify)[2:3]
    return next((graph for graph in run.graphs() for name in named if name.endswith(f"/{graph.id}")), None)


def _said(name: str) -> str:
    return _WORDS.get(name, name.replace("_", " "))


def rank(record: Verdict) -> tuple[int, int]:
    """Failures first, crashes before wrong numbers; then what cannot be judged, then what is right."""
    return WORST.index(record.verdict) + record.skipped * len(WORST), _KINDS.index(record.kind)


def first_line(record: Verdict, count: int = 1, of: int = 1) -> str:
    """The first line of a judgement's output; `count` `of` several graphs have this verdict, which is the worst."""
    graphs = f" {count} of {counted(of, 'graph')}" if of > 1 else ""
    if record.failed:
        name = record.where.name if record.where is not None else ""
        place = where_text(record)
        fault = ": ".join(_said(part) for part in (record.fault, record.layer) if part)
        kind = (
            _HEADS[RANKS] if record.detail == RANKS else _said(record.kind) if record.kind else record.reason or "fails"
        )
        text = f"{kind}{f' at {place}' if place else f' in {name}' if name else ''}"
        text += f" ({fault})" if fault else ""
    else:
        text = record.reason
    return f"{_said(record.verdict).upper()}{graphs}" + (f": {text}" if text else "")


def where_text(record: Verdict) -> str:
    """Where a failure shows, as "amin, bagnet.py:8"; what is not known is left out."""
    where = record.where
    return "" if where is None else ", ".join(part for part in (where.node, where.line) if part)


def text(record: Verdict) -> str:
    """A verdict with its reason, as `replay` prints it."""
    if record.verdict == "ok" or record.detail == WHOLE:
        return record.reason or "ok"
    if record.skipped:
        return f"skipped, because {record.reason}"
    return f"{_head(record)}: {record.reason}"


def query_words(said: str) -> QueryWords:
    """The words for the result of a query; for an unknown result, the result itself."""
    return QUERIES.get(said) or QueryWords(said, said)


def without(said: str) -> str:
    """What a case does without one part, in words; "" where that was not tried."""
    return "still fails" if said == "same" else QUERIES[said].does if said in QUERIES else ""


def needed(said: str) -> str:
    """The words about a part of a case for a table cell of issue.md."""
    return NEEDS.get(said, NEEDS["replaceable"])[1]


_DOES = {"model": "the model itself", "custom_pass": "torch.compile with it"}
"""Fault -> the subject of a report's title; torch.compile for other faults."""


def _reported(kind: str, detail: str) -> tuple[str, str, str]:
    return _REPORTED.get(detail, _REPORTED["nan"]) if kind == "nan" else _REPORTED[kind]


def happens(signature_kind: str, detail: str = "", fault: Fault | None = None) -> str:
    """The title of a report: who does what. A model does it in eager mode, too."""
    return f"{_DOES.get(fault or '', 'torch.compile')} {_reported(KINDS.get(signature_kind, 'crash'), detail)[0]}"


def does(record: Verdict) -> str:
    """What torch.compile does, by the kind of the verdict."""
    return f"{_DOES.get(record.fault or '', 'torch.compile')} {_reported(record.kind or 'crash', record.detail)[0]}"


def searched(signature_kind: str, detail: str) -> str:
    """Search words for issues, besides the operations; "" where the error message is searched for."""
    return _SEARCHED.get(detail) or _SEARCHED.get(KINDS.get(signature_kind, ""), "")


def expected(record: Verdict) -> tuple[str, str]:
    """The sentence of issue.md on what was expected, and what came instead."""
    kind = "wrong_numbers" if record.verdict == "rounding" else record.kind or "command"
    return _reported(kind, record.detail)[1:]


def owner(record: Verdict) -> str:
    """The party at fault, where it is not the compiler."""
    unknown = (
        "nothing shows that the compiler is wrong"
        if record.verdict == "rounding"
        else "it is not known whose fault it is"
    )
    return _OWNERS.get(record.fault or "", unknown)


def said(record: Verdict, reason: str) -> str:
    """The reason as it follows the word in a table."""
    return f"because {reason}" if record.skipped else reason


def tone(record: Verdict) -> Tone:
    """How the word is coloured on a screen."""
    if record.failed:
        return "bad"
    return "ok" if record.exit_code == 0 else "dim" if record.skipped else "doubt"


def phrase(record: Verdict, seen: Signature | None, reason: str, error: float | None, eager_error: float | None) -> str:
    """How a rung fails, as the verb of a sentence."""
    where = f" in {seen.stage}" if seen is not None and seen.stage not in ("", "compare") else ""
    match record.kind:
        case "wrong_numbers":
            own = "" if eager_error is None else f"; eager's own {eager_error:.2g}"
            size = error if error is not None or seen is None else seen.size
            return f"is wrong (error {size:.2g}{own})" if size is not None else f"is wrong ({reason})"
        case "nan" if record.fault == "model":
            own = "itself gives NaN"
            return f"{'gives NaN' if reason.startswith(NAN_GIVEN) else own} ({reason})"
        case "nan":
            what = _reported("nan", seen.detail if seen is not None else record.detail)[0]
            return f"{what} that eager does not have" if what.startswith("gives") else what
        case "metadata":
            return f"gives other metadata than eager ({reason})"
        case "missing_error":
            return f"raises nothing where {seen.raw if seen is not None else reason}"
        case "hang":
            return f"hangs{where}"
        case "memory":
            return f"runs out of memory{where}"
        case "signal":
            return f"dies{where} ({seen.detail if seen is not None else reason})"
        case _:
            return f"crashes{where} ({reason.partition(': ')[2] or reason})"


def memory_needed(needed: int, eagers: int, of: str = "") -> str:
    """A phrase with the bytes of compile and first run beside those of eager's own run."""
    eager = f"{size_text(eagers) if eagers else 'too little to measure'} for eager's own run"
    return f"{size_text(needed)} for compile and first run{f' of {of}' if of else ''}, {eager}"


def whose_nan(rung: str, names: Sequence[str], eager: Sequence[str]) -> str:
    """Whose NaN a rung's results `names` hold, in words: the model's own where eager has it too, else the compiled
    graph's; "" when there is none. A NaN that eager has as well is no failure of the compiler.
    """
    if not names:
        return f"eager gives NaN in {listed(eager, _SHOWN_NAMES)}; {rung} does not" if eager else ""
    text = f"NaN in {listed(names, _SHOWN_NAMES)}"
    if rung == "eager":
        return f"{text}: the fault is in the model"
    alone = [name for name in names if name not in eager]
    if not alone:
        return f"{text}; eager gives NaN too, so the compiler is not at fault"
    if not eager:
        return f"{text}; only the compiled graph gives NaN, eager does not"
    return f"{text}; only the compiled graph gives NaN in {listed(alone, _SHOWN_NAMES)}"


def headline(record: Verdict) -> str:
    """The first line of its text."""
    return text(record).partition("\n")[0]


def _head(record: Verdict) -> str:
    if record.detail == NO_REFERENCE:
        return "no reference"
    if not record.differs:
        return word(record)
    if record.kind == "nan":
        if record.fault == "model":
            return "NaN that an input brings in" if record.reason.startswith(NAN_GIVEN) else "NaN from the model itself"
        missing = record.detail.startswith("no ")
        return f"{record.detail} where eager has it" if missing else f"{record.detail} that eager does not have"
    kind = record.kind or record.verdict
    return _HEADS.get(record.detail) or _HEADS.get(kind) or kind.replace("_", " ")
