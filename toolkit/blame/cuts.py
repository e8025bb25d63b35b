"""The search by cuts: which stretch of a graph must be compiled together for its result to be wrong? Knows nothing of
torch.

First the shortest failing beginning [0, b), by bisection; then, within it, the latest start a for which [a, b) fed with
eager's values still fails. The second search is sound where the first is not: a start after the fault leaves nothing
wrong in, and the way from the fault to b is the same for every start before it, so a value that is damped somewhere and
shows again later misleads only about b, never about a. Between the two everything that the wrong value does not depend
on is dropped. Each question is a compile; `ask` raises Spent when there are no more, and what was found so far stands.

For example:

    narrowing = Narrowing(range(600), ask, ancestors)
    narrowing.run(); narrowing.window  # -> [311, 312]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

Ask = Callable[[list[int]], "list[int] | None"]
"""Compiles these atoms together: the atoms whose values are wrong, in order; None where none is."""

NEAR = 8
"""The first guess is that this many atoms before the wrong value are enough."""


class Spent(Exception):
    """No compile is left."""


class Narrowing:
    """One search; `window` fails as far as is known, `wrong` are the atoms whose values were wrong in it."""

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
        """Finds the shortest failing beginning, and keeps of it what the wrong value depends on."""
        low, high = 0, len(self.window)
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(self.window[:middle]):
                high = middle
            else:
                low = middle
        self._keep(self.window[:high])

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
