"""When a step went wrong, and which graphs' inputs belong to it: bookkeeping of executions, without tensors.

A NaN is news in an output that had none in the graph's execution before. It is a finding when it came into being here
(no input has news), or when it came in from outside and no graph had news since this one ran last: then code that is
not compiled made it. What follows from a finding is no finding. Graphs of its step are those that ran since the step
began and those that run until it ends: with an optimizer step, a forward after a backward, or the same graph again.

For example:

    trouble = Trouble(); trouble.begins(member); trouble.judged(member, inputs=set(), outputs={0})
    # Finding(...)
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

MOST_RISES = 3
"""After that many times a NaN that comes and goes in one place is taken as usual."""

MOST_FINDINGS = 8
"""So many steps are kept whole in one process; further ones are counted."""


@dataclass(eq=False)
class Member:
    """One compiled graph: what is known of its executions. Numbers are places in the order of all executions."""

    name: str
    backward: bool = False
    last: int = 0
    before: int = 0
    nan_inputs: set[int] = field(default_factory=set)
    nan_outputs: set[int] = field(default_factory=set)
    rises: Counter[int] = field(default_factory=Counter)


@dataclass(eq=False)
class BadStep:
    """A step that went wrong: in which graph, at which outputs and inputs, and the graphs that ran in it so far."""

    member: Member
    what: str
    outputs: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    number: int = 0


class Trouble:
    """The executions of one process. Safe for several threads."""

    def __init__(self) -> None:
        self.found = 0
        self.left_out = 0
        self.nan_seen = False
        self.open: BadStep | None = None
        self._lock = threading.Lock()
        self._members: dict[Member, None] = {}
        self._count = 0
        self._began = self._began_before = self._last_news = 0
        self._stepped = self._stepped_before = -1
        self._in_backward = False
        self._reported: tuple[int, str] | None = None

    def begins(self, member: Member) -> BadStep | None:
        """Records that an execution begins; returns the finding whose step it belongs to, if its inputs are to be kept
        for that."""
        with self._lock:
            self._members[member] = None
            if self._in_backward and not member.backward:
                self._new_step()
            self._count += 1
            self._reported = None
            self._in_backward = member.backward
            member.before, member.last = member.last, self._count
            if self.open is None:
                return None
            if self.open.member is member:
                self.open = None
                return None
            if member in self.open.members:
                return None
            self.open.members.append(member)
            return self.open

    def step_ended(self) -> None:
        """Records that the optimizer made its step."""
        with self._lock:
            self._new_step()
            self._in_backward = False
            if self._stepped != self._count:
                self._stepped_before, self._stepped = self._stepped, self._count

    def _new_step(self) -> None:
        if self._began != self._count:
            self._began_before, self._began = self._began, self._count
        self.open = None

    def judged(self, member: Member, inputs: set[int], outputs: set[int]) -> BadStep | None:
        """An execution ended with NaN at these places; a Finding when it is where the trouble starts. What its inputs
        hold matters from the first NaN in any output on (`nan_seen`)."""
        with self._lock:
            news_in, news_out = inputs - member.nan_inputs, outputs - member.nan_outputs
            member.nan_inputs, member.nan_outputs = set(inputs), set(outputs)
            if not news_out:
                return None
            self.nan_seen = True
            explained = self._last_news > 0 and self._last_news >= self._near(member)
            self._last_news = member.last
            member.rises.update(news_out)
            rare = sorted(place for place in news_out if member.rises[place] <= MOST_RISES)
            if not rare or self.open is not None or (news_in and explained):
                return None
            return self._finding(BadStep(member, "nan", rare, sorted(news_in)))

    def raised(self, member: Member | None, error: BaseException) -> BadStep | None:
        """An execution, or with no member the program, ended with this exception; None when it was reported before."""
        with self._lock:
            identity = (id(error), type(error).__name__)
            if identity == self._reported:
                return None
            self._reported = identity
            member = member or max(self._members, key=lambda other: other.last, default=None)
            if member is None or (self.open is not None and member in self.open.members):
                return None
            return self._finding(BadStep(member, "error"))

    def _near(self, member: Member) -> int:
        """The execution from which on a NaN elsewhere may be the cause of one here: since this graph ran last; since
        the optimizer's step before the last one, for gradients that were NaN reach the parameters with the step."""
        since = member.before or self._began_before
        return min(since, self._stepped_before) if self._stepped_before >= 0 else since

    def _finding(self, finding: BadStep) -> BadStep | None:
        if self.found >= MOST_FINDINGS:
            self.left_out += 1
            return None
        self.found += 1
        finding.number = self.found
        member = finding.member
        since = self._began if member.backward else max(self._began, member.before)
        finding.members = sorted((other for other in self._members if other.last > since), key=lambda other: other.last)
        self.open = finding
        return finding
