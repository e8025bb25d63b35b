"""What need not be asked: a part of what passed passes, too, while the failure is monotone.

Most failures are: what needs atoms a and b fails wherever both are. So every part of a candidate that passed is known to pass,
and a search may propose it at no cost. One failing part of a candidate that passed ends the belief. Only PASS counts: another
failure, an invalid candidate or a time limit may hide this one. Must not ask or count anything.

>>> passed = Passed()
>>> passed.learn(Candidate.of([1, 2, 3]), Verdict.PASS)
>>> passed.implies(Candidate.of([1, 3])), passed.implies(Candidate.of([1, 4]))
(True, False)
"""

from __future__ import annotations

from .problem import Candidate, Verdict


class Passed:
    """The largest sets of atoms that passed, apart for each way in which candidates were changed otherwise."""

    def __init__(self) -> None:
        self.believed = True
        self._largest: dict[tuple[object, ...], list[frozenset[int]]] = {}

    def implies(self, candidate: Candidate) -> bool:
        """Whether the candidate must pass."""
        return self.believed and any(candidate.keep <= passed for passed in self._alike(candidate))

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Takes in one answer."""
        alike = self._alike(candidate)
        if verdict.accepted:
            self.believed = self.believed and not any(candidate.keep <= passed for passed in alike)
        elif verdict is Verdict.PASS:
            alike[:] = [*(passed for passed in alike if not passed <= candidate.keep), candidate.keep]

    def forget(self) -> None:
        """Starts anew: what passed was not sure."""
        self.__init__()

    def _alike(self, candidate: Candidate) -> list[frozenset[int]]:
        return self._largest.setdefault((candidate.bypass, candidate.returned, candidate.edits), [])
