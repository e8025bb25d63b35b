"""Minifying what eager cannot run here: a custom operator without a kernel, a device that is not there, too little
memory.

Only crashes of the compiler are judged then, of graphs whose inputs are fake tensors: nothing is run and nothing
compared. Must not take a failure that only the missing device causes for the case's own: a graph of one operator is
compiled the same way as a control.

>>> sentence("MemoryError: 3 TB")
'eager cannot run this graph here (MemoryError: 3 TB): only crashes of the compiler are judged, on synthesised values'
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ..dumps.errors import EnvironmentLackError, RanksMissingError
from ..toolkit.verdicts.signature import RAISED_TOO, Signature
from .options import MinifyOptions
from .search.problem import Answer

if TYPE_CHECKING:
    from .oracle import Oracle

PASSES = ("dims", "switches")
"""The passes that need no values."""
_MARK = "eager cannot run this graph here: "
"""How the detail of an answer from `judged` begins, also in the journal."""
_LONGEST = 200
_LACKS = re.compile(
    r"not compiled with (CUDA|XPU|ROCm)|not linked with support|No CUDA GPUs|NVIDIA driver|No HIP GPUs", re.I
)
"""What torch says where it needs a device that is not there (2.13.0)."""
_NO_GROUP = "Could not resolve the process group"
"""What torch says where a graph's other ranks are not there."""


def allowed(options: MinifyOptions) -> bool:
    """Whether the options ask for crashes of the compiler, among others."""
    amounts = (options.command, options.hangs, options.slower_than, options.memory_over)
    return options.check in ("auto", "crash") and all(amount is None for amount in amounts)


def eager_cannot(signature: Signature) -> bool:
    """Whether a judgement ended because eager could not run the graph, with an error that the compiler does not raise,
    too."""
    at_once = signature.kind in ("error", "memory") and signature.stage in ("eager", "build")
    return at_once and signature.detail != RAISED_TOO


def judged(oracle: Oracle, why: str, lack: EnvironmentLackError | None) -> Answer | None:
    """Judges the whole case by compiling it on synthesised values; None where that shows no crash of its own.

    `lack`: what this machine lacks to run the graph, if known; raised, with what the compile came to, where that shows
    no crash of its own.
    """
    try:
        answer, signature = oracle.judge(None, only_compiled=True)
    except EnvironmentLackError:
        signature = answer = None
    if (
        answer is None
        or signature is None
        or (signature.kind, signature.stage) != ("crash", "compile")
        or _first_line(signature.raw) in why
    ):
        if lack is None:
            return None
        seen = "" if answer is None else f"; compiled on synthesised values, it {_ended(signature)}"
        raise EnvironmentLackError("cannot minify this graph here", f"{lack.why or lack.what}{seen}") from lack
    control = None if lacks_device(signature) else oracle.judge(None, only_compiled=True, control=True)[1]
    if _NO_GROUP in signature.raw:
        raise RanksMissingError("cannot minify this graph here", _first_line(why).rstrip(".")) from lack
    if lacks_device(signature) or (control is not None and signature.same_as(control)):
        ending = "without the device the compile ends before the case's own failure, with"
        reason = f"{_first_line(why)}; {ending} {_first_line(signature.text())}"
        raise EnvironmentLackError("cannot minify this graph here", reason, "minify it where the device is")
    return replace(answer, detail=f"{_MARK}{_first_line(why)}")


def lacks_device(signature: Signature) -> bool:
    """Whether the failure is that torch asks for a device that is not there, and not the case's own."""
    return bool(_LACKS.search(signature.raw))


def why(answer: Answer) -> str:
    """Why eager could not run the case of this answer; empty where it could."""
    return answer.detail.removeprefix(_MARK) if answer.detail.startswith(_MARK) else ""


def sentence(why: str) -> str:
    """The sentence for a user."""
    return f"eager cannot run this graph here ({why}): only crashes of the compiler are judged, on synthesised values"


def _ended(signature: Signature | None) -> str:
    return "compiles" if signature is None else f"ends with {_first_line(signature.text())}"


def _first_line(text: str) -> str:
    line = (text.strip().splitlines() or [""])[0]
    line = line.removeprefix("eager itself fails at ").removeprefix("eager itself fails: ")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
