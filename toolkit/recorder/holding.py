"""Holds the inputs of every execution of the watched graphs, and keeps those of the last one, or of a step that went wrong.

One Holder per session, one Hold per compiled callable. Nothing here runs unless `--inputs last` or `--when` asks for it. Must not
keep an input alive while its graph runs, and must not raise into the recorded program.

>>> hold = holder_of(session).hold(graphs, record)
>>> execution = hold.before(37, inputs); result = function(inputs); hold.after(execution, result)
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...dumps.schema import GraphRecord
from . import steps
from .held import Budget
from .hold import Hold, step, told
from .trouble import Finding, Member, Trouble

if TYPE_CHECKING:
    from .session import Session

COST = "held inputs"
"""Message of the note that says what holding inputs cost a process."""

IDLE_EXECUTIONS = 256
"""A graph that did not run during so many executions of others may lose its held inputs to them."""


class Holder:
    """All held inputs of one session in one process."""

    def __init__(self, session: Session) -> None:
        options = session.options
        self.session = session
        self.pid = os.getpid()
        self.last = options.inputs == "last"
        self.when = frozenset(options.when)
        self.budget = Budget(options.held_limit)
        self.trouble = Trouble()
        self.holds: dict[Member, Hold] = {}
        self.seconds = self.testing_seconds = 0.0
        self.executions = self.refused = 0
        self.closed = False
        if self.when:
            steps.watch(self.trouble.step_ended)

    def hold(self, graphs: Sequence[tuple[str, str]], record: GraphRecord) -> Hold:
        """The hold of one compiled callable; `graphs` are the (id, stage) that it is the compiled form of."""
        hold = Hold(self, graphs, record)
        self.holds[hold.member] = hold
        return hold

    def make_room(self, hold: Hold) -> None:
        """Gives back what graphs hold that have not run for long: others have taken their place, after a recompile say."""
        for other in self.holds.values():
            if other is not hold and self.executions - other.used > IDLE_EXECUTIONS:
                other.settle()

    def found(self, finding: Finding, hold: Hold, execution: int, message: str, **fields: Any) -> None:
        """Journals a finding and keeps the inputs of all graphs of its step so far. "{when}" in the message says when it was."""
        when = f"execution {execution}" + (f", step {step()}" if step() else "")
        self.session.event(
            "note", hold.name, found=finding.number, what=finding.what, execution=execution, step=step(),
            message=message.replace("{when}", when), **fields,
        )  # fmt: skip
        for member in finding.members:
            self.holds[member].keep(finding)

    def uncaught(self, error: BaseException) -> None:
        """The program ends with this exception: the inputs of its last step are kept when errors are asked for."""
        if "error" not in self.when or not isinstance(error, Exception) or os.getpid() != self.pid:
            return
        with self.session.guarded("inputs of the last step"):
            finding = self.trouble.raised(None, error)
            if finding is not None:
                hold = self.holds[finding.member]
                text = f"{hold.name} ran last ({{when}}) before the program ended with {told(error)}"
                self.found(finding, hold, hold.copy_execution, text)

    def close(self) -> None:
        """Turns what the files hold into inputs.json, gives all memory back, and journals what it cost."""
        steps.forget(self.trouble.step_ended)
        self.closed = True
        if os.getpid() != self.pid:
            return
        start = time.perf_counter()
        for hold in self.holds.values():
            with self.session.guarded(f"last inputs of {hold.name}"):
                hold.settle()
        self.seconds += time.perf_counter() - start
        if self.executions:
            self.session.event(
                "note", message=COST, seconds=round(self.seconds, 3), testing_seconds=round(self.testing_seconds, 3),
                executions=self.executions, most_bytes=self.budget.most, graphs=len(self.holds), refused=self.refused,
                left_out=self.trouble.left_out,
            )  # fmt: skip


def holder_of(session: Session) -> Holder | None:
    """The session's holder in this process; None when nothing is to be held."""
    if not session.options.holds:
        return None
    if session.holder is None or session.holder.pid != os.getpid():
        session.holder = Holder(session)
    return session.holder
