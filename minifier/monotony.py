"""Whether a failure is monotone, and what then need not be asked: a part of what passed passes, too.

Most failures are: what needs atoms a and b fails wherever both are. So every part of a candidate that passed is known
to pass, and a search may propose it at no cost. One failing part of a candidate that passed ends the belief. Only PASS
counts: another failure, an invalid candidate or a time limit may hide this one. Must not ask or count anything.

>>> known = Monotony()
>>> known.learn(Candidate.of([1, 2, 3]), Ruling.PASS)
>>> known.implies(Candidate.of([1, 3])), known.implies(Candidate.of([1, 4]))
(True, False)
>>> known.learn(Candidate.of([1]), Ruling.SAME) == Candidate.of([1, 2, 3])
True
"""

from __future__ import annotations

from .search.problem import Candidate, Ruling


class Monotony:
    """The sets of atoms that failed and that did not, apart for each way in which candidates were changed otherwise."""

    def __init__(self) -> None:
        self._failing: list[frozenset[int]] = []
        self.forget()

    def forget(self) -> None:
        """What passed was not sure, and is not believed any more."""
        self._believed = True
        self._largest: dict[tuple[object, ...], list[frozenset[int]]] = {}
        self._passing: list[frozenset[int]] = []

    def implies(self, candidate: Candidate) -> bool:
        """Whether the candidate must pass."""
        return self._believed and any(candidate.keep <= passed for passed in self._alike(candidate))

    def learn(self, candidate: Candidate, verdict: Ruling) -> Candidate | None:
        """Takes in one answer; returns the candidate that did not fail although a part of it does, or None (also of one
        that was changed otherwise)."""
        alike = self._alike(candidate)
        if verdict.accepted:
            self._believed = self._believed and not any(candidate.keep <= passed for passed in alike)
        elif verdict is Ruling.PASS:
            alike[:] = [*(passed for passed in alike if not passed <= candidate.keep), candidate.keep]
        if candidate.bypass or candidate.edits or candidate.returned is not None:
            return None
        if verdict.accepted:
            self._failing.append(candidate.keep)
            return next((candidate.keeping(passing) for passing in self._passing if candidate.keep < passing), None)
        self._passing.append(candidate.keep)
        return candidate if any(failing < candidate.keep for failing in self._failing) else None

    def _alike(self, candidate: Candidate) -> list[frozenset[int]]:
        return self._largest.setdefault((candidate.bypass, candidate.returned, candidate.edits), [])
