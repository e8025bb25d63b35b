"""Names the first node of a saved graph whose compiled value is wrong on right inputs.

The whole graph is judged once. Then one compile returns every node's value, and each is compared with float64 on the
compiled values of its inputs (`departures`): what departs is the node, confirmed alone or with its neighbours. Where
all values are right as soon as they are returned, a pass or a fusion is to blame, and cuts are searched (`cuts`). Every
compile runs in a child, is counted, and there are at most 2 log2(n) + 4 of them for n operations. Must not import torch
here.

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
from ...dumps.amounts import size_text
from ..isolation import Answer, ForkServer
from ..replaying.replay import How, outcome_of
from ..verdicts.outcome import Outcome
from ..verdicts.signature import Signature, from_answer
from ..verdicts.verdict import Verdict, Where, cannot_tell, fails
from ..verdicts.verdict_words import headline
from .bisect_records import Clock
from .bisect_words import fallback_code
from .cuts import Ask, Narrowing, Spent
from .node_asking import NUMBERS, NodeBlame, Tell
from .node_found import ByNode, NodeFound
from .partners import forward_partner, siblings

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph


CONFIRMED = 2
"""So many candidates of the local test are confirmed."""
TAP_BYTES = 2 << 30
"""Above this many bytes of values no compile returns them all; the cuts alone then search."""


class Search:
    """One graph: what came back, and what follows from it."""

    def __init__(self, asking: NodeBlame) -> None:
        self.ask, self.found = asking, asking.found
        self.began = time.monotonic()
        self.signature: Signature | None = None
        self.workaround: str | None = None
        self.first_wrong: dict[str, Any] = {}

    def run(self) -> ByNode:
        """The whole search."""
        answer = self.ask.compile("the whole graph", "whole", {})
        outcome, departing, raised = self._judged(answer)
        found = self.found
        found.verdict, found.text, self.signature = outcome.verdict, outcome.text, outcome.signature
        found.notes += outcome.notes
        kind = found.sort = outcome.signature.kind if outcome.signature else ""
        check = str(self.ask.payload["check"])
        if outcome.ok and not outcome.verdict.sought(check):
            if outcome.verdict.verdict != "ok" or outcome.eager_nan or not self._damped():
                self._nothing(outcome)
        elif not outcome.verdict.sought(check) or outcome.verdict.fault == "model":
            found.status = "skipped" if outcome.verdict.skipped else "eager"
            self._name_nan(outcome)
        elif kind == "metadata":
            self._metadata()
        elif kind in NUMBERS:
            self._numbers(departing)
        elif kind == "missing_error" and outcome.verdict.where is not None:
            found.status, found.node = "found", NodeFound(outcome.verdict.where.node, line=outcome.verdict.where.line)
        elif raised:
            self._at(raised)
        else:
            self._cuts_by_signature()
        found.verdict = self._concluded(found.verdict)
        found.seconds = time.monotonic() - self.began
        return found

    def _concluded(self, record: Verdict) -> Verdict:
        """The verdict on the graph with the node that was found; that none was is no verdict on who is to blame."""
        found = self.found
        if found.status in ("unresolved", "metadata"):
            why = found.detail or "its numbers are right, so no node is to blame for them"
            return cannot_tell(f"it fails ({headline(record)}), but {why}")
        if found.status == "found" and not record.differs:
            record = fails("wrong_numbers", found.rung, found.detail)
        origin = found.nan_origins[0] if found.nan_origins and record.fault == "model" else None
        node = NodeFound(origin["node"], line=origin.get("line", "")) if origin else found.node
        name = record.where.name if record.where is not None else ""
        where = Where(node.name, self.ask.saved.name, node.line, name) if node is not None else record.where
        return msgspec.structs.replace(record, where=where, workaround=self.workaround)

    # What the whole graph said.

    def _judged(self, answer: Answer) -> tuple[Outcome, list[dict[str, Any]], list[str]]:
        value: dict[str, Any] = answer.value if answer.status == "done" else {}
        plain = msgspec.structs.replace(answer, value=value.get("outcome"))
        return outcome_of(plain, self.found.rung), value.get("departures", []), value.get("raised", [])

    def _nothing(self, outcome: Outcome) -> None:
        found = self.found
        found.status = "skipped" if outcome.verdict.skipped else "nothing"
        if outcome.eager_nan:
            self._name_nan(outcome)
            if found.nan_origins:
                origin = found.nan_origins[0]
                found.notes.append(
                    f"eager itself gives NaN, first at `{origin['node']}` {origin['line']}: not the compiler's"
                )

    def _damped(self) -> bool:
        """The results are right within rounding; whether a node behind them is wrong by itself all the same."""
        try:
            taps = self._taps()
            wrong = self.ask.part("with every value returned", None, taps) if taps else None
            for one in (wrong or ())[:CONFIRMED]:
                if alone := self.ask.part(f"{one['name']} alone", [self.ask.atoms["of_node"][one["name"]]], None):
                    self.found.sort = "accuracy"
                    self._name(one["name"], alone[0], alone=True)
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
        """Numbers may be wrong as well: they are asked for by themselves."""
        found = self.found
        outcome, departing, _ = self._judged(
            self.ask.compile("the whole graph, for its numbers", "whole", {"check": "numbers"})
        )
        if outcome.signature is not None and outcome.signature.kind in NUMBERS:
            found.sort, self.signature = outcome.signature.kind, outcome.signature
            self._numbers(departing)
        else:
            found.status = "metadata"

    def _name_nan(self, outcome: Outcome) -> None:
        if not outcome.eager_nan and not (outcome.signature and outcome.signature.kind == "nan"):
            return
        self.found.nan_origins = [
            {**one, "line": self.ask.row(one["node"]).get("line", "")} for one in self.ask.prepared["nan"]
        ]

    def _at(self, names: list[str]) -> None:
        found = self.found
        found.status, found.node = "found", self.ask.node(names[0])
        found.others = names[1:6]
        found.detail = "named by the compiler's own exception"
        self._finish()

    # Wrong numbers.

    def _numbers(self, departing: list[dict[str, Any]]) -> None:
        found = self.found
        try:
            if self._by_values():
                return self._finish()
        except Spent:
            pass
        if found.node is not None:
            return self._finish()
        self._by_cuts(departing)
        return self._finish()

    def _by_values(self) -> bool:
        """One compile that returns every value, and the confirmation of what departs in it."""
        taps = self._taps()
        wrong = self.ask.part("with every value returned", None, taps) if taps else None
        if wrong is None:
            return False
        self.found.others = [one["name"] for one in wrong]
        for one in wrong[:CONFIRMED]:
            atom = self.ask.atoms["of_node"][one["name"]]
            if alone := self.ask.part(f"{one['name']} alone", [atom], None):
                self._name(one["name"], alone[0], alone=True)
                return True
            near = sorted({atom, *self.ask.parents(atom), *self.ask.children(atom)})
            if fused := self.ask.part(f"{one['name']} with its neighbours", near, None):
                self._name(
                    one["name"], one if all(it["name"] != one["name"] for it in fused) else fused[0], alone=False
                )
                self.found.group = self._nodes([it for it in near if it != atom])
                return True
        self._name(wrong[0]["name"], wrong[0], alone=False)
        self.found.notes.append(
            "it departs when the whole graph is compiled with every value returned; a part of it was right"
        )
        return True

    def _taps(self) -> list[str]:
        """The nodes whose values one compile can return; none where that would be too much memory."""
        size = sum(row["bytes"] for row in self.ask.rows)
        if size > TAP_BYTES:
            self.found.notes.append(f"values of {size_text(size)} are not all returned from one compile")
            return []
        return [row["name"] for row in self.ask.rows if row["tap"]]

    def _by_cuts(self, departing: list[dict[str, Any]]) -> None:
        """No value is wrong as soon as all are returned: a pass or a fusion, searched by cuts."""
        region = self._region(departing)
        narrowing = self._narrowed(region, self._wrong_atoms)
        found = self.found
        if not narrowing.wrong:
            found.status = "unresolved"
            found.detail = (
                "every value is right on the values that it was given, so the error is rounding that later "
                "nodes amplify, or "
                "is made only where the whole graph is compiled as one"
            )
            return
        last = narrowing.wrong[0]
        self._name(self.first_wrong["name"], self.first_wrong, alone=len(narrowing.window) == 1)
        found.group = self._nodes([it for it in narrowing.window if it != last])

    def _narrowed(self, atoms: Iterable[int], ask: Ask) -> Narrowing:
        narrowing = Narrowing(atoms, ask, self.ask.ancestors, self.ask.descendants)
        if not narrowing.run() and narrowing.wrong:
            self.found.notes.append("the compiles ran out before the smallest stretch was found")
        return narrowing

    def _region(self, departing: list[dict[str, Any]]) -> list[int]:
        """What the first wrong output depends on, not beyond right outputs, if that fails by itself; else
        everything."""
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
            self.ask.atoms["of_node"][one["name"]] for one in wrong if one["name"] in self.ask.atoms["of_node"]
        ] or None

    def _finish(self, *, work_around: bool = True) -> None:
        found = self.found
        if found.node is None:
            return
        found.status = "found"
        found.others = [name for name in dict.fromkeys(found.others) if name != found.node.name][:20]
        found.forward = forward_partner(self.ask.saved, found.node.name)
        if not found.node.line and found.forward is not None:
            found.node.line = found.forward.line
        row = self.ask.row(found.node.name)
        alone = found.alone or found.sort not in NUMBERS
        if work_around and alone and found.rung == "inductor" and row["overload"] and found.compiles < found.budget:
            answer = self.ask.compile(
                f"the whole graph with {row['target']} left to eager's kernel",
                "part",
                {"atoms": None, "returned": None, "fallback": [row["target"]]},
            )
            value: dict[str, Any] = answer.value if answer.status == "done" else {}
            if value and not value["departures"] and value["signature"] is None and not value.get("invalid"):
                self.workaround = fallback_code([row["target"]])
                line = f"torch._inductor.lowering.make_fallback(torch.ops.{row['target']}, override_decomp=True)"
                found.work_around = f"{line} before compiling leaves it to eager's kernel"

    def _nodes(self, atoms: list[int]) -> list[NodeFound]:
        """The first node of each atom; what only returns an input has none."""
        return [self.ask.node(nodes[0]) for atom in atoms if (nodes := self.ask.atoms["nodes"][atom])]

    def _name(self, name: str, departure: dict[str, Any], *, alone: bool) -> None:
        found = self.found
        found.node, found.alone = self.ask.node(self.ask.producer(name)), alone
        found.error, found.detail = departure["error"], departure["text"]

    # Crashes without a node, signals, hangs.

    def _cuts_by_signature(self) -> None:
        found = self.found

        def ask(keep: list[int]) -> list[int] | None:
            answer = self.ask.compile(f"nodes {self.ask.span(keep)}", "part", {"atoms": keep, "returned": None})
            seen = from_answer(answer)
            same = seen is not None and self.signature is not None and seen.same_as(self.signature)
            return [keep[-1]] if same else None

        narrowing = self._narrowed(range(len(self.ask.atoms["nodes"])), ask)
        if not narrowing.wrong:
            found.detail = "no part of the graph fails in the same way"
            return
        last = narrowing.window[-1]
        found.status, found.node = "found", self.ask.node(self.ask.atoms["nodes"][last][0])
        found.alone = len(narrowing.window) == 1
        found.group = self._nodes(narrowing.window[:-1])
        self._finish()


def by_node(saved: SavedGraph, server: ForkServer, rung: str, how: How, check: str, clock: Clock, tell: Tell) -> ByNode:
    """Searches one saved graph under a rung; of a graph from before AOTAutograd first the graphs made of it.

    `tell` is called with a line of progress for each compile. Raises GraphdbgError for a graph that cannot be loaded,
    OutOfTime.
    """
    with ExitStack() as stack:

        def search(graph: SavedGraph, spent: int) -> ByNode:
            work = stack.enter_context(temporary.folder("graphdbg-bisect-"))
            return Search(NodeBlame(graph, server, work, rung, how, check, tell, clock, spent)).run()

        family = siblings(saved)
        spent = 0
        for graph in family:
            tell(f"looking at {graph.id}, made of {saved.id}")
            found = search(graph, spent)
            if found.fails:
                looked = "found" if found.node is not None else "by node only searched"
                found.notes.append(f"{looked} in {graph.id}, which was made of {saved.id}")
                return found
            spent = found.compiles
        found = search(saved, spent)
    if family and found.fails:
        names = " and ".join(graph.id for graph in family)
        each = "is right in itself" if len(family) == 1 else "are right in themselves"
        found.between = (
            f"{names} {each}: the fault lies between, in a decomposition, a joint-graph pass or the partitioner."
        )
        found.notes.append(f"{spent} of the compiles were for {names}")
    return found
