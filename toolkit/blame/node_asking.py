"""One graph that is searched by node: its atoms and node rows, and the compiles that children run, counted and bounded.

Every compile costs one of at most 2 log2(n) + 4; running the graph eagerly once costs none. Does not decide what a
finding is.

For example:

    asking.part("mul_31 alone", [311], None)
    # [{'name': 'mul_31', 'kind': 'accuracy', 'error': 0.03, 'text': '...'}]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from ...dumps.errors import EnvironmentLackError
from ...dumps.store import SavedGraph
from ..isolation import TaskResult, ask
from ..replaying.replay import outcome_of
from ..verdicts.signature import how_ended
from .bisect_asking import BisectQuestions
from .bisect_narrowing import last_needed
from .partners import ByNode, NodeFound

Ask = Callable[[list[int]], "list[int] | None"]
"""Compiles the given atoms together and returns those whose values are wrong, in order; None where all are right."""

NEAR = 8
"""The first guess is that this many atoms before the wrong value are enough."""


class Spent(Exception):
    """No compile is left."""


class Narrowing:
    """A search for a small failing part. `window`: the smallest part known to fail so far; `wrong`: the atoms whose
    values were wrong in it."""

    def __init__(
        self,
        atoms: Iterable[int],
        ask: Ask,
        ancestors: Callable[[int], Collection[int]],
        descendants: Callable[[int], Collection[int]],
    ) -> None:
        self.window = list(atoms)
        self.wrong: list[int] = []
        self._ask, self._ancestors, self._descendants = ask, ancestors, descendants

    def run(self) -> bool:
        """The whole search; False where compiles ran out before its end."""
        try:
            self.beginning()
            self.start()
            self.path()
        except Spent:
            return False
        return True

    def beginning(self) -> None:
        """Finds the shortest failing prefix of the window, and keeps of its atoms those that the wrong value depends
        on."""
        needed = last_needed(len(self.window), lambda first: "same" if self._fails(self.window[:first]) else "gone")
        self._keep(self.window[: needed.high])

    def start(self) -> None:
        """Finds the latest start that still fails; whatever fails is cut down to what its wrong value depends on."""
        right: int | None = None  # from this atom on nothing is wrong
        guess = len(self.window) > 2 * NEAR
        while starts := [atom for atom in self.window[1:] if right is None or atom < right]:
            first = starts[max(0, len(starts) - NEAR)] if guess else starts[len(starts) // 2]
            guess = False
            cut = [atom for atom in self.window if atom >= first]
            if self._fails(cut):
                self._keep(cut)
            else:
                right = first

    def path(self) -> None:
        """Drops what does not lie between the first atom of the window and the wrong value, if the failure survives
        that."""
        if len(self.window) < 3 or not self.wrong:
            return
        first, last = self.window[0], self.wrong[0]
        below, above = {first, *self._descendants(first)}, {last, *self._ancestors(last)}
        between = [atom for atom in self.window if atom in below and atom in above]
        if len(between) < len(self.window) and self._fails(between):
            self.window = between

    def _keep(self, window: list[int]) -> None:
        if self.wrong:
            above = {self.wrong[0], *self._ancestors(self.wrong[0])}
            window = [atom for atom in window if atom in above]
        self.window = window

    def _fails(self, atoms: list[int]) -> bool:
        wrong = self._ask(atoms)
        if wrong is None:
            return False
        self.wrong = wrong
        return True


TASKS = f"{__package__}.node_tasks"
NUMBERS = ("accuracy", "nan")


class NodeBlame:
    """One graph, how children are asked, and the record that is being filled. `spent`: compiles that related graphs
    have used already."""

    def __init__(self, saved: SavedGraph, asking: BisectQuestions, work: Path, spent: int = 0) -> None:
        self.saved, self.asking = saved, asking
        judged = {"rung": asking.rung, "check": asking.check, "work": str(work)}
        self.payload = asking.how.payload(saved) | judged
        operations = sum(node.op.startswith("call_") for node in saved.record.graph.nodes)
        budget = math.floor(2 * math.log2(max(2, operations)) + 4)
        self.found = ByNode(saved.id, asking.rung, compiles=spent, nodes=operations, budget=budget)

    def part(self, what: str, keep: list[int] | None, returned: list[str] | None) -> list[dict[str, Any]] | None:
        """Compiles a part and returns its wrong values, NaN before numbers; None where all is right or it failed in
        another way."""
        answer = self.compile(what, "part", {"atoms": keep, "returned": returned})
        value: dict[str, Any] = answer.value if answer.status == "done" else {}
        if answer.status != "done" or value["signature"] is not None or value.get("invalid"):
            why = (value.get("invalid") or how_ended(answer)).splitlines()[0]
            self.asking.narrate(f"  stepped around: {why}")
            self.found.notes.append(f"{what}: failed in another way and was stepped around ({why[:200]})")
            return None
        wrong = [departure for departure in value["departures"] if departure["kind"] in NUMBERS]
        names = ", ".join(departure["name"] for departure in wrong[:4])
        self.asking.narrate(f"  {f'wrong: {names}' if wrong else 'right'}")
        return wrong or None

    def compile(self, what: str, task: str, more: dict[str, Any]) -> TaskResult:
        findings = self.found
        if findings.compiles >= findings.budget and task != "whole":  # the whole graph is compiled in any case
            raise Spent
        self.asking.clock.check()
        findings.compiles += 1
        self.asking.narrate(f"compile {findings.compiles} of at most {findings.budget}: {what}")
        return self._ask(task, more)

    def _ask(self, task: str, more: dict[str, Any]) -> TaskResult:
        limit_s, server = self.asking.how.limit_s, self.asking.server
        return ask(f"{TASKS}:{task}", {**self.payload, **more}, limit_s, server=server).end()

    @cached_property
    def prepared(self) -> dict[str, Any]:
        """Atoms and node rows, from an eager run in a child that leaves its values in the work folder."""
        answer = self._ask("prepare", {})
        if answer.status != "done":
            why = outcome_of(answer, "eager").text
            raise EnvironmentLackError(f"cannot keep the values of {self.saved.id}", why, "see graphdbg doctor")
        return answer.value

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each node."""
        return self.prepared["nodes"]

    @property
    def atoms(self) -> dict[str, Any]:
        """The atoms in their JSON form."""
        return self.prepared["atoms"]

    @cached_property
    def by_name(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.rows}

    def row(self, name: str) -> dict[str, Any]:
        return self.by_name.get(name, {})

    def node(self, name: str) -> NodeFound:
        row = self.row(name)
        return NodeFound(name, row.get("target", ""), row.get("line", ""))

    def producer(self, name: str) -> str:
        """The operator whose tuple a getitem takes from; any other node itself."""
        row = self.row(name)
        return row["inputs"][0] if row.get("target") == "getitem" and row["inputs"] else name

    def parents(self, atom: int) -> list[int]:
        return self.atoms["parents"][atom]

    def children(self, atom: int) -> list[int]:
        return [other for other, parents in enumerate(self.atoms["parents"]) if atom in parents]

    def ancestors(self, atom: int, stop: Collection[int] = ()) -> set[int]:
        reached: set[int] = set()
        waiting = list(self.parents(atom))
        while waiting:
            current = waiting.pop()
            if current not in reached and current not in stop:
                reached.add(current)
                waiting += self.parents(current)
        return reached

    def descendants(self, atom: int) -> set[int]:
        reached: set[int] = set()
        for other, parents in enumerate(self.atoms["parents"]):
            if atom in parents or reached.intersection(parents):
                reached.add(other)
        return reached

    def span(self, keep: list[int]) -> str:
        names = [self.atoms["nodes"][atom][0] for atom in (keep[0], keep[-1]) if self.atoms["nodes"][atom]]
        return f"{' to '.join(dict.fromkeys(names))} ({len(keep)})"
