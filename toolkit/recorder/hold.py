"""Holds the inputs of every execution of the watched graphs, and keeps those of the last execution, or of a step that
went wrong.

Also: detects when a step goes wrong, and which graphs' inputs belong to that step; this bookkeeping holds no tensors.

One Holder per session, one Hold per compiled callable: its inputs are copied before each execution, tested for NaN
after it, and kept when it went wrong. Nothing here runs unless `--inputs last` or `--when` asks for it. No input is
kept alive while its graph runs, and nothing raises into the recorded program.

For example:

    hold = session.hold(graphs, record)
    execution = hold.before(37, inputs); result = function(inputs); hold.after(execution, result)
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ...dumps.errors import EnvironmentLackError, GraphdbgError
from ...dumps.held import FOLDER
from ...dumps.schema import GraphRecord, InputsRecord, NodeRecord
from ...dumps.tensors import Bytes
from ...dumps.wording import listed, raised_line, size_text
from ..live import steps
from ..live.torch_state import norms, undisturbed
from .held import Copy, CopyBudget, OverLimit
from .summary import HELD_COST

if TYPE_CHECKING:
    from .session import Session

MOST_RISES = 3
"""A NaN that comes and goes in one place more often than this is no longer reported."""

MOST_FINDINGS = 8
"""How many bad steps are kept in one process; further ones are only counted."""


@dataclass(eq=False)
class Member:
    """One compiled graph and the state of its executions. `last`, `before`: numbers of its last two executions, in the
    order of all graphs' executions."""

    name: str
    backward: bool = False
    last: int = 0
    before: int = 0
    nan_inputs: set[int] = field(default_factory=set)
    nan_outputs: set[int] = field(default_factory=set)
    rises: Counter[int] = field(default_factory=Counter)


@dataclass(eq=False)
class BadStep:
    """A step that went wrong: in which graph, at which of its outputs and inputs, and the graphs that ran in the step
    so far."""

    member: Member
    what: str
    outputs: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    number: int = 0


class Trouble:
    """Finds bad steps among the executions of one process. Safe for several threads."""

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
        """Records that an execution begins; returns the bad step that it belongs to, if its inputs are to be kept for
        that step."""
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
        """Records where an execution had NaN; returns a BadStep where the trouble starts. The inputs are tested only
        after the first NaN in any output (`nan_seen`)."""
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
        """Records that an execution (with no member: the program) ended with an exception; None when that was reported
        before."""
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
        """The earliest execution at which a NaN elsewhere may have caused one in this graph: since its last run, or
        since the optimizer's step before the last one: a step carries NaN gradients into the parameters."""
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


_TESTED = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.complex128)
"""Dtypes with arithmetic. Smaller floats have none: their NaN shows in what is computed from them."""


class NanTest:
    """A NaN test in progress: `add` starts it for more values, `places` waits for the result."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        self._found: set[int] = set()
        self._waiting: list[tuple[list[int], torch.Tensor]] = []
        self.add(values)

    def add(self, values: Sequence[Any], first: int = 0) -> None:
        """Starts the test for the tensors among the values, numbered from `first`."""
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
        for place, value in enumerate(values, first):
            plain = type(value) in (torch.Tensor, torch.nn.Parameter)
            if plain and value.dtype in _TESTED and value.layout is torch.strided and not value.is_meta:
                groups.setdefault((value.device, value.dtype), []).append((place, value))
        for (device, _), members in groups.items():
            places, tensors = [place for place, _ in members], [tensor for _, tensor in members]
            if device.type == "cpu":
                self._on_cpu(places, tensors)
            else:
                self._waiting.append((places, torch.stack(norms(tensors))))

    def _on_cpu(self, places: list[int], tensors: list[torch.Tensor]) -> None:
        sums = torch.isnan(torch.stack([tensor.sum() for tensor in tensors])).tolist()
        for place, tensor, maybe in zip(places, tensors, sums, strict=True):
            if maybe and bool(torch.isnan(tensor).any()):  # inf - inf makes the sum NaN, too
                self._found.add(place)

    def places(self) -> set[int]:
        """The places of the values with a NaN; waits for the devices."""
        for places, flags in self._waiting:
            nan = torch.isnan(flags).tolist()
            self._found.update(place for place, is_nan in zip(places, nan, strict=True) if is_nan)
        self._waiting.clear()
        return self._found


IDLE_EXECUTIONS = 256
"""After this many executions of other graphs without one of its own, a graph may lose its held inputs."""
_IN_PLACE = 1 << 30
"""Numbers from here on stand for inputs that the graph changes in place."""
_NAMED = ("parameter", "buffer", "user")
"""Roles of inputs that the user's program has a name for."""


class Holder:
    """All held inputs of one session in one process."""

    def __init__(self, session: Session) -> None:
        options = session.options
        self.session = session
        self.pid = os.getpid()
        self.last = options.inputs == "last"
        self.when = frozenset(options.when)
        self.budget = CopyBudget(options.held_limit)
        self.trouble = Trouble()
        self.holds: dict[Member, Hold] = {}
        self.seconds = self.testing_seconds = 0.0
        self.executions = self.refused = 0
        self.closed = False
        if self.when:
            steps.watch(self.trouble.step_ended)

    def hold(self, graphs: Sequence[tuple[str, str]], record: GraphRecord) -> Hold:
        """Creates the Hold of a callable compiled from `graphs` (id, stage)."""
        hold = Hold(self, graphs, record)
        self.holds[hold.member] = hold
        return hold

    def make_room(self, hold: Hold) -> None:
        """Frees the inputs held for graphs that have not run for long, for example because a recompile replaced
        them."""
        for other in self.holds.values():
            if other is not hold and self.executions - other.used > IDLE_EXECUTIONS:
                other.settle()

    def note(self, finding: BadStep, hold: Hold, execution: int, message: str, **fields: Any) -> None:
        """Journals a bad step and keeps the inputs of all graphs that ran in it so far. "{when}" in the message is
        replaced by the execution and step."""
        when = f"execution {execution}" + (f", step {step()}" if step() else "")
        self.session.event(
            "note",
            hold.name,
            found=finding.number,
            what=finding.what,
            execution=execution,
            step=step(),
            message=message.replace("{when}", when),
            **fields,
        )
        for member in finding.members:
            self.holds[member].keep(finding)

    def uncaught(self, error: BaseException) -> None:
        """Keeps the inputs of the last step before this exception ended the program, when errors are asked for."""
        if "error" not in self.when or not isinstance(error, Exception) or os.getpid() != self.pid:
            return
        with self.session.guarded("inputs of the last step"):
            finding = self.trouble.raised(None, error)
            if finding is not None:
                hold = self.holds[finding.member]
                text = f"{hold.name} ran last ({{when}}) before the program ended with {raised_line(error)}"
                self.note(finding, hold, hold.copy_execution, text)

    def close(self) -> None:
        """Writes inputs.json from the held copies, frees all memory, and journals the cost."""
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
                "note",
                message=HELD_COST,
                seconds=round(self.seconds, 3),
                testing_seconds=round(self.testing_seconds, 3),
                executions=self.executions,
                most_bytes=self.budget.most,
                graphs=len(self.holds),
                refused=self.refused,
                left_out=self.trouble.left_out,
            )


class HeldExecution:
    """One execution in progress: its number, and the tests that were begun before it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.inputs: NanTest | None = None
        self.in_place: list[Any] = []


class Hold:
    """The held inputs of one compiled callable."""

    def __init__(self, holder: Holder, graphs: Sequence[tuple[str, str]], record: GraphRecord) -> None:
        self.holder = holder
        self.locals = [local for local, _ in graphs]
        self.name, stage = graphs[0]
        self.names = [node.name for node in record.graph.nodes if node.op == "placeholder"]
        self.roles = {item.name: item for item in record.inputs}
        self.in_place = _changed_in_place(record.graph.nodes, self.names)
        self.member = Member(self.name, stage == "backward")
        self.copy_execution = self.used = 0
        self.was_kept = False
        paths = [holder.session.writer().path / FOLDER / local for local in self.locals if holder.last]
        self.copy: Copy | None = Copy(holder.budget, self.names, record.inputs, paths)

    def before(self, number: int, inputs: Sequence[Any]) -> HeldExecution | None:
        """Copies the inputs and starts to test them. None in a forked child, where the copies are the parent's, and
        once the recording has ended."""
        holder = self.holder
        if holder.closed or os.getpid() != holder.pid:
            return None
        start = time.perf_counter()
        if holder.when:
            steps.count()  # without this a compiled optimizer step goes unseen
        execution = HeldExecution(number)
        with holder.session.guarded(f"held inputs of {self.name}"), undisturbed():
            self._copy(number, inputs)
        with holder.session.guarded(f"step of {self.name}"), undisturbed():
            if holder.when:
                finding = holder.trouble.begins(self.member)
                if finding is not None:
                    self.keep(finding)
            if "nan" in holder.when:
                self._test(execution, inputs)
        holder.executions += 1
        self.used = holder.executions
        holder.seconds += time.perf_counter() - start
        return execution

    def _copy(self, number: int, inputs: Sequence[Any]) -> None:
        self.copy_execution = number
        if self.copy is None:
            return
        try:
            try:
                self.copy.take(inputs, number)
            except OverLimit:
                self.holder.make_room(self)
                self.copy.take(inputs, number)
            if "error" in self.holder.when:
                self.copy.finish()  # now: after a device-side assert no copy arrives any more
        except OverLimit as error:
            limit = size_text(self.holder.budget.limit)
            self._refuse(
                f"they take {size_text(error.needed)}, which exceeds the limit of {limit} for all graphs of a process"
            )
        except EnvironmentLackError as error:
            self._refuse(str(error))

    def _refuse(self, why: str) -> None:
        copy, self.copy = self.copy, None
        if copy is not None:
            copy.drop()
        self.holder.refused += 1
        text = f"inputs of {self.name} are not held: {why}; statistics of its first execution are kept"
        self.holder.session.event("note", self.name, message=text)

    def _test(self, execution: HeldExecution, inputs: Sequence[Any]) -> None:
        start = time.perf_counter()
        if self.holder.trouble.nan_seen:
            execution.inputs = NanTest(inputs)
        execution.in_place = [inputs[index] for index in self.in_place]  # kept alive by their owner anyway
        self.holder.testing_seconds += time.perf_counter() - start

    def after(self, execution: HeldExecution, result: Any) -> None:
        """Tests the outputs for NaN, and keeps the step's inputs when it went wrong here."""
        holder = self.holder
        if "nan" not in holder.when:
            return
        start = time.perf_counter()
        with holder.session.guarded(f"NaN test of {self.name}"), undisturbed():
            outputs = NanTest(result if isinstance(result, (list, tuple)) else [result])
            outputs.add(execution.in_place, _IN_PLACE)
            execution.in_place = []
            places, inputs = outputs.places(), execution.inputs
            if inputs is None and places and self.copy is not None and self.copy.whole:
                inputs = NanTest(self.copy.tensors())
            finding = holder.trouble.judged(self.member, set() if inputs is None else inputs.places(), places)
            holder.testing_seconds += time.perf_counter() - start
            if finding is not None:
                self._found_nan(finding, execution.number)
        holder.seconds += time.perf_counter() - start

    def _found_nan(self, finding: BadStep, number: int) -> None:
        plain = [place for place in finding.outputs if place < _IN_PLACE]
        changed = [self.names[self.in_place[place - _IN_PLACE]] for place in finding.outputs if place >= _IN_PLACE]
        came_in = [self._described(self.names[index]) for index in finding.inputs]
        where = [f"output{'s' if len(plain) > 1 else ''} {listed(plain, 4)}"] if plain else []
        where += [f"{listed(changed, 4)}, changed in place"] if changed else []
        text = f"NaN first in {self.name} ({' and '.join(where)}), {{when}}"
        if came_in:
            text += f"; it came in from outside compiled code, with {listed(came_in, 2)}"
        self.holder.note(finding, self, number, text, outputs=plain, changed=changed, inputs=came_in)

    def _described(self, name: str) -> str:
        role = self.roles.get(name)
        return f"{name} ({role.role} {role.source})" if role is not None and role.role in _NAMED else name

    def failed(self, error: BaseException) -> None:
        """Records that the execution raised."""
        holder = self.holder
        if "error" not in holder.when or not isinstance(error, Exception):
            return
        with holder.session.guarded(f"inputs of {self.name}"):
            finding = holder.trouble.raised(self.member, error)
            if finding is not None:
                number = self.copy_execution
                holder.note(finding, self, number, f"{self.name} failed ({{when}}) with {raised_line(error)}")

    def keep(self, finding: BadStep) -> None:
        """Writes the held inputs under the execution's number; the first kept ones also as inputs.json, since a later
        failure may follow from them."""
        session = self.holder.session
        if self.copy is None or not self.copy.whole:
            return
        record = self.copy.inputs(self._put)
        record.step, record.reason = step(), finding.what
        self._save(record, numbered=True, newest=not self.was_kept)
        self.was_kept = True
        for local in self.locals:
            session.event(
                "note",
                local,
                message=f"inputs of execution {record.execution} kept",
                kept=finding.number,
                execution=record.execution,
            )

    def _put(self, data: Bytes) -> str:
        tensors = self.holder.session.writer().tensors
        return tensors.put(data) if tensors.accepts(len(data)) else ""

    def _save(self, record: InputsRecord, *, numbered: bool, newest: bool = True) -> None:
        writer = self.holder.session.writer()
        for local in self.locals:
            if not writer.graph_path(local).is_dir():
                continue  # left out meanwhile; an event says so
            if numbered:
                writer.save_inputs(local, record, number=record.execution)
            if newest:
                writer.save_inputs(local, record)

    def settle(self) -> None:
        """Writes the last inputs as inputs.json, or under their number where inputs.json holds those of a bad step.
        Frees the copy's memory."""
        copy = self.copy
        if copy is None:
            return
        try:
            if copy.paths and copy.whole:
                record = copy.inputs(self._put)
                self._save(record, numbered=self.was_kept, newest=not self.was_kept)
        except GraphdbgError as error:
            self.holder.session.note(f"last inputs stay in {FOLDER}/: {error}")
            self.copy = None
        else:
            copy.drop()


def step() -> int:
    """The number of the optimizer step in progress; 0 before the first counted step."""
    return steps.count() + 1 if steps.count() else 0


def _changed_in_place(nodes: Sequence[NodeRecord], names: Sequence[str]) -> list[int]:
    """The places of the inputs that an AOT graph mutates: the targets of its `copy_` nodes."""
    targets = [node.args[0] for node in nodes if node.target == "aten.copy_.default" and node.args]
    written = {target.get("node") for target in targets if isinstance(target, dict)}
    return [index for index, name in enumerate(names) if name in written]
