"""One question to a child of a fork server: what it reports meanwhile, and the one end that it has.

Every task of ours is asked here; what an end means to the caller (an outcome, a row, a sentence) stays with the caller.

>>> asked = ask("graphdbg.toolkit.node_values.child:task", payload, limit_s=60, server=server)
>>> for event in asked: print(event["event"])
>>> asked.end().status                  # raises what the task refused
'done'
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from ...dumps import errors
from .protocol import Answer


class Servers(Protocol):
    """A fork server, or what has its face. `home`: the fork server of this process."""

    @property
    def home(self) -> Servers: ...

    def submit(
        self, function: str, payload: dict[str, Any], limit_s: float = ..., *, stage_limits: Mapping[str, float] | None = None
    ) -> Asked: ...


class Asked(ABC):
    """A question on its way; iterating gives the events that the task reports, as they come, where they come at all."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    @abstractmethod
    def answer(self, timeout_s: float | None = None) -> Answer:
        """Waits for the end, whatever it is; raises TimeoutError when it is not there after `timeout_s`."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it; its answer, "signal", comes soon. Nothing happens where it has ended already."""

    def end(self) -> Answer:
        """Waits for an end that is the task's own: raises what it refused, EnvironmentLackError where the server is gone."""
        answer = self.answer()
        if answer.status == "lost":
            log = [line for line in answer.output.splitlines() if line.strip()]
            raise errors.EnvironmentLackError("the fork server ended by itself", log[-1] if log else "", "see graphdbg doctor")
        raise_refusal(answer)
        return answer


def ask(
    task: str, payload: Mapping[str, Any], limit_s: float = 600.0, *, server: Servers,
    stage_limits: Mapping[str, float] | None = None,
) -> Asked:  # fmt: skip
    """Starts a task ("package.module:name") in a child of its own; the limits are those of `ForkServer.submit`.

    Modules that the payload names under "imports" are imported there first, for what they register.
    """
    return server.submit(task, dict(payload), limit_s, stage_limits=stage_limits)


def raise_refusal(answer: Answer) -> None:
    """Raises the error with which a task refused what the user asked, if that is how it ended."""
    failure = answer.error
    if failure is not None and failure.type.startswith(errors.__name__):
        raise getattr(errors, failure.type.rpartition(".")[2])(failure.message)
