"""Names the first node of a saved graph whose compiled value is wrong on right inputs.

The whole graph is judged once. Then one compile returns every node's value, and each is compared with float64 on the
compiled values of its inputs (`departures`): what departs is the node, confirmed alone or with its neighbours. Where
all values are right as soon as they are returned, a pass or a fusion is to blame, and cuts are searched (`cuts`). Every
compile runs in a child, is counted, and there are at most 2 log2(n) + 4 of them for n operations. Imports no torch.

For example:

    found = by_node(load_graph("myrun/0_0/forward"), server, "inductor", How(), "auto", Clock(), print)
    found.node.name, found.alone, found.compiles  # -> ('mul_31', True, 3)
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps import temporary
from ...dumps.wording import size_text
from ..isolation import Answer, ForkServer
from ..replaying.replay import How, outcome_of
from ..verdicts.outcome import Outcome
from ..verdicts.signature import Signature, from_answer
from ..verdicts.verdict import Verdict, Where, cannot_tell, fails
from ..verdicts.verdict_words import headline
from .bisect_records import Clock
from .bisect_words import fallback_code
from .node_asking import NUMBERS, Ask, Narrate, Narrowing, NodeBlame, Spent
from .partners import ByNode, NodeFound, forward_partner, siblings

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph


CONFIRMED = 2
"""So many candidates of the local test are confirmed."""
TAP_BYTES = 2 << 30
"""Above this many bytes of values no compile returns them all; the cuts alone then search."""


class Search:
    """The search by node in one graph."""

    def __init__(self, asking: NodeBlame) -> None:
        self.ask, self.found = asking, asking.found
        self.began = time.monotonic()
        self.signature: Signature | None = None
        self.workaround: str | None = None
        self.first_wrong: dict[str, Any] = {}

    def run(self) -> ByNode:
        """Runs the whole search."""
        answer = self.ask.compile("the whole graph", "whole", {})
        outcome, departing, raised = self._judged(answer)
        findings = self.found
        findings.verdict, findings.text, self.signature = outcome.verdict, outcome.text, outcome.signature
        findings.notes += outcome.notes
        kind = findings.sort = outcome.signature.kind if outcome.signature else ""
        check = str(self.ask.payload["check"])
        if outcome.ok and not outcome.verdict.sought(check):
            if outcome.verdict.verdict != "ok" or outcome.eager_nan or not self._damped():
                self._nothing(outcome)
        elif not outcome.verdict.sought(check) or outcome.verdict.fault == "model":
            findings.status = "skipped" if outcome.verdict.skipped else "eager"
            self._name_nan(outcome)
        elif kind == "metadata":
            self._metadata()
        elif kind in NUMBERS:
            self._numbers(departing)
        elif kind == "missing_error" and outcome.verdict.where is not None:
            findings.status, findings.node = (
                "found",
                NodeFound(outcome.verdict.where.node, line=outcome.verdict.where.line),
            )
        elif raised:
            self._at(raised)
        else:
            self._cuts_by_signature()
        findings.verdict = self._concluded(findings.verdict)
        findings.seconds = time.monotonic() - self.began
        return findings

    def _concluded(self, record: Verdict) -> Verdict:
        """The verdict on the graph with the node that was found; a search that found none says nothing about who is to
        blame."""
        findings = self.found
        if findings.status in ("unresolved", "metadata"):
            why = findings.detail or "its numbers are right, so no node is to blame for them"
            return cannot_tell(f"it fails ({headline(record)}), but {why}")
        if findings.status == "found" and not record.differs:
            record = fails("wrong_numbers", findings.rung, findings.detail)
        origin = findings.nan_origins[0] if findings.nan_origins and record.fault == "model" else None
        node = NodeFound(origin["node"], line=origin.get("line", "")) if origin else findings.node
        name = record.where.name if record.where is not None else ""
        where = Where(node.name, self.ask.saved.name, node.line, name) if node is not None else record.where
        return msgspec.structs.replace(record, where=where, workaround=self.workaround)

    # What the whole graph said.

    def _judged(self, answer: Answer) -> tuple[Outcome, list[dict[str, Any]], list[str]]:
        value: dict[str, Any] = answer.value if answer.status == "done" else {}
        plain = msgspec.structs.replace(answer, value=value.get("outcome"))
        return outcome_of(plain, self.found.rung), value.get("departures", []), value.get("raised", [])

    def _nothing(self, outcome: Outcome) -> None:
        findings = self.found
        findings.status = "skipped" if outcome.verdict.skipped else "nothing"
        if outcome.eager_nan:
            self._name_nan(outcome)
            if findings.nan_origins:
                origin = findings.nan_origins[0]
                findings.notes.append(
                    f"eager itself gives NaN, first at `{origin['node']}` {origin['line']}: not the compiler's"
                )

    def _damped(self) -> bool:
        """Whether a node is wrong by itself although the graph's results are right within rounding."""
        try:
            taps = self._taps()
            wrong = self.ask.part("with every value returned", None, taps) if taps else None
            for departure in (wrong or ())[:CONFIRMED]:
                if alone := self.ask.part(
                    f"{departure['name']} alone", [self.ask.atoms["of_node"][departure["name"]]], None
                ):
                    self.found.sort = "accuracy"
                    self._name(departure["name"], alone[0], alone=True)
                    self.found.notes.append(
                        "the results of the graph are right within rounding: what follows damps the error"
                    )
                    self.found.others = [other["name"] for other in wrong or ()]
                    self._finish(work_around=False)
                    return True
        except Spent:
            pass
        return False

    def _metadata(self) -> None:
        """Asks for the numbers by themselves, because they may be wrong as well."""
        findings = self.found
        outcome, departing, _ = self._judged(
            self.ask.compile("the whole graph, for its numbers", "whole", {"check": "numbers"})
        )
        if outcome.signature is not None and outcome.signature.kind in NUMBERS:
            findings.sort, self.signature = outcome.signature.kind, outcome.signature
            self._numbers(departing)
        else:
            findings.status = "metadata"

    def _name_nan(self, outcome: Outcome) -> None:
        if not outcome.eager_nan and not (outcome.signature and outcome.signature.kind == "nan"):
            return
        self.found.nan_origins = [
            {**origin, "line": self.ask.row(origin["node"]).get("line", "")} for origin in self.ask.prepared["nan"]
        ]

    def _at(self, names: list[str]) -> None:
        findings = self.found
        findings.status, findings.node = "found", self.ask.node(names[0])
        findings.others = names[1:6]
        findings.detail = "named by the compiler's own exception"
        self._finish()

    # Wrong numbers.

    def _numbers(self, departing: list[dict[str, Any]]) -> None:
        findings = self.found
        try:
            if self._by_values():
                return self._finish()
        except Spent:
            pass
        if findings.node is not None:
            return self._finish()
        self._by_cuts(departing)
        return self._finish()

    def _by_values(self) -> bool:
        """Compiles once with every value returned, and confirms what departs in it."""
        taps = self._taps()
        wrong = self.ask.part("with every value returned", None, taps) if taps else None
        if wrong is None:
            return False
        self.found.others = [departure["name"] for departure in wrong]
        for departure in wrong[:CONFIRMED]:
            atom = self.ask.atoms["of_node"][departure["name"]]
            if alone := self.ask.part(f"{departure['name']} alone", [atom], None):
                self._name(departure["name"], alone[0], alone=True)
                return True
            near = sorted({atom, *self.ask.parents(atom), *self.ask.children(atom)})
            if fused := self.ask.part(f"{departure['name']} with its neighbours", near, None):
                self._name(
                    departure["name"],
                    departure if all(it["name"] != departure["name"] for it in fused) else fused[0],
                    alone=False,
                )
                self.found.group = self._nodes([it for it in near if it != atom])
                return True
        self._name(wrong[0]["name"], wrong[0], alone=False)
        self.found.notes.append(
            "it departs when the whole graph is compiled with every value returned; a part of it was right"
        )
        return True

    def _taps(self) -> list[str]:
        """The nodes whose values one compile can return; none where that would take too much memory."""
        size = sum(row["bytes"] for row in self.ask.rows)
        if size > TAP_BYTES:
            self.found.notes.append(f"values of {size_text(size)} are not all returned from one compile")
            return []
        return [row["name"] for row in self.ask.rows if row["tap"]]

    def _by_cuts(self, departing: list[dict[str, Any]]) -> None:
        """Searches by cuts for the pass or fusion to blame, where no value is wrong once all are returned."""
        region = self._region(departing)
        narrowing = self._narrowed(region, self._wrong_atoms)
        findings = self.found
        if not narrowing.wrong:
            findings.status = "unresolved"
            findings.detail = (
                "every value is right on the values that it was given, so the error is rounding that later "
                "nodes amplify, or "
                "is made only where the whole graph is compiled as one"
            )
            return
        last = narrowing.wrong[0]
        self._name(self.first_wrong["name"], self.first_wrong, alone=len(narrowing.window) == 1)
        findings.group = self._nodes([it for it in narrowing.window if it != last])

    def _narrowed(self, atoms: Iterable[int], ask: Ask) -> Narrowing:
        narrowing = Narrowing(atoms, ask, self.ask.ancestors, self.ask.descendants)
        if not narrowing.run() and narrowing.wrong:
            self.found.notes.append("the compiles ran out before the smallest stretch was found")
        return narrowing

    def _region(self, departing: list[dict[str, Any]]) -> list[int]:
        """The nodes that the first wrong output depends on, without those of right outputs, if that part fails by
        itself; else all."""
        everything = list(range(len(self.ask.atoms["nodes"])))
        if not departing:
            return everything
        returned = set(self.ask.returned)
        last = self.ask.atoms["of_node"].get(departing[0]["name"])
        if last is None:
            return everything
        stop = {self.ask.atoms["of_node"][name] for name in returned if name in self.ask.atoms["of_node"]} - {last}
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
        self.first_wrong = wrong[0]
        return [
            self.ask.atoms["of_node"][departure["name"]]
            for departure in wrong
            if departure["name"] in self.ask.atoms["of_node"]
        ] or None

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
        if (
            work_around
            and alone
            and findings.rung == "inductor"
            and row["overload"]
            and findings.compiles < findings.budget
        ):
            answer = self.ask.compile(
                f"the whole graph with {row['target']} left to eager's kernel",
                "part",
                {"atoms": None, "returned": None, "fallback": [row["target"]]},
            )
            value: dict[str, Any] = answer.value if answer.status == "done" else {}
            if value and not value["departures"] and value["signature"] is None and not value.get("invalid"):
                self.workaround = fallback_code([row["target"]])
                line = f"torch._inductor.lowering.make_fallback(torch.ops.{row['target']}, override_decomp=True)"
                findings.work_around = f"{line} before compiling leaves it to eager's kernel"

    def _nodes(self, atoms: list[int]) -> list[NodeFound]:
        """The first node of each atom; what only returns an input has none."""
        return [self.ask.node(nodes[0]) for atom in atoms if (nodes := self.ask.atoms["nodes"][atom])]

    def _name(self, name: str, departure: dict[str, Any], *, alone: bool) -> None:
        findings = self.found
        findings.node, findings.alone = self.ask.node(self.ask.producer(name)), alone
        findings.error, findings.detail = departure["error"], departure["text"]

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
        last = narrowing.window[-1]
        findings.status, findings.node = "found", self.ask.node(self.ask.atoms["nodes"][last][0])
        findings.alone = len(narrowing.window) == 1
        findings.group = self._nodes(narrowing.window[:-1])
        self._finish()


def by_node(
    saved: SavedGraph, server: ForkServer, rung: str, how: How, check: str, clock: Clock, narrate: Narrate
) -> ByNode:
    """Searches one saved graph under a rung; of a graph from before AOTAutograd first the graphs made of it.

    `narrate` is called with a line of progress for each compile. Raises OutOfTime, and GraphdbgError for a graph that
    cannot be loaded.
    """
    with ExitStack() as stack:

        def search(graph: SavedGraph, spent: int) -> ByNode:
            work = stack.enter_context(temporary.folder("graphdbg-bisect-"))
            return Search(NodeBlame(graph, server, work, rung, how, check, narrate, clock, spent)).run()

        family = siblings(saved)
        spent = 0
        for graph in family:
            narrate(f"looking at {graph.id}, made of {saved.id}")
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
