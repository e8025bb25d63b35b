"""Names what makes a saved graph fail: a setting of the run's own, the node, or the pass, lowering, decomposition or
setting.

Also: names the first node of a saved graph whose compiled value is wrong on right inputs.

Each probe is a child of one fork server, whose cache folder is private: the user's own Inductor cache and bisect state
are never touched. Order: reproduce; the run's own settings; by node (`by_node`); by pass (`by_pass`). The search stops
at the first finding that a probe confirms: with that change alone, the graph is right.

For example:

    bisection = bisect(load_graph("myrun/0_0/forward"))
    bisection.verdict.verdict, bisection.sentence
    # ('fails', 'Pass `post_grad_custom_post_pass` of post_grad_passes ...')
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from ...dumps import temporary
from ...dumps.errors import GraphdbgError
from ...dumps.journal import DECOMPOSITION
from ...dumps.store import SavedGraph
from ...dumps.wording import listed, size_text
from ..isolation import ForkServer, TaskResult, opened
from ..live.rung import LADDER
from ..replaying.replay import DEFAULT_LIMIT_S, How, outcome_of
from ..rungs import known, warmth
from ..verdicts.outcome import Outcome
from ..verdicts.own_passes import registered_for
from ..verdicts.signature import Signature, from_answer
from ..verdicts.verdict import ROUNDING, Verdict, Where, abandoned, cannot_tell, fails
from ..verdicts.verdict_words import PROBES, headline
from . import bisect_words as words
from . import node_asking
from .bisect_asking import TASKS, BisectQuestions, Narrate
from .bisect_narrowing import explained_below, narrow, own_settings, setting_finding, worked_around
from .bisect_records import Bisection, Clock, Culprit, Effect, Off, OutOfTime, Subsystem, Trial
from .bisect_words import fallback_code
from .node_asking import NUMBERS, Ask, Narrowing, NodeBlame, Spent
from .partners import SHOWN, UNSEEN, ByNode, NodeFound, forward_partner, siblings

CONFIRMED = 2
"""How many candidates of the local test are confirmed, each compiled alone."""
TAP_BYTES = 2 << 30
"""Where all values together exceed this many bytes, no compile returns them all; the search is by cuts alone."""


class Search:
    """The search by node in one graph."""

    def __init__(self, asking: NodeBlame) -> None:
        self.ask, self.found = asking, asking.found
        self.began = time.monotonic()
        self.signature: Signature | None = None
        self.workaround: str | None = None
        self.first_wrong: dict[str, Any] = {}

    def run(self) -> ByNode:
        """Runs the whole search. Raises OutOfTime where no node was named until then."""
        findings = self.found
        try:
            self._search()
        except OutOfTime as stop:
            if findings.node is None:
                raise
            self._finish(work_around=False)
            self.ask.asking.result.stopped = str(stop)
        findings.verdict = self._concluded(findings.verdict)
        findings.seconds = time.monotonic() - self.began
        return findings

    def _search(self) -> None:
        answer = self.ask.compile("the whole graph", "whole", {})
        outcome, departing, raised = self._judged(answer)
        findings = self.found
        findings.verdict, findings.text, self.signature = outcome.verdict, outcome.text, outcome.signature
        findings.notes += outcome.notes
        kind = findings.sort = outcome.signature.kind if outcome.signature else ""
        check = self.ask.asking.check
        if outcome.ok and not outcome.verdict.sought(check):
            if outcome.verdict.verdict not in ("ok", ROUNDING) or outcome.eager_nan or not self._damped():
                self._nothing(outcome)
        elif not outcome.verdict.sought(check) or outcome.verdict.fault == "model":
            findings.status = "skipped" if outcome.verdict.skipped else "eager"
            self._name_nan(outcome)
        elif kind == "metadata":
            self._metadata()
        elif kind in NUMBERS:
            self._numbers(departing)
        elif kind == "missing_error" and (where := outcome.verdict.where) is not None:
            findings.status, findings.node = "found", NodeFound(where.node, line=where.line)
        elif raised:
            findings.node, findings.others = self.ask.node(raised[0]), raised[1:6]
            findings.detail = "named by the compiler's own exception"
            self._finish()
        else:
            self._cuts_by_signature()

    def _concluded(self, record: Verdict) -> Verdict:
        """Returns the graph's verdict with the node that was found, which fails where that node is wrong by itself;
        `cannot_tell` where the search named no node to blame."""
        findings = self.found
        if findings.status in ("unresolved", "metadata"):
            why = findings.detail or "its numbers are right, so no node is to blame for them"
            return cannot_tell(f"it fails ({headline(record)}), but {why}")
        if findings.status == "found" and not record.failed and (findings.alone or not record.differs):
            record = fails("wrong_numbers", findings.rung, findings.detail)
        origin = findings.nan_origins[0] if findings.nan_origins and record.fault == "model" else None
        node = NodeFound(origin["node"], line=origin.get("line", "")) if origin else findings.node
        name = record.where.name if record.where is not None else ""
        where = Where(node.name, self.ask.saved.name, node.line, name) if node is not None else record.where
        return msgspec.structs.replace(record, where=where, workaround=self.workaround)

    # The verdict on the whole graph.

    def _judged(self, answer: TaskResult) -> tuple[Outcome, list[dict[str, Any]], list[str]]:
        value: dict[str, Any] = answer.value if answer.status == "done" else {}
        plain = msgspec.structs.replace(answer, value=value.get("outcome"))
        return outcome_of(plain, self.found.rung), value.get("departures", []), value.get("raised", [])

    def _nothing(self, outcome: Outcome) -> None:
        self.found.status = "skipped" if outcome.verdict.skipped else "nothing"
        self._name_nan(outcome)
        for origin in self.found.nan_origins[:1]:
            first = f"eager itself gives NaN, first at `{origin['node']}` {origin['line']}"
            self.found.notes.append(f"{first}: the compiler is not at fault")

    def _damped(self) -> bool:
        """Whether a node is wrong by itself although the graph's results are right within rounding."""
        with suppress(Spent):
            wrong = self._tapped()
            for departure in wrong[:CONFIRMED]:
                if self._alone(departure):
                    self.found.sort = "accuracy"
                    why = "the results of the graph are right within rounding: what follows damps the error"
                    self.found.notes.append(why)
                    self.found.others = [other["name"] for other in wrong]
                    self._finish(work_around=False)
                    return True
        return False

    def _metadata(self) -> None:
        """Judges the graph once more for its numbers alone, because they may be wrong as well as the metadata."""
        answer = self.ask.compile("the whole graph, for its numbers", "whole", {"check": "numbers"})
        outcome, departing, _ = self._judged(answer)
        if outcome.signature is not None and outcome.signature.kind in NUMBERS:
            self.found.sort, self.signature = outcome.signature.kind, outcome.signature
            self._numbers(departing)
        else:
            self.found.status = "metadata"

    def _name_nan(self, outcome: Outcome) -> None:
        if not outcome.eager_nan and not (outcome.signature and outcome.signature.kind == "nan"):
            return
        self.found.nan_origins = [
            {**origin, "line": self.ask.row(origin["node"]).get("line", "")} for origin in self.ask.prepared["nan"]
        ]

    # Wrong numbers.

    def _numbers(self, departing: list[dict[str, Any]]) -> None:
        with suppress(Spent):
            self._by_values()
        if self.found.node is None:
            self._by_cuts(departing)
        self._finish()

    def _by_values(self) -> None:
        """Compiles once with every value returned, and confirms the nodes whose values are wrong there."""
        if not (wrong := self._tapped()):
            return
        self.found.others = [departure["name"] for departure in wrong]
        self._name(wrong[0]["name"], wrong[0], alone=None)
        for departure in wrong[:CONFIRMED]:
            if self._alone(departure):
                return
            name = departure["name"]
            atom = self.ask.atoms["of_node"][name]
            near = sorted({atom, *self.ask.parents(atom), *self.ask.children(atom)})
            if fused := self.ask.part(f"{name} with its neighbours", near, None):
                there = any(other["name"] == name for other in fused)
                self._name(name, fused[0] if there else departure, alone=False)
                self.found.group = self._nodes([it for it in near if it != atom])
                return
        self._name(wrong[0]["name"], wrong[0], alone=False)
        why = "it is wrong when the whole graph is compiled with every value returned, but right in a smaller part"
        self.found.notes.append(why)

    def _alone(self, departure: dict[str, Any]) -> bool:
        """Compiles one node by itself; where its value is wrong there too, records it as the culprit and returns
        True."""
        name = departure["name"]
        wrong = self.ask.part(f"{name} alone", [self.ask.atoms["of_node"][name]], None)
        if wrong:
            self._name(name, wrong[0], alone=True)
        return bool(wrong)

    def _tapped(self) -> list[dict[str, Any]]:
        """Compiles once with every returnable value as an output and returns the wrong ones; [] where the values exceed
        TAP_BYTES."""
        size = sum(row["bytes"] for row in self.ask.rows)
        if size > TAP_BYTES:
            self.found.notes.append(f"{size_text(size)} of values are too much to return from one compile")
            return []
        taps = [row["name"] for row in self.ask.rows if row["tap"]]
        return (self.ask.part("with every value returned", None, taps) if taps else None) or []

    def _by_cuts(self, departing: list[dict[str, Any]]) -> None:
        """Searches by cuts for the pass or fusion to blame, where no value is wrong once all are returned."""
        narrowing = self._narrowed(self._region(departing), self._wrong_atoms)
        if not narrowing.wrong:
            self.found.status = "unresolved"
            self.found.detail = (
                "every node is right on the inputs that it got, so the error is rounding that later nodes "
                "amplify, or appears only when the whole graph is compiled at once"
            )
            return
        self._name(self.first_wrong["name"], self.first_wrong, alone=len(narrowing.window) == 1)
        self.found.group = self._nodes([it for it in narrowing.window if it != narrowing.wrong[0]])

    def _narrowed(self, atoms: Iterable[int], ask: Ask) -> Narrowing:
        narrowing = Narrowing(atoms, ask, self.ask.ancestors, self.ask.descendants)
        if not narrowing.run() and narrowing.wrong:
            self.found.notes.append("the compiles ran out before the smallest stretch was found")
        return narrowing

    def _region(self, departing: list[dict[str, Any]]) -> list[int]:
        """The atoms that the first wrong output depends on, cut at the other outputs, if that part fails by itself and
        is at most a quarter of the graph; else all atoms."""
        everything, of_node = list(range(len(self.ask.atoms["nodes"]))), self.ask.atoms["of_node"]
        last = of_node.get(departing[0]["name"]) if departing else None
        if last is None:
            return everything
        returned = next((row["inputs"] for row in reversed(self.ask.rows) if row["op"] == "output"), [])
        stop = {of_node[name] for name in returned if name in of_node} - {last}
        region = sorted({last, *self.ask.ancestors(last, stop)})
        if len(region) > len(everything) // 4:
            return everything
        try:
            return region if self.ask.part("what the first wrong output is made of", region, None) else everything
        except Spent:
            return everything

    def _wrong_atoms(self, keep: list[int]) -> list[int] | None:
        wrong = self.ask.part(f"nodes {self.ask.span(keep)}", keep, None)
        if wrong is None:
            return None
        self.first_wrong, of_node = wrong[0], self.ask.atoms["of_node"]
        self._name(wrong[0]["name"], wrong[0], alone=None)
        return [of_node[departure["name"]] for departure in wrong if departure["name"] in of_node] or None

    def _finish(self, *, work_around: bool = True) -> None:
        findings = self.found
        if findings.node is None:
            return
        findings.status = "found"
        findings.others = [name for name in dict.fromkeys(findings.others) if name != findings.node.name][:20]
        findings.forward = forward_partner(self.ask.saved, findings.node.name)
        if not findings.node.line and findings.forward is not None:
            findings.node.line = findings.forward.line
        row = self.ask.row(findings.node.name)
        alone = findings.alone or findings.sort not in NUMBERS
        known = work_around and alone and findings.rung == "inductor" and row["overload"]
        if known and findings.compiles < findings.budget:
            op = row["target"]
            more = {"atoms": None, "returned": None, "fallback": [op]}
            answer = self.ask.compile(f"the whole graph with {op} left to eager's kernel", "part", more)
            value: dict[str, Any] = answer.value if answer.status == "done" else {}
            if value and not value["departures"] and value["signature"] is None and not value.get("invalid"):
                self.workaround = fallback_code([op])
                line = f"torch._inductor.lowering.make_fallback(torch.ops.{op}, override_decomp=True)"
                findings.work_around = f"{line} before compiling leaves it to eager's kernel"

    def _nodes(self, atoms: list[int]) -> list[NodeFound]:
        """The first node of each atom; atoms without nodes, which only return an input, are left out."""
        return [self.ask.node(nodes[0]) for atom in atoms if (nodes := self.ask.atoms["nodes"][atom])]

    def _name(self, name: str, departure: dict[str, Any], *, alone: bool | None) -> None:
        findings = self.found
        findings.node, findings.alone = self.ask.node(self.ask.producer(name)), alone
        findings.error, findings.detail = departure["error"], departure["text"]
        if alone is False and (unseen := self._unseen(findings.node.name)):
            what = listed((f"`{it}`" for it in unseen), SHOWN)
            findings.between = f"{UNSEEN}: {what} could not be returned from a compile and may be wrong already."

    def _unseen(self, name: str) -> list[str]:
        """Names of the call nodes between a node and the nearest values before it that a compile can return; the values
        of these nodes cannot be returned."""
        rows, of_node = self.ask.rows, self.ask.atoms["of_node"]
        ancestors = self.ask.ancestors(of_node[name], {of_node[row["name"]] for row in rows if row["tap"]})
        return [row["name"] for row in rows if row["op"].startswith("call_") and of_node.get(row["name"]) in ancestors]

    # Crashes without a node, signals, hangs.

    def _cuts_by_signature(self) -> None:
        findings = self.found

        def ask(keep: list[int]) -> list[int] | None:
            answer = self.ask.compile(f"nodes {self.ask.span(keep)}", "part", {"atoms": keep, "returned": None})
            seen = from_answer(answer)
            same = seen is not None and self.signature is not None and seen.same_as(self.signature)
            return [keep[-1]] if same else None

        narrowing = self._narrowed(range(len(self.ask.atoms["nodes"])), ask)
        if not narrowing.wrong:
            findings.detail = "no part of the graph fails in the same way"
            return
        findings.node = self.ask.node(self.ask.atoms["nodes"][narrowing.window[-1]][0])
        findings.alone = len(narrowing.window) == 1
        findings.group = self._nodes(narrowing.window[:-1])
        self._finish()


def by_node(saved: SavedGraph, asking: BisectQuestions) -> ByNode:
    """Searches one saved graph by node. For a graph from before AOTAutograd, the graphs made from it are searched
    first.

    A line of progress for each compile is narrated. Raises OutOfTime, and GraphdbgError for a graph that cannot be
    loaded.
    """

    def search(graph: SavedGraph, spent: int) -> ByNode:
        with temporary.folder("graphdbg-bisect-") as work:
            return Search(NodeBlame(graph, asking, work, spent)).run()

    family = siblings(saved)
    spent = 0
    for graph in family:
        asking.narrate(f"looking at {graph.id}, made of {saved.id}")
        findings = search(graph, spent)
        if findings.fails:
            looked = "found" if findings.node is not None else "by node only searched"
            findings.notes.append(f"{looked} in {graph.id}, which was made of {saved.id}")
            return findings
        spent = findings.compiles
    findings = search(saved, spent)
    if family and findings.fails:
        names = " and ".join(graph.id for graph in family)
        each = "is right in itself" if len(family) == 1 else "are right in themselves"
        findings.between = (
            f"{names} {each}: the fault lies between, in a decomposition, a joint-graph pass or the partitioner."
        )
        findings.notes.append(f"{spent} of the compiles were for {names}")
    return findings


DECOMPOSED = "decomposed"
"""The rung that stands for torch's backend aot_eager_decomp_partition."""
PASSES = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")
_BARE = {name for name, facts in LADDER.items() if not facts.has_passes} - {DECOMPOSED}
"""Rungs of which nothing can be switched off."""


def by_pass(asking: BisectQuestions) -> None:
    """Searches by pass, for a graph whose failure was reproduced; adds findings and rows to `asking.result`. Raises
    OutOfTime."""
    result = asking.result
    if result.rung in _BARE:
        return
    before = _backend(asking)
    if before:
        result.findings += before
    else:
        _inductor(asking)
    for finding in result.findings:
        worked_around(asking, finding)
    verified = [finding.kind for finding in result.findings if finding.workaround and finding.workaround.verified]
    if before or set(verified) - {"lowering"}:
        reason = "not tried: what was found explains the failure"
        result.rows += [Subsystem("fusion", 0, None, reason), Subsystem("settings", 0, None, reason)]
        return
    lowered = any(row.subsystem == "lowerings" and row.verdict in ("gone", "other") for row in result.rows)
    result.findings += _fusion(asking)
    result.findings += setting_finding(asking, generated_code=lowered)


def _backend(asking: BisectQuestions) -> list[Culprit]:
    """Returns the culprit where the graph fails before Inductor (a decomposition, or AOTAutograd); [] otherwise."""
    verdict = asking.probe_rung(DECOMPOSED)
    asking.result.backend = "aot_eager_decomp_partition" if verdict == "same" else "inductor"
    if verdict != "same":
        state = "is right" if verdict == "gone" else PROBES["other"][1]
        reason = asking.reason if verdict is None else f"the decomposed graph {state}"
        asking.result.rows.append(Subsystem("decomposition", 0, None, reason))
        return []
    applied = asking.applications("decomposition")
    whole = asking.probe(Trial(f"no op decomposed ({len(applied)})", [Off("decomposition", keep=[])], rung=DECOMPOSED))
    culprits = narrow(asking, ["decomposition"], whole=whole, rung=DECOMPOSED) if whole != "same" else []
    behind = Subsystem("Inductor's passes and lowerings", 0, None, "the graph is wrong before Inductor sees it")
    asking.result.rows += [Subsystem("decomposition", len(applied), whole), behind]
    if culprits:
        return culprits
    kind, said = ("decomposed", words.DECOMPOSED) if whole == "other" else ("aot", words.AOT)
    own = registered_for(asking.saved, DECOMPOSITION, [each.name for each in applied]) if whole == "other" else None
    said += f"; {own.text} is the run's own" if own is not None else ""
    return [Culprit(kind, "aot_eager_decomp_partition", "AOTAutograd", said, alone=False)]


def _inductor(asking: BisectQuestions) -> None:
    verdicts: dict[str, Effect | None] = {
        name: _whole(asking, name) for name in asking.parts.subsystems if name != "decomposition"
    }
    gone = [name for name, verdict in verdicts.items() if verdict == "gone"]
    guilty = [name for name in PASSES if name in gone][:1] or _together(asking, verdicts)
    if "lowerings" in gone:
        asking.result.findings += narrow(asking, ["lowerings"])
    if guilty:
        culprits = narrow(asking, guilty)
        if culprits and "pattern_matches" in gone:
            explained_below(culprits[0], narrow(asking, ["pattern_matches"]))
        asking.result.findings += culprits
    for name in [*gone, *(name for name, verdict in verdicts.items() if verdict == "other")]:
        if not asking.result.findings:
            asking.result.findings += narrow(asking, [name], whole=verdicts[name])


def _together(asking: BisectQuestions, verdicts: dict[str, Effect | None]) -> list[str]:
    """Switches all kinds of passes off at once, since one function may run in several; returns their names if that
    helps."""
    tried = [name for name in PASSES if verdicts.get(name) == "same"]
    if len(tried) < 2:
        return []
    verdict = asking.probe(Trial("all passes off", [Off(name, keep=[]) for name in tried]))
    asking.result.rows.append(Subsystem(f"any of {', '.join(tried)}", 0, verdict))
    return tried if verdict == "gone" else []


def _whole(asking: BisectQuestions, name: str) -> Effect | None:
    """Switches one subsystem off as a whole, except for what must run, and adds its row either way."""
    applied = asking.applications(name)
    free = [application for application in applied if not application.required]
    if not free:
        reason = words.not_run(name, asking.saved, bool(applied))
        asking.result.rows.append(Subsystem(name, len(applied), None, reason))
        return None
    kept = f", {len(applied) - len(free)} that must run are kept" if len(free) < len(applied) else ""
    verdict = asking.probe(Trial(f"all of {name} off ({len(free)}{kept})", [Off(name, keep=[])]))
    asking.result.rows.append(Subsystem(name, len(applied), verdict, kept.removeprefix(", ")))
    return verdict


def _fusion(asking: BisectQuestions) -> list[Culprit]:
    """Tests whether the failure needs fusion, with the rung that compiles each node to a kernel of its own and runs no
    optional passes."""
    verdict = asking.probe_rung("inductor_nofuse")
    if verdict == "gone":
        bare = {"use_pre_grad_passes": False, "use_joint_graph_passes": False, "pattern_matcher": False}
        off = [Off(name, keep=[]) for name in PASSES]
        verdict = asking.probe(Trial("all optional passes off, fusion on", off, settings={"inductor": bare}))
        verdict = "gone" if verdict == "same" else None
        asking.reason = "" if verdict else "undecided: the graph is right even with fusion, without optional passes"
    asking.result.rows.append(Subsystem("fusion", 0, verdict, asking.reason))
    return [Culprit("fusion", "fusion", "fusion", words.FUSION, alone=True)] if verdict == "gone" else []


By = Literal["node", "pass"]

INTERRUPTED = "interrupted"
"""`stopped` of a result after Ctrl-C."""


def bisect(
    saved: SavedGraph,
    *,
    by: By | None = None,
    rung: str = "inductor",
    seed: int = 0,
    device: str | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
    check: str = "auto",
    imports: Sequence[str] = (),
    max_time_s: float | None = None,
    narrate: Narrate = lambda _: None,
    server: ForkServer | None = None,
) -> Bisection:
    """Finds who is to blame for a graph that fails under a rung, and says what that means.

    `by`: search only by node, or only by pass. `seed`, `device`, `limit_s` (of one probe), `check` and `imports` as in
    `replay`; with `check` "rounding", rounding is searched for like a failure. `max_time_s`: stop after so long with
    what was found. `narrate` gets a sentence per probe. `server`: a fork server to use; everything is compiled in its
    cache folder. After Ctrl-C what was found so far is returned, `stopped` is INTERRUPTED. Raises GraphdbgError for a
    graph that cannot be loaded.
    """
    known(rung)  # a wrong name is the caller's mistake, reported before anything starts
    if saved.status == "skipped":
        verdict = abandoned(saved.error)
        return Bisection(saved.id, saved.stage, rung, sentence=verdict.reason, verdict=verdict)
    clock, how = Clock(max_time_s), How(seed, device, limit_s, imports)
    with opened(server, warmth(rung), *TASKS, node_asking.TASKS) as used:
        asking = BisectQuestions(saved, used, rung, narrate, how, check, clock)
        result = asking.result
        try:
            if by == "node":
                result.reproduced = _by_node(asking).fails
            else:
                _search(asking, nodes=by is None)
        except OutOfTime as stop:
            result.stopped = str(stop)
        except KeyboardInterrupt:
            result.stopped = INTERRUPTED
        finally:
            result.seconds = clock.elapsed()
            asking.close()
    words.conclude(result, saved, by)
    return result


def _by_node(asking: BisectQuestions) -> ByNode:
    result = asking.result
    result.by_node = searched = by_node(asking.saved, asking)
    result.notes += [note for note in searched.notes if note not in result.notes]
    return searched


def _search(asking: BisectQuestions, *, nodes: bool) -> None:
    asking.reproduce()
    result, convicted = asking.result, False
    if not result.reproduced:
        return
    if result.verdict.fault != "model":
        result.findings += own_settings(asking)
    if result.findings:
        return
    if nodes:
        try:
            convicted = _by_node(asking).convicted
        except GraphdbgError as error:
            result.notes.append(f"not searched by node: {error}")
    if result.verdict.fault != "model" and not convicted:
        by_pass(asking)
