"""What an account is made from: an exception with all that it wraps, the frames it came through, and the work of its stage.

Frames keep their local variables while the exception lives: that is how the node being lowered and the pass being run are known.

>>> case = Case.of(error, work, "lower")
>>> case.find("LoweringException")
LoweringException(...)
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import FrameType
from typing import Any

from ..work import Work
from .explained import Explained, NodeAt
from .nodes import at, running

_WORKER_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Failure|Resources|Construct))(?::|$)", re.MULTILINE)


@dataclass
class Case:
    """An error and its surroundings. `chain`: the error, then what it wraps, outermost first."""

    error: BaseException
    work: Work | None
    stage: str
    chain: list[BaseException]
    frames: list[FrameType]
    """Outermost first; those of what was raised first come last."""

    @classmethod
    def of(cls, error: BaseException, work: Work | None, stage: str) -> Case:
        """Unwraps an error. An exception that only happened to be handled when another was raised counts as wrapped, too."""
        chain = [error]
        while len(chain) < 20 and (inner := _inside(chain[-1])) is not None and inner not in chain:
            chain.append(inner)
        frames: list[FrameType] = []
        for one in chain:
            frames += [frame for frame, _ in traceback.walk_tb(one.__traceback__) if frame not in frames]
        return cls(error, work or _work_of(frames), stage, chain, frames)

    def find(self, *names: str) -> BaseException | None:
        """The first in the chain of a class with one of these names; torch keeps most of its classes to itself."""
        for one in self.chain:
            if any(cls.__name__ in names for cls in type(one).__mro__):
                return one
        return None

    def text(self) -> str:
        """The texts of the whole chain, and with them what a compile worker wrote about the error of its own process."""
        return "\n".join(str(one) for one in self.chain)

    def cause(self) -> BaseException:
        """What was raised first inside torch's wrappers of errors."""
        cause = self.error
        for one in self.chain:
            if not (getattr(one, "inner_exception", None) or type(one).__name__ == "LoweringException"):
                return one
            cause = one
        return cause

    def said(self) -> str:
        """The first lines of the cause, with its type where it is no plain sentence; of a worker's error the last line."""
        cause = self.cause()
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        if type(cause).__name__ == "SubprocException" and lines:
            return next((line for line in reversed(lines) if _WORKER_ERROR.match(line)), lines[-1])
        return f"{type(cause).__name__}: {lines[0]}" if lines else type(cause).__name__

    @cached_property
    def running(self) -> list[Any]:
        """The nodes of torch.fx that were run, lowered, scheduled or matched when it was raised, innermost first."""
        return running(self.frames)

    @property
    def nodes(self) -> list[NodeAt]:
        """The same as they are told."""
        return [at(node) for node in self.running]

    @property
    def op(self) -> str:
        """The operator that it is about: the node's, else by the text."""
        if self.running:
            return at(self.running[0]).op
        found = re.search(r"target: (\S+)", self.text())
        return found[1] if found else self.said()

    @property
    def where(self) -> str:
        """Node and line, in brackets behind an operator's name; "" where no node is known."""
        if not self.running:
            return ""
        node = at(self.running[0])
        return f" (node {node.node}, {node.line or 'no user line is known'})"

    def inwards(self) -> Iterator[FrameType]:
        """Frames from where it was raised outwards."""
        return reversed(self.frames)

    def told(self, kind: str, what: str, why: str = "", fix: str = "", *, nodes: list[NodeAt] | None = None,
             **more: Any) -> Explained:  # fmt: skip
        """An account with what every account has."""
        return Explained(
            kind, what, why, fix, self.stage, self.work.part if self.work is not None else "",
            type(self.cause()).__name__, str(self.error), nodes or [], **more,
        )  # fmt: skip


def _work_of(frames: list[FrameType]) -> Work | None:
    """What a compile by torch's own functions was at, by the frames that it came through; None before lowering."""
    found: Work | None = None
    for frame in frames:
        own = frame.f_locals.get("self")
        if type(own).__name__ == "GraphLowering":
            found = found or Work("", getattr(own, "module", None), ())
            found.lowering = own
            if (code := frame.f_locals.get("wrapper_code")) is not None:
                found.wrapper_code = code
    return found


def _inside(error: BaseException) -> BaseException | None:
    inner = getattr(error, "inner_exception", None)
    return inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
