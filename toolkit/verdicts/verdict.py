"""The record of a judgement's result: made by the child that judged; the same on a screen, in `--json` and in the
journal. Every exit code is computed from it.

Nothing is judged here, and nothing is worded: for that see `verdict_words`. Imports no torch.

>>> judged(Signature("hang", "compile"), "inductor").kind
'hang'
>>> skipped("there is no CUDA device here").exit_code, OK.exit_code
(4, 0)
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from click.core import ParameterSource

from ...dumps.index import is_run
from ...dumps.store import SavedGraph
from ...dumps.wording import typed_path
from ..isolation.imports import option_words, with_trust
from ..live.rung import LADDER
from .signature import Signature

_IMPORTS = "graphdbg.imports"
_RUNS = ("import", "trust")
_TAKES = {
    **dict.fromkeys(("replay", "bisect"), (*_RUNS, "seed", "device", "rung", "check")),
    "triage": (*_RUNS, "seed", "device", "symptom"),
    "check": (*_RUNS, "seed", "device"),
    **dict.fromkeys(("report",), (*_RUNS, "seed", "rung")),
    "minify": (*_RUNS, "seed", "rung", "check"),
    "kernel": (*_RUNS, "seed"),
    "compile": _RUNS,
}
"""Command -> which of the flags that influence a finding it takes."""


def takes_trust(command: str) -> bool:
    """Whether a command is among those that run graphs and have `--trust`."""
    return "trust" in _TAKES.get(command, ())


def with_trust_for(saved: SavedGraph, command: str) -> str:
    """The command with `--trust`, where the dump has source that the graph needs from its program; else ""."""
    return f"{command} --trust" if saved.sourced else ""


def remember(imports: Sequence[str]) -> None:
    """Keeps the modules that `--import` named, for suggested commands."""
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_IMPORTS] = tuple(imports)


def with_flags(command: str, imports: Sequence[str] = ()) -> str:
    """Adds the flags of the running command that this command takes and does not have yet. `imports`: further modules
    to import."""
    words = command.split()
    takes = _TAKES.get(words[1], ()) if len(words) > 1 and words[0] == "graphdbg" else ()
    takes = () if command.startswith("graphdbg triage -- ") else takes  # the program's own command line stays as it is
    context = click.get_current_context(silent=True)
    typed = () if context is None else with_trust(context.meta.get(_IMPORTS, ()), bool(context.params.get("trust")))
    modules = option_words(tuple(dict.fromkeys((*typed, *imports)))) if takes else []
    flags = [modules[at : at + 2] for at in range(0, len(modules), 2)]  # --trust comes last and has no value
    whole = len(words) > 2 and is_run(Path(words[2]))  # --symptom is only for a whole run
    for name in takes[len(_RUNS) :]:
        if name == "symptom" and not whole:
            continue
        if context is not None and context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            value = context.params[name]
            if not isinstance(value, bool) and (words[1] == "minify" or not str(value).startswith("cmd:")):
                flags.append([f"--{name}", str(value)])
    named = [flag if flag[0] == "--import" else flag[:1] for flag in flags]  # whose presence counts
    new = [word for flag, by in zip(flags, named, strict=True) if not set(by) <= set(words) for word in flag]
    front, dashes, program = command.partition(" -- ")
    return " ".join([front, *([shlex.join(new)] if new else [])]) + dashes + program


Word = Literal["ok", "fails", "rounding", "nondeterministic", "cannot_tell"]
Kind = Literal[
    "crash", "signal", "hang", "memory", "nan", "wrong_numbers", "metadata", "missing_error", "slow_compile", "slow"
]
"""Kinds of failure, the one to look at first in front."""
Fault = Literal["compiler", "custom_pass", "custom_op", "model"]
Layer = Literal["dynamo", "aot_autograd", "decomposition", "inductor", "triton", "cudagraphs", "aot_inductor"]

SKIPPED, NO_TIME, NO_REFERENCE = "skipped", "no_time", "no_reference"
NOT_JUDGED, LOST, ABANDONED = "not_judged", "lost", "abandoned"
"""Details of a `cannot_tell`: the rung cannot run here; the rung's time was over; no reference for the numbers; the
graph's time was over; its process died; Dynamo abandoned the graph."""
SAME = "same"
"""The detail of a verdict taken over from an equal graph."""
UNLIKE = "unlike"
"""The detail of a `cannot_tell`: the failing program is not the run's."""
ROUNDING = "rounding"
"""The verdict's word, and the check under which it counts as a failure."""
AT_RANDOM = "but rounding alone, at random, moves the result as far"
"""In the reason of a rounding: only eager's runs with results rounded at random excuse it; a node may be wrong."""
DECIDED = "as rounding alone decides"
"""In the reason of a difference in discrete or non-finite elements, whose size is their share."""
OPERATOR = "a run in eager shows why: "
"""In a verdict's reason, before the sentence about a custom operator at fault."""
WHOLE = "whole"
"""The detail of a verdict whose reason is a complete statement."""

KINDS: dict[str, Kind] = {
    "crash": "crash",
    "signal": "signal",
    "accuracy": "wrong_numbers",
    "nan": "nan",
    "metadata": "metadata",
    "hang": "hang",
    "memory": "memory",
    "missing_error": "missing_error",
    "slow": "slow_compile",
}
"""Kind of a signature -> kind of a verdict. A user's command has none: it only says that it fails."""

_LAYERS: dict[str, Layer] = {
    **{name: facts.layer for name, facts in LADDER.items() if facts.layer is not None},
    "dynamo": "dynamo",
    "aot_eager": "aot_autograd",
    "aot_eager_decomp_partition": "decomposition",
    "as written": "inductor",
}
"""Rung, or backend of a script -> the layer that it adds to the one before."""


class Where(msgspec.Struct, frozen=True):
    """Where a failure shows: the node, the graph, the user's line ("model.py:12"), and the name that users know."""

    node: str = ""
    graph: str = ""
    line: str = ""
    name: str = ""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one judgement.

    `kind`, `fault` and `layer` come with `fails`. `reason`: one sentence, without its full stop. `workaround`: a line
    to paste that was seen to work. `same`: what PyTorch's own comparison of eager, compiled and float64 says, where
    numbers differ. `next`: whole commands to paste. `detail` decides which of today's words are said of it.
    `exit_code`: 0, 1 or 4.

    >>> Verdict("fails", kind="crash", fault="compiler", layer="inductor").exit_code
    1
    """

    verdict: Word
    kind: Kind | None = None
    fault: Fault | None = None
    layer: Layer | None = None
    reason: str = ""
    where: Where | None = None
    workaround: str | None = None
    same: bool | None = None
    next: list[str] = []
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether something went wrong, and not by rounding."""
        return self.verdict == "fails"

    @property
    def differs(self) -> bool:
        """Whether it differs from eager: a failure, or rounding."""
        return self.verdict in ("fails", "rounding")

    def sought(self, check: str) -> bool:
        """Whether it is what the user looks for: a failure, or rounding with `--check rounding`."""
        return self.failed or (check == ROUNDING and self.verdict == ROUNDING)

    def in_layer(self, layer: Layer | None) -> Verdict:
        """The verdict with this layer, in which the compiler's failure shows already; unchanged for None."""
        return msgspec.structs.replace(self, layer=layer) if layer and self.fault == "compiler" else self

    @property
    def skipped(self) -> bool:
        """Whether the rung cannot run here, or was left out."""
        return self.detail in (SKIPPED, NO_TIME)

    @property
    def undecided(self) -> bool:
        """Whether the rung could run and there is still no verdict."""
        return self.verdict in _UNDECIDED and not self.skipped

    @property
    def exit_code(self) -> int:
        """1 where something fails, 4 where that could not be judged, else 0."""
        return 1 if self.failed else 4 if self.verdict in _UNDECIDED else 0

    @property
    def minify(self) -> str:
        """The command, among those to go on with, that shrinks the failure; "" where none does."""
        return next((command for command in self.next if command.startswith("graphdbg minify ")), "")

    def then(self, *commands: str) -> Verdict:
        """The verdict with the commands to go on with, under the flags that are in force now; an empty command is
        none."""
        return msgspec.structs.replace(self, next=[with_flags(command) for command in commands if command])

    def said_too(self, sentence: str) -> Verdict:
        """The verdict where nothing is wrong, with what the judgement went without as its reason."""
        if self.exit_code:
            return self
        return msgspec.structs.replace(self, reason="; ".join(part for part in (self.reason, sentence) if part))

    def plain(self) -> dict[str, Any]:
        """Every field as a plain value, for what is kept; `same` only where it is known."""
        fields = msgspec.to_builtins(msgspec.structs.asdict(self))
        return {name: value for name, value in fields.items() if name != "same" or value is not None}

    def flat(self, *, row: bool = False) -> dict[str, Any]:
        """Every field as a plain value, to stand in a JSON object among others; a `row` that was left out is
        "skipped"."""
        skipped = {"skipped": self.skipped, **({"verdict": SKIPPED} if self.skipped else {})}
        return self.plain() | (skipped if row else {})


OK = Verdict("ok")
_UNDECIDED = ("cannot_tell", "nondeterministic")
WORST = ("fails", "cannot_tell", "nondeterministic", "rounding", "ok")


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict to look at first among several; "not judged" where there are none."""
    return min(verdicts, key=lambda verdict: WORST.index(verdict.verdict), default=cannot_tell("nothing was judged"))


def read(plain: Any) -> Verdict | None:
    """The record from the output of `plain`, or of `flat` with other keys; None for None. Raises
    msgspec.ValidationError for anything else.
    """
    if isinstance(plain, dict) and plain.get("verdict") == SKIPPED:
        plain = {**plain, "verdict": "cannot_tell"}
    return None if plain is None else msgspec.convert(plain, Verdict)


def judged(
    signature: Signature, rung: str = "", *, reason: str = "", detail: str = "", where: Where | None = None
) -> Verdict:
    """The verdict on a signature under a rung: a failure, or why there can be no verdict. `reason`: instead of its
    text."""
    reason = (reason or signature.text()).rstrip(".")
    if signature.undecided:
        word: Word = "nondeterministic" if signature.kind == "nondeterministic" else "cannot_tell"
        return Verdict(word, reason=reason, where=where)
    if (signature.kind, signature.detail) == ("accuracy", "rounding"):
        return Verdict("rounding", reason=reason, where=where, detail=signature.detail)
    return fails(KINDS.get(signature.kind), rung, reason, where, detail or signature.detail)


def died(signature: Signature, rung: str) -> Verdict:
    """The verdict where a process died: a failure of the rung, if it died there."""
    if signature.stage in ("", "eager", "reference"):
        return cannot_tell(signature.text())
    return judged(signature, rung, detail=WHOLE)


def fails(kind: Kind | None, rung: str, reason: str, where: Where | None = None, detail: str = "") -> Verdict:
    """The verdict that a rung goes wrong: the compiler's fault, unless it is eager's own, in the layer that the rung
    adds."""
    fault: Fault | None = None if not rung else "model" if rung == "eager" else "compiler"
    return Verdict("fails", kind, fault, _LAYERS.get(rung), reason.rstrip("."), where, detail=detail)


def backend_layer(backend: str) -> Layer | None:
    """The layer that a backend of torch.compile adds to those below."""
    return "dynamo" if backend == "eager" else _LAYERS.get(backend)


def cannot_tell(reason: str, detail: str = "") -> Verdict:
    """The verdict that nothing can be decided, and why."""
    return Verdict("cannot_tell", reason=reason.rstrip("."), detail=detail)


def unloadable(error: Exception, path: Path) -> Verdict:
    """The verdict that a saved graph cannot be loaded, with the reason but not the path, which is shown beside it."""
    places = [f"{place}: " for place in (path.absolute(), path, typed_path(path))]
    return cannot_tell(functools.reduce(str.removeprefix, places, str(error)))


def abandoned(error: str | None) -> Verdict:
    """The verdict on a graph that Dynamo abandoned, so that no compiled code of it ever ran."""
    return cannot_tell(f"Dynamo abandoned this graph ({(error or 'it started over').splitlines()[0]})", ABANDONED)


def skipped(reason: str) -> Verdict:
    """The verdict that the rung cannot run here."""
    return cannot_tell(reason, SKIPPED)
