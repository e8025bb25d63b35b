"""The isolated oracle: a Problem whose every query is a fresh child of the fork server. Imports no torch.

The first query judges the original and gives the signature to look for and the time limit. A candidate is SAME where
its failure's signature is the same, OTHER where it fails otherwise; INVALID where no verdict is possible (it does not
build, eager refuses it or is not deterministic).

For example:

    with fork_server(preload=PRELOAD) as server:
        oracle = Oracle(case_folder, work, server)
        oracle.settle([oracle.whole()])[0].signature
        oracle.prepare()
        oracle.test(Candidate.of([3])).verdict
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from ..dumps import errors
from ..dumps.atomic import write_file
from ..dumps.journal import DECOMPOSITION
from ..dumps.names import outputs
from ..dumps.opening import read, read_text
from ..dumps.sidecar import Table
from ..dumps.store import load_graph
from ..toolkit.isolation import JUDGING, Servers, raise_refusal
from ..toolkit.isolation import TaskResult as Reply
from ..toolkit.replaying import replay
from ..toolkit.replaying.gate import with_next
from ..toolkit.replaying.replay import own
from ..toolkit.verdicts import verdict, verdict_words
from ..toolkit.verdicts.ladder_words import kernel_check
from ..toolkit.verdicts.outcome import Outcome
from ..toolkit.verdicts.own_passes import OwnPass, flags_for, passes, registered
from ..toolkit.verdicts.signature import RAISED_TOO, Signature, from_answer
from ..toolkit.verdicts.verdict import with_flags
from . import only_compiled
from .asking import RUNNING, TASKS, Querying
from .log import live_file
from .options import HANG_LIMIT_S, MinifyOptions
from .passes import EAGER
from .results import output_in, place_of
from .search.problem import Answer, Candidate, CannotJudgeError, DoesNotFailError, NothingToReduceError, Ruling

PRELOAD = (*JUDGING, TASKS)
FIRST_LIMIT_S = 600.0
HINTS = 2
"""A failure's text is used as a hint only where it names at most so many operators."""

PROBES = 3
"""How many single atoms are run at most for an estimate of how long a candidate takes."""
MOST_DEATHS = 12
"""Edits of one step of which eager may die before the step is left out."""

PREPARED = "prepared.json"
"""In the work folder, once all that candidates are built from is there."""
CULPRITS = "culprits.json"
"""In the work folder: names of nodes that the first failure of the whole case reported."""


@dataclass
class Oracle:
    """One case, the values of its eager run, and the failure that candidates must show."""

    case: Path
    work: Path
    server: Servers
    options: MinifyOptions = field(default_factory=MinifyOptions)
    limit_s: float = FIRST_LIMIT_S
    signature: Signature | None = None
    atoms: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[str] = field(default_factory=list[str])
    hints: Sequence[int] = ()
    switches: Sequence[str] = ()
    """Edits that turn off what holds for the whole case (see passes.switches)."""
    named: str = ""
    """The case as the user named it."""
    only_compiled: str = ""
    """Why eager cannot run the case here, where candidates are therefore only compiled, on synthesised values."""
    _prepared: str | None = None
    """The value of `only_compiled` at the last `prepare`; None before."""
    _unprepared: errors.GraphdbgError | None = None
    _inlinable: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.asking = Querying(self.server, self.options, self.limit_s, self.signature)

    def prepare(self) -> None:
        """Runs the case eagerly once in a child and reads its atoms, unless `work` has them from an earlier process.

        An error of the eager run is kept for `must_be_prepared`: the failure may be one that needs no run.
        """
        kept = self.work / PREPARED
        if kept.exists() and self._prepared is None:
            value = msgspec.json.decode(read(kept))
            self.atoms, self.notes, self.switches = value["atoms"], value["notes"], value["switches"]
            self.case = Path(value["case"])
            self._prepared = self.only_compiled = value.get("only_compiled", "")
            return
        self._prepared = self.only_compiled
        reply = self.asking.task("prepare", self._payload(None))
        deadly = self.work / RUNNING
        if reply.status in ("signal", "timeout", "memory") and deadly.exists():
            ends_at = read_text(deadly)
            reply = self.asking.task("prepare", self._payload(None) | {"ends_at": ends_at})
            self.notes.append(f"eager itself dies at {ends_at}: later nodes have no values and are left out")
        if reply.status != "done":
            try:
                raise_refusal(reply)
            except errors.EnvironmentLackError as error:
                self._unprepared = error
                return
            why = reply.error.message if reply.error else f"the child ended by {reply.signal or reply.status}"
            how = "tracing it" if self.only_compiled else "running it eagerly, to record its values,"
            self._unprepared = errors.UsageError("cannot minify this graph", f"{how} failed: {why}")
            return
        self._unprepared = None
        self.atoms, self.switches = reply.value["atoms"], reply.value["switches"]
        self.notes = list(dict.fromkeys([*self.notes, *reply.value["notes"]]))
        self._inlinable = reply.value["inlinable"]
        self._keep_prepared()

    def must_be_prepared(self) -> None:
        """Raises the error that `prepare` kept, if any."""
        if self._unprepared is not None:
            raise self._unprepared

    def _keep_prepared(self) -> None:
        kept = {name: getattr(self, name) for name in ("atoms", "notes", "switches", "only_compiled")}
        if not self._inlinable:  # with some, it is first asked whether the failure is there without them
            write_file(self.work / PREPARED, msgspec.json.encode({**kept, "case": str(self.case)}))

    def _inline(self) -> None:
        """Takes the case with its higher-order operators inlined, where that fails the same way."""
        if not self._inlinable or self.signature is None:
            return
        whole, names, inner = self.case, ", ".join(self._inlinable[:4]), self.work / "inlined"
        try:
            if not inner.exists():
                self.ask("inline", None, out=str(inner))
            (self.work / CULPRITS).unlink(missing_ok=True)  # the inlined graph has names of its own
            signature = self.judge(None, inner)[1]
        except errors.GraphdbgError as error:
            signature = None
            self.notes.append(f"{names} cannot be inlined and stay one node each: {error}")
        if signature is not None and self._same(signature, self.signature):
            self.case = inner
            try:
                self.prepare()
                self.notes.append(f"inlined, the failure is the same: {names}")
            except errors.UsageError:
                self.case = whole
        self._inlinable = []
        self._keep_prepared()

    def judge(
        self, candidate: Candidate | None, case: Path | None = None, **more: bool
    ) -> tuple[Answer, Signature | None]:
        """Runs one query. `candidate` None: the whole case, or the case folder `case`. `more`: see `only_compiled`."""
        payload, limits = self._payload(candidate) | more, {}
        if case is not None:
            payload["case"], limits = str(case), self.asking.limits_of_saved()
        elif candidate is not None:
            payload["lean"] = self._lean()
            limits = self.asking.limits_of(self._size(candidate)[0])
        reply = self.asking.probe(payload, limits)
        value: dict[str, Any] = reply.value or {}
        record = verdict.read(value.get("record"))
        if record is not None and record.skipped:
            value["invalid"] = verdict_words.text(record)
        if "invalid" in value:
            why: str = value["invalid"]
            return Answer(Ruling.INVALID, detail=why, seconds=reply.seconds, record=value.get("record")), None
        if candidate is None:
            raise_refusal(reply)
            if value.get("culprits") and not (self.work / CULPRITS).exists():
                write_file(self.work / CULPRITS, msgspec.json.encode(value["culprits"]))
        signature = None if reply.status == "lost" else from_answer(reply)
        reported: dict[str, Any] = value or reply.event or {}
        size = (reported["nodes"], reported["input_bytes"]) if reported else self._size(candidate)
        self.asking.learn(reply, size[0], cuda=reported.get("cuda", False))
        text = detail = "" if signature is None else signature.text()
        if signature is not None:
            record, detail = record or verdict.died(signature, self.options.rung), signature.raw or text
        elif record is not None:
            detail = verdict_words.text(record)
        if reply.status == "lost":
            ended = f"its process ended with code {reply.exit_code} and no answer: {reply.output[-200:].strip()}"
            detail = reply.error.message if reply.error else ended
        failure, plain = msgspec.to_builtins(signature), None if record is None else record.plain()
        return Answer(self._verdict(reply, signature), text, *size, detail, reply.seconds, failure, plain), signature

    def _lean(self) -> str:
        """The cheaper order of judging candidates that finds this failure as surely (see judge.LEAN); the original and
        the result are judged in full.
        """
        wanted, options = self.signature, self.options
        if wanted is None or options.match or options.slower_than is not None or options.memory_over is not None:
            return ""
        if (wanted.kind, wanted.stage) == ("crash", "compile"):
            return "compile"
        return "numbers" if wanted.kind == "accuracy" else ""

    def whole(self) -> Answer:
        """One judgement of the whole case, its failure not yet compared with any. Safe to call from threads."""
        lack: errors.EnvironmentLackError | None = None
        answer: Answer | None = None
        try:
            answer, signature = self.judge(None)
            self._remember(answer, signature)
            if self.only_compiled or not (signature and only_compiled.eager_cannot(signature)):
                return answer
            why = signature.raw or signature.text()
        except errors.EnvironmentLackError as error:
            lack, why = error, str(error)
        compiled = only_compiled.judged(self, why, lack) if only_compiled.allowed(self.options) else None
        if compiled is None and lack is not None:
            raise lack
        return compiled or answer or Answer(Ruling.INFRA, detail=why)

    def before(self) -> Answer | None:
        """The failure of the whole case that an earlier command kept for the same question; None where there is
        none."""
        options = self.options
        if not self._lasting:
            return None
        outcome = replay.known_outcome(load_graph(self.case), options.rung, options.judged, options.seed)
        if outcome is None or outcome.signature is None:
            return None
        return Answer(Ruling.OTHER, outcome.signature.text(), seconds=outcome.seconds)

    def _remember(self, answer: Answer, signature: Signature | None) -> None:
        options, record = self.options, verdict.read(answer.record)
        if self._lasting and record is not None and self.case.is_dir():
            outcome = Outcome(record, signature, seconds=answer.seconds, rung=options.rung)
            replay.remember(load_graph(self.case), options.rung, options.judged, options.seed, outcome)

    @property
    def _lasting(self) -> bool:
        """Whether the verdict on the whole case is of use to later commands: no option is special to this
        minification."""
        options = self.options
        of_its_own = options.imports, options.command, options.slower_than, options.memory_over, options.anyway
        return not any((*of_its_own, self.only_compiled))

    def settle(self, answers: Sequence[Answer]) -> list[Answer]:
        """Verdicts on runs of the whole case: the first failure among them sets the signature and the time limit."""
        if self.signature is None:
            for answer in answers:
                signature = _signature(answer)
                if signature is not None and self._asked_for(signature) and self._same(signature, signature):
                    self.signature = signature
                    self.asking.want(signature, answer.seconds)
                    break
        if self.signature is not None and not self.only_compiled:
            self.only_compiled = next((why for answer in answers if (why := only_compiled.why(answer))), "")
        return [self._settled(answer) for answer in answers]

    def _asked_for(self, signature: Signature) -> bool:
        """Whether a failure of the original is of the kind that was asked for."""
        if signature.undecided:
            return False
        if self.options.slower_than is not None:
            return signature.kind == "slow"
        if self.options.memory_over is not None:
            return (signature.kind, signature.detail) == ("memory", "peak")
        return signature.kind == "hang" or self.options.judged != "hang"

    def _settled(self, answer: Answer) -> Answer:
        signature = _signature(answer)
        if signature is None or signature.undecided:
            return answer
        same = self.signature is not None and self._same(signature, self.signature)
        return replace(answer, verdict=Ruling.SAME if same else Ruling.OTHER)

    def refusal(self, answers: Sequence[Answer]) -> NothingToReduceError:
        """The error where there is nothing to minify: the case does not fail as asked, or cannot be judged; says what
        to look at."""
        self.must_be_prepared()
        named = self.named or str(self.case)
        failing = next((answer for answer in answers if answer.verdict is Ruling.OTHER), None)
        record = verdict.read((failing or answers[0]).record) or verdict.OK
        if failing is not None and self.options.match is not None:
            what = f"it fails, but --match {self.options.match!r} does not match"
            return DoesNotFailError(what, failing.signature, "give a part of that text, or leave --match out", record)
        if failing is not None:
            what = f"it fails, but not as asked ({' '.join(self.options.words())})"
            return DoesNotFailError(what, failing.signature, "leave that out to minify this failure", record)
        if record.skipped:
            why, doctor = f"{self.options.rung} is {verdict_words.text(record)}", "graphdbg doctor"
            fix = f"see what is missing here: {doctor}"
            return CannotJudgeError(f"cannot judge {named}", why, fix, record.then(doctor))
        if record.detail == verdict.UNLIKE:
            record = with_next(load_graph(self.case), record)
            fix = f"see {' or '.join(record.next)}"
            return CannotJudgeError(f"{named} is not minified", record.reason, fix, record)
        look = with_flags(f"graphdbg triage {shlex.quote(named)}", self.options.imports)
        why = answers[0].detail if record.verdict != "ok" or record.reason else ""
        why = why or "it passed"
        if record.exit_code or answers[0].verdict is not Ruling.PASS:
            record = record if record.exit_code else verdict.cannot_tell(why)
            wider = self._wider() if RAISED_TOO in answers[0].signature else ""
            look = with_flags(f"graphdbg minify {shlex.quote(wider)}", self.options.imports) if wider else look
            what = f"cannot judge {named} under {self.options.rung}"
            error = CannotJudgeError(what, why, f"see {look}", record.then(look))
            error.wider = wider
            return error
        if self.case.is_dir() and (users := own(load_graph(self.case))) and (error := self._of_own_code(named, users)):
            return error
        what, see = f"the case does not fail under {self.options.rung}", f"see what it does: {look}"
        if self.case.is_dir() and (check := kernel_check([load_graph(self.case)], named)):
            return DoesNotFailError(
                what, why, f"{see}, and whether its own kernels do: {check}", record.then(look, check)
            )
        return DoesNotFailError(what, why, see, record.then(look))

    def _of_own_code(self, named: str, users: Sequence[OwnPass]) -> CannotJudgeError | None:
        """The error for a graph that passes although passes or decompositions of the user's ran in its compile: before
        it was recorded, or not here. None where they ran here."""
        from ..toolkit.blame.partners import stages_of
        from ..toolkit.stages.asking import pairs
        from ..toolkit.verdicts.ladder_words import address, whole_program

        saved, imports = load_graph(self.case), self.options.imports
        before = next((pair.before for pair in pairs(stages_of(saved)) if pair.after.id == saved.id), saved)
        traced = [own for own in registered(saved) if own.hook.startswith(DECOMPOSITION)]
        ran = passes(saved) or (traced if saved.stage in ("joint", "inference") else [])
        wider = address(before) if before is not saved and ran else ""
        if imports and not wider:
            return None
        mine = f"the run's own {' and '.join(user.text for user in users)}"
        minify = f"graphdbg minify {shlex.quote(wider or named)}"
        why, go_on = f"{mine} ran before it was recorded", with_flags(minify, imports)
        if not imports:
            flags = flags_for(saved, users)
            program = whole_program(saved.run) if saved.run is not None else ""
            why, go_on = f"it passed, without {mine}", f"{minify} {flags}" if flags or not program else program
        what = f"{named} does not fail under {self.options.rung}"
        error = CannotJudgeError(what, why, f"go on with: {go_on}", verdict.cannot_tell(why).then(go_on))
        error.wider = wider if imports else ""
        return error

    def _wider(self) -> str:
        """The address of the recorded graph that this one was made from, since the step between may be at fault; empty
        where none is recorded."""
        from ..toolkit.blame.partners import stages_of
        from ..toolkit.verdicts.ladder_words import address

        saved = load_graph(self.case)
        first = next(iter(stages_of(saved)), saved)
        return address(first) if first.id != saved.id else ""

    def find_hints(self) -> None:
        """Sets `hints`, the atoms that the failure names, in the graph that is cut from here on. After `prepare` and
        `settle`; raises what `prepare` kept."""
        if self.only_compiled != (self._prepared or ""):
            self.prepare()
        self.must_be_prepared()
        if self.only_compiled:
            self.notes.append(only_compiled.sentence(self.only_compiled))
        self._inline()
        if self.signature is not None:
            self._get_ready()
            error_text = f"{self.signature.detail} {self.signature.raw}"
            self.hints = self._raising() or self._culprits() or self._named(error_text) or self._wrong_output()

    def _get_ready(self) -> None:
        """Prepares for the kind of failure: measures the pace for a hang, turns the pool of CUDA memory off for an
        access out of bounds."""
        asking = self.asking
        if asking.pace is not None:
            for place in range(PROBES):
                atom = place * (self.size - 1) // (PROBES - 1)
                reply = asking.probe(self._payload(Candidate.of([atom])), asking.short_limits())
                asking.learn(reply, nodes=1)
                if asking.pace.known:
                    break
        elif asking.out_of_bounds():
            asking.uncached = True
            answer, ready = self.judge(None)
            if ready is None or self.signature is None or not self._same(ready, self.signature):
                asking.uncached, gone = False, answer.signature or "gone"
                self.notes.append(f"CUDA memory stays pooled: without a pool the failure is {gone}")

    def ask(self, task: str, candidate: Candidate | None, **more: Any) -> dict[str, Any]:
        """Another task of `tasks` about a candidate that is known to fail. Where the process dies in an eager run of
        an edited case (see `passes.forms.numbered`), it is asked again without that run."""
        deadly: list[int] = []
        while True:
            reply = self.asking.task(task, self._payload(candidate) | more | {"deadly": deadly})
            if reply.status == "done":
                return reply.value
            if reply.status != "signal" or not isinstance(reply.event, int) or len(deadly) == MOST_DEATHS:
                break
            deadly.append(reply.event)
        raise_refusal(reply)
        if deadly:
            tried = f"eager died on {len(deadly) + 1} of the edits that were tried"
            raise errors.EnvironmentLackError(tried, f"the last by {reply.signal}")
        why = reply.error.traceback if reply.error else f"it ended by {reply.signal or reply.status}"
        raise errors.EnvironmentLackError("the process that works out what to try failed", why)

    def outputs(self, candidate: Candidate) -> tuple[Sequence[int], Sequence[int]]:
        """Positions that a candidate returns, and those that it could do without."""
        reply = self.ask("outputs", candidate)
        return reply["returned"], reply["loose"]

    def propose(self, name: str, candidate: Candidate) -> list[list[str]]:
        """The edits that one pass proposes, in rounds."""
        if (self.only_compiled and name not in only_compiled.PASSES) or (self._dies_in_eager and name in EAGER):
            return []
        return self.ask("propose", candidate, **{"pass": name})["rounds"]

    def together(self, candidate: Candidate) -> tuple[list[str], list[str]]:
        """The plainest edits of several passes at once, and the passes that would propose more after them."""
        if self.only_compiled:
            return [], list(only_compiled.PASSES)
        reply = self.ask("together", candidate)
        return reply["edits"], reply["left"]

    def emit(self, candidate: Candidate | None, path: Path) -> Any:
        """Writes a candidate as a case folder; returns how it is entered."""
        spec: dict[str, Any] = self.ask("emit", candidate, out=str(path))["spec"]
        return spec | {"only_compiled": self.only_compiled} if self.only_compiled else spec

    def saved(self, path: Path) -> Answer:
        """Judges the case folder at `path` once. A hang is confirmed there at the full limit, or the shortening of
        limits ends."""
        answer = self.judge(None, path)[0]
        asking = self.asking
        if asking.pace is not None and not asking.confirmed:
            asking.confirmed = answer.verdict is Ruling.SAME
            if answer.verdict is Ruling.PASS:
                asking.pace.distrust()
                ended = f"what was taken for a hang ended within {asking.limit_s:g} s"
                self.notes.append(f"{ended}; limits were shortened no more")
        return answer

    def place(self) -> str:
        """The node and the user's line of the output that the failure names; empty where it names none."""
        return "" if self.signature is None else place_of(load_graph(self.case).record, self.signature.raw)

    def name(self, atom: int) -> str:
        """An atom as its nodes and what they call."""
        return " + ".join(f"{name} ({self._known(name)[0]})" for name in self.atoms["nodes"][atom][:3])

    def about(self, atom: int) -> dict[str, Any]:
        """An atom's nodes, or the input that it returns, with what they call and the user's line."""
        nodes = self.atoms["nodes"][atom] or [self.atoms["returns"][atom]]
        target, where, code = self._known(nodes[0])
        name = self.name(atom) or f"{nodes[0]} (returned)"
        return {"name": name, "nodes": nodes, "target": target, "where": where, "code": code}

    def _known(self, name: str) -> tuple[str, str, str]:
        """What a node calls, where the user wrote it, and that line."""
        table, rows = self._table
        if (index := rows.get(name)) is None:
            return "?", "", ""
        text = table.strings
        return text[table.target[index]], text[table.where[index]], text[table.code[index]]

    @cached_property
    def _table(self) -> tuple[Table, dict[str, int]]:
        """The table of the graph that is cut, and where each node stands in it."""
        table = load_graph(self.case).table
        return table, {node: index for index, node in enumerate(table.name)}

    # -- the Problem that the search sees

    @property
    def size(self) -> int:
        return len(self.atoms["nodes"])

    def parents(self, atom: int) -> Sequence[int]:
        return self.atoms["parents"][atom]

    def label(self, atom: int) -> Hashable:
        return self.atoms["labels"][atom]

    def bypasses(self, atom: int) -> Sequence[int]:
        return self.atoms["bypasses"][atom]

    @property
    def drawing(self) -> Sequence[int]:
        """The atoms that draw random numbers."""
        return self.atoms["random"]

    def test(self, candidate: Candidate) -> Answer:
        """One query in a child of its own. Raises Aborted."""
        return self.judge(candidate)[0]

    def abort(self) -> None:
        """Ends the queries that are on their way."""
        self.asking.abort()

    def _verdict(self, reply: Reply, signature: Signature | None) -> Ruling:
        if reply.status == "lost":
            return Ruling.INFRA
        if signature is None:
            return Ruling.PASS
        unjudged = "eager" if signature.stage == "eager" and not self._dies_in_eager else ""
        if signature.undecided or signature.stage in ("import", "reference", "build", "", unjudged):
            return Ruling.INVALID
        if self.signature is not None and self._same(signature, self.signature):
            return Ruling.SAME
        if self.only_compiled and only_compiled.lacks_device(signature):
            return Ruling.INVALID
        return Ruling.TIMEOUT if reply.status == "timeout" else Ruling.OTHER

    def _same(self, signature: Signature, wanted: Signature) -> bool:
        match = self.options.pattern()
        if match is not None:
            return signature.kind == wanted.kind and bool(match.search(f"{signature.text()}\n{signature.raw}"))
        if wanted.kind == "accuracy" and (wanted.size or 0.0) > 1.0:  # uninitialised memory holds any number
            wanted = msgspec.structs.replace(wanted, size=1.0)
        return wanted.same_as(signature)

    @property
    def _dies_in_eager(self) -> bool:
        """Whether the failure is that the graph's own operators kill the process, hang or take all memory, compiled or
        not."""
        return self.signature is not None and self.signature.stage == "eager"

    def _raising(self) -> list[int]:
        """The atom at which eager raises (where an error is missing) or dies: the eager run ended there, so it is the
        last atom with nodes."""
        if self.signature is None or not (self.signature.kind == "missing_error" or self._dies_in_eager):
            return []
        return [number for number, nodes in enumerate(self.atoms["nodes"]) if nodes][-1:]

    def _culprits(self) -> list[int]:
        """Atoms of the nodes that the first failure named, most telling first."""
        kept = self.work / CULPRITS
        names: list[str] = msgspec.json.decode(read(kept)) if kept.exists() else []
        atoms = [self.atoms["of_node"].get(name) for name in names]
        return [atom for atom in dict.fromkeys(atoms) if atom is not None]

    def _wrong_output(self) -> list[int]:
        """The atom of the output that the failure names, where the graph has others: those may be right."""
        record = load_graph(self.case).record
        node, _ = output_in(record, self.signature.raw if self.signature is not None else "")
        atom = None if node is None or len(outputs(record)) == 1 else self.atoms["of_node"].get(node.name)
        return [] if atom is None else [atom]

    def _named(self, text: str) -> list[int]:
        """Atoms whose operator the failure names, where it names few operators."""
        named: dict[int, set[str]] = {}
        for number, label in enumerate(self.atoms["labels"]):
            words = {word for word in re.findall(r"'([\w.]+\.\w+)'", label) if len(word) > 5 and word in text}
            if words:
                named[number] = words
        operators = {word for words in named.values() for word in words}
        return list(named) if len(operators) <= HINTS else []

    def _size(self, candidate: Candidate | None) -> tuple[int, int]:
        """An estimate of (nodes, input bytes) from the atoms, for a child that died before it reported them: fewer
        atoms are still smaller."""
        if not self.atoms:
            return 0, 0
        if candidate is None:
            return len(self.atoms["order"]) + 2, 0
        return sum(len(self.atoms["nodes"][atom]) for atom in candidate.keep) + 2, 0

    def _payload(self, candidate: Candidate | None) -> dict[str, Any]:
        return {
            "case": str(self.case),
            "work": str(self.work),
            "seed": self.options.seed,
            "live": str(live_file(self.work.parent, candidate.text() if candidate else "original")),
            "imports": list(self.options.imports),
            "only_compiled": bool(self.only_compiled),
            "anyway": self.options.anyway,
            "candidate": None if candidate is None else candidate.to_json(),
            "own_nan": self.signature is not None and (self.signature.kind, self.signature.stage) == ("nan", "eager"),
        }


def first_limit_s(options: MinifyOptions) -> float:
    """Seconds that a query may take before anything is known of this case."""
    usual = HANG_LIMIT_S if options.judged == "hang" else FIRST_LIMIT_S
    return options.hangs or options.time_limit or usual


def _signature(answer: Answer) -> Signature | None:
    """The failure in an answer; None for one that passed or has no verdict."""
    return None if answer.failure is None else msgspec.convert(answer.failure, Signature)
