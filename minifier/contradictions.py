"""Whether what was answered is monotone: a case that passes although a part of it fails contradicts it.

>>> seen = Contradictions()
>>> seen.learn(Candidate.of([1]), Verdict.SAME), seen.learn(Candidate.of([1, 2]), Verdict.PASS) == Candidate.of([1, 2])
(None, True)
"""

from __future__ import annotations

from .problem import Candidate, Verdict


class Contradictions:
    """The sets of atoms that failed and that did not, as far as they were asked without other edits."""

    def __init__(self) -> None:
        self._failing: list[frozenset[int]] = []
        self._passing: list[frozenset[int]] = []

    def learn(self, candidate: Candidate, verdict: Verdict) -> Candidate | None:
        """Takes in one answer; returns the candidate that did not fail although a part of it does, or None."""
        if candidate.bypass or candidate.edits or candidate.returned is not None:
            return None
        if verdict.accepted:
            self._failing.append(candidate.keep)
            contradicting = next((passing for passing in self._passing if candidate.keep < passing), None)
        else:
            self._passing.append(candidate.keep)
            contradicting = candidate.keep if any(failing < candidate.keep for failing in self._failing) else None
        return None if contradicting is None else candidate.keeping(contradicting)

    def forget_passes(self) -> None:
        """What passed is not believed any more."""
        self._passing.clear()
